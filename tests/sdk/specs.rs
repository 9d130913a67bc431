//! Whether what the server says is what vendors publish of their APIs: OpenAI's and Anthropic's own descriptions, and the
//! types of Open Responses. Each departure stands here with its reason.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{calls_calculator, python_program, with};
use crate::support::{Reply, TestServer, Upstream, within};

/// What is not as published: by whom, what is told at last, and why it is so.
const DEPARTURES: [(&str, &str, &str); 10] = [
    (
        "anthropic",
        "'citations' is a required property",
        "nothing is cited, and the AI SDK refuses blocks whose `citations` are null",
    ),
    ("anthropic", "'context_management' is a required property", "a beta's, which the clients read as left out"),
    ("anthropic", "'diagnostics' is a required property", "a beta's, which the clients read as left out"),
    ("anthropic", "'estimated_tokens' is a required property", "a beta's, which the clients read as left out"),
    ("anthropic", "'iterations' is a required property", "a beta's, which the clients read as left out"),
    ("anthropic", "'output_tokens_details' is a required property", "upstreams do not tell it in every dialect"),
    ("anthropic", "'speed' is a required property", "a beta's, which the clients read as left out"),
    ("anthropic", "message_delta: .usage: 'server_tool_use' is a required property", "none of Anthropic's tools ran"),
    ("openai", "is null", "OpenAI itself says null where a request named none, and before the usage is known"),
    ("open responses", "is an extension", "OpenAI has forms for what a server's tools do, and Open Responses has none"),
];

/// What is asked through each API, and what the model says to it.
fn asked() -> Vec<(&'static str, Value, Vec<Reply>)> {
    let weather = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let function = json!({"name": "get_weather", "description": "Tells the weather.", "parameters": weather});
    let calls_weather = || vec![Reply::calls("get_weather", &json!({"city": "Oslo"}))];
    let thinks = || Reply::stream().reasoning("Hm.").text("It is 42.").finish("stop").usage(10, 5).done();
    let limited = json!({"agent": {"limits": {"max_iterations": 1}}});
    let gated = json!({"tools": [{"type": "mcp", "server_label": "loopgate", "require_approval": "always"}]});
    let tools = |api: &str| match api {
        "chat" => json!({"tools": [{"type": "function", "function": function}]}),
        "responses" => json!({"tools": [with(json!({"type": "function", "strict": true}), &function)]}),
        _ => json!({"tools": [{"name": "get_weather", "input_schema": weather}]}),
    };
    let mut asked = Vec::new();
    for api in ["chat", "responses", "messages"] {
        asked.extend([
            (api, json!({}), vec![Reply::says("Hello")]),
            (api, json!({}), vec![calls_calculator(), thinks()]),
            (api, tools(api), calls_weather()),
            (api, limited.clone(), vec![calls_calculator()]),
            (api, json!({}), vec![calls_calculator(), Reply::error(400, "bad", "No such thing.")]),
        ]);
    }
    asked.push(("responses", gated, vec![calls_calculator()]));
    asked
}

/// Writes what the server answers, streamed and whole, into files of this directory.
async fn record(directory: &Path) {
    for (number, (api, more, replies)) in asked().into_iter().enumerate() {
        for (streamed, extension) in [(true, "sse"), (false, "json")] {
            let upstream = Upstream::start(replies.clone()).await;
            let server = TestServer::start(&upstream.config()).await;
            let (path, body) = match api {
                "chat" => ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "Hi"}]})),
                "responses" => ("/v1/responses", json!({"input": "Hi"})),
                _ => ("/v1/messages", json!({"max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]})),
            };
            let body = with(with(body, &json!({"model": "test", "stream": streamed})), &more);
            let answer = within("an answer", server.respond(server.json(path, &body))).await;
            let is_error = !answer.status().is_success();
            let text = within("the answer", answer.text()).await.expect("it is whole");
            // What an error looks like that is no stream, the clients are tested with.
            if !is_error {
                fs::write(directory.join(format!("{api}.{number}.{extension}")), text).expect("it can be written");
            }
        }
    }
}

#[tokio::test]
async fn what_is_said_is_what_vendors_publish() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    record(directory.path()).await;
    let mut command = python_program("specs.py");
    let judged = within("the judgement", command.arg(directory.path()).kill_on_drop(true).output()).await;
    let judged = judged.expect("the interpreter starts");
    let (said, complaint) = (String::from_utf8_lossy(&judged.stdout), String::from_utf8_lossy(&judged.stderr));
    assert!(judged.status.success(), "{said}{complaint}");
    let is_known = |line: &str, (whose, what, _): &(&str, &str, &str)| line.starts_with(whose) && line.ends_with(what);
    let new: Vec<_> = said.lines().filter(|line| !DEPARTURES.iter().any(|known| is_known(line, known))).collect();
    assert!(new.is_empty(), "not as published:\n{}", new.join("\n"));
    let gone: Vec<_> = DEPARTURES.iter().filter(|known| !said.lines().any(|line| is_known(line, known))).collect();
    assert!(gone.is_empty(), "as published now: {gone:#?}");
}

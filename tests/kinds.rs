//! One conversation, and upstreams of every kind.

use serde_json::{Value, json};

use crate::support::{Anthropic, Gate, Gemini, Reply, Responses, TestServer, Upstream, within};

const PNG: &str = "iVBORw0KGgo=";
const ENDPOINT: &str = "/v1/agent/completions";
const CLAUDE: &str = "claude/claude-sonnet-4-5";
const GEMINI: &str = "google/gemini-3-flash";

/// The texts that stand anywhere in a request, in their order.
fn texts(body: &Value) -> Vec<&str> {
    match body {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Text, pictures, calls and results go everywhere and back. Thinking goes back only to the model that sealed it, and
/// waits in the session while others are asked.
#[tokio::test]
async fn a_conversation_goes_through_all_kinds_and_back_and_loses_nothing() {
    let claude = Anthropic::start([
        Reply::anthropic()
            .thinking_block(0, "claude thinks", "EqQB")
            .tool_block(1, "calculator", &json!({"expression": "6 * 7"}))
            .stop("tool_use"),
        Reply::anthropic().text_block(0, "It is 42.").stop("end_turn"),
        Reply::anthropic().text_block(0, "Bye from claude").stop("end_turn"),
    ])
    .await;
    let respond = Responses::start([
        Reply::responses()
            .reasoning_item(0, "gpt thinks", "gAAA==")
            .call_item(1, "calculator", &json!({"expression": "42 + 1"}))
            .complete(),
        Reply::responses().text_item(0, "It is 43.").complete(),
        Reply::responses().text_item(0, "Bye from gpt").complete(),
    ])
    .await;
    let openai = Upstream::start([
        Reply::calls("calculator", &json!({"expression": "43 + 1"})),
        Reply::says("It is 44."),
        Reply::says("Bye from openai"),
    ])
    .await;
    let google = Gemini::start([
        Reply::gemini()
            .part(&json!({"text": "gemini thinks", "thought": true}))
            .call_part("calculator", &json!({"expression": "44 + 1"}), Some("Cg=="))
            .gemini_end("STOP"),
        Reply::gemini().text_part("It is 45.").gemini_end("STOP"),
        Reply::gemini().text_part("Bye from gemini").gemini_end("STOP"),
    ])
    .await;
    let config = [claude.config(), respond.config(), openai.config(), google.config()].concat();
    let server = TestServer::start(&config).await;
    let picture = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}});
    let models = ["claude/claude-sonnet-4-5", "respond/gpt-5", "scripted/test", "google/gemini-3-flash"];
    for (index, model) in models.iter().chain(&models).enumerate() {
        let content = json!([{"type": "text", "text": format!("question {index}")}, picture]);
        let messages = json!([{"role": "user", "content": content}]);
        let request = json!({"model": model, "messages": messages, "agent": {"session_id": "s"}});
        server.post("/v1/agent/completions", &request).await.ok();
    }

    let last = [claude.requests(), respond.requests(), openai.requests(), google.requests()].map(|mut all| all.pop());
    // What was said before each kind was asked for the last time.
    for (kind, (body, asked)) in last.iter().zip([5, 6, 7, 8]).enumerate() {
        let body = body.as_ref().expect("each was asked");
        let found = texts(body);
        let said = [
            "It is 42.",
            "It is 43.",
            "It is 44.",
            "It is 45.",
            "question 0",
            "question 1",
            "question 2",
            "question 3",
            "question 4",
            "42",
            "43",
            "44",
            "45",
        ];
        for text in said {
            assert_eq!(found.iter().filter(|found| **found == text).count(), 1, "{text} for {kind}: {body}");
        }
        for expression in ["6 * 7", "42 + 1", "43 + 1", "44 + 1"] {
            assert!(found.iter().any(|text| text.contains(expression)), "{expression} for {kind}: {body}");
        }
        assert_eq!(found.iter().filter(|text| text.contains(PNG)).count(), asked, "pictures for {kind}: {body}");
        for (author, seal) in [(0, "EqQB"), (1, "gAAA=="), (3, "Cg==")] {
            let seen = found.contains(&seal);
            assert_eq!(seen, author == kind, "only the model that sealed its thinking sees it: {body}");
        }
    }
}

fn sound() -> Value {
    json!({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}})
}

fn asks(model: &str, content: &Value, more: &Value) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": content}], "agent": more})
}

/// A message of the session was fit for the model that it was sent to. For another one it would have to be left out.
#[tokio::test]
async fn a_session_with_a_part_that_another_model_does_not_take_goes_on_with_one_that_does() {
    let google = Gemini::start([
        Reply::gemini().text_part("I hear").gemini_end("STOP"),
        Reply::gemini().text_part("I heard").gemini_end("STOP"),
        Reply::gemini().call_part("look", &json!({}), Some("Cg==")).gemini_end("STOP"),
    ])
    .await;
    let claude = Anthropic::start([]).await;
    let server = TestServer::start(&format!("{}{}", google.config(), claude.config())).await;
    let session = json!({"session_id": "s"});
    let heard = json!([{"type": "text", "text": "What is it?"}, sound()]);
    server.post(ENDPOINT, &asks(GEMINI, &json!("Hi"), &json!({}))).await.ok();
    server.post(ENDPOINT, &asks(GEMINI, &heard, &session)).await.ok();
    let refused = server.post(ENDPOINT, &asks(CLAUDE, &json!("And now?"), &session)).await;
    let error = &refused.body["error"];
    assert_eq!((refused.status, &error["param"]), (400, &json!("agent.session_id")), "{}", refused.body);
    let message = error["message"].as_str().unwrap_or_default();
    for words in ["the upstream claude", "takes no sound", "messages[0].content[1] of the session"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert!(claude.requests().is_empty());

    // Nor does a request that is refused end a run that waits for its client.
    let mut waiting = asks(GEMINI, &json!("Look"), &session);
    waiting["tools"] = json!([{"type": "function", "function": {"name": "look"}}]);
    let waiting = server.post(ENDPOINT, &waiting).await.ok();
    assert_eq!(server.post(ENDPOINT, &asks(CLAUDE, &json!("And now?"), &session)).await.status, 400);
    let run = format!("/v1/runs/{}", waiting["agent"]["run_id"].as_str().expect("it has an id"));
    assert_eq!(server.get(&run).await.ok()["status"], "requires_action");
}

/// A run may be sent messages while it is live, and its client answers it in the middle.
#[tokio::test]
async fn parts_that_join_a_run_are_refused_as_those_that_begin_it_are() {
    let gate = Gate::new();
    let claude = Anthropic::start([
        Reply::anthropic().gate(&gate).tool_block(0, "look", &json!({})).stop("tool_use"),
        Reply::anthropic().text_block(0, "Done").stop("end_turn"),
    ])
    .await;
    let server = TestServer::start(&claude.config()).await;
    let mut first = asks(CLAUDE, &json!("Hi"), &json!({"background": true}));
    first["tools"] = json!([{"type": "function", "function": {"name": "look"}}]);
    let run = server.post(ENDPOINT, &first).await.ok()["id"].as_str().expect("it has an id").to_owned();
    gate.reached().await;
    let heard = json!({"role": "user", "content": [sound()]});
    let said = json!({"role": "user", "content": "Hurry"});
    let path = format!("/v1/runs/{run}/messages");
    let refused = server.post(&path, &json!({"messages": [said, heard]})).await;
    let param = &refused.body["error"]["param"];
    assert_eq!((refused.status, param), (400, &json!("messages[1].content[0]")), "{}", refused.body);
    assert_eq!(server.post(&path, &json!({"messages": [said]})).await.status, 202);
    gate.open();

    let waiting = within("the run to wait", async {
        loop {
            let object = server.get(&format!("/v1/runs/{run}")).await.ok();
            if object["status"] == "requires_action" {
                break object;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let call = waiting["agent"]["required_action"]["calls"][0]["call_id"].clone();
    let result = json!({"role": "tool", "tool_call_id": call, "content": "seen"});
    let answer = |messages: Value| json!({"model": CLAUDE, "messages": messages, "agent": {"run_id": run}});
    let refused = server.post(ENDPOINT, &answer(json!([result, heard]))).await;
    let param = &refused.body["error"]["param"];
    assert_eq!((refused.status, param), (400, &json!("messages[1].content[0]")), "{}", refused.body);
    let answered = server.post(ENDPOINT, &answer(json!([result]))).await.ok();
    assert_eq!(answered["choices"][0]["message"]["content"], "Done");
    assert_eq!(claude.requests().len(), 2);
}

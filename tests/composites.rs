//! Agents that are made of others, at the door: every dialect, what goes wrong in them, sessions, limits and permissions.

mod refused;

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::http::{HttpServer, Request};
use crate::support::sse::{Frame, SseReader, read_to, text_of};
use crate::support::upstream::{asked, declaration, is_list};
use crate::support::{Answer, Reply, TestServer, within};

const CHAT: &str = "/v1/chat/completions";
const AGENT: &str = "/v1/agent/completions";

const AGENTS: &str = r#"
    [agents.default]
    tools = []

    [agents.writer]
    model = "scripted/test"
    system = "You are writer."

    [agents.editor]
    model = "scripted/test"
    system = "You are editor."

    [agents.broken]
    model = "scripted/test"
    system = "You are broken."

    [agents.slow]
    model = "scripted/test"
    system = "You are slow."

    [agents.judge]
    model = "scripted/test"
    system = "You are judge."

    [agents.review]
    description = "Writes and edits."
    chain = ["writer", "editor"]

    [agents.breaks]
    chain = ["broken", "editor"]

    [agents.panel]
    parallel = ["writer", "broken", "editor"]
    consolidate = "judge"

    [agents.voices]
    parallel = ["writer", "editor"]

    [agents.all_break]
    parallel = ["broken", "broken"]
    consolidate = "judge"

    [agents.waits]
    parallel = ["slow", "slow"]

    [agents.nested]
    chain = ["review", "judge"]
"#;

/// The text of a message.
fn content(message: &Value) -> String {
    if let Some(text) = message["content"].as_str() {
        return text.to_owned();
    }
    message["content"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect()
}

/// Each agent says who it is, and the last line of each message that it has not seen before the last one it said.
fn play(request: &Request) -> Reply {
    let body = match asked(request) {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let system = content(&messages[0]);
    let name = system.split("You are ").nth(1).and_then(|rest| rest.split('.').next()).unwrap_or("?").to_owned();
    let new = messages.iter().rev().take_while(|message| message["role"] == "user");
    let mut heard: Vec<String> = new.map(|message| content(message).lines().last().unwrap_or("").to_owned()).collect();
    heard.reverse();
    match name.as_str() {
        "broken" => Reply::error(400, "invalid_request_error", "it is broken"),
        "slow" => Reply::stream().pause(Duration::from_secs(600)).text("late").finish("stop").done(),
        _ => Reply::stream().text(&format!("{name}<{}>", heard.join("|"))).finish("stop").usage(20, 10).done(),
    }
}

async fn stage(more: &str) -> (HttpServer, TestServer) {
    let model = HttpServer::start(|request| !is_list(request), play).await;
    let breaker = "[upstreams.scripted.breaker]\nenabled = false\n";
    let config = format!("{}{breaker}{AGENTS}{more}", declaration(model.address()));
    let server = TestServer::start(&config).await;
    (model, server)
}

fn ask(agent: &str) -> Value {
    json!({"model": agent, "messages": [{"role": "user", "content": "Go"}]})
}

/// What an error says.
fn message(refused: &Answer) -> String {
    refused.body["error"]["message"].as_str().unwrap_or_default().to_owned()
}

/// Who was asked, in order.
fn who(model: &HttpServer) -> Vec<String> {
    let system = |request: &Request| content(&request.json()["messages"][0]);
    model.requests().iter().map(|request| system(request).replace("You are ", "").replace('.', "")).collect()
}

#[tokio::test]
async fn a_chain_answers_in_every_dialect_streamed_and_plain_with_its_last_agents_answer_alone() {
    let (model, server) = stage("").await;
    let answer = "editor<Go|writer<Go>>";
    let plain = server.post(CHAT, &ask("review")).await.ok();
    assert_eq!(plain["choices"][0]["message"], json!({"role": "assistant", "content": answer, "refusal": null}));
    assert_eq!(plain["choices"][0]["finish_reason"], "stop");
    assert_eq!(plain["usage"]["total_tokens"], 60, "what its agents took: {plain}");
    assert_eq!(plain["model"], "review");
    let mut streamed = ask("review");
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let chunks = SseReader::of_chunks(server.respond(server.json(CHAT, &streamed)).await).rest().await;
    assert_eq!(text_of(&chunks), answer);
    let chunks: Vec<Value> = chunks.iter().filter(|frame| !frame.is_done()).map(Frame::json).collect();
    assert!(chunks.iter().all(|chunk| chunk["choices"][0]["delta"].get("tool_calls").is_none()), "{chunks:?}");
    assert_eq!(chunks.last().unwrap()["usage"]["total_tokens"], 60);
    let native = server.post(AGENT, &ask("review")).await.ok();
    assert_eq!(native["choices"][0]["message"]["content"], answer);
    assert_eq!((&native["agent"]["tree"]["runs"], &native["agent"]["iterations"]), (&json!(3), &json!(0)));
    let frames = server.stream(AGENT, &streamed).await.rest().await;
    let named = |name: &str| frames.iter().filter(|frame| frame.name == name).map(Frame::json).collect::<Vec<_>>();
    let agents: Vec<Value> = named("delegate.started").iter().map(|event| event["agent"].clone()).collect();
    assert_eq!(agents, [json!("writer"), json!("editor")]);
    assert!(named("delegate.completed").iter().all(|event| event["status"] == "completed"));
    assert_eq!(text_of(&frames), answer);
    let response = server.post("/v1/responses", &json!({"model": "review", "input": "Go"})).await.ok();
    let said: Vec<&Value> =
        response["output"].as_array().unwrap().iter().filter(|item| item["type"] == "message").collect();
    assert_eq!((said.len(), &said[0]["content"][0]["text"]), (1, &json!(answer)), "{response}");
    assert_eq!(response["usage"]["total_tokens"], 60);
    let body = json!({"model": "review", "input": "Go", "stream": true});
    let told = read_to(&mut server.respond(server.json("/v1/responses", &body)).await, "response.completed").await;
    assert!(told.contains(answer), "{told}");
    let mut body = json!({"max_tokens": 500});
    body.as_object_mut().unwrap().extend(ask("review").as_object().unwrap().clone());
    let message = server.post("/v1/messages", &body).await.ok();
    let texts: Vec<&Value> =
        message["content"].as_array().unwrap().iter().filter(|block| block["type"] == "text").collect();
    assert_eq!((texts.len(), &texts[0]["text"]), (1, &json!(answer)), "{message}");
    body["stream"] = json!(true);
    let told = read_to(&mut server.respond(server.json("/v1/messages", &body)).await, "message_stop").await;
    assert!(told.contains(answer), "{told}");
    assert_eq!(who(&model).len(), 16, "each of eight requests has each agent asked once");
    let models = server.get("/v1/models").await.ok();
    let ids: Vec<&str> = models["data"].as_array().unwrap().iter().filter_map(|model| model["id"].as_str()).collect();
    assert!(ids.contains(&"review") && ids.contains(&"panel"), "{ids:?}");
    let listed = server.get("/v1/agents").await.ok();
    let review = listed["data"].as_array().unwrap().iter().find(|agent| agent["id"] == "review").unwrap();
    assert_eq!(review["effective"]["chain"], json!(["writer", "editor"]), "{review}");
    assert!(review["effective"].get("model").is_none());
}

#[tokio::test]
async fn agents_in_parallel_are_asked_the_same_and_one_makes_an_answer_of_theirs_and_of_failures() {
    let (model, server) = stage("").await;
    let answer = server.post(AGENT, &ask("panel")).await.ok();
    let said = answer["choices"][0]["message"]["content"].as_str().unwrap();
    let parts: Vec<&str> = said.trim_start_matches("judge<").trim_end_matches('>').split('|').collect();
    assert_eq!((parts[0], parts[1], parts[3]), ("Go", "writer<Go>", "editor<Go"), "{said}");
    assert!(parts[2].contains("The agent \"broken\" failed"), "{said}");
    assert_eq!(answer["agent"]["tree"]["runs"], 5);
    let mut asked = who(&model);
    assert_eq!(asked.pop().as_deref(), Some("judge"), "it is asked last");
    let last = model.requests().last().unwrap().json();
    let told: Vec<String> = last["messages"].as_array().unwrap().iter().map(content).collect();
    assert!(told[3].starts_with("The agent \"broken\" has worked on this too, and failed:"), "{told:?}");
    let joined = server.post(CHAT, &ask("voices")).await.ok();
    assert_eq!(joined["choices"][0]["message"]["content"], "## writer\n\nwriter<Go>\n\n## editor\n\neditor<Go>");
}

#[tokio::test]
async fn a_chain_ends_at_its_first_failure_and_a_panel_if_all_have_failed() {
    let (model, server) = stage("").await;
    for (agent, asked) in [("breaks", 1), ("all_break", 2)] {
        let known = model.requests().len();
        let failed = server.post(CHAT, &ask(agent)).await;
        assert_eq!((failed.status, failed.code()), (500, "tool_error"), "{}", message(&failed));
        let says = format!("The agent {agent:?} has no answer.");
        assert!(
            message(&failed).contains(&says) && message(&failed).contains("\"broken\" failed"),
            "{}",
            message(&failed)
        );
        assert_eq!(model.requests().len() - known, asked, "no other agent is asked");
    }
}

#[tokio::test]
async fn a_session_has_what_was_asked_and_answered_and_later_agents_see_it() {
    let (model, server) = stage("").await;
    let mut body = ask("review");
    body["agent"] = json!({"session_id": "s-1"});
    server.post(AGENT, &body).await.ok();
    let kept = server.get("/v1/sessions/s-1/messages").await.ok();
    let roles: Vec<&Value> = kept["data"].as_array().unwrap().iter().map(|entry| &entry["message"]["role"]).collect();
    assert_eq!(roles, [&json!("user"), &json!("assistant")], "{kept}");
    body["messages"][0]["content"] = json!("More");
    let second = server.post(AGENT, &body).await.ok();
    assert_eq!(second["choices"][0]["message"]["content"], "editor<More|writer<More>>");
    let writer = &model.requests()[2].json()["messages"];
    let said: Vec<String> = writer.as_array().unwrap().iter().map(content).collect();
    assert_eq!(said, ["You are writer.", "Go", "editor<Go|writer<Go>>", "More"]);
    let mut plain = body.clone();
    plain["model"] = json!("judge");
    plain["messages"][0]["content"] = json!("End");
    let third = server.post(AGENT, &plain).await.ok();
    assert_eq!(third["choices"][0]["message"]["content"], "judge<End>", "an ordinary agent goes on in the session");
}

#[tokio::test]
async fn what_a_client_sent_before_is_told_without_calls_and_its_instructions_reach_all() {
    let (model, server) = stage("").await;
    let call = json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Nothing."},
        {"role": "assistant", "content": "Nothing there."},
        {"role": "user", "content": "Go"},
    ]);
    let body = json!({"model": "review", "messages": messages, "temperature": 0.5, "response_format": {"type": "json_object"}});
    server.post(CHAT, &body).await.ok();
    let [writer, editor] = [0, 1].map(|at| model.requests()[at].json());
    for request in [&writer, &editor] {
        let said: Vec<String> = request["messages"].as_array().unwrap().iter().map(content).collect();
        assert!(said[0].contains("You are ") && said.iter().any(|text| text.contains("Be brief.")), "{said:?}");
        let rest: Vec<&String> =
            said.iter().filter(|text| !text.contains("You are ") && *text != "Be brief.").collect();
        assert_eq!(rest[..4], ["Look", "I look.", "Nothing there.", "Go"], "{said:?}");
        assert!(request["messages"].as_array().unwrap().iter().all(|message| message.get("tool_calls").is_none()));
    }
    assert_eq!((&writer["temperature"], &writer["response_format"]), (&Value::Null, &Value::Null));
    assert_eq!((&editor["temperature"], &editor["response_format"]["type"]), (&json!(0.5), &json!("json_object")));
}

#[tokio::test]
async fn a_composite_agent_may_be_a_part_of_another_and_no_deeper_than_trees_may_be() {
    let (_model, server) = stage("").await;
    let nested = server.post(AGENT, &ask("nested")).await.ok();
    assert_eq!(nested["choices"][0]["message"]["content"], "judge<Go|editor<Go|writer<Go>>>");
    assert_eq!((&nested["agent"]["tree"]["runs"], &nested["usage"]["total_tokens"]), (&json!(5), &json!(90)));
    let (_model, server) = stage("[agents.nested.delegation]\nmax_depth = 1\n").await;
    let deep = server.post(AGENT, &ask("nested")).await;
    assert_eq!((deep.status, deep.code()), (500, "tool_error"));
    assert!(message(&deep).contains("stands too deep"), "{}", message(&deep));
}

#[tokio::test]
async fn cancelling_a_composite_agents_run_stops_those_of_its_agents() {
    let (model, server) = stage("").await;
    let mut body = ask("waits");
    body["agent"] = json!({"background": true});
    let run = server.post(AGENT, &body).await.ok()["id"].as_str().unwrap().to_owned();
    model.received(2).await;
    server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
    within("all runs to be cancelled", async {
        loop {
            let runs = server.get("/v1/runs?limit=10").await.ok();
            let all = runs["data"].as_array().unwrap().clone();
            if all.len() == 3 && all.iter().all(|run| run["status"] == "cancelled") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_budget_and_a_time_limit_hold_for_all_agents_together_and_end_the_run_as_they_end_any() {
    let limits = "[agents.review.limits]\ntoken_budget = 9000\n[agents.waits.limits]\ntimeout = \"2s\"\n";
    let (model, server) = stage(limits).await;
    let whole = server.post(AGENT, &ask("review")).await.ok();
    assert_eq!(whole["agent"]["status"], "completed", "{whole}");
    let mut body = ask("review");
    body["agent"] = json!({"limits": {"token_budget": 310}});
    let short = server.post(AGENT, &body).await.ok();
    assert_eq!(
        (&short["agent"]["status"], &short["agent"]["stop_reason"]),
        (&json!("incomplete"), &json!("token_budget"))
    );
    assert_eq!(who(&model).len(), 3, "the second agent has no room: {short}");
    let late = server.post(AGENT, &ask("waits")).await.ok();
    assert_eq!(late["agent"]["status"], "incomplete", "{late}");
    assert_eq!(late["agent"]["stop_reason"], "timeout", "{late}");
}

#[tokio::test]
async fn a_composite_agent_of_the_store_is_made_of_agents_of_the_file_and_of_the_store() {
    let model = HttpServer::start(|request| !is_list(request), play).await;
    let keys = "[keys.admin]\nkey_env = \"ADMIN\"\nscopes = [\"agents\", \"run\", \"read\"]\n";
    let config = format!("{}{AGENTS}{keys}", declaration(model.address()));
    let mut server = TestServer::builder(&config).env("ADMIN", "ADMIN").start().await;
    server.use_key("ADMIN");
    let put = async |name: &str, settings: &Value| {
        let request = server.request(Method::PUT, &format!("/v1/agents/{name}"));
        server.send(request.header("content-type", "application/json").body(settings.to_string())).await
    };
    put("poet", &json!({"model": "scripted/test", "system": "You are poet."})).await.ok();
    put("duo", &json!({"chain": ["writer", "poet"]})).await.ok();
    let answer = server.post(CHAT, &ask("duo")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "poet<Go|writer<Go>>");
    let own = put("self", &json!({"chain": ["self"]})).await;
    assert!(own.status == 400 && message(&own).contains("made of itself"), "{}", message(&own));
    put("gone", &json!({"chain": ["writer", "nobody"]})).await.ok();
    let gone = server.post(CHAT, &ask("gone")).await;
    assert_eq!((gone.status, gone.code()), (404, "model_not_found"));
    assert!(message(&gone).contains("nobody"), "{}", message(&gone));
}

//! A run is offered the tools that it was accepted with, whatever the configuration says by then.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::support::sse::outline;
use crate::support::{Gate, Reply, TestServer, ToolServer, Upstream};

const ENDPOINT: &str = "/v1/agent/completions";

/// What a run is given by the configuration, as the upstream gets it: the bytes of the tools, the instructions.
fn given(upstream: &Upstream) -> Vec<(String, Value)> {
    #[derive(Deserialize)]
    struct Body {
        tools: Box<RawValue>,
        messages: Vec<Value>,
    }
    let given = |body: Body| (body.tools.get().to_owned(), body.messages[0]["content"].clone());
    let bodies = upstream.raw_requests().into_iter().map(|request| serde_json::from_slice(&request.body));
    bodies.map(|body| given(body.expect("it has tools and messages"))).collect()
}

/// An agent that may use all tools.
fn clerk(system: &str) -> String {
    format!("[agents.clerk]\nmodel = \"scripted/test\"\nsystem = \"{system}\"\ntools = [\"*\"]\n")
}

fn old_config(upstream: &Upstream, tools: &ToolServer) -> String {
    let (note, look) = (tools.config("note", "read"), tools.config("look", "read"));
    format!("{}{}{note}{look}", upstream.config(), clerk("Be brief."))
}

/// `note` lies elsewhere and is described otherwise, `look` is gone.
fn new_config(upstream: &Upstream, tools: &ToolServer) -> String {
    let note = tools.config("note", "read").replace("A test's tool", "Takes notes elsewhere");
    format!("{}{}{note}", upstream.config(), clerk("Be wordy."))
}

fn calls_both() -> Reply {
    let call = Reply::stream().tool_call(0, "call_1", "note", r#"{"note":"x"}"#).tool_call(1, "call_2", "look", "{}");
    call.finish("tool_calls").usage(10, 5).done()
}

/// A question to the clerk, and what came after it. The client has a tool of its own, `weather`.
fn asked<const N: usize>(after: [Value; N]) -> Value {
    let weather = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
    let question = json!({"role": "user", "content": "Hi"});
    let messages: Vec<_> = std::iter::once(question).chain(after).collect();
    json!({"model": "clerk", "messages": messages, "tools": [weather]})
}

/// The answer to the call of `weather` that the client was handed.
fn answered(handed: &Value) -> Value {
    let message = &handed["choices"][0]["message"];
    let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "rain"});
    asked([message.clone(), result])
}

/// What the last request says that the tools answered, in the order of the calls.
fn results(upstream: &Upstream) -> Vec<String> {
    let requests = upstream.requests();
    let messages = requests.last().expect("there was a request")["messages"].as_array().expect("it is a list");
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().expect("it is text").to_owned()).collect()
}

#[tokio::test]
async fn a_reload_changes_no_run_that_waits_for_its_client() {
    let call = Reply::calls("weather", &json!({}));
    let upstream = Upstream::start([call, calls_both(), Reply::says("Noted."), Reply::says("Hi.")]).await;
    let [old, new] = [ToolServer::start([]).await, ToolServer::start([Reply::plain("noted")]).await];
    let server = TestServer::start(&old_config(&upstream, &old)).await;
    let handed = server.post(ENDPOINT, &asked([])).await.ok();

    let log = server.reload(&new_config(&upstream, &new)).await;
    for change in ["tools.note.url: ", "tools.note.description: ", "tools.look: removed", "agents.clerk.system: "] {
        assert!(log.contains(change), "{change} is not in {log}");
    }
    let answer = server.post(ENDPOINT, &answered(&handed)).await.ok();
    assert_eq!(answer["agent"]["run_id"], handed["agent"]["run_id"]);
    assert_eq!(answer["choices"][0]["message"]["content"], "Noted.");
    assert_eq!(results(&upstream)[1..], ["noted", "The tool `look` is no longer available. Go on without it."]);
    assert_eq!((old.calls().len(), new.calls().len()), (0, 1), "a tool is called where it is now");

    server.post(ENDPOINT, &asked([])).await.ok();
    let given = given(&upstream);
    assert_eq!(given[0].1, "Be brief.");
    assert!(given[0].0.contains("look") && given[0].0.contains("A test's tool"), "{}", given[0].0);
    assert_eq!(given[1..3], [given[0].clone(), given[0].clone()], "to the byte");
    assert_eq!(given[3].1, "Be wordy.");
    assert!(!given[3].0.contains("look") && given[3].0.contains("Takes notes elsewhere"), "{}", given[3].0);
}

#[tokio::test]
async fn a_restart_with_another_configuration_changes_no_run_under_way() {
    let gate = Gate::new();
    let lost = Reply::stream().text("Well").gate(&gate).finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([lost, calls_both(), Reply::says("Noted.")]).await;
    let [old, new] = [ToolServer::start([]).await, ToolServer::start([Reply::plain("noted")]).await];
    let mut server = TestServer::start(&old_config(&upstream, &old)).await;
    let question = json!({"role": "user", "content": "Hi"});
    let mut stream = server.stream(ENDPOINT, &json!({"model": "clerk", "stream": true, "messages": [question]})).await;
    let before = stream.until(|frame| frame.text().is_some()).await;
    let run = before[0].json()["run_id"].as_str().expect("the first event names the run").to_owned();
    server.kill9().await;

    server.write("test.toml", &new_config(&upstream, &new));
    server.restart().await;
    let frames = server.events(&run, 0).await.rest().await;
    assert!(outline(&frames).ends_with("run.completed"), "{}", outline(&frames));
    assert_eq!(results(&upstream), ["noted", "The tool `look` is no longer available. Go on without it."]);
    assert_eq!((old.calls().len(), new.calls().len()), (0, 1), "a tool is called where it is now");
    let given = given(&upstream);
    assert_eq!(given[0].1, "Be brief.");
    assert_eq!(given[1..], [given[0].clone(), given[0].clone()], "to the byte");
}

#[tokio::test]
async fn a_reload_changes_no_price_of_a_run_that_was_accepted() {
    let upstream =
        Upstream::start([Reply::calls("weather", &json!({})), Reply::says("Wet."), Reply::says("Hi.")]).await;
    let config = |price: &str| {
        let price = format!("price = {{ input = {price}, output = {price} }}");
        format!("{}{}[models.test]\n{price}\n", upstream.config(), clerk("Be brief."))
    };
    let server = TestServer::start(&config("1.0")).await;
    let handed = server.post(ENDPOINT, &asked([])).await.ok();
    let log = server.reload(&config("100.0")).await;
    assert!(log.contains("models.test.price.input: "), "{log}");

    let answer = server.post(ENDPOINT, &answered(&handed)).await.ok();
    let next = server.post(ENDPOINT, &asked([])).await.ok();
    let costs = [&handed, &answer, &next].map(|answer| answer["agent"]["cost_usd"].as_f64());
    // Fifteen tokens a step.
    assert_eq!(costs, [Some(0.000_015), Some(0.000_030), Some(0.001_5)], "{answer}");
}

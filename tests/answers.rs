//! What a client is told of an answer: its id, a model that declines, a model that only thought.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Reply, SseReader, TestServer, Upstream};

const CHAT: &str = "/v1/chat/completions";

fn asking(stream: bool) -> Value {
    json!({"model": "test", "stream": stream, "messages": [{"role": "user", "content": "Go."}]})
}

/// A request with a tool of the client's, and the same once its call has an answer.
fn with_client_tool(answered: Option<&Value>) -> Value {
    let mut request = asking(false);
    request["tools"] = json!([{"type": "function", "function": {"name": "pick"}}]);
    if let Some(message) = answered {
        let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "red"});
        request["messages"] = json!([{"role": "user", "content": "Go."}, message, result]);
    }
    request
}

/// The ids that the texts of these frames bear.
fn ids(frames: &[crate::support::Frame]) -> Vec<String> {
    let chunks = frames.iter().filter_map(|frame| serde_json::from_str::<Value>(&frame.data).ok());
    chunks.filter_map(|chunk| chunk["id"].as_str().map(str::to_owned)).collect()
}

/// Clients keep answers by their ids.
#[tokio::test]
async fn each_response_of_a_run_has_an_id_of_its_own() {
    let call = Reply::stream().text("Which?").tool_call(0, "a", "pick", "{}").finish("tool_calls").usage(9, 1).done();
    let upstream = Upstream::start([call, Reply::says("Red.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let first = server.post(CHAT, &with_client_tool(None)).await.ok();
    let second = server.post(CHAT, &with_client_tool(Some(&first["choices"][0]["message"]))).await.ok();
    let run = first["agent"]["run_id"].as_str().expect("it is there");
    assert_eq!(second["agent"]["run_id"], run, "one run gave both");
    let (first, second) = (first["id"].as_str().unwrap_or_default(), second["id"].as_str().unwrap_or_default());
    assert!(first.starts_with("chatcmpl-") && second.starts_with("chatcmpl-") && first != second, "{first} {second}");

    // Streams and lists of the run's events have the same ids, wherever they begin.
    let events = server.events(run, 0).await.rest().await;
    assert_eq!(ids(&events), [first, second]);
    let text = events.iter().rfind(|frame| frame.text().is_some()).expect("there is text");
    let before = text.id.expect("it has a number") - 1;
    assert_eq!(ids(&server.events(run, before).await.rest().await), [second]);
    let list = server.get(&format!("/v1/runs/{run}/events?stream=false&after={before}")).await.ok();
    assert_eq!((&list["data"][0]["id"], &list["data"][0]["seq"]), (&json!(second), &json!(before + 1)));
    let end = before + list["data"].as_array().map_or(0, Vec::len) as u64;
    let ends = [before + 1, end].map(|seq| json!(seq.to_string()));
    assert_eq!([&list["first_id"], &list["last_id"]], [&ends[0], &ends[1]]);
    let chunks = server.request(Method::GET, &format!("/v1/runs/{run}/events?events=none"));
    let mut seen = ids(&SseReader::of_chunks(server.respond(chunks).await).rest().await);
    seen.dedup();
    assert_eq!(seen, [first, second]);
}

/// The pieces of a member of the deltas in these frames, as one text.
fn joined(frames: &[crate::support::Frame], member: &str) -> String {
    let chunks = frames.iter().filter_map(|frame| serde_json::from_str::<Value>(&frame.data).ok());
    chunks.filter_map(|chunk| chunk["choices"][0]["delta"][member].as_str().map(str::to_owned)).collect()
}

/// As OpenAI's own answers have it: a client shows a refusal in another way than an answer.
#[tokio::test]
async fn a_refusal_is_told_as_such() {
    let declines = || Reply::stream().refusal("I can").refusal("not.").finish("stop").usage(9, 2).done();
    let upstream = Upstream::start([declines(), declines(), declines(), Reply::says("Well.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let mut request = asking(false);
    request["agent"] = json!({"session_id": "s"});
    let plain = server.post(CHAT, &request).await.ok();
    let choice = &plain["choices"][0];
    assert_eq!((&choice["message"]["refusal"], &choice["message"]["content"]), (&json!("I cannot."), &Value::Null));
    assert_eq!((&choice["finish_reason"], &plain["agent"]["status"]), (&json!("stop"), &json!("completed")));
    let run = plain["agent"]["run_id"].as_str().expect("it is there");
    let run = server.get(&format!("/v1/runs/{run}")).await.ok();
    assert_eq!((&run["refusal"], &run["output_text"]), (&json!("I cannot."), &json!("")));

    let chunks = server.respond(server.json(CHAT, &asking(true))).await;
    let chunks = SseReader::of_chunks(chunks).rest().await;
    assert_eq!((joined(&chunks, "refusal"), joined(&chunks, "content")), ("I cannot.".to_owned(), String::new()));

    // A turn of which no text may be shown before it is whole, too.
    let mut strict = asking(true);
    strict["response_format"] = json!({"type": "json_object"});
    let events = server.stream("/v1/agent/completions", &strict).await.rest().await;
    assert_eq!((joined(&events, "refusal"), joined(&events, "content")), ("I cannot.".to_owned(), String::new()));
    let last: Value = serde_json::from_str(&events[events.len() - 2].data).expect("it is JSON");
    assert_eq!((&last["refusal"], &last["output_text"]), (&json!("I cannot."), &json!("")));

    // The session keeps it as what it was.
    request["messages"][0]["content"] = "Why not?".into();
    server.post(CHAT, &request).await.ok();
    let asked = upstream.requests().pop().expect("it was asked");
    assert_eq!(asked["messages"][1]["refusal"], "I cannot.", "{asked}");
}

/// Asked again, a model that thought for its whole turn does it again, and is paid again.
#[tokio::test]
async fn an_answer_of_thinking_alone_is_an_answer() {
    let thinks = || Reply::stream().reasoning("Hm, ").reasoning("hm.").finish("stop").usage(9, 7).done();
    let upstream = Upstream::start([thinks(), thinks(), Reply::says("Well.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let mut request = asking(false);
    request["agent"] = json!({"session_id": "s"});
    let plain = server.post(CHAT, &request).await.ok();
    assert_eq!(upstream.requests().len(), 1, "{plain}");
    assert_eq!((&plain["choices"][0]["message"]["content"], &plain["usage"]["total_tokens"]), (&json!(""), &json!(16)));
    let agent = &plain["agent"];
    assert_eq!((&agent["status"], &agent["reasoning"]), (&json!("completed"), &json!("Hm, hm.")));
    assert!(agent["warnings"].to_string().contains("the model thought and gave no answer"), "{agent}");
    let events = server.stream("/v1/agent/completions", &asking(true)).await.rest().await;
    assert_eq!(events[events.len() - 2].name, "run.completed", "{events:?}");

    // An upstream takes no message that says nothing.
    request["messages"][0]["content"] = "And?".into();
    server.post(CHAT, &request).await.ok();
    let asked = upstream.requests().pop().expect("it was asked");
    assert_eq!(asked["messages"].as_array().map(Vec::len), Some(2), "{asked}");
}

/// What an upstream would refuse is refused before it is asked.
#[tokio::test]
async fn a_clients_tool_has_a_valid_schema() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    for parameters in [
        json!({"type": "objekt", "properties": {}}),
        json!({"type": "object", "properties": {"a": {"type": "strnig"}}}),
        json!({"type": "object", "required": "a"}),
        json!({"type": "array"}),
    ] {
        let mut request = asking(false);
        request["tools"] = json!([{"type": "function", "function": {"name": "pick", "parameters": parameters}}]);
        let answer = server.post(CHAT, &request).await;
        assert_eq!((answer.status, answer.code()), (400, "invalid_value"), "{parameters}");
        assert_eq!(answer.body["error"]["param"], "tools[0].function.parameters", "{}", answer.body);
    }
}

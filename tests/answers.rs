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
    let chunks = server.request(Method::GET, &format!("/v1/runs/{run}/events?events=none"));
    let mut seen = ids(&SseReader::of_chunks(server.respond(chunks).await).rest().await);
    seen.dedup();
    assert_eq!(seen, [first, second]);
}

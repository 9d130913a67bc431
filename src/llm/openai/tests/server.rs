//! What a scripted upstream answers, one act for each connection.

use tokio::task::JoinHandle;

use super::*;
use crate::llm::testing::http_upstream;
use crate::net::testing;
pub(super) use crate::net::testing::{Act, read_request};

/// An upstream that plays one act a connection and then returns the requests it got.
pub(super) async fn upstream(acts: Vec<Act>) -> (OpenAiModel, JoinHandle<Vec<String>>) {
    let (base_url, requests) = serve(acts).await;
    (model(&base_url, LONG, LONG), requests)
}

/// The same, by its URL.
pub(super) async fn serve(acts: Vec<Act>) -> (String, JoinHandle<Vec<String>>) {
    let (address, requests) = testing::serve(acts.into_iter().map(|act| vec![act])).await;
    (format!("http://{address}/v1/?v=1"), requests)
}

/// Answers these bytes and closes the connection.
pub(super) fn bytes(bytes: String) -> Act {
    bytes.into()
}

/// Answers these bytes, then a comment and an empty chunk every few milliseconds.
pub(super) fn babble(first: String) -> Act {
    let empty = json!({ "choices": [{ "delta": { "content": "" } }] });
    Act::Repeat { first, again: format!(": ping\n\n{}", frame(&empty)), every: SHORT / 20 }
}

pub(super) fn config(http: HttpUpstream) -> OpenAiUpstream {
    OpenAiUpstream {
        http,
        written_calls: WrittenCalls::All,
        pass_unknown_members: true,
        ask_in_one_piece: false,
        chat: ChatManner::COMPATIBLE,
        provider: None,
        key_header: None,
        api_version: None,
    }
}

pub(super) fn model(base_url: &str, first_byte_timeout: Duration, idle_timeout: Duration) -> OpenAiModel {
    let http = HttpUpstream { first_byte_timeout, idle_timeout, ..http(base_url) };
    OpenAiModel::new("test", &config(http), http_client(LONG).unwrap()).unwrap()
}

/// An upstream with a key.
pub(super) fn http(base_url: &str) -> HttpUpstream {
    http_upstream(base_url, KEY, LONG)
}

pub(super) fn frame(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

/// The head of a stream that ends with the connection.
pub(super) fn stream_head() -> String {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n".to_owned()
}

pub(super) fn text(text: &str) -> String {
    frame(&json!({ "choices": [{ "index": 0, "delta": { "content": text } }] }))
}

pub(super) fn stop() -> String {
    frame(&json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }))
}

pub(super) fn full_stream() -> Act {
    bytes(stream_head() + &text("hi") + &stop() + "data: [DONE]\n\n")
}

pub(super) fn answer(status: &str, headers: &str, body: &str) -> Act {
    let length = body.len();
    bytes(format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}"))
}

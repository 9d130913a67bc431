//! An upstream of a few lines, which plays one act a connection.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::*;

/// What the upstream does with one connection.
#[derive(Clone)]
pub(super) enum Act {
    /// Answers these bytes and closes.
    Answer(String),
    /// Answers these bytes and then says nothing more.
    Stall(String),
    /// Answers these bytes, then a comment and an empty chunk every few milliseconds.
    Babble(String),
    /// Answers these bytes and resets the connection.
    Reset(String),
}

/// An upstream that plays one act a connection and then returns the requests it got.
pub(super) async fn upstream(acts: Vec<Act>) -> (OpenAiModel, JoinHandle<Vec<String>>) {
    let (base_url, requests) = serve(acts).await;
    (model(&base_url, LONG, LONG), requests)
}

/// The same, by its URL.
pub(super) async fn serve(acts: Vec<Act>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    #[expect(clippy::disallowed_methods, reason = "the test itself awaits the task")]
    let requests = tokio::spawn(async move {
        let mut requests = Vec::new();
        for act in acts {
            let (mut socket, _) = listener.accept().await.unwrap();
            requests.push(read_request(&mut socket).await);
            play(socket, act).await;
        }
        requests
    });
    (format!("http://{address}/v1/?v=1"), requests)
}

pub(super) fn model(base_url: &str, first_byte_timeout: Duration, idle_timeout: Duration) -> OpenAiModel {
    let config = OpenAiUpstream {
        base_url: base_url.parse().unwrap(),
        api_key: Some(Secret::new(KEY)),
        models: None,
        connect_timeout: LONG,
        first_byte_timeout,
        idle_timeout,
        written_calls: WrittenCalls::All,
        pass_unknown_members: true,
    };
    OpenAiModel::new("test", &config, http_client(LONG).unwrap()).unwrap()
}

pub(super) async fn read_request(socket: &mut TcpStream) -> String {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = socket.read(&mut buffer).await.unwrap();
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text.into_owned();
            }
        }
        assert_ne!(read, 0, "the request broke off");
    }
}

async fn play(mut socket: TcpStream, act: Act) {
    // The model may hang up while this writes.
    match act {
        Act::Answer(bytes) => {
            socket.write_all(bytes.as_bytes()).await.ok();
        }
        Act::Stall(bytes) => {
            socket.write_all(bytes.as_bytes()).await.ok();
            // The model sends nothing more: this waits until it hangs up.
            socket.read_u8().await.ok();
        }
        Act::Babble(bytes) => {
            socket.write_all(bytes.as_bytes()).await.ok();
            let empty = format!(": ping\n\n{}", frame(&json!({ "choices": [{ "delta": { "content": "" } }] })));
            while socket.write_all(empty.as_bytes()).await.is_ok() {
                tokio::time::sleep(SHORT / 20).await;
            }
        }
        Act::Reset(bytes) => {
            socket.write_all(bytes.as_bytes()).await.ok();
            socket.set_zero_linger().unwrap();
        }
    }
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
    Act::Answer(stream_head() + &text("hi") + &stop() + "data: [DONE]\n\n")
}

pub(super) fn answer(status: &str, headers: &str, body: &str) -> Act {
    let length = body.len();
    Act::Answer(format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}"))
}

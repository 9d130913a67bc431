//! What published clients read of a stream is the same however its bytes are split: a recorded stream is told by a server
//! that writes it in pieces, so that each of its bytes is once the last of a piece.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

use super::{calls_calculator, node_program, python_program, seen};
use crate::support::{Reply, TestServer, Upstream};

/// A text of which some characters take several bytes, word by word.
fn text() -> Reply {
    let words = ["Größe ", "漢字 ", "😀 ", "\"quoted\"\n", "plain ", "{\"a\":[1]} "];
    // What comes within 50 ms may be joined.
    let pause = Duration::from_millis(60);
    let thinking = Reply::stream().reasoning("Hm, ").reasoning("ja. ");
    let said = (0..40).fold(thinking, |reply, number| reply.text(words[number % words.len()]).pause(pause));
    said.finish("stop").usage(10, 5).done()
}

/// What the server writes to a client of this dialect.
async fn recorded(server: &TestServer, dialect: &str) -> Vec<u8> {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let (path, body) = match dialect {
        "chat" => ("/v1/chat/completions", json!({"model": "test", "stream": true, "messages": messages})),
        "agent" => ("/v1/agent/completions", json!({"model": "test", "stream": true, "messages": messages})),
        "responses" => ("/v1/responses", json!({"model": "test", "stream": true, "input": "Hi"})),
        "messages" => {
            ("/v1/messages", json!({"model": "test", "max_tokens": 100, "stream": true, "messages": messages}))
        }
        "ai-sdk" => {
            let asked = json!([{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}]);
            ("/v1/agent/ui", json!({"id": "c", "model": "test", "messages": asked, "trigger": "submit-message"}))
        }
        "ag-ui" => {
            let asked = json!([{"id": "m", "role": "user", "content": "Hi"}]);
            let (nothing, props) = (json!([]), json!({"model": "test"}));
            let input = json!({"threadId": "t", "runId": "r", "messages": asked, "tools": nothing, "context": nothing,
                "state": {}, "forwardedProps": props});
            ("/v1/agent/ag-ui", input)
        }
        other => panic!("{other} is no dialect"),
    };
    let response = server.respond(server.json(path, &body)).await;
    assert_eq!(response.status(), 200, "{dialect}");
    response.bytes().await.expect("it is whole").to_vec()
}

/// A server that answers every request with this stream, in pieces as the path says.
async fn tell(stream: Vec<u8>) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let (address, stream) = (listener.local_addr().expect("it is bound"), Arc::new(stream));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut answers = JoinSet::new();
        while let Ok((connection, _)) = listener.accept().await {
            let stream = stream.clone();
            answers.spawn(async move { answer(connection, &stream).await.expect("the client reads it") });
        }
    });
    (address, tasks)
}

async fn answer(mut connection: TcpStream, stream: &[u8]) -> std::io::Result<()> {
    let mut asked = Vec::new();
    let (head, length) = loop {
        if connection.read_buf(&mut asked).await? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&asked).to_ascii_lowercase();
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        break (head.to_owned(), head.len() + 4 + length.unwrap_or(0));
    };
    while asked.len() < length {
        connection.read_buf(&mut asked).await?;
    }
    let mut path = head.split('/').skip(1).map(|part| part.parse::<usize>().unwrap_or(0));
    let (size, first) = (path.next().unwrap_or(0), path.next().unwrap_or(0));
    connection.set_nodelay(true)?;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-vercel-ai-ui-message-stream: v1\r\n\
                transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    connection.write_all(head.as_bytes()).await?;
    let (begin, rest) = stream.split_at(first.min(stream.len()));
    let pieces = std::iter::once(begin).chain(rest.chunks(if size == 0 { stream.len() } else { size }));
    // Each is a chunk: clients are given one after the other, in whatever packets they arrive.
    let mut out = Vec::new();
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    connection.write_all(&out).await?;
    connection.shutdown().await
}

/// Lets this client of a dialect read its stream in all pieces.
async fn same_however_split(program: fn(&str) -> Command, script: &str, dialect: &str) {
    let upstream = Upstream::start([calls_calculator(), text()]).await;
    let server = TestServer::start(&upstream.config()).await;
    let stream = recorded(&server, dialect).await;
    let frames = stream.windows(2).filter(|bytes| bytes == b"\n\n").count();
    assert!(frames > 20, "{frames} frames of {dialect}");
    let (address, _tasks) = tell(stream).await;
    let found: Value = seen(program(script), dialect, &format!("http://{address}"), &server).await;
    assert_eq!(found["different"], json!([]), "{script}: {dialect}");
    let events = found["events"].as_u64().expect("it is a number");
    assert!(events > 15, "{script}: {events} events of {frames} frames of {dialect}");
}

#[tokio::test]
async fn a_client_for_node_reads_the_same_however_the_bytes_are_split() {
    for dialect in ["chat", "agent", "responses", "messages", "ai-sdk", "ag-ui"] {
        same_however_split(node_program, "split.mjs", dialect).await;
    }
}

#[tokio::test]
async fn a_client_for_python_reads_the_same_however_the_bytes_are_split() {
    for dialect in ["chat", "agent", "responses", "messages"] {
        same_however_split(python_program, "split.py", dialect).await;
    }
}

//! How much memory the server has while it has nothing to do, and while all that it does is to wait.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Reply, TestServer, Upstream, within};

const MIB: u64 = 1024 * 1024;

/// What a server at rest may hold beside its binary: tables, clients, the schemas of tools, stacks.
const AT_REST: u64 = 4 * MIB;

#[tokio::test]
async fn a_server_at_rest_holds_little() {
    let upstream = Upstream::start([]).await;
    let server =
        TestServer::builder(&upstream.config()).env("TOKIO_WORKER_THREADS", "2").store("memory:").start().await;
    let falls = async {
        while server.own_memory() > AT_REST {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(&format!("{} KiB to fall to {}", server.own_memory() >> 10, AT_REST >> 10), falls).await;
}

/// A body whose last byte is not sent yet.
async fn all_but_the_end_of(body: &str, server: &TestServer) -> TcpStream {
    let mut connection = TcpStream::connect(server.address()).await.expect("it listens");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.expect("the server takes it");
    connection.write_all(&body.as_bytes()[..body.len() - 1]).await.expect("the server takes it");
    connection
}

#[tokio::test]
async fn what_large_requests_took_is_given_back() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let server = TestServer::builder(&upstream.config()).store("memory:").start().await;
    let mut body = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]});
    server.post("/v1/chat/completions", &body).await.ok();
    let before = server.own_memory();
    let becomes = async |what: &str, is_so: fn(u64) -> bool| {
        let what = format!("{} MiB beside {} to become {what}", server.own_memory() / MIB, before / MIB);
        let wait = async {
            while !is_so(server.own_memory().saturating_sub(before)) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        within(&what, wait).await;
    };
    // Refused once it was read, so nothing of it is kept.
    body["messages"][0]["content"] = "x".repeat(7_000_000).into();
    body["max_tokens"] = (-1).into();
    let body = body.to_string();
    for _ in 0..3 {
        // As many as one address may have under way: they are held at the same time, however fast the machine is.
        let sent = join_all((0..3).map(|_| all_but_the_end_of(&body, &server))).await;
        becomes("more", |held| held > 18 * MIB).await;
        for mut connection in sent {
            connection.write_all(&body.as_bytes()[body.len() - 1..]).await.expect("the server takes it");
            let mut answer = String::new();
            within("an answer", connection.read_to_string(&mut answer)).await.expect("it is text");
            assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        }
    }
    becomes("less", |held| held < 8 * MIB).await;
}

/// How many connections wait at a time: enough that what the server needs once does not count.
const WAITING: u64 = 400;

/// Connections on which `request` was answered up to these words.
async fn answered(server: &TestServer, request: &str, words: &str) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for _ in 0..WAITING {
        let mut connection = TcpStream::connect(server.address()).await.expect("it listens");
        connection.write_all(request.as_bytes()).await.expect("the server takes it");
        let mut read = Vec::new();
        let reading = async {
            while !String::from_utf8_lossy(&read).contains(words) {
                assert!(connection.read_buf(&mut read).await.expect("it is open") > 0, "it goes on");
            }
        };
        within(words, reading).await;
        connections.push(connection);
    }
    connections
}

/// Waits until each of the connections that were opened since `before` takes no more than `most`.
async fn takes(server: &TestServer, before: u64, most: u64) {
    let each = || server.own_memory().saturating_sub(before) / WAITING;
    let falls = async {
        while each() > most {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(&format!("{} bytes to fall to {most}", each()), falls).await;
}

#[tokio::test]
async fn a_connection_that_waits_for_its_next_request_has_no_buffers() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::builder(&upstream.config()).store("memory:").start().await;
    server.get("/v1/models").await.ok();
    let before = server.own_memory();
    let request = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let connections = answered(&server, request, "\"object\":\"list\"").await;
    takes(&server, before, 8 << 10).await;
    drop(connections);
}

#[tokio::test]
async fn a_stream_that_waits_for_its_model_takes_little() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::stream().text("Hello").stall());
    let server = TestServer::builder(&upstream.config()).store("memory:").start().await;
    let before = server.own_memory();
    let body = json!({"model": "test", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let connections = answered(&server, &request, "Hello").await;
    takes(&server, before, 36 << 10).await;
    drop(connections);
}

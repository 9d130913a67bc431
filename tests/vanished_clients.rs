//! Clients that vanish without closing their connection, as a machine does that loses its power or its network.
//!
//! The kernel is told to drop every packet that arrives for the client's socket. So the socket acknowledges nothing and
//! answers no keepalive, and it is never closed.

use std::time::Duration;

use serde_json::json;
use socket2::{SockFilter, SockRef};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::{Gate, Reply, TestServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";
/// The one instruction of a packet filter that takes nothing of any packet: `BPF_RET | BPF_K`, with 0 bytes.
const DROP_ALL: [SockFilter; 1] = [SockFilter::new(0x06, 0, 0, 0)];
/// What is promised: a vanished client is noticed within a minute.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);

/// A client that has asked for a run.
struct Client(TcpStream);

impl Client {
    async fn ask(server: &TestServer, streamed: bool) -> Self {
        let mut connection = TcpStream::connect(server.address()).await.expect("it listens");
        let agent = json!({"on_disconnect": "cancel", "reconnect_grace_ms": 0});
        let messages = json!([{"role": "user", "content": "Go."}]);
        let body = json!({"model": "test", "stream": streamed, "messages": messages, "agent": agent}).to_string();
        let head = format!("POST {ENDPOINT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        connection.write_all(request.as_bytes()).await.expect("the server takes it");
        Self(connection)
    }

    /// Reads until these words arrive.
    async fn read_until(&mut self, words: &str) {
        let mut read = Vec::new();
        let reading = async {
            while !String::from_utf8_lossy(&read).contains(words) {
                self.0.read_buf(&mut read).await.expect("the stream goes on");
            }
        };
        within(words, reading).await;
    }

    /// From now on nothing that is sent to the client arrives.
    fn vanish(&self) {
        SockRef::from(&self.0).attach_filter(&DROP_ALL).expect("any socket may have a filter");
    }
}

/// Waits until this run is cancelled. Returns how long that took.
async fn cancelled(server: &TestServer, run: &str) -> Duration {
    let since = Instant::now();
    loop {
        let found = server.get(&format!("/v1/runs/{run}")).await.ok();
        if found["status"] == "cancelled" {
            return since.elapsed();
        }
        assert!(since.elapsed() < NOTICED_WITHIN, "the vanished client was not noticed: {found}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The run that the client asked for.
async fn only_run(server: &TestServer) -> String {
    let runs = server.get("/v1/runs").await.ok();
    runs["data"][0]["id"].as_str().unwrap_or_else(|| panic!("there is no run: {runs}")).to_owned()
}

#[tokio::test]
async fn a_stream_ends_whose_reader_vanished() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().text("One").gate(&gate).text(" two").stall()]).await;
    let config = format!("{}[server]\ndrain_delay = \"0s\"\nwrite_timeout = \"1s\"\n", upstream.config());
    let server = TestServer::start(&config).await;
    let mut client = Client::ask(&server, true).await;
    client.read_until("One").await;
    let run = only_run(&server).await;
    client.vanish();
    gate.open();
    let took = cancelled(&server, &run).await;
    assert!(took < Duration::from_secs(10), "what is not acknowledged is given up after write_timeout, not {took:?}");
}

#[tokio::test]
async fn a_client_that_vanished_while_it_waits_is_noticed() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().text("One").gate(&gate).stall()]).await;
    let config = format!("{}[server]\ndrain_delay = \"0s\"\nwrite_timeout = \"1s\"\n", upstream.config());
    let server = TestServer::start(&config).await;
    let client = Client::ask(&server, false).await;
    gate.reached().await;
    let run = only_run(&server).await;
    client.vanish();
    cancelled(&server, &run).await;
}

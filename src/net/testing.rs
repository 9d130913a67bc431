//! For tests: an HTTP server of a few lines that answers with bytes as they are, so that it can break every rule.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What the server does after a request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Answers these bytes.
    Answer(Vec<u8>),
    /// Answers these bytes and then says nothing more.
    Stall(String),
    /// Answers `first`, then `again` without end, so often.
    Repeat { first: String, again: String, every: Duration },
    /// Answers these bytes and resets the connection.
    Reset(String),
}

impl From<&str> for Act {
    fn from(bytes: &str) -> Self {
        Self::Answer(bytes.into())
    }
}

impl From<String> for Act {
    fn from(bytes: String) -> Self {
        Self::Answer(bytes.into())
    }
}

/// Serves one connection after the other: plays its acts, each after a whole request, and closes it. Returns the
/// requests once all acts are played.
pub(crate) async fn serve<A: Into<Act>>(
    connections: impl IntoIterator<Item = Vec<A>>,
) -> (SocketAddr, JoinHandle<Vec<String>>) {
    let (listener, address) = listen().await;
    let connections: Vec<Vec<Act>> =
        connections.into_iter().map(|acts| acts.into_iter().map(Into::into).collect()).collect();
    #[expect(clippy::disallowed_methods, reason = "the test itself awaits the task")]
    let requests = tokio::spawn(async move {
        let mut requests = Vec::new();
        for acts in connections {
            let (mut socket, _) = listener.accept().await.unwrap();
            for act in acts {
                requests.push(read_request(&mut socket).await);
                play(&mut socket, act).await;
            }
        }
        requests
    });
    (address, requests)
}

/// Answers every request as `decide` says, each on a connection of its own, until the returned tasks are dropped.
pub(crate) async fn serve_with(decide: impl Fn(String) -> Act + Send + Sync + 'static) -> (SocketAddr, JoinSet<()>) {
    let (listener, address) = listen().await;
    let decide = Arc::new(decide);
    let mut accepting = JoinSet::new();
    accepting.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let decide = decide.clone();
            connections.spawn(async move {
                let act = decide(read_request(&mut socket).await);
                play(&mut socket, act).await;
            });
        }
    });
    (address, accepting)
}

/// An address at which nothing listens.
pub(crate) async fn nowhere() -> SocketAddr {
    listen().await.1
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Reads a whole request.
pub(crate) async fn read_request(socket: &mut TcpStream) -> String {
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

/// Plays an act. The client may hang up meanwhile.
async fn play(socket: &mut TcpStream, act: Act) {
    match act {
        Act::Answer(bytes) => {
            socket.write_all(&bytes).await.ok();
        }
        Act::Stall(bytes) => {
            socket.write_all(bytes.as_bytes()).await.ok();
            // The client sends nothing more: this waits until it hangs up.
            socket.read_u8().await.ok();
        }
        Act::Repeat { first, again, every } => {
            socket.write_all(first.as_bytes()).await.ok();
            while socket.write_all(again.as_bytes()).await.is_ok() {
                tokio::time::sleep(every).await;
            }
        }
        Act::Reset(bytes) => {
            socket.write_all(bytes.as_bytes()).await.ok();
            socket.set_zero_linger().unwrap();
        }
    }
}

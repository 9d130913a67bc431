//! Streamed answers, whose bodies the HTTP library does not write, and what the same connection serves after them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use futures_util::stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::*;

/// Far more than anything here takes, on a machine that is busy as well.
const PATIENCE: Duration = Duration::from_secs(20);

/// Streams the pieces that `said` brings.
fn streamed(said: mpsc::Receiver<Result<Bytes, &'static str>>) -> Body {
    Body::from_stream(stream::unfold(said, async |mut said| Some((said.recv().await?, said))))
}

/// A server whose `/live` streams what the test says, and the ends of the channels by which it does.
struct Served {
    address: SocketAddr,
    streams: mpsc::UnboundedReceiver<mpsc::Sender<Result<Bytes, &'static str>>>,
    stop: CancellationToken,
    _stops: DropGuard,
}

async fn serve(keep_alive: Duration) -> Served {
    let (begun, streams) = mpsc::unbounded_channel();
    let live = move || {
        let (says, said) = mpsc::channel(8);
        begun.send(says).unwrap();
        std::future::ready(streamed(said))
    };
    let words = || async { Body::from_stream(stream::iter(["one ", "", "two"].map(Ok::<_, Infallible>))) };
    let echo = |body: Bytes| async { Body::from_stream(stream::iter([Ok::<_, Infallible>(body)])) };
    let ignored = || async { Body::from_stream(stream::iter(["early"].map(Ok::<_, Infallible>))) };
    let router = Router::new().route("/live", get(live)).route("/words", get(words));
    let router =
        router.route("/echo", post(echo)).route("/ignored", post(ignored)).route("/whole", get(|| async { "whole" }));
    let limits = Limits { connections: 10, per_address: None };
    let bounds = Bounds { limits, header_timeout: PATIENCE, keep_alive, write_timeout: PATIENCE };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    TaskTracker::new().spawn(listen(listener, router, bounds, stop.clone(), Connections::default()));
    Served { address, streams, _stops: stop.clone().drop_guard(), stop }
}

struct Client(TcpStream);

impl Client {
    async fn of(served: &Served) -> Self {
        Self(TcpStream::connect(served.address).await.unwrap())
    }

    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
    }

    /// What comes up to and with `end`.
    async fn until(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        let arrives = async {
            while !text.ends_with(end.as_bytes()) {
                text.push(self.0.read_u8().await.expect("the connection is open"));
            }
        };
        tokio::time::timeout(PATIENCE, arrives).await.expect(end);
        String::from_utf8(text).unwrap()
    }

    /// What comes before the connection is closed.
    async fn rest(&mut self) -> String {
        let mut text = String::new();
        tokio::time::timeout(PATIENCE, self.0.read_to_string(&mut text)).await.unwrap().unwrap();
        text
    }
}

/// What a client reads of `/words`.
const WORDS: &str = "\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n";

#[tokio::test]
async fn a_connection_serves_one_stream_after_the_other() {
    let served = serve(PATIENCE).await;
    let mut client = Client::of(&served).await;
    for _ in 0..2 {
        client.ask("/words").await;
        let answer = client.until("0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(WORDS), "{answer}");
        assert!(answer.contains("transfer-encoding: chunked\r\n") && answer.contains("date: "), "{answer}");
        client.ask("/whole").await;
        assert!(client.until("whole").await.contains("content-length: 5\r\n"));
    }
    let body = "x".repeat(50_000);
    client.send(&format!("POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50000\r\n\r\n{body}")).await;
    assert!(client.until("0\r\n\r\n").await.ends_with(&format!("C350\r\n{body}\r\n0\r\n\r\n")));
    client
        .send("POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
        .await;
    assert!(client.until("0\r\n\r\n").await.ends_with("2\r\nhi\r\n0\r\n\r\n"));
}

#[tokio::test]
async fn requests_that_were_sent_early_are_answered_after_the_stream() {
    let mut served = serve(PATIENCE).await;
    let mut client = Client::of(&served).await;
    // The second one arrives with the first, the third one while that is answered.
    let two = ["/live", "/words"].map(|path| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"));
    client.send(&two.concat()).await;
    let says = served.streams.recv().await.unwrap();
    client.until("\r\n\r\n").await;
    client.ask("/whole").await;
    says.send(Ok("hi".into())).await.unwrap();
    assert_eq!(client.until("hi\r\n").await, "2\r\nhi\r\n");
    drop(says);
    assert_eq!(client.until("0\r\n\r\n").await, "0\r\n\r\n");
    assert!(client.until("0\r\n\r\n").await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(client.until("whole").await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_client_that_takes_no_chunks_or_wants_no_more_is_served_to_the_end() {
    let served = serve(PATIENCE).await;
    for (version, header, body) in [
        ("1.0", "accept: */*", "\r\n\r\none two"),
        ("1.1", "connection: close", WORDS),
        ("1.1", "connection: keep-alive\r\nconnection: close", WORDS),
    ] {
        let mut client = Client::of(&served).await;
        client.send(&format!("GET /words HTTP/{version}\r\nhost: localhost\r\n{header}\r\n\r\n")).await;
        let answer = client.rest().await;
        assert!(answer.ends_with(body), "{answer}");
    }
    // What the handler did not read cannot be told from the next request once the library has let go.
    let mut client = Client::of(&served).await;
    client.send("POST /ignored HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n").await;
    assert!(client.until("0\r\n\r\n").await.ends_with("5\r\nearly\r\n0\r\n\r\n"));
}

#[tokio::test]
async fn a_stream_ends_with_its_client_and_a_client_learns_that_it_broke_off() {
    let mut served = serve(PATIENCE).await;
    let mut client = Client::of(&served).await;
    client.ask("/live").await;
    let says = served.streams.recv().await.unwrap();
    client.until("\r\n\r\n").await;
    drop(client);
    tokio::time::timeout(PATIENCE, says.closed()).await.expect("nothing is made for a client that left");
    let mut client = Client::of(&served).await;
    client.ask("/live").await;
    let says = served.streams.recv().await.unwrap();
    says.send(Ok("half".into())).await.unwrap();
    client.until("half\r\n").await;
    says.send(Err("broken")).await.unwrap();
    assert_eq!(client.rest().await, "", "no last chunk");
}

#[tokio::test]
async fn a_client_that_pauses_gets_all_of_a_long_stream_when_it_reads_on() {
    let mut served = serve(PATIENCE).await;
    let mut client = Client::of(&served).await;
    client.ask("/live").await;
    let says = served.streams.recv().await.unwrap();
    client.until("\r\n\r\n").await;
    let piece = Bytes::from(vec![b'x'; 1 << 16]);
    let mut chunks = 0;
    // Until the socket is full, and the channel too.
    while tokio::time::timeout(Duration::from_millis(200), says.send(Ok(piece.clone()))).await.is_ok() {
        chunks += 1;
    }
    drop(says);
    let (mut length, mut end, mut read) = (0, Vec::new(), vec![0; 1 << 16]);
    let arrives = async {
        while !end.ends_with(b"\r\n0\r\n\r\n") {
            let count = client.0.read(&mut read).await.unwrap();
            assert!(count > 0, "it was closed after {length} bytes");
            length += count;
            end.extend_from_slice(&read[..count]);
            end.drain(..end.len().saturating_sub(16));
        }
    };
    tokio::time::timeout(PATIENCE, arrives).await.expect("it goes on");
    assert_eq!(length, chunks * (piece.len() + "10000\r\n\r\n".len()) + "0\r\n\r\n".len());
}

#[tokio::test]
async fn a_connection_that_was_idle_for_long_serves_the_next_request_and_is_closed_in_time() {
    let served = serve(Duration::from_secs(2)).await;
    let (mut silent, mut slow) = (Client::of(&served).await, Client::of(&served).await);
    for client in [&mut silent, &mut slow] {
        client.ask("/whole").await;
        client.until("whole").await;
    }
    // Longer than the library keeps them.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    silent.ask("/whole").await;
    silent.until("whole").await;
    slow.send("GET /whole HTTP/1.1\r\nhost: ").await;
    assert_eq!((silent.rest().await, slow.rest().await), Default::default(), "neither is kept for ever");
}

#[tokio::test]
async fn a_server_that_stops_ends_idle_connections_and_lets_streams_end() {
    let mut served = serve(PATIENCE).await;
    let (mut idle, mut live) = (Client::of(&served).await, Client::of(&served).await);
    idle.ask("/words").await;
    idle.until("0\r\n\r\n").await;
    live.ask("/live").await;
    let says = served.streams.recv().await.unwrap();
    live.until("\r\n\r\n").await;
    served.stop.cancel();
    assert_eq!(idle.rest().await, "");
    says.send(Ok("bye".into())).await.unwrap();
    drop(says);
    assert_eq!(live.rest().await, "3\r\nbye\r\n0\r\n\r\n");
}

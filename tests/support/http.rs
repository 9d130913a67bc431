//! A small HTTP/1.1 server, written by hand so that it can break the protocol wherever a test wants.
//! It knows nothing of models and tools: someone else decides what to reply.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::journal::{Entry, Exchange, Journal};
use super::reply::{End, Piece, Reply};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// `GET`, `POST`, …
    pub(crate) method: String,
    /// The path and query.
    pub(crate) target: String,
    /// By lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    /// The whole body.
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The body as JSON; `null` if it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A listening server. Dropping it ends it and all its connections.
#[derive(Debug)]
pub(crate) struct HttpServer {
    address: SocketAddr,
    journal: Journal<Request>,
    _tasks: JoinSet<()>,
}

impl HttpServer {
    /// Listens on a free port of 127.0.0.1. `handler` decides on each request; those that `is_recorded`
    /// picks are kept.
    pub(crate) async fn start(
        is_recorded: fn(&Request) -> bool,
        handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start_at("127.0.0.1:0", is_recorded, handler).await
    }

    /// The same at another address.
    pub(crate) async fn start_at(
        address: &str,
        is_recorded: fn(&Request) -> bool,
        handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let journal = Journal::default();
        let (record, handler): (Journal<Request>, Arc<Handler>) = (journal.clone(), Arc::new(handler));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (record, handler) = (record.clone(), handler.clone());
                let decide = move |request: Request| {
                    let reply = handler(&request);
                    let exchange = is_recorded(&request).then(|| record.begin(request));
                    (reply, exchange)
                };
                // That the peer breaks off is its own business.
                connections.spawn(async move { drop(serve(socket, decide).await) });
            }
        });
        Self { address, journal, _tasks: tasks }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The recorded requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.journal.entries().into_iter().map(|entry| entry.what).collect()
    }

    /// The same with the times at which they began and ended.
    pub(crate) fn exchanges(&self) -> Vec<Entry<Request>> {
        self.journal.entries()
    }

    /// Returns once there is such a request after the first `known` ones.
    pub(crate) async fn until(&self, what: &str, known: usize, is_it: impl Fn(&Request) -> bool) {
        self.journal.until(what, known, |entry| is_it(&entry.what)).await;
    }

    /// Returns the recorded requests once there are `count` of them.
    pub(crate) async fn received(&self, count: usize) -> Vec<Request> {
        if count > 0 {
            let what = format!("request number {count} at {}", self.address);
            self.until(&what, count - 1, |_| true).await;
        }
        self.requests()
    }
}

async fn serve(socket: TcpStream, decide: impl Fn(Request) -> (Reply, Option<Exchange<Request>>)) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut socket = BufReader::new(socket);
    while let Some(request) = read_request(&mut socket).await? {
        let (reply, exchange) = decide(request);
        match send(&mut socket, &reply).await? {
            End::Whole => drop(exchange.map(Exchange::finish)),
            End::Cut => return socket.shutdown().await,
            End::Reset => return socket.into_inner().set_zero_linger(),
            End::Stall => return gone(&mut socket).await,
        }
    }
    Ok(())
}

/// Reads a request; `None` if the peer has closed the connection instead.
async fn read_request(socket: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let Some(line) = read_line(socket).await? else { return Ok(None) };
    let mut words = line.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    while let Some(line) = read_line(socket).await?.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    // Our own clients know the length of what they send.
    let length = headers.get("content-length").map_or(Ok(0), |length| length.parse());
    let mut body = vec![0; length.map_err(|_| io::ErrorKind::InvalidData)?];
    socket.read_exact(&mut body).await?;
    Ok(Some(Request { method, target, headers, body }))
}

async fn read_line(socket: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = socket.read_line(&mut line).await?;
    Ok((read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned()))
}

async fn send(socket: &mut BufReader<TcpStream>, reply: &Reply) -> io::Result<End> {
    if reply.headless {
        return Ok(reply.end);
    }
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
    for (name, value) in &reply.headers {
        write!(head, "{name}: {value}\r\n").expect("a string takes it");
    }
    head.push_str("transfer-encoding: chunked\r\n\r\n");
    socket.write_all(head.as_bytes()).await?;
    for piece in &reply.pieces {
        match piece {
            // An empty chunk would end the body.
            Piece::Bytes(bytes) if bytes.is_empty() => {}
            Piece::Bytes(bytes) => {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.extend_from_slice(bytes);
                chunk.extend_from_slice(b"\r\n");
                socket.write_all(&chunk).await?;
            }
            Piece::Gate(gate) => tokio::select! {
                () = gate.pass() => {}
                gone = gone(socket) => return gone.map(|()| End::Cut),
            },
            Piece::Pause(time) => tokio::select! {
                () = tokio::time::sleep(*time) => {}
                gone = gone(socket) => return gone.map(|()| End::Cut),
            },
        }
    }
    if reply.end == End::Whole {
        socket.write_all(b"0\r\n\r\n").await?;
    }
    Ok(reply.end)
}

/// Returns once the peer has closed the connection. It has nothing to say meanwhile.
async fn gone(socket: &mut BufReader<TcpStream>) -> io::Result<()> {
    while !socket.fill_buf().await?.is_empty() {
        socket.consume(1);
    }
    Ok(())
}

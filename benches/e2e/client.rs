//! The load client: connections that are kept, each asking again as soon as it is answered.
//!
//! It reads every answer to its end and compares the text, so that a server gains nothing by
//! failing fast.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::failure::Failure;
use crate::script;
use crate::servers::Subject;

/// No answer of any script takes that long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// No stream at a reader's pace takes that long.
const LIVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Where to ask, and for what.
#[derive(Clone)]
pub(crate) struct Ask {
    address: SocketAddr,
    path: &'static str,
    body: Bytes,
    answer: String,
    streamed: bool,
    /// Counts requests: no two that are under way at once are equal, because servers may answer equal ones with one run.
    asked: Arc<AtomicU64>,
    /// Counts sessions, if each request has one of its own.
    sessions: Option<Arc<AtomicU64>>,
    /// The session of all requests.
    session: Option<String>,
}

impl Ask {
    /// Asks `subject`, which listens on `address`, for what `model` says, as a stream.
    pub(crate) fn new(subject: Subject, address: SocketAddr, model: &str) -> Self {
        let body = request(subject, model);
        let answer = script::answer(model);
        let (path, asked) = (subject.path(), Arc::default());
        Self { address, path, body, answer, streamed: true, asked, sessions: None, session: None }
    }

    /// Each request in a session of its own.
    pub(crate) fn in_new_sessions(self) -> Self {
        Self { sessions: Some(Arc::default()), ..self }
    }

    /// All requests in this session.
    pub(crate) fn in_session(self, session: &str) -> Self {
        Self { session: Some(session.to_owned()), ..self }
    }

    /// The body of the next request, with another number in its question than those before.
    fn next_body(&self) -> Bytes {
        let number = format!("{:04}", self.asked.fetch_add(1, Relaxed) % 10_000);
        let mut body = self.body.to_vec();
        if let Some(at) = body.windows(4).position(|four| four == script::NUMBER.as_bytes()) {
            body[at..at + 4].copy_from_slice(number.as_bytes());
        }
        body.into()
    }

    /// The same in one piece.
    pub(crate) fn whole(subject: Subject, address: SocketAddr, model: &str) -> Self {
        let body = script::request(model, false);
        Self { body, streamed: false, ..Self::new(subject, address, model) }
    }
}

/// The request for a stream through an API.
fn request(api: Subject, model: &str) -> Bytes {
    let mut request: Value = serde_json::from_slice(&script::request(model, true)).expect("it is JSON");
    let messages = || request["messages"].clone();
    match api {
        Subject::LoopgateResponses => request = json!({"model": model, "input": messages(), "stream": true}),
        Subject::LoopgateMessages => {
            request = json!({"model": model, "max_tokens": 1000, "messages": messages(), "stream": true});
        }
        Subject::LoopgateAiSdk => request["agent"] = json!({"events": "ai-sdk"}),
        Subject::LoopgateAgUi => request["agent"] = json!({"events": "ag-ui"}),
        Subject::Direct
        | Subject::PassThrough
        | Subject::LeastLoop
        | Subject::LoopgateChat
        | Subject::LoopgateStreamed
        | Subject::LoopgateInOnePiece
        | Subject::LoopgateAgent
        | Subject::LoopgateCounted
        | Subject::LoopgateTraced
        | Subject::OverRedis
        | Subject::Embedded
        | Subject::Smg => {}
    }
    request.to_string().into()
}

/// Asks `requests` times over `connections` connections and returns the times to the first token.
pub(crate) async fn drive(ask: &Ask, connections: u32, requests: u32) -> Result<Vec<Duration>, Failure> {
    let mut clients = JoinSet::new();
    for index in 0..connections {
        let share = requests / connections + u32::from(index < requests % connections);
        clients.spawn(ask_again_and_again(ask.clone(), share));
    }
    let mut first_tokens = Vec::new();
    while let Some(client) = clients.join_next().await {
        first_tokens.extend(client??);
    }
    Ok(first_tokens)
}

async fn ask_again_and_again(ask: Ask, times: u32) -> Result<Vec<Duration>, Failure> {
    let mut connection = connect(ask.address).await?;
    let mut first_tokens = Vec::new();
    for _ in 0..times {
        let one = async {
            let asked = Instant::now();
            let mut answer = Answer::begin(&mut connection, &ask).await?;
            if ask.streamed {
                answer.read_until(|answer| !answer.text.is_empty()).await?;
            }
            let first_token = asked.elapsed();
            if ask.streamed {
                answer.read_until(|_| false).await?;
            } else {
                answer.read_whole().await?;
            }
            answer.check(&ask.answer)?;
            Ok::<_, Failure>(first_token)
        };
        first_tokens.push(timeout(ANSWER_TIMEOUT, one).await.map_err(|_| "an answer took too long")??);
    }
    Ok(first_tokens)
}

/// Begins `count` streams, evenly within `begin`, and reads each to its end. Says how long each that was
/// right took.
pub(crate) async fn live(ask: &Ask, count: u32, begin: Duration) -> Vec<Result<Duration, Failure>> {
    let mut streams = JoinSet::new();
    for index in 0..count {
        let ask = ask.clone();
        streams.spawn(async move {
            sleep(begin * index / count).await;
            let began = Instant::now();
            let one = async {
                let mut connection = connect(ask.address).await?;
                let mut answer = Answer::begin(&mut connection, &ask).await?;
                answer.read_until(|_| false).await?;
                answer.check(&ask.answer)
            };
            timeout(LIVE_TIMEOUT, one).await.map_err(|_| "a stream took too long")??;
            Ok(began.elapsed())
        });
    }
    streams.join_all().await
}

/// A stream that is held open after its first token.
pub(crate) struct OpenStream {
    _connection: SendRequest<Full<Bytes>>,
    _answer: Answer,
}

/// Opens `count` streams, `at_once` of them at a time, and reads the first token of each.
pub(crate) async fn open_streams(ask: &Ask, count: u32, at_once: u32) -> Result<Vec<OpenStream>, Failure> {
    let (mut opening, mut streams) = (JoinSet::new(), Vec::new());
    for _ in 0..count {
        if opening.len() >= at_once as usize
            && let Some(stream) = opening.join_next().await
        {
            streams.push(stream??);
        }
        opening.spawn(timeout(ANSWER_TIMEOUT, open_stream(ask.clone())));
    }
    while let Some(stream) = opening.join_next().await {
        streams.push(stream??);
    }
    streams.into_iter().collect()
}

async fn open_stream(ask: Ask) -> Result<OpenStream, Failure> {
    let mut connection = connect(ask.address).await?;
    let mut answer = Answer::begin(&mut connection, &ask).await?;
    answer.read_until(|answer| !answer.text.is_empty()).await?;
    if answer.text.is_empty() {
        return Err("a stream ended before its first token".into());
    }
    Ok(OpenStream { _connection: connection, _answer: answer })
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // It ends with its sender. An error also reaches the reader of the answer.
    tokio::spawn(async move { connection.await.ok() });
    Ok(sender)
}

/// Sends this body, which may be empty, and returns once it was taken.
pub(crate) async fn send(address: SocketAddr, method: Method, path: &str, body: String) -> Result<(), Failure> {
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    let request = request.header("content-type", "application/json");
    let mut connection = connect(address).await?;
    let response = connection.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
    let status = response.status();
    let answer = response.into_body().collect().await?.to_bytes();
    if status.is_success() {
        return Ok(());
    }
    Err(format!("{path} answered {status}: {}", String::from_utf8_lossy(&answer)).into())
}

/// A streamed answer, as far as it was read.
struct Answer {
    body: Incoming,
    unread: Vec<u8>,
    text: String,
    done: bool,
}

/// What matters of an event's data, on any endpoint.
#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    delta: Option<Piece>,
    error: Option<IgnoredAny>,
    /// The kind of an event, where events have one.
    r#type: Option<String>,
}

/// A piece of text: as responses and interfaces have it, or as messages do.
#[derive(Deserialize)]
#[serde(untagged)]
enum Piece {
    Text(String),
    Delta { text: Option<String> },
}

#[derive(Deserialize)]
struct Choice {
    #[serde(alias = "message")]
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

impl Answer {
    async fn begin(connection: &mut SendRequest<Full<Bytes>>, ask: &Ask) -> Result<Self, Failure> {
        let mut request =
            Request::post(ask.path).header("host", "localhost").header("content-type", "application/json");
        if let Some(sessions) = &ask.sessions {
            request = request.header("x-loopgate-session-id", format!("bench-{}", sessions.fetch_add(1, Relaxed)));
        }
        if let Some(session) = &ask.session {
            request = request.header("x-loopgate-session-id", session);
        }
        connection.ready().await?;
        let response = connection.send_request(request.body(Full::new(ask.next_body()))?).await?;
        let status = response.status();
        let mut body = response.into_body();
        if !status.is_success() {
            let body = (&mut body).collect().await?.to_bytes();
            return Err(format!("it answered {status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(Self { body, unread: Vec::new(), text: String::new(), done: false })
    }

    /// Reads until `enough` or the end.
    async fn read_until(&mut self, enough: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        while !enough(self) {
            let Some(frame) = self.body.frame().await else { break };
            if let Some(data) = frame?.data_ref() {
                self.unread.extend_from_slice(data);
                self.take_lines()?;
            }
        }
        Ok(())
    }

    /// Reads an answer that is one object.
    async fn read_whole(&mut self) -> Result<(), Failure> {
        let body = (&mut self.body).collect().await?.to_bytes();
        self.take(&body)?;
        self.done = true;
        Ok(())
    }

    fn take(&mut self, json: &[u8]) -> Result<(), Failure> {
        let chunk: Chunk = serde_json::from_slice(json)?;
        if chunk.error.is_some() {
            return Err(format!("it failed: {}", String::from_utf8_lossy(json)).into());
        }
        self.text.extend(chunk.delta.and_then(|piece| match piece {
            Piece::Text(text) => Some(text),
            Piece::Delta { text } => text,
        }));
        // These streams end with an event of theirs.
        self.done |= chunk.r#type.is_some_and(|kind| kind == "message_stop" || kind == "RUN_FINISHED");
        self.text.extend(chunk.choices.into_iter().filter_map(|choice| choice.delta.content));
        Ok(())
    }

    fn take_lines(&mut self) -> Result<(), Failure> {
        let mut lines = std::mem::take(&mut self.unread);
        let complete = memchr::memrchr(b'\n', &lines).map_or(0, |end| end + 1);
        for line in lines[..complete].split(|&byte| byte == b'\n') {
            match line.strip_prefix(b"data: ") {
                Some(b"[DONE]") => self.done = true,
                Some(data) => self.take(data)?,
                None => {}
            }
        }
        lines.drain(..complete);
        self.unread = lines;
        Ok(())
    }

    fn check(&self, expected: &str) -> Result<(), Failure> {
        if self.done && self.text == expected {
            return Ok(());
        }
        Err(format!("a wrong answer (ended by [DONE]: {}): {:?}", self.done, self.text).into())
    }
}

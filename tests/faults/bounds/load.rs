//! What many callers ask of one server at the same time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::http::{HttpServer, Request};
use crate::support::{Reply, TestServer, upstream};

const ENDPOINT: &str = "/v1/agent/completions";
/// Just under the largest body, and the largest command.
const BODY: usize = 10_000_000;
const COMMAND: usize = 1_000_000;
/// How long those wait who are silent.
const HOLD: Duration = Duration::from_secs(8);
/// How long a caller waits for its answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many callers come at the same time.
const AT_ONCE: usize = 250;
/// What a caller says tells the upstream what to answer.
const SLOW: &str = "Speak slowly.";
const LONG: &str = "Say much.";

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amounts {
    /// Streams of live runs.
    pub(super) streams: usize,
    /// Bodies just under the limit: images for the model, and some that stay unfinished.
    pub(super) bodies: usize,
    /// Readers of a long log that take nothing of it.
    pub(super) readers: usize,
    /// Readers of the whole log at once.
    pub(super) logs: usize,
    /// Live runs that are sent as many of the largest commands as they take.
    pub(super) runs: usize,
}

/// One kind after the other, then all at once.
pub(super) const ACTS: [Act; 6] = [Act::Bodies, Act::Readers, Act::Logs, Act::Commands, Act::Streams, Act::All];

/// What many callers do at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Bodies,
    Readers,
    Logs,
    Commands,
    /// The streams go on.
    Streams,
    /// All but the streams, which are still there.
    All,
}

/// The callers and their upstream.
#[derive(Debug)]
pub(super) struct Load {
    amounts: Amounts,
    upstream: HttpServer,
    callers: Option<Arc<Callers>>,
}

/// The callers of one server.
#[derive(Debug)]
struct Callers {
    amounts: Amounts,
    address: SocketAddr,
    client: reqwest::Client,
    url: String,
    /// A run that ended and has a long log.
    run: String,
    /// A body just under the limit, made once: making one takes its time.
    body: Arc<[u8]>,
    command: Arc<[u8]>,
    /// How often bodies were answered so.
    answers: Mutex<BTreeMap<String, usize>>,
    /// Streams that are read to their end.
    streams: Mutex<JoinSet<()>>,
}

impl Load {
    pub(super) async fn start(amounts: Amounts) -> Self {
        let slow = (0..60).fold(Reply::stream(), |reply, _| reply.text("word ").pause(Duration::from_secs(10))).stall();
        let piece = "x".repeat(16 << 10);
        let long = (0..64).fold(Reply::stream(), |reply, _| reply.text(&piece)).finish("stop").usage(1, 1).done();
        let decide = move |request: &Request| {
            // What is said stands behind what the agent is told.
            let text = String::from_utf8_lossy(&request.body[..request.body.len().min(8 << 10)]).into_owned();
            match text {
                text if text.contains(SLOW) => slow.clone(),
                text if text.contains(LONG) => long.clone(),
                _ => Reply::says("Done."),
            }
        };
        Self { amounts, upstream: HttpServer::start(|_| false, decide).await, callers: None }
    }

    pub(super) fn config(&self) -> String {
        let upstream = upstream::declaration(self.upstream.address());
        format!("{upstream}[server]\ndrain_delay = \"0s\"\n[agents.default.limits]\ntimeout = \"20m\"\n")
    }

    /// Lets a run get a long log.
    pub(super) async fn prepare(&mut self, server: &TestServer) {
        let answer = server.post(ENDPOINT, &asking(LONG)).await.ok();
        self.callers = Some(Arc::new(Callers {
            amounts: self.amounts,
            address: server.address().parse().expect("it is an address"),
            client: reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().expect("the defaults are valid"),
            url: server.url().to_owned(),
            run: answer["agent"]["run_id"].as_str().expect("it is named").to_owned(),
            body: large_body().into(),
            command: json!({"messages": [{"role": "user", "content": "x".repeat(COMMAND)}]})
                .to_string()
                .into_bytes()
                .into(),
            answers: Mutex::default(),
            streams: Mutex::default(),
        }));
    }

    /// Does this, and says what was done.
    pub(super) async fn act(&self, act: Act) -> String {
        let Amounts { streams, bodies, readers, logs, runs } = self.amounts;
        let callers = self.callers.as_ref().expect("it was prepared");
        match act {
            Act::Bodies => {
                let answers = callers.bodies().await;
                format!("{bodies} bodies, whole ones answered {answers:?}")
            }
            Act::Readers => {
                callers.readers().await;
                format!("{readers} readers that do not read")
            }
            Act::Logs => {
                callers.logs().await;
                format!("{logs} whole logs")
            }
            Act::Commands => {
                callers.commands().await;
                format!("commands to {runs} runs")
            }
            Act::Streams => {
                callers.streams().await;
                format!("{streams} streams")
            }
            Act::All => {
                let (answers, ..) =
                    tokio::join!(callers.bodies(), callers.readers(), callers.logs(), callers.commands());
                format!("all of it beside the streams, whole bodies answered {answers:?}")
            }
        }
    }
}

fn asking(text: &str) -> Value {
    let agent = json!({"on_disconnect": "continue"});
    json!({"model": "test", "messages": [{"role": "user", "content": text}], "agent": agent})
}

/// An image for the model: as a text it would be more than a model reads.
fn large_body() -> Vec<u8> {
    let mut body = asking("");
    let image = json!({"url": format!("data:image/png;base64,{}", "A".repeat(BODY))});
    body["messages"][0]["content"] = json!([{"type": "image_url", "image_url": image}]);
    body.to_string().into_bytes()
}

fn head(method: &str, path: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    )
}

impl Callers {
    async fn connect(&self) -> TcpStream {
        let mut attempts = 0;
        loop {
            match TcpStream::connect(self.address).await {
                Ok(connection) => return connection,
                Err(error) => assert!(attempts < 5, "the server does not accept: {error}"),
            }
            attempts += 1;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Connects from an address of its own.
    async fn connect_as_another(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("there are sockets");
        socket.bind(([127, 0, 0, 2], 0).into()).expect("all of 127.0.0.0/8 is this machine");
        socket.connect(self.address).await.expect("it listens")
    }

    /// Does something so many times, all at once.
    async fn each<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        count: usize,
        act: impl Fn(Arc<Self>, usize) -> F,
    ) {
        let mut all = JoinSet::new();
        for number in 0..count {
            all.spawn(act(self.clone(), number));
        }
        all.join_all().await;
    }

    /// Streams that go on.
    async fn streams(self: &Arc<Self>) {
        let mut body = asking(SLOW);
        body["stream"] = true.into();
        let request = format!("{}{body}", head("POST", ENDPOINT, body.to_string().len()));
        let open = |_| async {
            let mut connection = self.connect().await;
            connection.write_all(request.as_bytes()).await.expect("the server takes it");
            let mut read = Vec::with_capacity(4 << 10);
            let spoken = async {
                while !String::from_utf8_lossy(&read).contains("word") {
                    let count = connection.read_buf(&mut read).await.expect("it is answered");
                    assert!(count > 0, "a stream ended: {}", String::from_utf8_lossy(&read));
                }
            };
            timeout(PATIENCE, spoken).await.expect("the stream begins");
            self.streams.lock().spawn(async move {
                let mut piece = [0; 512];
                while connection.read(&mut piece).await.is_ok_and(|count| count > 0) {}
            });
        };
        stream::iter(0..self.amounts.streams).map(open).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
    }

    /// Bodies just under the limit. Returns how often whole ones were answered so.
    async fn bodies(self: &Arc<Self>) -> BTreeMap<String, usize> {
        self.each(self.amounts.bodies, |callers, number| async move { callers.body(number % 3 > 0).await }).await;
        let answers = std::mem::take(&mut *self.answers.lock());
        assert!(answers.contains_key("HTTP/1.1 200"), "none is taken: {answers:?}");
        answers
    }

    async fn body(&self, is_whole: bool) {
        let body = self.body.clone();
        let end = if is_whole { body.len() } else { body.len() - 10 };
        // Those that never end come from another caller: a caller's own bodies may take all that it gets.
        let connection = if is_whole { self.connect().await } else { self.connect_as_another().await };
        let (mut answer, mut connection) = connection.into_split();
        let sending = async {
            // A refusal may come before all is sent.
            let sent = connection.write_all(head("POST", ENDPOINT, body.len()).as_bytes()).await;
            if sent.is_ok() {
                drop(connection.write_all(&body[..end]).await);
            }
            connection
        };
        let mut read = Vec::new();
        if is_whole {
            let answered = async { tokio::join!(answer.read_to_end(&mut read), sending) };
            drop(timeout(PATIENCE, answered).await.expect("a body is answered"));
            let status = String::from_utf8_lossy(&read).chars().take(12).collect::<String>();
            // Beside so many there may be no room for one more.
            assert!(["HTTP/1.1 200", "HTTP/1.1 503"].contains(&&*status), "{status:?}");
            *self.answers.lock().entry(status).or_default() += 1;
        } else {
            drop(timeout(HOLD, async { tokio::join!(answer.read_to_end(&mut read), sending) }).await);
        }
    }

    /// Asks for a long log and takes nothing of it.
    async fn readers(self: &Arc<Self>) {
        self.each(self.amounts.readers, |callers, _| async move {
            let socket = TcpSocket::new_v4().expect("there are sockets");
            socket.set_recv_buffer_size(4 << 10).expect("it may be small");
            let mut connection = socket.connect(callers.address).await.expect("it listens");
            let request = head("GET", &format!("/v1/runs/{}/events", callers.run), 0);
            connection.write_all(request.as_bytes()).await.expect("the server takes it");
            tokio::time::sleep(HOLD).await;
        })
        .await;
    }

    /// Reads the whole log.
    async fn logs(self: &Arc<Self>) {
        self.each(self.amounts.logs, |callers, _| async move {
            let request = head("GET", &format!("/v1/runs/{}/events?stream=false", callers.run), 0);
            let mut connection = callers.connect().await;
            connection.write_all(request.as_bytes()).await.expect("the server takes it");
            let mut list = Vec::new();
            timeout(PATIENCE, connection.read_to_end(&mut list)).await.expect("it ends").expect("it is whole");
            assert!(list.starts_with(b"HTTP/1.1 200 ") && list.len() > 1 << 20, "{} bytes", list.len());
        })
        .await;
    }

    /// Sends live runs the largest commands until they take no more.
    async fn commands(self: &Arc<Self>) {
        self.each(self.amounts.runs, |callers, _| async move {
            let mut body = asking(SLOW);
            body["agent"]["background"] = true.into();
            let (status, answer) = callers.post(ENDPOINT, body.to_string().into_bytes()).await;
            // Beside so much there may be no room for one more.
            if status == 503 {
                return;
            }
            let run: Value = serde_json::from_str(&answer).expect("a run is JSON");
            let path = format!("/v1/runs/{}/messages", run["id"].as_str().unwrap_or_else(|| panic!("{status} {run}")));
            for _ in 0..3 {
                let (status, answer) = callers.post(&path, callers.command.to_vec()).await;
                assert!([202, 409, 503].contains(&status), "{status} {answer}");
            }
        })
        .await;
    }

    async fn post(&self, path: &str, body: Vec<u8>) -> (u16, String) {
        let request = self.client.post(format!("{}{path}", self.url)).header("content-type", "application/json");
        let answer = request.body(body).send().await.expect("it is answered");
        (answer.status().as_u16(), answer.text().await.expect("the answer is whole"))
    }
}

//! What clients can take of the server by being connected to it, over bare sockets.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::redis::Signal;
use crate::support::{Gate, Reply, TestServer, ToolServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";
const PROBE: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
const MODELS: &str = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Of one tenant, so that both see the same runs.
const KEYS: &str = r#"
[keys.slow]
key_env = "SLOW"
tenant = "both"
[keys.other]
key_env = "OTHER"
tenant = "both"
"#;

fn ask() -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "Go."}], "agent": {"on_disconnect": "continue"}})
}

fn config(upstream: &Upstream, server: &str) -> String {
    format!("{}[server]\ndrain_delay = \"0s\"\n{server}\n", upstream.config())
}

/// A connection of its own.
struct Connection(BufReader<TcpStream>);

impl Connection {
    async fn open(server: &TestServer) -> Self {
        Self(BufReader::new(TcpStream::connect(server.address()).await.expect("it listens")))
    }

    async fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).await.expect("the server takes it");
    }

    /// The head of the next answer, in lower case.
    async fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = within("a line of the head", self.0.read_line(&mut head)).await.expect("it is text");
            assert!(read > 0, "the connection was closed after {head:?}");
        }
        head.to_lowercase()
    }

    /// The next answer, whose length is known.
    async fn answer(&mut self) -> (u16, String, String) {
        let head = self.head().await;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("there is a status");
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        let mut body = vec![0; length.expect("the length is known")];
        within("a body", self.0.read_exact(&mut body)).await.expect("the body is whole");
        (status, head, String::from_utf8(body).expect("it is text"))
    }

    async fn ask(&mut self, request: &str) -> (u16, String, String) {
        self.send(request).await;
        self.answer().await
    }

    /// Returns once the server has closed it.
    async fn closed(&mut self) {
        let mut rest = Vec::new();
        // A reset closes it as well.
        drop(within("the server to close the connection", self.0.read_to_end(&mut rest)).await);
    }
}

#[tokio::test]
async fn the_longest_idle_connection_gives_way_to_a_new_one() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&config(&upstream, "max_connections = 3")).await;
    let mut connections = Vec::new();
    for _ in 0..3 {
        let mut connection = Connection::open(&server).await;
        assert_eq!(connection.ask(MODELS).await.0, 200);
        connections.push(connection);
    }
    assert_eq!(connections[0].ask(MODELS).await.0, 200);
    // The other two have been idle for longer than the first.
    for idle in [1, 2] {
        let mut new = Connection::open(&server).await;
        assert_eq!(new.ask(MODELS).await.0, 200);
        connections[idle].closed().await;
        connections.push(new);
    }
    assert_eq!(connections[0].ask(MODELS).await.0, 200, "it was kept");
}

#[tokio::test]
async fn probes_are_answered_while_all_connections_are_busy() {
    let (one, two) = (Gate::new(), Gate::new());
    let wait = |gate: &Gate| Reply::stream().text("One").gate(gate).text(" two").finish("stop").usage(1, 1).done();
    let upstream = Upstream::start([wait(&one), wait(&two)]).await;
    let server = TestServer::start(&config(&upstream, "max_connections = 2")).await;
    let body = json!({"model": "test", "stream": true, "messages": [{"role": "user", "content": "Go."}]}).to_string();
    let length = body.len();
    let post = format!(
        "POST {ENDPOINT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let (mut first, mut second) = (Connection::open(&server).await, Connection::open(&server).await);
    for busy in [&mut first, &mut second] {
        busy.send(&post).await;
        assert!(busy.head().await.starts_with("http/1.1 200"));
    }
    for path in ["/healthz", "/readyz"] {
        let mut probe = Connection::open(&server).await;
        assert_eq!(probe.ask(&PROBE.replace("/healthz", path)).await.0, 200, "{path}");
    }
    let mut other = Connection::open(&server).await;
    let (status, head, body) = other.ask(MODELS).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("\"overloaded\"") && head.contains("retry-after: 1"), "{head}{body}");
    other.closed().await;
    one.open();
    two.open();
    first.send(MODELS).await;
}

#[tokio::test]
async fn an_address_has_only_so_many_connections() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&config(&upstream, "max_connections_per_address = 2")).await;
    let mut taken = Vec::new();
    // The connection that found the server ready may still be there.
    let (head, body) = loop {
        let mut connection = Connection::open(&server).await;
        match connection.ask(MODELS).await {
            (200, ..) if taken.len() < 10 => taken.push(connection),
            (status, head, body) => {
                assert_eq!(status, 429, "{body}");
                break (head, body);
            }
        }
    };
    assert!((1..=2).contains(&taken.len()), "{} connections", taken.len());
    assert!(head.contains("retry-after: 1") && body.contains("rate_limit_exceeded"), "{head}{body}");
    assert_eq!(Connection::open(&server).await.ask(PROBE).await.0, 200, "the probe comes from the same address");
    assert_eq!(taken[0].ask(MODELS).await.0, 200);
    drop(taken);
    let again = async { while Connection::open(&server).await.ask(MODELS).await.0 != 200 {} };
    within("the address to have its share again", again).await;
}

/// A run whose events are a megabyte, in a server with these settings.
async fn long_run(settings: &str) -> (TestServer, String, [Box<dyn std::any::Any>; 2]) {
    run_of_calls(20, settings).await
}

/// A run whose log has so many results of 50 KiB.
async fn run_of_calls(calls: usize, settings: &str) -> (TestServer, String, [Box<dyn std::any::Any>; 2]) {
    large_run(calls, settings, false).await
}

/// The same, where another run may have delegated to it: the run is that one then.
async fn large_run(calls: usize, settings: &str, is_below: bool) -> (TestServer, String, [Box<dyn std::any::Any>; 2]) {
    let tools = ToolServer::start((0..calls).map(|_| Reply::plain("x".repeat(50 << 10)))).await;
    let calls = (0..calls).fold(Reply::stream(), |reply, index| {
        reply.tool_call(index, &format!("call_{index}"), "look", &json!({"note": index.to_string()}).to_string())
    });
    let calls = [calls.finish("tool_calls").usage(10, 5).done(), Reply::says("Done.")];
    let upstream = if is_below {
        let delegates = Reply::calls("delegate", &json!({"agent": "default", "task": "Look."}));
        Upstream::start([delegates].into_iter().chain(calls).chain([Reply::says("It is done.")])).await
    } else {
        Upstream::start(calls).await
    };
    let agents = "[agents.boss]\nmodel = \"scripted/test\"\ntools = []\ndelegates = [\"default\"]\n";
    let tool = format!(
        "{}{agents}[agents.default]\nmodel = \"scripted/test\"\ndescription = \"Looks.\"\ntools = [\"look\"]\n",
        tools.config("look", "read")
    );
    let tool = format!("{tool}[models.test]\ncontext_window = 10000000\n");
    let server = TestServer::builder(&format!("{}{tool}", config(&upstream, settings)));
    let server = server.env("LOOPGATE_LOG", "loopgate=debug").env("SLOW", "lg_slow").env("OTHER", "lg_other");
    let mut server = server.start().await;
    // Where there are keys.
    server.use_key("lg_slow");
    let mut request = ask();
    request["model"] = json!(if is_below { "boss" } else { "test" });
    let answer = server.post(ENDPOINT, &request).await;
    let run = answer.header("x-loopgate-run-id").to_owned();
    answer.ok();
    (server, run, [Box::new(tools), Box::new(upstream)])
}

#[tokio::test]
async fn long_logs_are_written_in_pieces() {
    let (server, run, _others) = long_run("").await;
    for query in ["", "?events=extension", "?stream=false"] {
        let mut connection = Connection::open(&server).await;
        connection.send(&format!("GET /v1/runs/{run}/events{query} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        let head = connection.head().await;
        assert!(head.contains("transfer-encoding: chunked"), "{query}: it is written as a whole: {head}");
        let (mut whole, mut largest) = (Vec::new(), 0);
        loop {
            let mut line = String::new();
            within("a chunk", connection.0.read_line(&mut line)).await.expect("it is text");
            let size = usize::from_str_radix(line.trim(), 16).expect("chunks have a size");
            let mut chunk = vec![0; size + 2];
            within("a chunk", connection.0.read_exact(&mut chunk)).await.expect("it is whole");
            if size == 0 {
                break;
            }
            largest = largest.max(size);
            whole.extend_from_slice(&chunk[..size]);
        }
        assert!(whole.len() > 1_000_000, "{query}: {}", whole.len());
        // A piece, and the event with which it became one.
        assert!(largest < (64 << 10) + (60 << 10), "{query}: {largest} bytes at once");
        if query == "?stream=false" {
            let list: Value = serde_json::from_slice(&whole).expect("a list is JSON");
            assert_eq!((&list["object"], &list["has_more"]), (&json!("list"), &json!(false)));
            assert!(list["data"].as_array().is_some_and(|events| events.len() > 40), "{list:.300}");
        }
    }
}

/// A client that asks for more than the kernels keep between it and the server.
async fn insatiable(server: &TestServer, run: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("there are sockets");
    socket.set_recv_buffer_size(4 << 10).expect("it may be small");
    let mut stream = socket.connect(server.address().parse().expect("an address")).await.expect("it listens");
    let request = format!("GET /v1/runs/{run}/events?stream=false HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.repeat(40).as_bytes()).await.expect("the server takes it");
    stream
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_closed() {
    let (server, run, _others) = long_run("write_timeout = \"1s\"").await;
    let _stream = insatiable(&server, &run).await;
    server.logged("a connection broke").await;
    assert_eq!(Connection::open(&server).await.ask(PROBE).await.0, 200);
}

/// The server notices how little that is, or its kernel does.
#[tokio::test]
async fn a_client_that_takes_next_to_nothing_is_closed() {
    let (server, run, _others) = long_run("write_timeout = \"1s\"").await;
    let mut stream = insatiable(&server, &run).await;
    let takes = async {
        loop {
            // What was sent before the end is there to be read after it.
            let _ = stream.read(&mut [0; 1 << 10]).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        _ = server.logged("a connection broke") => {}
        () = takes => unreachable!("it goes on"),
    }
}

#[tokio::test]
async fn large_bodies_wait_for_room_and_small_ones_do_not() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let server = TestServer::start(&config(&upstream, "max_body = \"1MiB\"\nbody_memory = \"1MiB\"")).await;
    let mut half = Connection::open(&server).await;
    let head = format!(
        "POST {ENDPOINT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        1 << 20
    );
    half.send(&format!("{head}{}", " ".repeat(200 << 10))).await;
    let large = format!("{}{}", ask(), " ".repeat(900 << 10));
    let large = || {
        let request = server.request(Method::POST, ENDPOINT).header("content-type", "application/json");
        server.send(request.body(large.clone()))
    };
    let refused = async {
        // Until the server has read so much of the first body that there is no room for another.
        loop {
            let answer = large().await;
            if answer.status != 200 {
                return answer;
            }
        }
    };
    let refused = within("a large body to be refused", refused).await;
    assert_eq!((refused.status, refused.code()), (503, "overloaded"));
    assert_eq!(refused.header("retry-after"), "1");
    server.post(ENDPOINT, &ask()).await.ok();
    drop(half);
    // Its room is free again, sooner or later.
    large().await.ok();
}

/// A half-sent body takes no more than what has arrived of it, and all of one caller's together leave room for others.
#[tokio::test]
async fn a_caller_that_does_not_end_its_bodies_delays_no_other_callers() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let settings = format!("max_body = \"1MiB\"\nbody_memory = \"4MiB\"\n{KEYS}");
    let server = TestServer::builder(&config(&upstream, &settings)).env("SLOW", "lg_slow").env("OTHER", "lg_other");
    let server = server.start().await;
    let half = async |length: usize, arrives: usize| {
        let mut connection = Connection::open(&server).await;
        let head = "host: localhost\r\nauthorization: Bearer lg_slow\r\ncontent-type: application/json\r\n\
                    expect: 100-continue";
        connection.send(&format!("POST {ENDPOINT} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n")).await;
        // The server reads the body now.
        assert!(connection.head().await.starts_with("http/1.1 100"));
        connection.send(&" ".repeat(arrives)).await;
        connection
    };
    let post = async |key: &str, size: usize| {
        let body = format!("{}{}", ask(), " ".repeat(size));
        let request = server.request(Method::POST, ENDPOINT).header("content-type", "application/json");
        server.send(request.bearer_auth(key).body(body)).await
    };
    // A small body has no more room than one that has not begun to arrive.
    let mut halves = Vec::new();
    for _ in 0..64 {
        halves.push(half(60 << 10, 0).await);
    }
    post("lg_slow", 50 << 10).await.ok();
    // More small ones than fit into the share, and more large ones.
    for (length, arrives) in [(60 << 10, 59 << 10); 16].into_iter().chain([(1 << 20, 100 << 10); 8]) {
        halves.push(half(length, arrives).await);
    }
    let refused = async |size: usize| loop {
        // Until the server has read so much of the others that there is no room for another.
        let answer = post("lg_slow", size).await;
        if answer.status != 200 {
            return (answer.status, answer.code().to_owned());
        }
    };
    let refused = tokio::join!(within("a small one", refused(50 << 10)), within("a large one", refused(900 << 10)));
    assert_eq!(refused, ((503, "overloaded".into()), (503, "overloaded".into())));
    for size in [0, 50 << 10, 900 << 10] {
        post("lg_other", size).await.ok();
    }
}

/// A reader of a log holds a page of it for as long as its client takes nothing.
#[tokio::test]
async fn a_caller_that_reads_nothing_takes_little_memory_and_delays_no_other_callers() {
    // More than the kernel takes for a connection.
    let staged = run_of_calls(60, &format!("reader_memory = \"2MiB\"\n{KEYS}")).await;
    many_read_nothing(staged, 300, "", &["?events=extension", "?stream=false"]).await;
}

/// Nor does one that is shown what happens in the runs below, each of which has a reader of its own.
#[tokio::test]
async fn a_caller_that_reads_nothing_of_runs_below_takes_little_memory_and_delays_no_other_callers() {
    let staged = large_run(60, &format!("reader_memory = \"2MiB\"\n{KEYS}"), true).await;
    many_read_nothing(staged, 300, "?delegate_events=true", &["?delegate_events=true"]).await;
}

/// Lets so many readers of a run ask for this and read nothing, while another reads the run in these ways.
async fn many_read_nothing(
    (mut server, run, _others): (TestServer, String, [Box<dyn std::any::Any>; 2]),
    readers: usize,
    asked: &str,
    others: &[&str],
) {
    const MOST: u64 = 40 << 20;
    let before = server.resident_memory();
    let mut stalled = Vec::new();
    for _ in 0..readers {
        let socket = TcpSocket::new_v4().expect("there are sockets");
        socket.set_recv_buffer_size(4 << 10).expect("it may be small");
        let stream = socket.connect(server.address().parse().expect("an address")).await.expect("it listens");
        let mut connection = Connection(BufReader::with_capacity(256, stream));
        let head = "host: localhost\r\nauthorization: Bearer lg_slow";
        connection.send(&format!("GET /v1/runs/{run}/events{asked} HTTP/1.1\r\n{head}\r\n\r\n")).await;
        assert!(connection.head().await.starts_with("http/1.1 200"));
        stalled.push(connection);
    }
    server.use_key("lg_other");
    for query in others {
        let whole = server.respond(server.request(Method::GET, &format!("/v1/runs/{run}/events{query}"))).await;
        assert!(within("the log", whole.bytes()).await.expect("it is whole").len() > 1_000_000, "{query}");
    }
    let grown = server.most_memory().saturating_sub(before);
    assert!(grown < MOST, "{readers} readers take {} KiB each", grown / 1024 / readers as u64);
}

#[tokio::test]
async fn a_run_that_finds_no_memory_is_refused_and_can_be_sent_again() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::plain("").stall());
    let agent = "\n[agents.default.context]\nmax_message_chars = 1_000_000\n";
    let server = TestServer::start(&(config(&upstream, "run_memory = \"1MiB\"") + agent)).await;
    let messages = json!([{"role": "user", "content": "x".repeat(250 << 10)}]);
    let large = json!({"model": "test", "messages": messages, "agent": {"background": true}});
    let first = server.post("/v1/agent/completions", &large).await.ok();
    let refused = server.post("/v1/agent/completions", &large).await;
    assert_eq!((refused.status, refused.code(), refused.header("retry-after")), (503, "overloaded", "2"));
    let run = first["id"].as_str().expect("it is text");
    server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
    server.post("/v1/agent/completions", &large).await.ok();
}

/// The kernel completes connections for a server that does not come to accept them, as many as the server asked for. It drops
/// the next ones, whose clients ask again only after a second.
#[tokio::test]
async fn thousands_of_connections_may_wait_to_be_accepted() {
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("the kernel says so");
    let allowed = allowed.trim().parse::<usize>().expect("it is a number");
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    server.signal(Signal::STOP);
    let mut waiting = Vec::new();
    for _ in 0..allowed.min(2_000) {
        waiting.push(within("a connection", TcpStream::connect(server.address())).await.expect("it listens"));
    }
    server.signal(Signal::CONT);
}

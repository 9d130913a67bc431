//! Clients of Responses and Messages that send a request again without a word of it, because its connection was cut: it
//! starts one run, wherever it was cut.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::redis::durable;
use crate::support::{Gate, Reply, TestServer, Upstream, within};

/// How the last event of each begins.
const LAST: [&str; 2] = ["event: response.completed", "event: message_stop"];
const ENDPOINTS: [&str; 2] = ["/v1/responses", "/v1/messages"];
/// How long a client pauses before it sends a request again. The most hasty pause for 200 ms; a machine that is busy with
/// tests needs longer to notice a cut.
const PAUSE: Duration = Duration::from_millis(500);

fn ask(path: &str, text: &str, stream: bool) -> Value {
    match path {
        "/v1/responses" => json!({"model": "test", "input": text, "stream": stream}),
        _ => {
            json!({"model": "test", "max_tokens": 100, "messages": [{"role": "user", "content": text}], "stream": stream})
        }
    }
}

/// A model that takes a moment in the middle of what it says.
fn slow() -> Reply {
    let reply = Reply::stream().text("One ").pause(Duration::from_millis(60)).text("single ");
    reply.pause(Duration::from_millis(60)).text("run.").finish("stop").usage(10, 5).done()
}

/// A connection over which a request was sent.
async fn connected(server: &TestServer, path: &str, body: &Value) -> TcpStream {
    let mut connection = TcpStream::connect(server.address()).await.expect("it listens");
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    connection.write_all(request.as_bytes()).await.expect("the server takes it");
    connection
}

/// A request of a client that closes its connection once it has read so much of the answer, or where the last event begins:
/// an answer may have fewer events than another.
async fn send_and_cut(server: &TestServer, path: &str, body: &Value, after: usize) {
    let mut connection = connected(server, path, body).await;
    let mut read = Vec::new();
    while read.len() < after && !LAST.iter().any(|last| read.ends_with(last.as_bytes())) {
        read.push(within("so much of the answer", connection.read_u8()).await.expect("it is longer"));
    }
}

/// The answer, as the client reads it over a connection that holds: its run, and its bytes with their head.
async fn send(server: &TestServer, path: &str, body: &Value) -> (String, String) {
    let mut connection = TcpStream::connect(server.address()).await.expect("it listens");
    let body = body.to_string();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    connection.write_all(request.as_bytes()).await.expect("the server takes it");
    let mut answer = String::new();
    within("the answer", connection.read_to_string(&mut answer)).await.expect("it is whole");
    let run = answer.split("x-loopgate-run-id: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    (run.unwrap_or_else(|| panic!("it names its run: {answer}")).to_owned(), answer)
}

/// The runs that there are.
async fn runs(server: &TestServer) -> BTreeSet<String> {
    let list = server.get("/v1/runs?limit=100").await.ok();
    assert_eq!(list["has_more"], false, "{list}");
    let ids = list["data"].as_array().expect("it is a list").iter();
    ids.map(|run| run["id"].as_str().expect("it is a text").to_owned()).collect()
}

/// Where to cut an answer: at its begin, in its head, in the middle of each event and behind it, and before the last.
fn cuts(answer: &str) -> Vec<usize> {
    let answer = answer.replace("connection: close\r\n", "");
    let head = answer.find("\r\n\r\n").expect("it has a head") + 4;
    let mut cuts = vec![0, 1, head / 2, head];
    // Where there are no events, other answers may be some digits shorter.
    let last = answer.rfind("event: ").unwrap_or(answer.len() - 50);
    let mut before = head;
    for end in answer.match_indices("\n\n").map(|(at, _)| at + 2).take_while(|end| *end <= last).chain([last]) {
        cuts.extend([before.midpoint(end), end]);
        before = end;
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

async fn one_run_however_it_is_cut(first: &TestServer, second: &TestServer, upstream: &Upstream) {
    for (path, stream) in ENDPOINTS.into_iter().flat_map(|path| [(path, true), (path, false)]) {
        // A length and a date of their own apart, all answers are as long as this.
        let (_, whole) = send(first, path, &ask(path, "Hi 000", stream)).await;
        let (cuts, asked, before) = (cuts(&whole), upstream.requests().len(), runs(first).await);
        assert!(cuts.len() > if stream { 15 } else { 4 }, "{cuts:?}");
        let repeated = cuts.iter().enumerate().map(async |(number, after)| {
            let body = ask(path, &format!("Hi {:03}", number + 1), stream);
            send_and_cut(first, path, &body, *after).await;
            tokio::time::sleep(PAUSE).await;
            let (run, answer) = send(second, path, &body).await;
            assert!(answer.contains("200 OK") && answer.contains("single"), "cut after {after}: {answer}");
            run
        });
        let answered: BTreeSet<_> = join_all(repeated).await.into_iter().collect();
        let made: BTreeSet<_> = runs(second).await.difference(&before).cloned().collect();
        assert_eq!(made, answered, "{path}, streamed: {stream}: each was cut at one of {cuts:?}");
        assert_eq!(upstream.requests().len(), asked + cuts.len(), "{path}: each asks the model once");
    }
}

#[tokio::test]
async fn a_request_that_is_cut_at_any_byte_and_sent_again_starts_one_run() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(slow());
    let server = TestServer::start(&upstream.config()).await;
    one_run_however_it_is_cut(&server, &server, &upstream).await;
}

#[tokio::test]
async fn so_does_one_that_is_sent_again_to_another_replica() {
    let (upstream, redis) = (Upstream::start([]).await, durable().await);
    upstream.otherwise(slow());
    let start = async || TestServer::builder(&upstream.config()).store(&redis.url()).start().await;
    let (one, other) = (start().await, start().await);
    one_run_however_it_is_cut(&one, &other, &upstream).await;
}

/// Nobody can say of a replica that was killed what its clients have read.
#[tokio::test]
async fn a_request_whose_replica_was_killed_starts_one_run() {
    let (gate, redis) = (Gate::new(), durable().await);
    let held = Reply::stream().text("Half ").gate(&gate).text("lost").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held]).await;
    upstream.otherwise(Reply::says("Whole."));
    let start = async || TestServer::builder(&upstream.config()).store(&redis.url()).start().await;
    let (mut one, other) = (start().await, start().await);
    let body = ask(ENDPOINTS[0], "Hi", true);
    let mut first = one.respond(one.json(ENDPOINTS[0], &body)).await;
    crate::support::sse::read_to(&mut first, "Half").await;
    gate.reached().await;
    one.kill9().await;
    drop(first);
    // At once, while the lease of the replica that was killed holds.
    let (run, answer) = send(&other, ENDPOINTS[0], &body).await;
    assert!(answer.contains("Whole."), "{answer}");
    assert_eq!(runs(&other).await, BTreeSet::from([run.clone()]));
    // That one was read to its end.
    assert_ne!(send(&other, ENDPOINTS[0], &body).await.0, run);
}

/// A stream of messages cannot take back what a replica had said that died, and ends with an error. Its run goes on.
#[tokio::test]
async fn a_message_that_could_not_be_told_on_is_told_to_the_client_that_asks_again() {
    let (gate, redis) = (Gate::new(), durable().await);
    let held = Reply::stream().text("Half ").gate(&gate).text("lost").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held]).await;
    upstream.otherwise(Reply::says("Whole."));
    let start = async || TestServer::builder(&upstream.config()).store(&redis.url()).start().await;
    let (mut one, other) = (start().await, start().await);
    let body = ask(ENDPOINTS[1], "Hi", true);
    let mut first = one.respond(one.json(ENDPOINTS[1], &body)).await;
    crate::support::sse::read_to(&mut first, "Half").await;
    drop(first);
    tokio::time::sleep(PAUSE).await;
    let mut second = other.respond(other.json(ENDPOINTS[1], &body)).await;
    crate::support::sse::read_to(&mut second, "Half").await;
    one.kill9().await;
    let told = crate::support::sse::read_to(&mut second, "cannot take it back").await;
    assert!(told.contains("event: error"), "{told}");
    tokio::time::sleep(PAUSE).await;
    let (run, answer) = send(&other, ENDPOINTS[1], &body).await;
    assert!(answer.contains("Whole.") && !answer.contains("Half"), "{answer}");
    assert_eq!(runs(&other).await, BTreeSet::from([run]));
}

#[tokio::test]
async fn a_server_that_was_killed_answers_from_the_first_event_once_it_is_back() {
    let gate = Gate::new();
    let held = Reply::stream().text("Half ").gate(&gate).text("lost").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held]).await;
    upstream.otherwise(Reply::says("Whole."));
    let mut server = TestServer::start(&upstream.config()).await;
    let body = ask(ENDPOINTS[1], "Hi", false);
    let connection = connected(&server, ENDPOINTS[1], &body).await;
    gate.reached().await;
    server.kill9().await;
    drop(connection);
    server.restart().await;
    let (run, answer) = send(&server, ENDPOINTS[1], &body).await;
    assert!(answer.contains("Whole."), "{answer}");
    assert_eq!(runs(&server).await, BTreeSet::from([run]));
}

#[tokio::test]
async fn a_client_that_has_its_answer_and_asks_the_same_again_gets_a_new_run() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let server = TestServer::start(&upstream.config()).await;
    let client = reqwest::Client::builder().no_proxy().build().expect("it can be built");
    for path in ENDPOINTS {
        let mut seen = BTreeSet::new();
        // Over one connection and over others, with and without a count of attempts, streamed and not.
        for number in 0..12 {
            let body = ask(path, "Hi", number % 3 == 0);
            if number % 2 == 0 {
                assert!(seen.insert(send(&server, path, &body).await.0), "{path}: number {number}");
                continue;
            }
            let mut request = client.post(format!("{}{path}", server.url())).header("content-type", "application/json");
            if number % 4 == 1 {
                request = request.header("x-stainless-retry-count", "0");
            }
            let response = request.body(body.to_string()).send().await.expect("it answers");
            let run = response.headers()["x-loopgate-run-id"].to_str().expect("it is plain").to_owned();
            assert!(response.text().await.expect("it is whole").contains("Hello"));
            assert!(seen.insert(run), "{path}: number {number}");
        }
    }
}

/// A client that counts its attempts says that it asks again. What it has read then is given to nobody else.
#[tokio::test]
async fn an_answer_that_was_read_at_a_counted_attempt_is_not_given_again() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(slow());
    let server = TestServer::start(&upstream.config()).await;
    for path in ENDPOINTS {
        let body = ask(path, "Hi", true);
        send_and_cut(&server, path, &body, 1).await;
        tokio::time::sleep(PAUSE).await;
        let again = server.json(path, &body).header("x-stainless-retry-count", "1");
        let response = server.respond(again).await;
        let run = response.headers()["x-loopgate-run-id"].to_str().expect("it is plain").to_owned();
        assert!(within("the answer", response.text()).await.expect("it is whole").contains("single"));
        let runs = [send(&server, path, &body).await.0, send(&server, path, &body).await.0];
        assert!(!runs.contains(&run) && runs[0] != runs[1], "{path}: {run} {runs:?}");
    }
    assert_eq!(
        upstream.requests().len(),
        2 * 3,
        "the attempt that was counted joined the run whose connection was cut"
    );
}

#[tokio::test]
async fn equal_requests_at_once_are_runs_of_their_own() {
    let gate = Gate::new();
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::stream().text("One ").gate(&gate).text("more.").finish("stop").usage(10, 5).done());
    let server = TestServer::start(&upstream.config()).await;
    let body = ask(ENDPOINTS[0], "Hi", true);
    let asking = join_all((0..5).map(|_| send(&server, ENDPOINTS[0], &body)));
    let opening = async {
        upstream.received(5).await;
        gate.open();
    };
    let (answers, ()) = tokio::join!(asking, opening);
    let all: BTreeSet<_> = answers.into_iter().map(|(run, _)| run).collect();
    assert_eq!(all.len(), 5);
}

#[tokio::test]
async fn a_run_that_was_cancelled_is_not_joined() {
    let upstream = Upstream::start([Reply::stream().text("One").stall()]).await;
    upstream.otherwise(Reply::says("Another."));
    let server = TestServer::start(&upstream.config()).await;
    let body = ask(ENDPOINTS[0], "Hi", true);
    let mut first = server.respond(server.json(ENDPOINTS[0], &body)).await;
    let cut = first.headers()["x-loopgate-run-id"].to_str().expect("it is plain").to_owned();
    crate::support::sse::read_to(&mut first, "One").await;
    drop(first);
    server.post(&format!("/v1/runs/{cut}/cancel"), &json!({})).await.ok();
    let (run, answer) = send(&server, ENDPOINTS[0], &body).await;
    assert!(run != cut && answer.contains("Another."), "{answer}");
}

/// The second leg of a run, which goes on with what its client's tools brought.
#[tokio::test]
async fn results_of_client_tools_that_are_sent_again_are_taken_once() {
    let upstream = Upstream::start([Reply::calls("weather", &json!({"city": "Oslo"}))]).await;
    upstream.otherwise(slow());
    let server = TestServer::start(&upstream.config()).await;
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
    let mut body = json!({"model": "test", "input": "Hi", "tools": tools});
    let first = server.post(ENDPOINTS[0], &body).await.ok();
    let call = first["output"][0].clone();
    assert_eq!(call["type"], "function_call", "{first}");
    let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "Rain"});
    body["input"] = json!([{"role": "user", "content": "Hi"}, call, output]);
    body["stream"] = json!(true);
    send_and_cut(&server, ENDPOINTS[0], &body, 600).await;
    tokio::time::sleep(PAUSE).await;
    let (run, answer) = send(&server, ENDPOINTS[0], &body).await;
    assert!(answer.contains("single"), "{answer}");
    assert_eq!(runs(&server).await, BTreeSet::from([run]));
    assert_eq!(upstream.requests().len(), 2);
}

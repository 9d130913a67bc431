//! An upstream whose streams are almost right: whatever it says, each run comes to one end that all readers can read,
//! and the server answers as it promises.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::scaled;
use crate::support::http::{HttpServer, Request};
use crate::support::mutation::{mutated, valid};
use crate::support::seed::Seed;
use crate::support::upstream::{declaration, faults, is_list, list};
use crate::support::{Answer, Reply, SseReader, TestServer};

/// Cases that are tried at the same time.
const AT_ONCE: usize = 48;
/// Model calls that a run may make: a changed stream may call tools again and again.
const CALLS: u64 = 4;
/// How long a run may take: less than the test waits, as an upstream that stalls is asked several times.
const TIMEOUT_MS: u64 = 8_000;

/// The upstream, and what it complains of.
struct Mutator {
    server: HttpServer,
    complaints: Arc<Mutex<Vec<String>>>,
}

impl Mutator {
    /// Each conversation names its case. The first answers to most cases are changed, and all to some.
    async fn start(seed: Seed) -> Self {
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let noted = complaints.clone();
        let asked = Mutex::new(BTreeMap::<(String, usize), u64>::new());
        let decide = move |request: &Request| {
            if is_list(request) {
                return list();
            }
            let body = request.json();
            let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
            let case = messages.iter().rev().find(|message| message["role"] == "user");
            let case = case.and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned();
            let wrong = faults(&body).into_iter().map(|fault| format!("{case}: {fault}, in {body}"));
            noted.lock().unwrap_or_else(PoisonError::into_inner).extend(wrong);
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            let times = asked.entry((case.clone(), messages.len())).or_default();
            *times += 1;
            answer(&mut seed.part(&format!("{case}/{}", messages.len())), *times)
        };
        Self { server: HttpServer::start(|_| false, decide).await, complaints }
    }

    fn config(&self) -> String {
        format!(
            "{}connect_timeout = \"2s\"\nfirst_byte_timeout = \"2s\"\nidle_timeout = \"2s\"\n\
             [agents.default]\ntools = [\"calculator\"]\n",
            declaration(self.server.address())
        )
    }
}

/// What is answered when the same is asked for the `times`th time.
fn answer(seed: &mut Seed, times: u64) -> Reply {
    let is_stubborn = seed.below(8) == 0;
    let calls = seed.below(3);
    let events = valid(seed, calls);
    let reply = Reply::status(200).header("content-type", "text/event-stream");
    if times > 1 && !is_stubborn {
        let end = valid(seed, 0);
        return end.iter().fold(reply, |reply, event| reply.bytes(format!("data: {event}\n\n")));
    }
    let bytes = mutated(events, seed);
    let cut = usize::try_from(seed.below(bytes.len() as u64 + 1)).expect("it is below a length");
    let reply = reply.bytes(&bytes[..cut]).pause(Duration::from_millis(seed.below(20))).bytes(&bytes[cut..]);
    match seed.below(12) {
        0 => reply.cut(),
        1 => reply.reset(),
        2 => reply.stall(),
        _ => reply,
    }
}

/// What an endpoint may answer to a valid request, whatever its upstream says.
fn is_promised(status: u16, code: &str) -> bool {
    match status {
        502 => ["provider_error", "empty_response"].contains(&code),
        504 => code == "provider_timeout",
        _ => false,
    }
}

/// Asks for the case's run, through each endpoint in turn, and reads it in every way.
async fn holds(server: &TestServer, number: u64) -> Result<(), String> {
    let case = format!("case {number}");
    let session = number.is_multiple_of(4).then(|| format!("session-{number}"));
    let path = ["/v1/chat/completions", "/v1/agent/completions"][usize::from(number.is_multiple_of(3))];
    let stream = number.is_multiple_of(2);
    let mut agent = json!({"limits": {"max_iterations": CALLS, "timeout_ms": TIMEOUT_MS}});
    if let Some(session) = &session {
        agent["session_id"] = json!(session);
    }
    let message = json!({"role": "user", "content": case});
    let body = json!({"model": "test", "stream": stream, "messages": [message], "agent": agent});
    let response = server.respond(server.json(path, &body)).await;
    let run = response.headers().get("x-loopgate-run-id").and_then(|run| run.to_str().ok()).map(str::to_owned);
    let run = run.ok_or_else(|| format!("{case}: {} without a run", response.status()))?;
    if stream {
        read(response, path == "/v1/agent/completions").await;
    } else {
        let answer = Answer::read(response).await;
        if answer.status != 200 && !is_promised(answer.status, answer.code()) {
            return Err(format!("{case}: {} {}", answer.status, answer.body));
        }
    }
    let told = reads(server, &run).await.map_err(|what| format!("{case}, {run}: {what}"))?;
    let Some(session) = session else { return Ok(()) };
    // The session goes on.
    let messages = server.get(&format!("/v1/sessions/{session}/messages")).await;
    if messages.status != 200 {
        return Err(format!("{case}: its session's messages are {} {}", messages.status, messages.body));
    }
    let next = json!({"model": "test", "messages": [{"role": "user", "content": "plain"}], "agent": agent});
    let next = server.post("/v1/chat/completions", &next).await;
    let is_good = next.status == 200 || is_promised(next.status, next.code());
    if is_good { Ok(()) } else { Err(format!("{case}, after {told}: {} {}", next.status, next.body)) }
}

/// All events of a response's stream.
async fn read(response: Response, numbers_all: bool) -> Vec<crate::support::Frame> {
    if numbers_all { SseReader::new(response).rest().await } else { SseReader::of_chunks(response).rest().await }
}

/// Reads a run's object and events in every way and from every event. Returns its last event.
async fn reads(server: &TestServer, run: &str) -> Result<Value, String> {
    let object = server.get(&format!("/v1/runs/{run}")).await.ok();
    let path = format!("/v1/runs/{run}/events");
    let whole = read(server.respond(server.request(Method::GET, &path)).await, true).await;
    let ends: Vec<_> = whole.iter().filter(|event| is_end(&event.name)).collect();
    let ([end], Some(last)) = (ends.as_slice(), whole.iter().rev().nth(1)) else {
        return Err(format!("{} ends in {whole:?}", ends.len()));
    };
    let end = end.json();
    if !is_end(&last.name) || end["agent"]["status"] != object["status"] {
        return Err(format!("it ends with {last:?}, and the run itself says {object}"));
    }
    let listed = server.get(&format!("{path}?stream=false&limit=1000")).await;
    if listed.status != 200 {
        return Err(format!("its list is {} {}", listed.status, listed.body));
    }
    for mode in ["none", "extension"] {
        read(server.respond(server.request(Method::GET, &format!("{path}?events={mode}"))).await, false).await;
    }
    for after in 1..whole.len() as u64 - 1 {
        let rest = server.respond(server.request(Method::GET, &path).header("last-event-id", after)).await;
        let rest = if rest.status() == 204 { Vec::new() } else { read(rest, true).await };
        let (rest, expected) = (rest.len(), whole.len() - usize::try_from(after).expect("it is small"));
        if rest != expected && !(rest == 0 && expected == 1) {
            return Err(format!("{rest} events after event {after}, and {expected} are there"));
        }
    }
    Ok(end)
}

fn is_end(name: &str) -> bool {
    ["run.completed", "run.incomplete", "run.cancelled", "run.failed"].contains(&name)
}

#[tokio::test]
async fn whatever_an_upstream_says_a_run_comes_to_one_end_that_all_can_read() {
    let seed = Seed::of_this_run().part("mutations");
    let upstream = Mutator::start(seed).await;
    let mut server = TestServer::start(&upstream.config()).await;
    let cases = stream::iter(0..scaled(150, 5_000));
    let mut results = cases.map(|number| holds(&server, number)).buffer_unordered(AT_ONCE);
    let mut wrong = Vec::new();
    while let Some(result) = results.next().await {
        wrong.extend(result.err());
    }
    drop(results);
    wrong.append(&mut upstream.complaints.lock().unwrap_or_else(PoisonError::into_inner));
    let output = server.output();
    wrong.extend(output.lines().filter(|line| line.contains("panicked")).map(str::to_owned));
    assert!(!server.has_ended(), "the server ended:\n{output}");
    assert_eq!(server.get("/healthz").await.status, 200);
    let seed = Seed::of_this_run().number();
    assert!(wrong.is_empty(), "LOOPGATE_TEST_SEED={seed}: {} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

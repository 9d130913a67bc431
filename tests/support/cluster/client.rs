//! A client as it should be: it reads its run's events and, however its connections fare, comes back to
//! any address and goes on after the last event it has seen. `apis.rs` asks in other dialects before it does so.

mod apis;

use std::time::Duration;

use loopgate::types::clock::now_ms;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::apis::Asking;
use super::evidence::{Cancellation, ClientTrace, End, Reading};
use super::plan::Plan;
use crate::support::seed::Seed;
use crate::support::sse::Decoder;

/// How soon it tries again at first, and how slowly at last.
const BACKOFF: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// How long an answer may keep it waiting for its head.
const HEAD: Duration = Duration::from_secs(10);
/// How long the answer to a cancellation may: the run may have to be taken over first.
const STOP: Duration = Duration::from_secs(30);

/// How clients behave.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Where servers are.
    pub(crate) addresses: Vec<String>,
    /// How it asks and is answered, before it reads the run's events; `None` if it asks for these.
    pub(crate) asking: Option<Asking>,
    /// Where it asks first, if not anywhere.
    pub(crate) first_address: Option<String>,
    /// What the `agent` object says, besides the session.
    pub(crate) agent: Value,
    /// Whether a request bears an idempotency key, so that it may be repeated whatever became of it.
    pub(crate) keyed: bool,
    /// How long a connection may be silent; servers promise a comment every 15 seconds.
    pub(crate) silence: Duration,
    /// Clients begin to ask one after the other, within this time.
    pub(crate) spread: Duration,
    /// How long it tries, in all.
    pub(crate) max_wait: Duration,
    http: reqwest::Client,
}

impl Client {
    /// One that asks these addresses in turn.
    pub(crate) fn new(addresses: Vec<String>) -> Self {
        Self {
            addresses,
            asking: None,
            first_address: None,
            agent: json!({}),
            keyed: true,
            silence: Duration::from_secs(20),
            spread: Duration::ZERO,
            max_wait: Duration::from_secs(90),
            http: super::http(),
        }
    }

    /// Asks for a run and follows it to its end.
    pub(crate) async fn run(&self, plan: Plan, session: Option<String>, mut seed: Seed) -> ClientTrace {
        let begins = seed.below(u64::try_from(self.spread.as_millis()).unwrap_or(0) + 1);
        sleep(Duration::from_millis(begins)).await;
        let asked_ms = now_ms();
        let mut trace = ClientTrace {
            plan,
            session,
            fails_if_unknown: self.agent.get("on_unknown_outcome").is_none_or(|policy| policy == "fail"),
            runs: Vec::new(),
            resets: 0,
            complaints: Vec::new(),
            asked_ms,
            accepted_ms: None,
            readings: Vec::new(),
            ended_ms: None,
            cancellation: None,
            asked: None,
        };
        let (cancel, cancelled) = oneshot::channel();
        let stops = seed.part("cancellation");
        let mut trial = Trial {
            client: self,
            deadline: Instant::now() + self.max_wait,
            turn: usize::try_from(seed.below(1 << 16)).unwrap_or(0),
            wait: BACKOFF[0],
            told: None,
            cancel: Some(cancel),
            seed,
        };
        let seen = &mut trace;
        let reading = async move {
            if let Some(asking) = self.asking {
                trial.ask_in(asking, seen).await;
            } else if let Some((address, response)) = trial.ask(seen).await {
                seen.accepted_ms = Some(now_ms());
                trial.read(seen, address, response).await;
                trial.follow(seen).await;
            }
        };
        let ((), cancelled) = tokio::join!(reading, self.cancel(cancelled, stops));
        match cancelled {
            Some(Ok(cancellation)) => trace.cancellation = Some(cancellation),
            Some(Err(complaint)) => trace.complaints.push(complaint),
            None => {}
        }
        trace
    }

    /// Cancels the run that it is told of, if it is, and repeats that until it is answered.
    async fn cancel(&self, run: oneshot::Receiver<String>, mut seed: Seed) -> Option<Result<Cancellation, String>> {
        let run = run.await.ok()?;
        let deadline = Instant::now() + self.max_wait;
        let (mut last, first_ms) = ("nothing".to_owned(), now_ms());
        while Instant::now() < deadline {
            let (address, asked_ms) = (seed.pick(&self.addresses).clone(), now_ms());
            let request = self.http.post(format!("{address}/v1/runs/{run}/cancel"));
            let answer = async {
                let response = request.send().await.ok()?;
                Some((response.status(), response.text().await.ok()?))
            };
            match timeout(STOP, answer).await.ok().flatten() {
                Some((StatusCode::OK, body)) => {
                    let body: Value = serde_json::from_str(&body).unwrap_or_default();
                    let status = body["status"].as_str().unwrap_or_default().to_owned();
                    return Some(Ok(Cancellation { first_ms, asked_ms, answered_ms: now_ms(), status }));
                }
                Some((status, body)) if status.is_server_error() => last = format!("{status}: {body}"),
                Some((status, body)) => return Some(Err(format!("its cancellation was answered by {status}: {body}"))),
                None => {}
            }
            sleep(BACKOFF[0] + Duration::from_millis(seed.below(200))).await;
        }
        Some(Err(format!("its cancellation was never answered, but by {last}")))
    }
}

/// One run of one client.
struct Trial<'a> {
    client: &'a Client,
    deadline: Instant,
    turn: usize,
    wait: Duration,
    /// How long the server asked it to wait.
    told: Option<Duration>,
    /// Takes the run that is to be cancelled, once.
    cancel: Option<oneshot::Sender<String>>,
    seed: Seed,
}

impl Trial<'_> {
    fn next_address(&mut self) -> String {
        self.turn += 1;
        self.client.addresses[self.turn % self.client.addresses.len()].clone()
    }

    /// Waits before another attempt; `false` once there is no time for one.
    async fn pause(&mut self) -> bool {
        let wait = self.told.take().unwrap_or(self.wait);
        self.wait = (self.wait * 2).min(BACKOFF[1]);
        let jitter = Duration::from_millis(self.seed.below(50));
        sleep(wait + jitter).await;
        Instant::now() < self.deadline
    }

    /// Sends the request until it is accepted. An answer that never came leaves it open whether there is
    /// a run; only a key allows to ask again.
    async fn ask(&mut self, trace: &mut ClientTrace) -> Option<(String, Response)> {
        let mut agent = self.client.agent.clone();
        if let Some(session) = &trace.session {
            agent["session_id"] = json!(session);
        }
        let message = json!({"role": "user", "content": trace.plan.message()});
        let body = json!({"model": "test", "stream": true, "messages": [message], "agent": agent}).to_string();
        let mut first_address = self.client.first_address.clone();
        loop {
            let address = first_address.take().unwrap_or_else(|| self.next_address());
            let mut request = self.client.http.post(format!("{address}/v1/agent/completions"));
            request = request.header("content-type", "application/json").body(body.clone());
            if self.client.keyed {
                request = request.header("idempotency-key", format!("key-{}", trace.plan.tag));
            }
            match self.send(request).await {
                Ok(response) => {
                    let run = response.headers().get("x-loopgate-run-id").and_then(|run| run.to_str().ok());
                    let run = run.map(str::to_owned);
                    if response.status().is_success() {
                        trace.runs.extend(run);
                        return Some((address, response));
                    }
                    let status = response.status();
                    let text = timeout(HEAD, response.text()).await.ok().and_then(Result::ok).unwrap_or_default();
                    // A proxy that answers in a server's place does not know what became of the request.
                    let is_open = matches!(status.as_u16(), 502 | 504) && !text.contains("\"provider_");
                    if is_open && !self.client.keyed {
                        return None;
                    }
                    if !is_open && !is_passing(status, &text) {
                        trace.complaints.push(format!("its request was answered by {status}: {text}"));
                        return None;
                    }
                }
                Err(failure) => {
                    if !(failure.is_refusal || self.client.keyed) {
                        return None;
                    }
                }
            }
            if !self.pause().await {
                return None;
            }
        }
    }

    /// Reads a stream to its end.
    async fn read(&mut self, trace: &mut ClientTrace, address: String, mut response: Response) {
        let after = trace.last_id();
        let mut reading = Reading { address, after, events: Vec::new(), end: End::Broken("it ended".to_owned()) };
        let mut decoder = Decoder::default();
        'reading: loop {
            let bytes = match timeout(self.client.silence, response.chunk()).await {
                Ok(Ok(Some(bytes))) => bytes,
                Ok(Ok(None)) => break,
                Ok(Err(error)) => {
                    reading.end = End::Broken(error.without_url().to_string());
                    break;
                }
                Err(_) => {
                    reading.end = End::Broken("it went silent".to_owned());
                    break;
                }
            };
            for event in decoder.read(&bytes) {
                if event.data == "[DONE]" {
                    reading.end = End::Done;
                    break 'reading;
                }
                if event.id.is_none() {
                    reading.end = End::Error(event.data);
                    continue;
                }
                self.wait = BACKOFF[0];
                if trace.plan.cancel_after.is_some_and(|after| event.id >= Some(after))
                    && let (Some(run), Some(cancel)) = (trace.run(), self.cancel.take())
                {
                    let _ = cancel.send(run.to_owned());
                }
                reading.events.push((now_ms(), event));
            }
        }
        self.told = decoder.retry_ms.map(Duration::from_millis);
        let is_gone = matches!(&reading.end, End::Error(error) if error.contains("\"events_expired\""));
        if reading.end == End::Done {
            trace.ended_ms = Some(now_ms());
        }
        trace.readings.push(reading);
        if is_gone {
            begin_anew(trace);
        }
    }

    /// Comes back until the last event was seen.
    async fn follow(&mut self, trace: &mut ClientTrace) {
        let Some(run) = trace.run().map(str::to_owned) else { return };
        while trace.ended_ms.is_none() && self.pause().await {
            let address = self.next_address();
            let request = self.client.http.request(Method::GET, format!("{address}/v1/runs/{run}/events"));
            let after = trace.last_id();
            let request = if after > 0 { request.header("last-event-id", after) } else { request };
            let Ok(response) = self.send(request).await else { continue };
            match response.status() {
                StatusCode::OK => self.read(trace, address, response).await,
                StatusCode::CONFLICT | StatusCode::GONE => begin_anew(trace),
                StatusCode::NO_CONTENT => {
                    // The last event is what there is, whether or not `[DONE]` was heard after it.
                    trace.ended_ms = Some(now_ms());
                }
                status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {}
                status => {
                    let text = timeout(HEAD, response.text()).await.ok().and_then(Result::ok).unwrap_or_default();
                    let complaint = format!("{address} answered {status} to a reader after event {after}: {text}");
                    if !trace.complaints.contains(&complaint) {
                        trace.complaints.push(complaint);
                    }
                }
            }
        }
    }

    async fn send(&mut self, request: RequestBuilder) -> Result<Response, Failure> {
        match timeout(HEAD, request.send()).await {
            Ok(Ok(response)) => {
                let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
                self.told = after.map(|seconds: u64| Duration::from_secs(seconds.min(2)));
                Ok(response)
            }
            Ok(Err(error)) => Err(Failure { is_refusal: error.is_connect() }),
            Err(_) => Err(Failure { is_refusal: false }),
        }
    }
}

/// What was seen is no more: the log goes on without it.
fn begin_anew(trace: &mut ClientTrace) {
    trace.resets += 1;
    trace.readings.clear();
}

/// Why there was no answer.
struct Failure {
    /// Nobody got the request.
    is_refusal: bool,
}

/// Whether a refusal is one that another attempt may mend.
fn is_passing(status: StatusCode, body: &str) -> bool {
    let code = serde_json::from_str::<Value>(body).unwrap_or_default();
    match status {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => true,
        // Another run of the session has lost its driver for a while.
        StatusCode::CONFLICT => code["error"]["code"] == "session_busy",
        _ => false,
    }
}

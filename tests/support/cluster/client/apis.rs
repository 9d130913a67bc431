//! Asks in the dialect of an API as its clients do, until the answer was read to its end.

use std::time::Duration;

use loopgate::types::clock::now_ms;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Trial, is_passing};
use crate::support::cluster::apis::{Asked, Asking, Attempt, BodyEnd, Dialect, Ended, Request};
use crate::support::cluster::evidence::ClientTrace;
use crate::support::sse::Decoder;

/// How long clients pause before they send a request again without a word of it: official SDKs pause as long at least.
const HASTE: Duration = Duration::from_millis(500);
/// In which dialects a run is read that was asked for in another.
const ELSEWHERE: [(Dialect, &str); 3] = [(Dialect::Chat, "none"), (Dialect::AiSdk, "ai-sdk"), (Dialect::AgUi, "ag-ui")];

impl Trial<'_> {
    /// Asks until the whole answer was read, and reads the run in other ways then.
    pub(super) async fn ask_in(&mut self, asking: Asking, trace: &mut ClientTrace) {
        let mut asked = Asked::new(asking);
        let is_whole = self.ask_until_told(&mut asked, trace).await;
        if let (true, Some(run)) = (is_whole, trace.run().map(str::to_owned)) {
            self.read_elsewhere(&mut asked, &run).await;
            trace.asked = Some(asked);
            self.follow(trace).await;
        } else {
            trace.asked = Some(asked);
        }
    }

    async fn ask_until_told(&mut self, asked: &mut Asked, trace: &mut ClientTrace) -> bool {
        let asking = asked.asking;
        let body = asking.body(&trace.plan, trace.session.as_deref(), &self.client.agent).to_string();
        let mut leaves_after = self.leaves_after(trace);
        let mut first_address = self.client.first_address.clone();
        loop {
            let address = first_address.take().unwrap_or_else(|| self.next_address());
            let (what, request, after) = match asked.next(trace.run(), trace.session.as_deref()) {
                Request::Ask => {
                    let url = format!("{address}{}", asking.path());
                    let request = self.client.http.post(&url).header("content-type", "application/json");
                    let request = request.body(body.clone());
                    let key = || format!("key-{}", trace.plan.tag);
                    let request = if asking.is_keyed() { request.header("idempotency-key", key()) } else { request };
                    (format!("POST {url}"), request, None)
                }
                Request::Read(path, after) => {
                    let url = format!("{address}{path}");
                    let by_header = after.filter(|_| asking.dialect == Dialect::Chat);
                    let request = self.client.http.get(&url);
                    let request =
                        by_header.into_iter().fold(request, |request, id| request.header("last-event-id", id));
                    (format!("GET {url}"), request, after)
                }
            };
            let leaves = leaves_after.take().map(|time| Instant::now() + time);
            let attempt = self.attempt(what, request, (asking.dialect, after, leaves), Some(trace)).await;
            let (is_cut, status) = (attempt.end != BodyEnd::Whole, attempt.status);
            asked.attempts.push(attempt);
            if asked.told().ended == Ended::Whole {
                return true;
            }
            if is_refused(status, asked, trace) || !self.pause_as(asking, is_cut).await {
                return false;
            }
        }
    }

    /// When its client gives the first attempt up, if it does: one in three does so before the run can have ended.
    fn leaves_after(&mut self, trace: &ClientTrace) -> Option<Duration> {
        let plan = &trace.plan;
        let least = u64::from(plan.rounds + 1) * u64::from(plan.pieces) * plan.pace_ms;
        let half = 1 + self.seed.below(least / 2 + 1);
        (self.seed.below(3) == 0).then(|| Duration::from_millis(half))
    }

    async fn pause_as(&mut self, asking: Asking, is_cut: bool) -> bool {
        if is_cut && !asking.is_keyed() {
            self.wait = self.wait.max(HASTE);
        }
        self.pause().await
    }

    /// Reads the run as other APIs tell it.
    async fn read_elsewhere(&mut self, asked: &mut Asked, run: &str) {
        let (dialect, name) = *self.seed.pick(&ELSEWHERE);
        let stored = asked.stored_path();
        while stored.is_some() && asked.stored.is_none() && Instant::now() < self.deadline {
            let url = format!("{}{}", self.next_address(), stored.as_deref().unwrap_or_default());
            let read =
                self.attempt(url.clone(), self.client.http.get(url), (Dialect::Responses, None, None), None).await;
            asked.stored = read.body.filter(|_| read.status == 200);
            if asked.stored.is_none() {
                self.pause().await;
            }
        }
        while Instant::now() < self.deadline {
            let url = format!("{}/v1/runs/{run}/events?events={name}", self.next_address());
            let read = self.attempt(format!("GET {url}"), self.client.http.get(url), (dialect, None, None), None).await;
            let is_whole = read.status == 200 && dialect.told(&read.frames).ended == Ended::Whole;
            asked.elsewhere = Some((dialect, read));
            if is_whole {
                return;
            }
            self.pause().await;
        }
    }

    /// Sends a request and reads what comes of it.
    async fn attempt(
        &mut self,
        what: String,
        request: RequestBuilder,
        (dialect, after, leaves): (Dialect, Option<u64>, Option<Instant>),
        trace: Option<&mut ClientTrace>,
    ) -> Attempt {
        let mut attempt = Attempt::begun(what, after);
        let until = leaves.unwrap_or(self.deadline).min(self.deadline);
        let given_up = || if leaves.is_some() { BodyEnd::Left } else { BodyEnd::Cut("there was no answer".to_owned()) };
        let response = match timeout_at(until, self.send_patiently(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Attempt { end: BodyEnd::Cut(error), ..attempt },
            Err(_) => return Attempt { end: given_up(), ..attempt },
        };
        attempt.status = response.status().as_u16();
        if let Some(trace) = trace {
            let run = response.headers().get("x-loopgate-run-id").and_then(|run| run.to_str().ok());
            trace.runs.extend(run.filter(|_| response.status().is_success()).map(str::to_owned));
            if attempt.status == 200 {
                trace.accepted_ms.get_or_insert_with(now_ms);
            }
        }
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_stream = kind.starts_with("text/event-stream");
        let read = async {
            if is_stream {
                self.read_frames(response, dialect, &mut attempt).await;
            } else {
                read_body(response, &mut attempt).await;
            }
        };
        if timeout_at(until, read).await.is_err() {
            attempt.end = given_up();
        }
        attempt
    }

    /// Answers in one piece have no head before their end.
    async fn send_patiently(&mut self, request: RequestBuilder) -> Result<Response, String> {
        let response = request.send().await.map_err(|error| error.without_url().to_string())?;
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        self.told = after.map(|seconds: u64| Duration::from_secs(seconds.min(2)));
        Ok(response)
    }

    /// Reads a stream to its end. A client of chat completions reads no further than to an error.
    async fn read_frames(&self, mut response: Response, dialect: Dialect, attempt: &mut Attempt) {
        let mut decoder = Decoder::default();
        attempt.end = loop {
            match timeout(self.client.silence, response.chunk()).await {
                Ok(Ok(Some(bytes))) => attempt.frames.extend(decoder.read(&bytes)),
                Ok(Ok(None)) if decoder.is_between_events() => break BodyEnd::Whole,
                Ok(Ok(None)) => break BodyEnd::Torn,
                Ok(Err(error)) => break BodyEnd::Cut(error.without_url().to_string()),
                Err(_) => break BodyEnd::Cut("it went silent".to_owned()),
            }
            let is_error = |data: &str| data.starts_with("{\"error\"");
            if dialect == Dialect::Chat && attempt.frames.last().is_some_and(|frame| is_error(&frame.data)) {
                break BodyEnd::Left;
            }
        };
        attempt.is_moved = decoder.retry_ms.is_some();
        attempt.oddities = decoder.oddities;
    }
}

async fn read_body(response: Response, attempt: &mut Attempt) {
    match response.bytes().await {
        Ok(bytes) => {
            attempt.end = BodyEnd::Whole;
            attempt.body = serde_json::from_slice::<Value>(&bytes).ok();
            if attempt.body.is_none() && !bytes.is_empty() {
                attempt.oddities.push(format!("this is no JSON: {}", String::from_utf8_lossy(&bytes)));
            }
        }
        Err(error) => attempt.end = BodyEnd::Cut(error.without_url().to_string()),
    }
}

/// Whether an answer is one that no further attempt mends, which its client complains of.
fn is_refused(status: u16, asked: &Asked, trace: &mut ClientTrace) -> bool {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let last = asked.attempts.last();
    let body = last.and_then(|attempt| attempt.body.as_ref()).map(Value::to_string).unwrap_or_default();
    let is_refused = !status.is_success() && !status.is_server_error() && !is_passing(status, &body);
    if is_refused {
        let request = last.map(|attempt| attempt.request.as_str()).unwrap_or_default();
        trace.complaints.push(format!("{request} was answered by {status}: {body}"));
    }
    is_refused
}

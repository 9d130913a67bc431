//! Asks servers for all they have of runs and sessions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::evidence::{ClientTrace, Evidence, Probe, RunView, SessionView, TRIED};
use super::plan::Plan;
use crate::support::sse::{Decoder, Frame};

/// How long a server is asked again.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// Tokens that a run is left besides what it needs: fewer than any step reserves.
const SPARE: u64 = 100;
/// Runs that are read at once: a server serves only so many connections of one address.
const AT_ONCE: usize = 100;
/// How long a run that nobody followed may take to its end: it may have to be taken up first.
const RUN: Duration = Duration::from_secs(60);

/// Runs and sessions of these clients, as the servers at these addresses have them.
pub(super) async fn read_servers(addresses: &[String], clients: &[ClientTrace]) -> Evidence {
    let http = super::http();
    let mut evidence = Evidence::default();
    let mut runs: BTreeSet<String> = clients.iter().flat_map(|trace| trace.runs.iter().cloned()).collect();
    let sessions: BTreeSet<&String> = clients.iter().filter_map(|trace| trace.session.as_ref()).collect();
    // Also those that nobody knows of: their requests broke off before they were answered.
    let listed = read_pages(&http, &addresses[0], "/v1/runs?limit=100".to_owned()).await;
    runs.extend(listed.iter().filter_map(|run| run["id"].as_str().map(str::to_owned)));
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut reading = JoinSet::new();
    for run in runs {
        let (http, addresses, room) = (http.clone(), addresses.to_vec(), room.clone());
        reading.spawn(async move {
            let _place = room.acquire().await.expect("it is never closed");
            let view = read_run(&http, &addresses, &run).await;
            (run, view)
        });
    }
    evidence.runs = reading.join_all().await.into_iter().collect();
    evidence.usage = Some(read_usage(&http, &addresses[0], &evidence.took()).await);
    for session in sessions {
        let view = read_session(&http, &addresses[0], session).await;
        evidence.sessions.insert(session.clone(), view);
    }
    evidence
}

async fn read_run(http: &Client, addresses: &[String], run: &str) -> RunView {
    let path = format!("/v1/runs/{run}");
    let mut view = RunView::default();
    let mut reading = JoinSet::new();
    for address in addresses.iter().cloned() {
        let (http, url) = (http.clone(), format!("{address}{path}/events"));
        reading.spawn(async move { Some((address, read_stream(&http, &url).await?)) });
    }
    view.streams = reading.join_all().await.into_iter().flatten().collect();
    view.object = read_json(http, &addresses[0], &path).await;
    let list = read_json(http, &addresses[0], &format!("{path}/events?stream=false")).await;
    view.list = list["data"].as_array().cloned().unwrap_or_default();
    view
}

/// What all runs took by the server's usage, once that is what they say themselves: a run whose replica died before it
/// was counted is counted by another, which takes a while. Otherwise what the server says in the end.
async fn read_usage(http: &Client, address: &str, took: &Value) -> Value {
    let deadline = Instant::now() + RUN;
    loop {
        let sums = read_json(http, address, "/v1/usage?group_by=").await;
        // There are none before the first run is counted.
        let usage = sums.pointer("/data/0").cloned().unwrap_or_default();
        if Instant::now() >= deadline
            || took.as_object().is_some_and(|took| took.iter().all(|(name, sum)| usage[name] == *sum))
        {
            return usage;
        }
        sleep(Duration::from_millis(500)).await;
    }
}

async fn read_session(http: &Client, address: &str, session: &str) -> SessionView {
    let path = format!("/v1/sessions/{session}");
    let object = read_json(http, address, &path).await;
    let messages = read_pages(http, address, format!("{path}/messages?limit=100&order=asc"));
    let runs = read_pages(http, address, format!("/v1/runs?limit=100&session_id={session}"));
    let (messages, runs) = tokio::join!(messages, runs);
    let messages = messages.iter().map(|entry| entry["message"].clone()).collect();
    let runs = runs.iter().filter_map(|run| run["id"].as_str().map(str::to_owned)).collect();
    let taken = object["usage"]["total_tokens"].as_u64().unwrap_or(0);
    let probe = probe(http, address, session, taken).await;
    SessionView { object, messages, runs, probe }
}

/// Tries a run where nothing is left of the budget, and where enough is left: that shows what is counted
/// as taken, reservations included.
async fn probe(http: &Client, address: &str, session: &str, taken: u64) -> Probe {
    let path = format!("{address}/v1/sessions/{session}");
    let plan = Plan::new(format!("{TRIED}{session}"));
    let message = json!({"role": "user", "content": plan.to_string()});
    let agent = json!({"session_id": session});
    let run = json!({"model": "test", "messages": [message], "agent": agent, "max_tokens": 300}).to_string();
    let try_with = async |budget: u64| {
        let change = json!({"token_budget": budget}).to_string();
        send(|| http.patch(&path).body(change.clone())).await;
        send(|| http.post(format!("{address}/v1/agent/completions")).body(run.clone())).await
    };
    // A budget of nothing is no budget.
    let (nothing_left, told) = try_with(taken.max(1)).await;
    Probe { enough_left: try_with(taken + enough(&told)).await.0, nothing_left, told }
}

/// Tokens that are enough for a run that was refused in these words. How many it needs depends on how long its session has become.
pub(super) fn enough(told: &str) -> u64 {
    let (before, _) = told.split_once(" needed").unwrap_or_default();
    let needed = before.rsplit(' ').next().and_then(|number| number.parse().ok());
    needed.unwrap_or(0_u64) + SPARE
}

/// What this server, with another budget for all runs, answers to a run: status and body.
pub(super) async fn try_run(address: &str) -> (u16, String) {
    let message = json!({"role": "user", "content": Plan::new("probe").to_string()});
    let run = json!({"model": "test", "messages": [message], "max_tokens": 300}).to_string();
    let http = super::http();
    send(|| http.post(format!("{address}/v1/agent/completions")).body(run.clone())).await
}

/// The status and the body of the answer, once it is not that the server is not ready for it; 0 if there is none.
async fn send(request: impl Fn() -> reqwest::RequestBuilder) -> (u16, String) {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let request = request().header("content-type", "application/json");
        let answer = async {
            let response = request.send().await.ok()?;
            Some((response.status().as_u16(), response.text().await.ok()?))
        };
        let (status, body) = timeout(MAX_WAIT, answer).await.ok().flatten().unwrap_or_default();
        if !matches!(status, 0 | 503) || Instant::now() >= deadline {
            return (status, body);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn read_pages(http: &Client, address: &str, path: String) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = read_json(http, address, &format!("{path}{after}")).await;
        all.extend(page["data"].as_array().cloned().unwrap_or_default());
        match page["last_id"].as_str().filter(|_| page["has_more"] == true) {
            Some(id) => after = format!("&after={id}"),
            None => return all,
        }
    }
}

/// A JSON answer; `null` if there is none, however often it is asked for.
async fn read_json(http: &Client, address: &str, path: &str) -> Value {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let answer = async {
            let response = http.get(format!("{address}{path}")).send().await.ok()?;
            let (status, body) = (response.status(), response.text().await.ok()?);
            Some((status, serde_json::from_str(&body).unwrap_or_default()))
        };
        match timeout(MAX_WAIT, answer).await.ok().flatten() {
            Some((status, body)) if !status.is_server_error() => return body,
            _ if Instant::now() >= deadline => return Value::Null,
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The events of a stream up to `[DONE]`, or until nothing comes any more.
async fn read_stream(http: &Client, url: &str) -> Option<Vec<Frame>> {
    let deadline = Instant::now() + MAX_WAIT;
    let mut response = loop {
        match timeout(MAX_WAIT, http.get(url).send()).await {
            Ok(Ok(response)) if response.status().is_success() => break response,
            _ if Instant::now() >= deadline => return None,
            _ => sleep(Duration::from_millis(100)).await,
        }
    };
    let (mut decoder, mut events) = (Decoder::default(), Vec::new());
    let deadline = Instant::now() + RUN;
    while let Ok(Ok(Some(bytes))) = timeout_at(deadline, response.chunk()).await {
        for event in decoder.read(&bytes) {
            if event.data == "[DONE]" {
                return Some(events);
            }
            if event.id.is_some() {
                events.push(event);
            }
        }
    }
    Some(events)
}

//! How often a run asks Redis, counted where Redis hears it.
//!
//! A run may ask twice for each step of its model but once for the first, twice for each call of a tool, once for each
//! 50 ms of text that begin, and as often as its lease is renewed, besides what it takes to begin and to end.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::cluster::plan::{Plan, Tool};
use crate::support::cluster::{KEY, TestServices};
use crate::support::monitor::Monitor;
use crate::support::redis::{RedisServer, durable};
use crate::support::{TestServer, within};

/// What it takes to begin and to end: the lease, the tenant's index, the index of live runs and the run
/// itself, with which its first step begins; then, after its end, [`SHARED`]. That the run ended and gives its lease back is what its last step asks for.
const RUN: usize = 4 + SHARED;

/// What all runs of a tenant share that end within a second: the tenant's usage and the index of live runs again.
const SHARED: usize = 2;

/// A run that lasts a quarter of a second besides: listening for commands, two reads of the inbox, and the end of
/// listening.
const LISTENING: usize = 4;
const LISTENS_AFTER: Duration = Duration::from_millis(250);

/// A session besides: its document before the run and after it, and the run's end, since a step's own end
/// is stored at once there.
const SESSION: usize = 3;

/// A name besides: the claim, before the run and after its beginning.
const NAME: usize = 2;

/// A request of Responses or Messages without a name besides: its claim, by which an equal request finds the run if the
/// connection is cut, and that the answer was written to its end.
const EQUAL: usize = 2;

/// Limits of a key besides: a request's turn, what is left of two budgets, a slot and its return, and the first step,
/// which begins once its budgets are reserved.
const LIMITS: usize = 6;

/// Budgets of a key besides, for each step: its reservation, its end, stored at once, and settling.
const BUDGETED_STEP: usize = 3;

/// Renewals of a lease, a second.
const HEARTBEAT: f64 = 1.0 / 3.0;

/// What a replica that has nothing to do asks, a second: who is primary, whose runs are nobody's, twice,
/// its own lease, and every five seconds what is due.
const IDLE: f64 = 3.7;

/// A replica, and who hears what it asks.
struct MeasuredServer {
    redis: RedisServer,
    services: TestServices,
    server: TestServer,
    /// Other replicas, which nothing is asked of.
    others: Vec<TestServer>,
    monitor: Monitor,
    /// What the very first run asked.
    first: Vec<String>,
    since: Instant,
    /// How often it was read which agents the tenant has stored.
    agents_read: u64,
}

/// What a run asked.
struct Cost {
    exchanges: Vec<String>,
    took: Duration,
}

impl MeasuredServer {
    async fn start(limits: &str) -> Self {
        let (redis, services) = (durable().await, TestServices::start().await);
        let mut server = TestServer::builder(&services.config_under(limits)).store(&redis.url()).start().await;
        server.use_key(KEY);
        let monitor = Monitor::start(&redis).await;
        let mut measured = Self {
            redis,
            services,
            server,
            others: Vec::new(),
            monitor,
            first: Vec::new(),
            since: Instant::now(),
            agents_read: 0,
        };
        // The first time a script is used it is sent whole.
        let plan = Plan::new("warm-up").with_tools(1, &[Tool::Look]);
        measured.first = measured.run(&plan, None, None).await.exchanges;
        measured.run(&plan, Some("first"), None).await;
        measured
    }

    /// Lets one run go from its beginning to its end.
    async fn run(&mut self, plan: &Plan, session: Option<&str>, name: Option<&str>) -> Cost {
        let mut body = json!({"stream": true});
        if let Some(session) = session {
            body["agent"] = json!({"session_id": session});
        }
        let (text, cost) = self.ask(plan, body, name).await;
        assert!(text.contains(&plan.piece(plan.rounds, plan.pieces - 1)) && text.ends_with("data: [DONE]\n\n"));
        cost
    }

    /// The answer to a request with these members besides, and what its run asked.
    async fn ask(&mut self, plan: &Plan, mut body: Value, name: Option<&str>) -> (String, Cost) {
        body["model"] = json!("test");
        body["messages"] = json!([{"role": "user", "content": plan.to_string()}]);
        self.ask_at("/v1/agent/completions", &body, name).await
    }

    /// The same of another endpoint.
    async fn ask_at(&mut self, path: &str, body: &Value, name: Option<&str>) -> (String, Cost) {
        self.monitor.now(&self.redis).await;
        let (began, mut request) = (Instant::now(), self.server.json(path, body));
        if let Some(name) = name {
            request = request.header("idempotency-key", name);
        }
        let response = self.server.respond(request).await;
        assert_eq!(response.status(), 200);
        let run = response.headers()["x-loopgate-run-id"].to_str().expect("it is plain").to_owned();
        let text = within("the run's end", response.text()).await.expect("the answer is whole");
        let took = began.elapsed();
        let is_last = |line: &str| line.contains("lg:{live}") && line.contains("\"D\"") && line.contains(&run);
        let mut all = self.monitor.until(is_last).await;
        let has = |all: &[String], word: &str| all.iter().any(|line| line.contains(word) && line.contains(&run));
        // A run is unregistered with others, up to a second after its end: it may have ended to listen before.
        if has(&all, "\"SSUBSCRIBE\"") && !has(&all, "\"SUNSUBSCRIBE\"") {
            all.extend(self.monitor.until(|line| line.contains("\"SUNSUBSCRIBE\"") && line.contains(&run)).await);
        }
        self.agents_read += all.iter().filter(|line| is_of_agents(line)).count() as u64;
        // For however many runs, at most every 3 s.
        let most = 1 + self.since.elapsed().as_secs() / 2;
        assert!(self.agents_read <= most, "stored agents were read {} times instead of {most}", self.agents_read);
        (text, Cost { exchanges: all.into_iter().filter(|line| is_of_a_run(line)).collect(), took })
    }
}

/// Whether a run is behind it, and not the replica.
fn is_of_a_run(exchange: &str) -> bool {
    let is_replicas = exchange.contains("lg:{live}") || exchange.contains("lg:{due}");
    exchange.contains("lg:{") && (!is_replicas || exchange.contains("run_")) && !is_of_agents(exchange)
}

/// Whether it reads which agents a tenant has stored.
fn is_of_agents(exchange: &str) -> bool {
    exchange.contains("\"GET\"") && exchange.contains("/agents}:d:index")
}

/// What a run of this plan may ask.
fn bound(plan: &Plan, took: Duration) -> usize {
    let steps = plan.rounds as usize + 1;
    let tools = (plan.rounds * plan.calls) as usize;
    let spoken = Duration::from_millis(u64::from(plan.pieces - 1) * plan.pace_ms);
    // A text takes longer where everything does.
    let text = (spoken.max(took / u32::try_from(steps).expect("there are few")).as_millis() / 50 + 1) as usize;
    let text = text.min(plan.pieces as usize);
    let listening = if took >= LISTENS_AFTER { LISTENING } else { 0 };
    // The first step begins with the run.
    2 * steps - 1 + 2 * tools + steps * text + listening + renewals(took)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a run takes seconds")]
fn renewals(took: Duration) -> usize {
    (took.as_secs_f64() * HEARTBEAT).ceil() as usize
}

fn hold(what: &str, cost: &Cost, most: usize) {
    let (asked, list) = (cost.exchanges.len(), cost.exchanges.join("\n"));
    assert!(asked <= most, "{what}: {asked} round trips instead of {most} in {:?}:\n{list}", cost.took);
}

fn plans() -> [(&'static str, Plan); 3] {
    let short = Plan::new("plan").with_text(1, 0);
    [
        ("one step", short.clone()),
        ("three steps with a call each in two", short.with_tools(2, &[Tool::Look, Tool::Book])),
        ("a text of four seconds", Plan::new("plan").with_text(200, 20)),
    ]
}

#[tokio::test]
async fn a_run_stays_within_its_round_trips() {
    let mut measured = MeasuredServer::start("").await;
    for (what, plan) in plans() {
        let cost = measured.run(&plan, None, None).await;
        hold(what, &cost, RUN + bound(&plan, cost.took));
        let cost = measured.run(&plan, Some("second"), None).await;
        hold(&format!("{what}, in a session"), &cost, RUN + SESSION + bound(&plan, cost.took));
    }
    let (what, plan) = &plans()[0];
    let cost = measured.run(plan, None, Some("name")).await;
    hold(&format!("{what}, named"), &cost, RUN + NAME + bound(plan, cost.took));
}

#[tokio::test]
async fn a_request_that_an_equal_one_may_repeat_costs_its_claim_besides() {
    let mut measured = MeasuredServer::start("").await;
    let (what, plan) = &plans()[0];
    for (path, said, more) in [("/v1/responses", "input", json!(null)), ("/v1/messages", "messages", json!(100))] {
        for stream in [true, false] {
            let mut body = json!({"model": "test", "stream": stream});
            // A text of its own: an equal request would read the claim of the one before.
            let text = json!([{"role": "user", "content": format!("{plan}\n{stream}")}]);
            body[said] = text;
            if !more.is_null() {
                body["max_tokens"] = more.clone();
            }
            let (answer, cost) = measured.ask_at(path, &body, None).await;
            assert!(answer.contains(&plan.piece(plan.rounds, plan.pieces - 1)), "{answer}");
            hold(&format!("{what}, {path}, streamed: {stream}"), &cost, RUN + EQUAL + bound(plan, cost.took));
            let (_, named) = measured.ask_at(path, &body, Some(&format!("{path} {stream}").replace(' ', "-"))).await;
            hold(&format!("{what}, {path}, named"), &named, RUN + NAME + bound(plan, named.took));
        }
    }
}

#[tokio::test]
async fn the_text_of_an_answer_in_one_piece_is_stored_once_a_second() {
    let mut measured = MeasuredServer::start("").await;
    let (what, plan) = &plans()[2];
    let (answer, cost) = measured.ask(plan, json!({"stream": false}), None).await;
    assert!(answer.contains(&plan.piece(plan.rounds, plan.pieces - 1)), "{answer}");
    let texts = cost.exchanges.iter().filter(|exchange| exchange.contains("text_delta")).count() as u64;
    // What is left at the end is stored with it. The first may be stored at once: whether its reader streams is known only
    // once the reader is there.
    assert!(texts <= cost.took.as_secs() + 2, "{what}: its text was stored {texts} times in {:?}", cost.took);
}

#[tokio::test]
async fn the_definitions_of_tools_are_stored_with_the_first_run_alone() {
    let mut measured = MeasuredServer::start("").await;
    let stores = |exchanges: &[String]| exchanges.iter().any(|exchange| exchange.contains("/offer/"));
    assert!(stores(&measured.first), "{}", measured.first.join("\n"));
    let plan = Plan::new("plan").with_tools(1, &[Tool::Look]);
    for session in [None, Some("second")] {
        let cost = measured.run(&plan, session, None).await;
        assert!(!stores(&cost.exchanges), "{}", cost.exchanges.join("\n"));
    }
}

#[tokio::test]
async fn parallel_tool_calls_share_their_commits() {
    let mut measured = MeasuredServer::start("").await;
    let plan = Plan { calls: 8, ..Plan::new("plan").with_text(1, 0).with_tools(1, &[Tool::Look]) };
    let cost = measured.run(&plan, None, None).await;
    hold("eight calls at once", &cost, RUN + bound(&plan, cost.took) - 8);
}

#[tokio::test]
async fn runs_that_end_within_a_second_are_counted_and_unregistered_together() {
    const RUNS: usize = 8;
    let mut measured = MeasuredServer::start("").await;
    let plan = Plan::new("plan").with_text(1, 0);
    measured.monitor.now(&measured.redis).await;
    let body = json!({"model": "test", "messages": [{"role": "user", "content": plan.to_string()}]});
    let began = Instant::now();
    let asked = join_all((0..RUNS).map(|_| measured.server.post("/v1/agent/completions", &body))).await;
    let took = began.elapsed();
    let mut left: HashSet<String> = asked
        .into_iter()
        .map(|answer| answer.headers["x-loopgate-run-id"].to_str().expect("it is plain").to_owned())
        .collect();
    let mut all = Vec::new();
    while !left.is_empty() {
        let is_removal = |line: &str| line.contains("lg:{live}") && line.contains("\"D\"");
        all.extend(measured.monitor.until(|line| is_removal(line) && left.iter().any(|run| line.contains(run))).await);
        left.retain(|run| !all.last().is_some_and(|line| line.contains(run)));
    }
    let exchanges: Vec<_> = all.into_iter().filter(|line| is_of_a_run(line)).collect();
    // On a busy machine the last may end a second after the first.
    let batches = usize::try_from(took.as_secs()).expect("it is small") + 1;
    hold("eight runs", &Cost { exchanges, took }, RUNS * (RUN - SHARED + bound(&plan, took)) + batches * SHARED);
}

/// What so many replicas of one store that have nothing to do ask of it, each, a second.
async fn idle_rate(replicas: u32) -> (f64, String) {
    const WATCHED: Duration = Duration::from_secs(24);
    let mut measured = MeasuredServer::start("").await;
    let config = measured.services.config_under("");
    let mut others = Vec::new();
    for _ in 1..replicas {
        let mut other = TestServer::builder(&config).store(&measured.redis.url()).start().await;
        other.use_key(KEY);
        others.push(other);
    }
    // Each serves a run: by then it knows the scripts, and the others know of it.
    for other in others {
        let before = std::mem::replace(&mut measured.server, other);
        measured.run(&Plan::new("warm-up").with_tools(1, &[Tool::Look]), None, None).await;
        measured.others.push(before);
    }
    measured.monitor.now(&measured.redis).await;
    let began = Instant::now();
    tokio::time::sleep(WATCHED).await;
    let exchanges = measured.monitor.now(&measured.redis).await;
    #[expect(clippy::cast_precision_loss, reason = "they are few")]
    let rate = exchanges.len() as f64 / began.elapsed().as_secs_f64() / f64::from(replicas);
    (rate, exchanges.join("\n"))
}

#[tokio::test]
async fn an_idle_replica_sends_few_commands_however_many_there_are() {
    let (alone, together) = tokio::join!(idle_rate(1), idle_rate(3));
    for (replicas, (rate, exchanges)) in [(1, alone), (3, together)] {
        assert!(rate <= IDLE, "each of {replicas} asks {rate} times a second instead of {IDLE}:\n{exchanges}");
    }
}

#[tokio::test]
async fn a_keys_limits_cost_few_round_trips_more() {
    let limits = "requests_per_minute = 1000\nmax_concurrent_runs = 9\n\
                  token_budget = { limit = 1000000 }\ncost_budget_usd = { limit = 9.0 }\n";
    let mut measured = MeasuredServer::start(limits).await;
    let plan = Plan::new("plan").with_text(1, 0).with_tools(2, &[Tool::Look]);
    let cost = measured.run(&plan, None, None).await;
    hold("three steps of a limited key", &cost, RUN + LIMITS + 3 * BUDGETED_STEP + bound(&plan, cost.took));
}

//! The fake upstream's answers where many runs go on at once: what it says follows from the conversation alone,
//! so the same request gets the same answer, whichever replica asks and however often.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::harm::{Break, Progress};
use super::plan::Plan;
use crate::support::Reply;
use crate::support::http::{HttpServer, Request};
use crate::support::journal::Entry;
use crate::support::redis::eventually;
use crate::support::upstream::{declaration, faults, is_list, is_summary, list};

/// One call of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModelCall {
    /// The plan that it follows.
    pub(crate) tag: String,
    /// The turn that it asks for: how often the model has spoken since the user did.
    pub(crate) round: u32,
    /// Tokens that it takes, if it is answered to the end.
    pub(crate) tokens: u64,
    /// Tokens of its input, which are billed whatever becomes of it.
    #[serde(default)]
    pub(crate) input: u64,
    /// Tokens that are billed if its answer breaks as planned.
    #[serde(default)]
    pub(crate) billed: u64,
    /// How its answer breaks.
    #[serde(default)]
    pub(crate) breaks: Break,
    /// The tools' answers that it shows the model, in their order.
    pub(crate) results: Vec<String>,
    /// What is wrong with it.
    pub(crate) faults: Vec<String>,
}

/// Tokens of thinking that an answer which breaks off has taken and does not show.
const HIDDEN: u64 = 1_000;

/// What a summary takes of input and output, in tokens.
const SUMMARY: (u64, u64) = (600, 12);

/// How often a turn was asked for: by the plan's tag and how often the model has spoken.
type Attempts = BTreeMap<(String, usize), u32>;

/// The server. Its model is called `test`. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct ModelServer(HttpServer);

impl ModelServer {
    /// Listens on a free port of 127.0.0.1.
    pub(crate) async fn start() -> Self {
        let attempts = Mutex::new(Attempts::new());
        let answer =
            move |request: &Request| answer(request, &mut attempts.lock().unwrap_or_else(PoisonError::into_inner));
        Self(
            HttpServer::start(|request| is_summary(&request.json()) || Question::read(request).is_some(), answer).await,
        )
    }

    /// Its declaration for a server's configuration. It takes conversations of any length.
    pub(crate) fn config(&self) -> String {
        // What it breaks it breaks by plan, and each run is to get over it by itself.
        let breaker = "[upstreams.scripted.breaker]\nenabled = false\nretry_percent = 1000\n";
        format!("{}{breaker}[models.test]\ncontext_window = 10000000\n", declaration(self.0.address()))
    }

    /// Returns once there have been so many calls.
    pub(crate) async fn asked(&self, calls: usize) {
        eventually("the model is asked", async || self.calls().len() >= calls).await;
    }

    /// How many summaries were asked for.
    pub(crate) fn summaries(&self) -> usize {
        self.0.requests().iter().filter(|request| is_summary(&request.json())).count()
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<Entry<ModelCall>> {
        let mut attempts = Attempts::new();
        let mut call = |request: &Request| Some(Question::read(request)?.call(&mut attempts));
        self.0.exchanges().into_iter().filter_map(|entry| entry.and_then(&mut call)).collect()
    }
}

/// A request for a completion, and the plan that its last message of the user holds.
struct Question {
    request: Value,
    plan: Plan,
    /// How often the model has spoken since the user did.
    spoken: usize,
    progress: Progress,
    results: Vec<String>,
    /// Tokens in and out.
    usage: (u64, u64),
}

impl Question {
    fn read(request: &Request) -> Option<Self> {
        let request = request.json();
        let messages = request["messages"].as_array()?;
        // What users say besides has no plan.
        let mut plans = messages.iter().enumerate().rev().filter(|(_, message)| message["role"] == "user");
        let read = |(at, message): (usize, &Value)| Some((at, message["content"].as_str()?.parse::<Plan>().ok()?));
        let (asked, plan) = plans.find_map(read)?;
        let since = &messages[asked + 1..];
        let spoken = since.iter().filter(|message| message["role"] == "assistant").count();
        let turns = since.chunk_by(|_, next| next["role"] == "tool");
        let mut progress = Progress::default();
        for turn in turns.filter(|turn| turn[0]["role"] == "assistant") {
            let results: Vec<_> =
                turn[1..].iter().map(|result| result["content"].as_str().unwrap_or_default()).collect();
            progress = progress.after(&plan, &results);
        }
        let results = since.iter().filter(|message| message["role"] == "tool");
        let results = results.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect();
        let bytes = messages.iter().filter_map(|message| message["content"].as_str()).map(str::len).sum();
        let usage = plan.usage(bytes);
        Some(Self { request, plan, spoken, progress, results, usage })
    }

    /// How the answer breaks: only the first one does.
    fn breaks(&self, attempts: &mut Attempts) -> Break {
        let asked = attempts.entry((self.plan.tag.clone(), self.spoken)).or_default();
        *asked += 1;
        if *asked == 1 { self.plan.breaks(self.progress.round) } else { Break::Whole }
    }

    fn call(self, attempts: &mut Attempts) -> ModelCall {
        let (input, output) = self.usage;
        let (faults, breaks) = (faults(&self.request), self.breaks(attempts));
        let round = u32::try_from(self.spoken).unwrap_or(u32::MAX);
        let billed = match breaks {
            Break::Whole | Break::Untold => input + output,
            Break::Closed | Break::Gateway => input,
            Break::Cut | Break::Stalled => input + output / 2 + HIDDEN,
        };
        let (tag, tokens) = (self.plan.tag, input + output);
        ModelCall { tag, round, tokens, input, billed, breaks, results: self.results, faults }
    }
}

fn answer(request: &Request, attempts: &mut Attempts) -> Reply {
    if is_list(request) {
        return list();
    }
    // No plan is about it.
    if is_summary(&request.json()) {
        return Reply::stream().text("They followed their plans.").finish("stop").usage(SUMMARY.0, SUMMARY.1).done();
    }
    let Some(question) = Question::read(request) else {
        return Reply::error(400, "no_plan", "the user has no plan");
    };
    let breaks = question.breaks(attempts);
    match breaks {
        Break::Closed => return Reply::status(200).headless().cut(),
        Break::Gateway => return Reply::status(504).header("retry-after-ms", "10").bytes("upstream timed out"),
        Break::Whole | Break::Cut | Break::Untold | Break::Stalled => {}
    }
    let Question { plan, progress, usage: (input, output), .. } = question;
    let pace = Duration::from_millis(plan.pace_ms);
    let mut reply = Reply::stream();
    for piece in 0..plan.pieces {
        if breaks == Break::Cut && piece == plan.pieces / 2 {
            return reply.reset();
        }
        if breaks == Break::Stalled && piece == plan.pieces / 2 {
            return reply.stall();
        }
        reply = reply.text(&plan.piece(progress.round, piece)).pause(pace);
    }
    let tasks = progress.tasks(&plan);
    for (index, (tool, task)) in tasks.iter().enumerate() {
        let arguments = serde_json::to_string(task).expect("it is plain data");
        reply = reply.tool_call(index, &format!("call_{index}"), tool.name(), &arguments);
    }
    reply = reply.finish(if tasks.is_empty() { "stop" } else { "tool_calls" });
    if breaks == Break::Untold { reply.done() } else { reply.usage(input, output).done() }
}

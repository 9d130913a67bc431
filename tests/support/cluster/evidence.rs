//! What is known of many runs when they are over: what clients saw, what the outside servers saw and
//! what the server says of itself. Plain data, so that a failure can be kept and read.

use std::collections::BTreeMap;

use loopgate::types::clock::now_ms;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::apis::Asked;
use super::counters::Life;
use super::model::ModelCall;
use super::plan::Plan;
use super::tools::Dispatch;
use crate::support::Frame;
use crate::support::journal::Entry;

/// What the plans of runs are called that try a budget afterwards.
pub(crate) const TRIED: &str = "probe-";

/// Everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Evidence {
    /// What each client saw of its run.
    pub(crate) clients: Vec<ClientTrace>,
    /// Calls of the model.
    pub(crate) model: Vec<Entry<ModelCall>>,
    /// Calls of tools.
    pub(crate) tools: Vec<Entry<Dispatch>>,
    /// Runs, as the server has them afterwards.
    pub(crate) runs: BTreeMap<String, RunView>,
    /// Sessions, as the server has them afterwards.
    pub(crate) sessions: BTreeMap<String, SessionView>,
    /// What the server says that all runs took, before others were tried in their sessions: the sums of `/v1/usage`.
    #[serde(default)]
    pub(crate) usage: Option<Value>,
    /// Why runs may have ended, besides that the model was done.
    pub(crate) allowed_reasons: Vec<String>,
    /// What became of a run that was tried with another budget for all runs, if one was.
    pub(crate) all_runs: Option<Probe>,
    /// When the store may have forgotten what it acknowledged, so that clients had to begin anew.
    pub(crate) forgotten: Vec<Window>,
    /// Whether every driver that called a model could record what came of it: none ended, stood still, or was without
    /// the store for as long as its leases last.
    #[serde(default)]
    pub(crate) drivers_stayed: bool,
    /// How many requests with messages each run took while it was live, by its id. One that was about to end then calls its
    /// model once more.
    #[serde(default)]
    pub(crate) steered: BTreeMap<String, usize>,
    /// What replicas counted, where it is compared.
    #[serde(default)]
    pub(crate) counted: Vec<Life>,
    /// Whether clients send idempotency keys, so that even a broken request starts one run at most.
    pub(crate) keyed: bool,
}

/// A time in which a primary of the store was replaced: what it acknowledged then, no other server may have. Unix
/// milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    /// Its begin.
    pub(crate) from_ms: u64,
    /// Its end.
    pub(crate) to_ms: u64,
}

/// What a client saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientTrace {
    /// What it asked for.
    pub(crate) plan: Plan,
    /// In which session.
    pub(crate) session: Option<String>,
    /// Whether the run is to fail if it is unknown whether a call took effect.
    #[serde(default)]
    pub(crate) fails_if_unknown: bool,
    /// The run's id, by every response to its request; more than one kind is a fault.
    pub(crate) runs: Vec<String>,
    /// How often it was told in so many words that what it had seen is no more, and began anew.
    pub(crate) resets: u32,
    /// Answers that a client of a good server never gets, and other oddities.
    pub(crate) complaints: Vec<String>,
    /// When it began to ask, Unix milliseconds.
    pub(crate) asked_ms: u64,
    /// When it had its answer's head.
    pub(crate) accepted_ms: Option<u64>,
    /// The connections on which it read.
    pub(crate) readings: Vec<Reading>,
    /// When it had the last event.
    pub(crate) ended_ms: Option<u64>,
    /// How it cancelled its run, if it did.
    #[serde(default)]
    pub(crate) cancellation: Option<Cancellation>,
    /// What it sent and read in an API's own dialect, before it read the run's events; `None` if it read these alone.
    #[serde(default)]
    pub(crate) asked: Option<Asked>,
}

/// A request to cancel a run, and its answer. Times are Unix milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cancellation {
    /// When it was sent first. That attempt may have stopped the run, though its answer was lost.
    pub(crate) first_ms: u64,
    /// When it was sent, at the attempt that was answered.
    pub(crate) asked_ms: u64,
    /// When it was answered.
    pub(crate) answered_ms: u64,
    /// The run's status by the answer.
    pub(crate) status: String,
}

/// One connection's events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// Where it was connected to.
    pub(crate) address: String,
    /// After which event it was to begin.
    pub(crate) after: u64,
    /// The events, each with the Unix milliseconds of its arrival.
    pub(crate) events: Vec<(u64, Frame)>,
    /// How it ended.
    pub(crate) end: End,
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// With `[DONE]`.
    Done,
    /// With an error in the stream, which asks to come back.
    Error(String),
    /// It broke off or went silent.
    Broken(String),
}

/// A run as the server has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunView {
    /// The run object.
    pub(crate) object: Value,
    /// Its log as a stream from the beginning, by replica.
    pub(crate) streams: BTreeMap<String, Vec<Frame>>,
    /// Its log as a list.
    pub(crate) list: Vec<Value>,
}

/// A session as the server has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionView {
    /// The session object.
    pub(crate) object: Value,
    /// Its messages, oldest first.
    pub(crate) messages: Vec<Value>,
    /// The ids of its runs.
    pub(crate) runs: Vec<String>,
    /// What became of a run that was tried afterwards.
    pub(crate) probe: Probe,
}

/// What it was answered when a run was tried under a budget; statuses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    /// Where the budget was what had been taken, which leaves nothing.
    pub(crate) nothing_left: u16,
    /// The answer's body there.
    #[serde(default)]
    pub(crate) told: String,
    /// Where the budget left just enough for that run, if nothing besides was still reserved.
    pub(crate) enough_left: u16,
}

impl Window {
    /// Before its end, a primary may acknowledge for so long what its replica does not get any more. The replica gets it
    /// within milliseconds, unless the machine is busy.
    const LAG_MS: u64 = 2_000;

    /// The time that this takes, which replaces a primary.
    pub(crate) async fn of(replacing: impl Future<Output = ()>) -> Self {
        let from_ms = now_ms().saturating_sub(Self::LAG_MS);
        replacing.await;
        Self { from_ms, to_ms: now_ms() }
    }
}

impl Evidence {
    /// What all runs took, by what the server says of each.
    pub(crate) fn took(&self) -> Value {
        let sum = |name: &str| self.runs.values().filter_map(|run| run.object["usage"][name].as_u64()).sum::<u64>();
        let names = ["prompt_tokens", "completion_tokens", "total_tokens"];
        let mut took: serde_json::Map<String, Value> =
            names.map(|name| (name.to_owned(), sum(name).into())).into_iter().collect();
        took.insert("runs".to_owned(), self.runs.values().filter(|run| run.object["usage"].is_object()).count().into());
        took.into()
    }

    /// In how many windows the store may have forgotten what it acknowledged between these times.
    pub(crate) fn forgotten_between(&self, from_ms: u64, to_ms: u64) -> usize {
        self.forgotten.iter().filter(|window| window.from_ms <= to_ms && from_ms <= window.to_ms).count()
    }

    /// What the key was charged for all runs together, in tokens: what they used, what calls that were cut off may
    /// have taken beyond that, and what runs took that were tried with the budgets of sessions.
    pub(crate) fn charged(&self) -> u64 {
        let tried = self.model.iter().filter(|call| call.what.tag.starts_with(TRIED)).map(|call| call.what.tokens);
        let ends = self.runs.values().filter_map(|run| run.streams.values().next()?.last());
        let ends = ends.filter_map(|end| serde_json::from_str::<Value>(&end.data).ok());
        ends.map(|end| {
            let unconfirmed = end["agent"]["budget"]["unconfirmed"]["tokens"].as_u64();
            end["usage"]["total_tokens"].as_u64().unwrap_or(0) + unconfirmed.unwrap_or(0)
        })
        .chain(tried)
        .sum()
    }
}

impl ClientTrace {
    /// The one run that it has, if it was accepted.
    pub(crate) fn run(&self) -> Option<&str> {
        self.runs.first().map(String::as_str)
    }

    /// The number of the last event that it saw.
    pub(crate) fn last_id(&self) -> u64 {
        let events = self.readings.iter().flat_map(|reading| &reading.events);
        events.filter_map(|(_, event)| event.id).max().unwrap_or(0)
    }

    /// The longest time between two of its events, in milliseconds.
    pub(crate) fn longest_silence_ms(&self) -> u64 {
        let times: Vec<u64> =
            self.readings.iter().flat_map(|reading| reading.events.iter().map(|(at, _)| *at)).collect();
        times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(0)
    }
}

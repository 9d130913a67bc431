//! A run that is to be counted. Pure.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::agent::ledger::head::Head;
use crate::agent::usage::row::{Day, Dimensions, Totals};
use crate::types::fallback::FallbackUsage;
use crate::types::maps::HashMap;
use crate::types::{Micros, Outcome, RunId, RunSpec, Usage};

/// A run that ended or waits, as it is to be counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedRun {
    /// The run.
    pub(super) run: RunId,
    /// The day on which it is counted.
    pub(super) day: Day,
    /// What it is counted by.
    pub(super) dimensions: Arc<Dimensions>,
    /// All that the run took so far of its own model.
    pub(super) totals: Totals,
    /// The same of the models that it fell back to.
    pub(super) of_fallbacks: Vec<(String, Totals)>,
    /// How often its client has continued it.
    pub(super) leg: u32,
    /// Whether nothing can happen in it any more.
    pub(super) has_ended: bool,
    /// How many more bytes are to be counted as stored, which rides along.
    pub(super) storage: i64,
}

impl CountedRun {
    /// The run of `spec`, which ended or waits since `at_ms`, and has stored so many more bytes than were counted.
    pub fn new(spec: &RunSpec, leg: u32, outcome: &Outcome, at_ms: u64, storage: i64) -> Self {
        let (totals, of_fallbacks) = split(Some(outcome));
        Self {
            run: spec.id.clone(),
            day: Day::of(at_ms),
            dimensions: Arc::new(Dimensions::of_run(&Head::new(spec))),
            totals,
            of_fallbacks,
            leg,
            has_ended: outcome.status().is_final(),
            storage,
        }
    }

    /// The run.
    pub(in crate::agent) fn id(&self) -> &RunId {
        &self.run
    }

    /// Each of these runs once: of a run that several tasks count at a time, as far as the furthest of them saw it come.
    pub(super) fn each_once<'r>(runs: impl IntoIterator<Item = &'r Self>) -> Vec<Self> {
        let (mut once, mut places) = (Vec::<Self>::new(), HashMap::default());
        for run in runs {
            match places.entry(&run.run) {
                Entry::Vacant(place) => {
                    place.insert(once.len());
                    once.push(run.clone());
                }
                Entry::Occupied(place) => once[*place.get()].join(run),
            }
        }
        once
    }

    /// Takes in the same run as another task counts it.
    fn join(&mut self, other: &Self) {
        let storage = self.storage.saturating_add(other.storage);
        let tokens = |run: &Self| {
            let all = run.of_fallbacks.iter().map(|(_, totals)| totals).chain([&run.totals]);
            all.map(|totals| totals.prompt_tokens.saturating_add(totals.completion_tokens)).fold(0, u64::saturating_add)
        };
        let came_to = |run: &Self| (run.leg, run.has_ended, tokens(run));
        if came_to(other) > came_to(self) {
            *self = other.clone();
        }
        self.storage = storage;
    }

    /// The run for one attempt to count it. The first attempt alone takes along what is to be counted as stored: if its
    /// answer is lost, that may be counted.
    pub(in crate::agent) fn attempt(&mut self) -> Self {
        Self { storage: std::mem::take(&mut self.storage), ..self.clone() }
    }

    /// A run as its head and its log tell, which is counted now if the head does not say when it ended.
    pub(in crate::agent) fn found(head: &Head, outcome: Option<&Outcome>, now_ms: u64) -> Self {
        let (totals, of_fallbacks) = split(outcome);
        Self {
            run: head.id.clone(),
            day: Day::of(head.ended_ms.unwrap_or(now_ms)),
            dimensions: Arc::new(Dimensions::of_run(head)),
            totals,
            of_fallbacks,
            leg: head.leg,
            has_ended: head.status.is_final(),
            storage: 0,
        }
    }
}

/// What a run took of its own model, and of each that it fell back to. The run is counted as one of its own model.
fn split(outcome: Option<&Outcome>) -> (Totals, Vec<(String, Totals)>) {
    let Some(outcome) = outcome else { return (Totals::of_run(&Usage::default(), Micros::default()), Vec::new()) };
    let mut own = Totals::of_run(&outcome.usage, outcome.cost);
    let of_fallbacks: Vec<_> = outcome
        .of_fallbacks
        .iter()
        .map(|FallbackUsage { model, usage, cost }| {
            let totals = Totals { runs: 0, ..Totals::of_run(usage, *cost) };
            (model.clone(), totals)
        })
        .collect();
    for (_, totals) in &of_fallbacks {
        own = own.without(totals);
    }
    (own, of_fallbacks)
}

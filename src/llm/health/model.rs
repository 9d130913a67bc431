//! The health of one model: its breaker, and what of it the other processes do not know yet.

use parking_lot::Mutex;

use super::breaker::{Admission, Breaker, BreakerPolicy, Change, Heard, Known, Opening, Standing, Ticket};
use super::shared::{Target, Unsaved};
use crate::llm::error_class::ErrorClass;

/// The health of one model. A tick is a number that grows; what was read before the tick of its last change says nothing of it.
#[derive(Debug)]
pub(super) struct ModelHealth {
    pub(super) target: Target,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    /// Newer changes replace older ones: what they say together is how the breaker stands.
    unsaved: Option<Unsaved>,
    /// The tick of the last change here, or of when it was saved.
    changed: u64,
}

impl ModelHealth {
    pub(super) fn new(target: Target, policy: BreakerPolicy) -> Self {
        Self { target, state: Mutex::new(State { breaker: Breaker::new(policy), unsaved: None, changed: 0 }) }
    }

    pub(super) fn admit(&self, now_ms: u64, alone: bool) -> Admission {
        self.state.lock().breaker.admit(now_ms, alone)
    }

    pub(super) fn refusal(&self, now_ms: u64) -> Option<Opening> {
        self.state.lock().breaker.refusal(now_ms)
    }

    pub(super) fn opening(&self) -> Option<Opening> {
        self.state.lock().breaker.opening()
    }

    pub(super) fn is_probing(&self) -> bool {
        self.state.lock().breaker.is_probing()
    }

    /// Where its breaker stands, and how it failed; `None` if it has not failed.
    pub(super) fn standing(&self, now_ms: u64) -> Option<(Standing, Option<ErrorClass>)> {
        let breaker = &self.state.lock().breaker;
        let class = breaker.opening().map(|opening| opening.class);
        breaker.has_failed().then(|| (breaker.standing(now_ms), class))
    }

    /// Whether it makes a difference that it is kept.
    pub(super) fn is_of_use(&self, now_ms: u64) -> bool {
        self.state.lock().breaker.is_of_use(now_ms)
    }

    /// Takes in what is heard of a call. A change is to be saved if the health is `shared`.
    pub(super) fn hear(
        &self,
        now_ms: u64,
        ticket: &mut Ticket,
        heard: Heard,
        tick: u64,
        shared: bool,
    ) -> Option<Change> {
        let mut state = self.state.lock();
        let change = state.breaker.hear(now_ms, ticket, heard)?;
        state.changed = tick;
        state.unsaved = shared.then_some(Unsaved { change, tick });
        Some(change)
    }

    /// Another process probes: this one does not until then.
    pub(super) fn forgo(&self, ticket: Ticket, until_ms: u64) {
        self.state.lock().breaker.forgo(ticket, until_ms);
    }

    /// The others have found that the model is well.
    pub(super) fn close(&self, now_ms: u64, tick: u64) {
        let mut state = self.state.lock();
        state.breaker.learn(now_ms, None);
        state.changed = tick;
    }

    /// What the others do not know yet, with times from now.
    pub(super) fn unsaved(&self, now_ms: u64) -> Option<Unsaved> {
        let from_now = |opening: Opening| Opening { until_ms: opening.until_ms.saturating_sub(now_ms), ..opening };
        let Unsaved { change, tick } = self.state.lock().unsaved?;
        let change = match change {
            Change::Opened(opening) => Change::Opened(from_now(opening)),
            Change::Reopened(opening) => Change::Reopened(from_now(opening)),
            Change::Closed | Change::Released => change,
        };
        Some(Unsaved { change, tick })
    }

    /// The others know of the change of tick `saved`; it is `tick` now.
    pub(super) fn note_saved(&self, saved: u64, tick: u64) {
        let mut state = self.state.lock();
        if state.unsaved.is_some_and(|unsaved| unsaved.tick == saved) {
            state.unsaved = None;
            state.changed = tick;
        }
    }

    /// Takes in what the others knew when it was `read`.
    pub(super) fn learn(&self, now_ms: u64, read: u64, known: Option<Known>) {
        let mut state = self.state.lock();
        if state.unsaved.is_none() && state.changed < read {
            state.breaker.learn(now_ms, known);
        }
    }
}

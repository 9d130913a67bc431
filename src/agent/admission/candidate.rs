//! A run that may begin, before it is stored.

use std::sync::Arc;

use bytes::Bytes;

use crate::agent::context::server_tools::ServerTools;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::drive::replay::Replay;
use crate::agent::generation::Generation;
use crate::agent::ledger::commits::Turn;
use crate::agent::ledger::log;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::lifecycle::Lifecycle;
use crate::agent::limits::quota::Account;
use crate::agent::machine::Step;
use crate::agent::ownership::lease::Lease;
use crate::types::clock::now_ms;
use crate::types::event::Reservation;
use crate::types::guard::GuardPoint;
use crate::types::{Event, History, Record, RunSpec};

/// A run that may begin, and what it holds already. The run is not stored yet.
pub(super) struct Candidate {
    pub(super) spec: Arc<RunSpec>,
    pub(super) servers: Arc<ServerTools>,
    pub(super) tools: Toolbox,
    pub(super) generation: Arc<Generation>,
    pub(super) history: History,
    pub(super) budget: Option<SessionBudget>,
    pub(super) account: Option<Box<Account>>,
    pub(super) lease: Lease,
}

/// With what a run is created.
pub(super) struct Beginning {
    /// Its log with these.
    pub(super) log: Replay,
    /// Its first records.
    pub(super) records: Vec<Arc<Record>>,
    /// The same as they are stored.
    pub(super) entries: Vec<Bytes>,
    /// What its first step reserves, if that begins with the run.
    pub(super) reserved: Option<Reservation>,
}

impl Candidate {
    /// The events with which the run is created. Its first step begins with it, as no command can come before, unless the
    /// run waits, goes on at another replica, or a budget that it shares with other runs may refuse the step.
    pub(super) fn begin(&self, turn: Turn, lifecycle: &Lifecycle) -> Box<Beginning> {
        let (mut log, mut seq, at_ms) = (Replay::new(self.spec.clone()), 0, now_ms());
        let (mut records, mut entries) = (Vec::with_capacity(2), Vec::with_capacity(2));
        let mut add = |log: &mut Replay, event| {
            let (record, entry) = log::encode(&mut seq, at_ms, event);
            log.push(record.clone(), entry.len());
            records.push(record);
            entries.push(entry);
        };
        add(&mut log, if turn.must_wait() { Event::RunQueued } else { Event::RunStarted });
        if let Step::Plan(text) = log.run().next_step() {
            add(&mut log, Event::PlanCreated { step: 1, text });
        }
        let shares_budgets = self.budget.is_some_and(|session| session.is_any())
            || self.account.as_ref().is_some_and(|account| account.has_budgets())
            || self.spec.tree.is_some();
        let mut reserved = None;
        if !turn.must_wait()
            && !lifecycle.is_handing_over()
            && !shares_budgets
            && !self.is_refused()
            && !self.spec.guards.judges(GuardPoint::Input)
            && let Step::CallModel { step, reserve, closing: None } = log.run().next_step()
        {
            let model = log.run().unnamed_model().cloned();
            add(&mut log, Event::StepStarted { step, reserved: reserve, model, closing: None });
            reserved = Some(reserve);
        }
        // Boxed, as a start waits for its store with this at hand.
        Box::new(Beginning { log, records, entries, reserved })
    }
}

impl Candidate {
    /// Whether the run is to begin with another model than its own, which is not asked for now.
    fn is_refused(&self) -> bool {
        let RunSpec { upstream, upstream_model, fallbacks, .. } = &*self.spec;
        !fallbacks.is_empty() && self.generation.catalog.model(upstream).refusal(upstream_model).is_some()
    }
}

//! The loop as data: fold what happened with [`Run::apply`], ask what to do with [`Run::next_step`].
//!
//! No I/O, no clock, no async. A process that replays a run's records gets the run's state. A driver that
//! stops after any record and asks again continues as if nothing had happened. Every cycle uses up something
//! bounded: iterations, discarded steps, resumptions.

mod asked;
mod beside;
mod between;
pub mod budget;
mod calls;
pub mod ceiling;
mod children;
mod composite;
mod delegates;
mod elapsed;
mod ending;
mod fallback;
mod fitted;
pub mod fitting;
pub mod flushed;
mod flushing;
mod fold;
mod found;
mod from_tools;
mod guarded;
mod handed;
mod handoff;
mod hedge;
mod hooks;
mod json_mark;
mod judges;
mod judging;
mod loop_guard;
mod next;
mod prompted;
mod prompts;
mod questions;
mod required;
mod tools;
pub mod watched;

use std::sync::Arc;

use self::beside::Beside;
use self::calls::OpenCall;
pub use self::composite::Brief;
use self::elapsed::Elapsed;
pub use self::fallback::{Lack, NextModel, Unasked};
use self::fitted::{ContextEstimate, Fitting};
use self::found::Found;
use self::from_tools::FromTools;
pub use self::hedge::{HedgePlan, HedgeTarget};
use self::loop_guard::LoopGuard;
pub use self::next::Step;
use self::prompted::Prompts;
use crate::telemetry::fold::RunFold;
use crate::types::conversation::{Origin, Part};
use crate::types::error::RunError;
use crate::types::event::{Reservation, Turn};
use crate::types::fallback::FallbackUsage;
use crate::types::hook::HookRan;
use crate::types::price::StepModel;
use crate::types::report::Report;
use crate::types::run::RunSpec;
use crate::types::shortfall::BudgetKind;
use crate::types::{BudgetStatus, Limits, Message, Record, RunStatus, Shortfall, StopReason, Usage, Used};

/// The result of a call that was not answered before the run ended.
const UNANSWERED: &str = "The run ended before this call was answered.";

/// A run: the fold of its records.
#[derive(Debug, Clone)]
pub struct Run {
    spec: Arc<RunSpec>,
    phase: Phase,
    /// Its input, then what it added.
    messages: Vec<Message>,
    step: u32,
    iterations: u32,
    calls: Vec<OpenCall>,
    /// Whether the open calls are made once more: their step is complete but for them.
    is_retrying: bool,
    calls_minted: u16,
    /// How many calls of the server's tools were made or are to be.
    calls_made: u32,
    /// Whether the model made more than the run may.
    is_over_calls: bool,
    /// Boxed, as most runs are never to stop, and a live run has room for it.
    stop: Option<Box<Stop>>,
    /// Whether it is to stop once the present step is done.
    stops_after_step: bool,
    limit: Option<StopReason>,
    reserved: Reservation,
    /// The current step's other call.
    beside: Beside,
    /// The model of the current step, or of the next.
    model: Arc<StepModel>,
    /// The place of that model among those that the run may call; 0 is its own.
    place: usize,
    /// The places of the models that the run has left since one answered, a bit each.
    left: u32,
    /// How many calls of that model failed in a row and were charged or voided a text.
    failures: u32,
    /// The models that took tokens although no price is known for them.
    unpriced: Box<[Arc<StepModel>]>,
    /// What it took of the models that it fell back to.
    of_fallbacks: Vec<FallbackUsage>,
    /// The number of the request that it runs on.
    leg: u32,
    /// The claims of the requests that continued it.
    claims: Box<[String]>,
    usage: Usage,
    /// The part of it since the request came that the run runs on.
    leg_usage: Usage,
    used: Used,
    /// What cut calls may have taken beyond that.
    unconfirmed: Used,
    /// What came of the current step's answer, in bytes.
    answer_bytes: usize,
    warned: Vec<BudgetKind>,
    /// What its clients should know about their requests.
    warnings: Vec<String>,
    broken: u32,
    /// Steps that may be voided before those who read its present leg.
    max_discards: u32,
    /// How many calls failed without an answer since one was answered.
    unanswered: u32,
    empty: u32,
    /// How often it was taken over from a replica that died, without getting further since.
    resumes: u32,
    /// Whether the replica that drove it last left it by order.
    handed_off: bool,
    /// Whether it goes on without a reader.
    needs_no_reader: bool,
    context: ContextEstimate,
    last_turn: Turn,
    /// What the model said in paused turns of the answer that it is giving.
    paused: Vec<Part>,
    tool_calls: u32,
    /// What it got of its tools beside results.
    from_tools: FromTools,
    /// What its turns with calls have in common; nothing before the first.
    loop_guard: Option<LoopGuard>,
    /// What its model is asked beside the conversation.
    prompts: Prompts,
    report: Report,
    /// How long it has been under way.
    elapsed: Elapsed,
    commands_applied: u64,
    /// What hooks said before its first step. Most runs have none, and a live run has room for this.
    hooked: Box<[HookRan]>,
    /// Whether the hooks at its start were asked and told.
    start_hooked: bool,
    /// What joins the conversation before the next model call.
    steering: Vec<Message>,
    /// What guards found.
    found: Found,
    /// What was done so that its conversation fits.
    fitting: Fitting,
}

/// Why it is to stop.
#[derive(Debug, Clone)]
struct Stop {
    reason: StopReason,
    error: Option<RunError>,
    /// The budget that has no room.
    short: Option<Shortfall>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    NotStarted,
    Ready,
    ModelRunning,
    /// The model's turn held neither text nor calls.
    EmptyTurn,
    AnsweringCalls,
    Answered,
    /// The client's turn: about to be said, or said.
    HandedOver {
        waits: bool,
    },
    Ended(RunStatus),
}

impl Run {
    /// A run of which nothing happened yet.
    #[must_use]
    pub fn new(spec: Arc<RunSpec>) -> Self {
        let context = ContextEstimate { counted: spec.context_tokens, bytes_since: 0 };
        Self {
            messages: spec.input.clone(),
            model: Arc::new(spec.step_model()),
            warnings: spec.warnings.clone(),
            found: Found::of(&spec.guarded),
            fitting: Fitting::of(&spec),
            max_discards: spec.options.max_discards,
            spec,
            phase: Phase::NotStarted,
            step: 0,
            iterations: 0,
            calls: Vec::new(),
            is_retrying: false,
            calls_minted: 0,
            calls_made: 0,
            is_over_calls: false,
            stop: None,
            stops_after_step: false,
            limit: None,
            reserved: Reservation::default(),
            beside: Beside::default(),
            place: 0,
            left: 0,
            failures: 0,
            unpriced: Box::default(),
            of_fallbacks: Vec::new(),
            leg: 0,
            claims: Box::default(),
            usage: Usage::default(),
            leg_usage: Usage::default(),
            used: Used::default(),
            unconfirmed: Used::default(),
            answer_bytes: 0,
            warned: Vec::new(),
            broken: 0,
            unanswered: 0,
            empty: 0,
            resumes: 0,
            handed_off: false,
            needs_no_reader: false,
            context,
            last_turn: Turn::default(),
            paused: Vec::new(),
            tool_calls: 0,
            from_tools: FromTools::default(),
            loop_guard: None,
            prompts: Prompts::default(),
            report: Report::default(),
            elapsed: Elapsed::default(),
            commands_applied: 0,
            hooked: Box::default(),
            start_hooked: false,
            steering: Vec::new(),
        }
    }

    /// The run after `records`.
    #[must_use]
    pub fn replayed<'a>(mut self, records: impl IntoIterator<Item = &'a Record>) -> Self {
        for record in records {
            self.apply(record);
        }
        self
    }

    /// What it was asked to do.
    #[must_use]
    pub fn spec(&self) -> &Arc<RunSpec> {
        &self.spec
    }

    /// Its own messages: the input, then what it added.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What is set aside for a model call in flight.
    #[must_use]
    pub fn reserved(&self) -> Reservation {
        self.reserved
    }

    /// What it used of its budgets.
    #[must_use]
    pub fn used(&self) -> Used {
        self.used
    }

    /// Where its budgets stand.
    #[must_use]
    pub fn budget_status(&self) -> BudgetStatus {
        let Limits { token_budget: tokens, cost_budget: cost, .. } = self.spec.limits;
        BudgetStatus { tokens, cost, used: self.used, unconfirmed: self.unconfirmed }
    }

    /// What cut calls may have taken beyond what it used.
    #[must_use]
    pub fn unconfirmed(&self) -> Used {
        self.unconfirmed
    }

    /// What its interrupted call is charged, whose upstream was told this bound on its output, and what that call may have
    /// taken beyond it.
    #[must_use]
    pub fn interrupted_usage(&self, bound: Option<u64>) -> (Usage, Used) {
        budget::partial_usage(self.reserved, bound, &self.model.price, self.answer_bytes)
    }

    /// How many model calls in a row failed without an answer although they may have cost something.
    #[must_use]
    pub fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// The current step, counted from 1; 0 before the first.
    #[must_use]
    pub fn step(&self) -> u32 {
        self.step
    }

    /// How much of its time was left when the last thing happened, in milliseconds; waiting for the
    /// client does not count.
    #[must_use]
    pub fn left_ms(&self) -> u64 {
        self.spec.limits.timeout_ms.saturating_sub(self.elapsed.ms())
    }

    /// Whether it was told to stop, and will not even ask for a closing answer.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_some() && !self.wants_closing()
    }

    /// What its next records are counted by.
    #[must_use]
    pub fn counted(&self) -> RunFold {
        RunFold::new(&self.spec, self.model.clone(), self.status(), self.handed_off)
    }

    /// The number of the request that it runs on: 0 started it.
    #[must_use]
    pub fn leg(&self) -> u32 {
        self.leg
    }

    /// The claims of the keys under which its requests came.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.spec.claim.iter().chain(&self.claims).map(String::as_str)
    }

    /// The model that its next step calls.
    #[must_use]
    pub fn model(&self) -> &Arc<StepModel> {
        &self.model
    }

    fn step_origin(&self) -> Origin {
        Origin::Step { run: self.spec.id.clone(), step: self.step }
    }

    /// Whether it goes on without a reader: calls of it were decided, or their time ran out, it waited for services, or a
    /// request that continued it asked for that.
    #[must_use]
    pub fn needs_no_reader(&self) -> bool {
        self.needs_no_reader
    }

    /// How many model calls counted.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Where it stands.
    #[must_use]
    pub fn status(&self) -> RunStatus {
        match self.phase {
            Phase::NotStarted => RunStatus::Queued,
            Phase::Ready
            | Phase::ModelRunning
            | Phase::EmptyTurn
            | Phase::AnsweringCalls
            | Phase::Answered
            | Phase::HandedOver { waits: false } => RunStatus::InProgress,
            Phase::HandedOver { waits: true } => RunStatus::RequiresAction,
            Phase::Ended(status) => status,
        }
    }
}

#[cfg(test)]
pub(in crate::agent) mod tests;

//! What hooks are told of a run's events that the run does not wait for: lines in the log, counts, and messages that are
//! stored in the commit of the event that they tell of.
//!
//! Everything here follows from an event. So a hook is told of what is recorded, and of nothing else, in whichever way a run
//! came to it.

use crate::agent::ledger::due::Due;
use crate::agent::ledger::outbox::KeptMessage;
use crate::agent::machine::Run;
use crate::agent::outbox::Outbox;
use crate::config::{HookAction, LONGEST_RETRIES};
use crate::hooks::delivery::{About, message_id};
use crate::hooks::{Budget, Call, CallAnswer, Ended, Hook, Hooks, Message, What, Whose};
use crate::store::{Tx, Write};
use crate::telemetry::metrics::Delivery;
use crate::types::hook::{HookPoint, PinnedHook, Sends};
use crate::types::json::RawValueEq;
use crate::types::tool::CallEnding;
use crate::types::{CallId, Event, Record, RunSpec, RunStatus};

/// Most bytes of messages that one driver of a run stores, beside those about the run's end. A run that calls tools without end
/// does not fill the store with them.
const MOST_BYTES: usize = 64 << 20;

/// The hooks of a run that are told what happens in it.
#[derive(Debug)]
pub struct Notices {
    hooks: Hooks,
    outbox: Outbox,
    /// What is stored with the next commit.
    queued: Vec<Notice>,
    /// How many bytes the messages had so far.
    bytes: usize,
}

/// A message about the event of this number, and its hook's bound for sending it.
#[derive(Debug)]
struct Notice {
    seq: u64,
    /// The call that is about to be made, where the message says so.
    call: Option<CallId>,
    message: KeptMessage,
    retry_for: std::time::Duration,
}

/// Messages that are about to be stored.
#[derive(Debug)]
pub struct Departing {
    notices: Vec<Notice>,
    /// The entry that leads to them.
    pub due: Due,
}

impl Notices {
    /// The hooks of this run that are told something; `None` if there are none. Those that stand where something fails are told
    /// that the run failed, also if they are asked about calls that fail.
    pub fn of(spec: &RunSpec, hooks: &Hooks, outbox: &Outbox) -> Option<Box<Self>> {
        let is_any = spec.hooks.iter().any(|hook| !hook.is_asked || hook.points.contains(&HookPoint::OnError));
        is_any.then(|| Box::new(Self { hooks: hooks.clone(), outbox: outbox.clone(), queued: Vec::new(), bytes: 0 }))
    }

    /// Takes in an event that is stored with the next commit. The run is as it is after the event.
    pub(super) fn queue(&mut self, run: &Run, record: &Record) {
        let notices = self.notices(run, record);
        forget_unmade(&mut self.queued, record);
        self.queued.extend(notices);
    }

    /// What is stored of the events that were queued, and of `newest`, which follow them; `None` if that is nothing.
    pub fn departing<'r>(
        &mut self,
        run: &Run,
        newest: impl Iterator<Item = &'r Record>,
        now_ms: u64,
    ) -> Option<Departing> {
        let mut notices = std::mem::take(&mut self.queued);
        for record in newest {
            forget_unmade(&mut notices, record);
            notices.extend(self.notices(run, record));
        }
        // The first of them in the store stands for all in the entry that leads to them.
        let first = notices.iter().map(|notice| (notice.seq, &notice.message.id)).min()?.1;
        let due = Due::message(run.spec(), now_ms, first);
        for Notice { message, .. } in &mut notices {
            // By the clock of the store, which all replicas go by.
            (message.written_ms, message.next_ms) = (now_ms, now_ms);
        }
        Some(Departing { notices, due })
    }

    /// What could not be stored is stored with the next commit; but for the messages about `newest` events, which did not
    /// happen.
    pub(super) fn put_back(&mut self, departing: Departing, last_queued: u64) {
        let queued = departing.notices.into_iter().filter(|notice| notice.seq <= last_queued);
        self.queued.splice(..0, queued);
    }

    /// Sends what is stored now.
    pub fn send(&self, departing: Departing) {
        self.outbox.send_soon(departing.due);
    }

    /// Writes lines and counts of events that are stored now, in one commit.
    pub fn recorded<'r>(&self, run: &Run, records: &(impl Iterator<Item = &'r Record> + Clone)) {
        for record in records.clone() {
            let is_made = |id: &CallId| !records.clone().any(|record| unmade(record) == Some(id));
            for_each(run, record, |point, what| {
                if point == HookPoint::BeforeTool && !what.call().is_none_or(|call| is_made(call.id)) {
                    return;
                }
                for (pinned, hook) in told(&self.hooks, run.spec(), point, what) {
                    match hook.map(|hook| &hook.config().action) {
                        Some(HookAction::Metric) => self.outbox.metrics().matched(&pinned.name, point),
                        Some(HookAction::Log) => {
                            let text = message(pinned, run, (point, what), record).in_words();
                            let (id, name) = (&run.spec().id, &pinned.name);
                            tracing::info!(run = %id, hook = %name, point = point.as_str(), text, "a hook's line");
                        }
                        Some(
                            HookAction::Notify(_)
                            | HookAction::Webhook(_)
                            | HookAction::Command(_)
                            | HookAction::Block(_)
                            | HookAction::Rewrite { .. },
                        )
                        | None => {}
                    }
                }
            });
        }
    }

    /// The messages about an event.
    fn notices(&mut self, run: &Run, record: &Record) -> Vec<Notice> {
        let mut notices = Vec::new();
        for_each(run, record, |point, what| {
            for (pinned, hook) in told(&self.hooks, run.spec(), point, what) {
                let message = message(pinned, run, (point, what), record);
                // What a hook is sent that this replica lacks is kept for one that has it.
                let body = match hook.map_or(pinned.sends, |hook| hook.config().action.sends()) {
                    Sends::Nothing => continue,
                    Sends::Messages => message.encode_to_keep(),
                    Sends::Words => message.encode_in_words(),
                };
                if self.bytes > MOST_BYTES && !matches!(what, What::End(_)) {
                    tracing::debug!(run = %run.spec().id, hook = %pinned.name, "a message too many is not kept");
                    self.outbox.metrics().delivered(&pinned.name, Delivery::Dropped);
                    continue;
                }
                self.bytes += body.len();
                let message = KeptMessage {
                    id: message_id(&run.spec().id, &pinned.name, point, About::Event(record.seq), ""),
                    hook: pinned.name.to_string(),
                    body: RawValueEq(serde_json::from_slice(&body).expect("a message is JSON")),
                    written_ms: record.at_ms,
                    attempts: 0,
                    next_ms: record.at_ms,
                };
                let call = what.call().filter(|_| point == HookPoint::BeforeTool).map(|call| call.id.clone());
                let retry_for = hook.map_or(LONGEST_RETRIES, |hook| hook.config().retry_for);
                notices.push(Notice { seq: record.seq, call, message, retry_for });
            }
        });
        notices
    }
}

/// The call that this record answers without its having been made.
fn unmade(record: &Record) -> Option<&CallId> {
    let Event::ToolFinished { call_id, outcome, .. } = &record.event else { return None };
    let is_unmade = match outcome.ending {
        CallEnding::Skipped => true,
        // What was made and failed took time: see `steps::outcome::made`.
        CallEnding::Lost => outcome.latency_ms == 0,
        CallEnding::Answered | CallEnding::Stopped | CallEnding::Pending => false,
    };
    is_unmade.then_some(call_id)
}

/// Forgets that a call was about to be made that this record answers without that. The log has a beginning of it too, in the same
/// commit.
fn forget_unmade(notices: &mut Vec<Notice>, record: &Record) {
    if let Some(id) = unmade(record) {
        notices.retain(|notice| notice.call.as_ref() != Some(id));
    }
}

impl Departing {
    /// Adds the messages to the commit of what they tell.
    pub fn put(&self, mut tx: Tx) -> Tx {
        let run = &self.due.run;
        let puts = self.notices.iter().map(|notice| notice.message.put(run, notice.seq, notice.retry_for));
        tx.writes.extend(puts.collect::<Vec<Write>>());
        tx
    }
}

/// The hooks that are told of this, and what this replica's configuration has of them.
fn told<'a>(
    hooks: &'a Hooks,
    spec: &'a RunSpec,
    point: HookPoint,
    what: What<'_>,
) -> impl Iterator<Item = (&'a PinnedHook, Option<&'a Hook>)> + use<'a> {
    let tool = what.call().map(|call| call.tool.to_owned());
    let is_failed_run = point == HookPoint::OnError && matches!(what, What::End(_));
    let is_told = move |hook: &&PinnedHook| !hook.is_asked || is_failed_run;
    let pinned = spec.hooks.iter().filter(is_told).filter(move |hook| hook.stands_at(point, tool.as_deref()));
    pinned.map(|pinned| (pinned, hooks.get(&pinned.name)))
}

fn message<'a>(
    hook: &'a PinnedHook,
    run: &'a Run,
    (point, what): (HookPoint, What<'a>),
    record: &Record,
) -> Message<'a> {
    let (whose, at_ms) = (Whose::from(&**run.spec()), record.at_ms);
    Message { hook: &hook.name, point, whose, at_ms, step: run.step(), seq: Some(record.seq), what }
}

/// Calls `tell` with each point that an event is, and what happens there.
fn for_each(run: &Run, record: &Record, mut tell: impl FnMut(HookPoint, What<'_>)) {
    match &record.event {
        Event::StartHooked => tell(HookPoint::RunStart, What::Start),
        Event::ToolStarted { call, .. } => tell(HookPoint::BeforeTool, What::Call(Call::from(call))),
        // Of a call that was not made, there is nothing to tell.
        Event::ToolFinished { outcome, .. } if outcome.ending == CallEnding::Skipped => {}
        Event::ToolFinished { call_id, name, outcome, .. } => {
            let arguments = run.arguments(call_id).unwrap_or("{}");
            let answer = What::Answer(Call { id: call_id, tool: name, arguments }, CallAnswer(outcome));
            tell(HookPoint::AfterTool, answer);
            if outcome.is_error {
                tell(HookPoint::OnError, answer);
            }
        }
        Event::BudgetWarning { owner, kind, used, limit } => {
            tell(HookPoint::BudgetWarning, What::Budget(Budget::new(*owner, kind.as_str(), *used, *limit)));
        }
        Event::RunFinished(outcome) => {
            tell(HookPoint::RunEnd, What::End(Ended(outcome)));
            if outcome.status() == RunStatus::Failed {
                tell(HookPoint::OnError, What::End(Ended(outcome)));
            }
        }
        Event::RunQueued
        | Event::RunStarted
        | Event::RunResumed { .. }
        | Event::StepStarted { .. }
        | Event::ThinkingDelta { .. }
        | Event::TextDelta { .. }
        | Event::RefusalDelta { .. }
        | Event::ToolArgumentsDelta { .. }
        | Event::ProviderRetry { .. }
        | Event::ProviderFallback(_)
        | Event::HedgeStarted(_)
        | Event::HedgeEnded(_)
        | Event::TurnFinished { .. }
        | Event::StepDiscarded { .. }
        | Event::CallAllowed { .. }
        | Event::ApprovalRequired(_)
        | Event::ApprovalResolved(_)
        | Event::ToolPending(_)
        | Event::Delegated(_)
        | Event::Handoff(_)
        | Event::QuestionAsked(_)
        | Event::QuestionResolved(_)
        | Event::ToolProgress { .. }
        | Event::ToolAnswered { .. }
        | Event::HookRan(_)
        | Event::Guarded(_)
        | Event::Context(_)
        | Event::StepCompleted { .. }
        | Event::StopRequested { .. }
        | Event::StopAfterStep
        | Event::LoopGuardTriggered(_)
        | Event::PlanCreated { .. }
        | Event::ReflectionStarted { .. }
        | Event::CommandsApplied { .. }
        | Event::HandedOff => {}
    }
}

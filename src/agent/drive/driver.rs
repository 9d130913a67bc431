//! The driver of one run: the run's state and the connections to everything that its steps need.

use std::sync::Arc;

use tokio::sync::watch;

use crate::agent::context::fit::shown::Shown;
use crate::agent::context::screen::screen;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::drive::asked;
use crate::agent::drive::child_ended::child_ended;
use crate::agent::drive::guarded::tell;
use crate::agent::drive::handing_over::Successors;
use crate::agent::drive::meter::Meter;
use crate::agent::drive::pending::answered;
use crate::agent::drive::recorder::Recorder;
use crate::agent::drive::signals::{Interruption, Signals};
use crate::agent::generation::Generation;
use crate::agent::inbox::{self, Command};
use crate::agent::ledger::keys;
use crate::agent::ledger::retention::Retention;
use crate::agent::limits::shared::BudgetState;
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::agent::run_memory::{MemoryShare, conversation_size};
use crate::agent::usage::CountedRun;
use crate::failpoint;
use crate::llm::Model;
use crate::store::{CommitError, Tx, Write};
use crate::tools::truncate::{MAX_RUN_MEDIA_BYTES, leave_media_out};
use crate::types::conversation::Origin;
use crate::types::event::Reservation;
use crate::types::tool::CallEnding;
use crate::types::{Event, History, RunId, RunSpec, SessionId, Shortfall, StopReason, ToolCall, ToolOutcome};

/// The state of one run and the connections to everything that its steps need.
#[derive(Debug)]
pub struct Driver {
    /// Records its events.
    pub recorder: Recorder,
    /// The model that it calls.
    pub model: Arc<dyn Model>,
    /// The tools that it may call.
    pub tools: Toolbox,
    /// The configuration that it began with.
    pub generation: Arc<Generation>,
    /// What makes another agent's run of it.
    pub handing_over: Arc<Successors>,
    /// The session's earlier messages.
    pub history: History,
    /// What of the conversation the model is shown, where that is not all. Boxed, as most conversations are short.
    pub shown: Option<Box<Shown>>,
    /// Its share of the memory for live runs.
    pub memory: MemoryShare,
    /// The budgets that it shares with other runs.
    pub meter: Meter,
    /// The budget in which it waits for room, because other runs have set aside what it lacks. Boxed, as few
    /// runs wait.
    pub waits_for: Option<Box<Shortfall>>,
    /// Whether its first step began when it was created, so that the model is to be called without more ado.
    pub first_step_began: bool,
    /// How long the session and the ended run are kept.
    pub retention: Arc<Retention>,
    /// What may interrupt it.
    pub signals: Signals,
    /// How many commands its inbox has, as far as its watcher knows.
    pub commands: watch::Receiver<u64>,
    /// The number of the last command that it has read.
    pub commands_seen: u64,
    /// The run of its session that is woken once this one has ended. Boxed, as few runs have others wait for them.
    pub next_in_session: Option<Box<RunId>>,
    /// How many bytes of it were counted as stored when it began.
    pub counted: u64,
    /// What is to be counted of it, once it ended or waits.
    pub uncounted: Option<Box<CountedRun>>,
    /// What its log grows to before it is counted again.
    pub counts_at: u64,
}

/// Why a driver stopped before its run did.
#[derive(Debug, thiserror::Error)]
pub enum Exit {
    /// The run is left to another replica.
    #[error("the run is left to others")]
    HandedOff,
    /// Its events could not be recorded.
    #[error(transparent)]
    NotRecorded(#[from] CommitError),
}

impl Driver {
    /// Counts the memory that the conversation takes by now.
    pub(in crate::agent) fn count_memory(&mut self) {
        let run = self.recorder.run();
        self.memory.count(conversation_size(run.spec().told(), &self.history, run.messages()));
    }

    /// Applies the commands that arrived since the last look.
    pub(super) async fn read_commands(&mut self) -> Result<(), CommitError> {
        let found = *self.commands.borrow_and_update();
        if found > self.commands_seen { Box::pin(self.apply_commands(found)).await } else { Ok(()) }
    }

    /// Applies a command, unless it was applied before. A repeated cancellation is applied again, because it
    /// changes nothing.
    fn apply_command(&mut self, number: u64, command: Command) {
        let is_known = number <= self.commands_seen;
        self.commands_seen = self.commands_seen.max(number);
        match command {
            Command::Cancel => {
                self.signals.cancel.cancel();
                // Recorded together with the command's number in the next commit, so that a crash loses neither.
                if !self.recorder.run().is_stopping() {
                    self.recorder.queue(Event::stop(StopReason::Cancelled));
                }
            }
            Command::CancelAfterStep => {
                let run = self.recorder.run();
                if !run.is_stopping() && !run.stops_after_step() {
                    self.recorder.queue(Event::StopAfterStep);
                }
            }
            Command::Steer { messages } if !is_known => {
                let run = &self.recorder.run().spec().id;
                let origin = Origin::Steering { run: run.clone(), command: number };
                let mut messages: Vec<_> = messages.into_iter().map(|message| message.from(origin.clone())).collect();
                let told = screen(&mut messages, &self.recorder.run().spec().guards, &[]);
                self.recorder.queue(Event::CommandsApplied { upto: number, messages });
                tell(&mut self.recorder, told);
            }
            Command::ToolResult { call_id, outcome } if !is_known => {
                let (run, now_ms) = (self.recorder.run(), self.recorder.store().now_ms());
                let answered = answered(run, &call_id, *outcome, now_ms);
                self.recorder.queue(Event::CommandsApplied { upto: number, messages: Vec::new() });
                if let Some(event) = answered {
                    self.recorder.queue(event);
                    failpoint::hit("pending.answer_read");
                }
            }
            Command::ChildEnded { call_id, end } if !is_known => {
                let (run, now_ms) = (self.recorder.run(), self.recorder.store().now_ms());
                let events = child_ended(run, &call_id, &end, now_ms);
                self.recorder.queue(Event::CommandsApplied { upto: number, messages: Vec::new() });
                for event in events {
                    self.recorder.queue(event);
                }
                failpoint::hit("delegate.end_read");
            }
            Command::AnswerQuestion { question, answer, by } if !is_known => {
                let resolved = asked::answered(self.recorder.run(), &question, answer, by);
                self.recorder.queue(Event::CommandsApplied { upto: number, messages: Vec::new() });
                if let Some(event) = resolved {
                    self.recorder.queue(event);
                }
            }
            Command::Steer { .. }
            | Command::ToolResult { .. }
            | Command::ChildEnded { .. }
            | Command::AnswerQuestion { .. }
            | Command::Unreadable => {}
        }
    }

    /// Records `events`, after which something begins that cannot be undone. If the inbox has a command that
    /// the driver has not read yet, nothing is recorded, the command is applied, and `false` is returned.
    pub(in crate::agent) async fn record_unless_told(
        &mut self,
        events: impl IntoIterator<Item = Event>,
        change: impl FnOnce(Tx) -> Tx,
    ) -> Result<bool, CommitError> {
        let log = keys::inbox(&self.recorder.run().spec().id);
        let no_more = Write::Append { log: log.clone(), after: self.commands_seen, entries: Vec::new() };
        match self.recorder.record_with(events, |tx| change(tx).write(no_more)).await {
            Ok(()) => Ok(true),
            Err(CommitError::SequenceConflict { log: full, actual }) if full == log => {
                Box::pin(self.apply_commands(actual)).await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the commands of the inbox that the driver has not read yet, and applies them: page by page, each
    /// recorded before the next is read. The inbox holds `length` commands.
    pub(in crate::agent) async fn apply_commands(&mut self, length: u64) -> Result<(), CommitError> {
        let mut seen = inbox::known(self.commands_seen, length);
        loop {
            let recorder = &self.recorder;
            let read = || inbox::read(recorder.store(), recorder.partition(), &recorder.run().spec().id, seen);
            let (commands, length) = RetryWhileLeased::new(recorder.validity()).read(read).await?;
            let is_last = commands.is_empty() || seen + commands.len() as u64 >= length;
            for command in commands {
                seen += 1;
                self.apply_command(seen, command);
            }
            if is_last {
                self.commands_seen = seen;
                return Ok(());
            }
            self.recorder.flush().await?;
        }
    }

    /// Records why the run must stop, or leaves the run.
    pub(in crate::agent) fn handle_interruption(&mut self, interruption: Interruption) -> Result<(), Exit> {
        match interruption {
            Interruption::Leave => Err(Exit::HandedOff),
            Interruption::Stop(StopReason::Cancelled | StopReason::Abandoned) if self.recorder.run().is_stopping() => {
                Ok(())
            }
            Interruption::Stop(reason) => {
                let short = self.waits_for.take().filter(|_| reason == StopReason::Timeout).map(|short| *short);
                self.recorder.queue(Event::StopRequested { reason, error: None, short });
                if reason == StopReason::Timeout {
                    self.signals.begin_closing();
                }
                Ok(())
            }
        }
    }

    /// Calls the model that the run names now.
    pub(super) fn take_model(&mut self) {
        self.model = self.generation.catalog.model(&self.recorder.run().model().upstream);
    }

    /// Records the end of a step, for which so much was reserved.
    pub(super) async fn end_step(&mut self, reserved: Reservation, event: Event) -> Result<(), Exit> {
        self.end_step_and(reserved, event, None).await
    }

    /// The same, and what follows the end of the step in the same commit.
    pub(super) async fn end_step_and(
        &mut self,
        reserved: Reservation,
        event: Event,
        next: Option<Event>,
    ) -> Result<(), Exit> {
        self.meter.settle(&mut self.recorder, reserved, event, next).await?;
        if self.meter.has_budgets() {
            Box::pin(self.warn_of_shared_budgets(false)).await;
        }
        Ok(())
    }

    /// Warns of budgets that the run shares with others once four fifths of one are used, unless another run did. The
    /// run looks from time to time, and before it `ends`.
    pub(super) async fn warn_of_shared_budgets(&mut self, ends: bool) {
        for BudgetState { owner, kind, used, limit, .. } in self.meter.due_warnings(&self.recorder, ends).await {
            let RunSpec { id: run, tenant, key_name, session, .. } = &**self.recorder.run().spec();
            let (key, session) = (key_name.as_deref(), session.as_ref().map(SessionId::as_str));
            let kind_name = kind.as_str();
            tracing::warn!(%run, %tenant, key, session, scope = %owner, kind = kind_name, used, limit, "four fifths of a budget are used");
            self.recorder.queue(Event::BudgetWarning { owner, kind, used, limit });
        }
    }

    /// Queues a call's result.
    pub(in crate::agent) fn finish_call(&mut self, call: &ToolCall, mut outcome: ToolOutcome) {
        let room = MAX_RUN_MEDIA_BYTES.saturating_sub(self.recorder.run().result_media());
        outcome.truncated |= leave_media_out(&mut outcome.parts, room);
        if outcome.ending == CallEnding::Lost {
            let run = &self.recorder.run().spec().id;
            tracing::warn!(%run, call = %call.id, tool = call.name, "whether a tool call took effect is not known");
        }
        let has_failed = outcome.is_error || outcome.failure.is_some();
        if has_failed && outcome.ending == CallEnding::Answered {
            // Not what the tool said: that may quote anything.
            let (run, status) = (&self.recorder.run().spec().id, outcome.status);
            let latency_ms = outcome.latency_ms;
            tracing::warn!(%run, call = %call.id, tool = call.name, status, latency_ms, "a tool call failed");
        }
        let (step, call_id, name) = (self.recorder.run().step(), call.id.clone(), call.name.clone());
        self.recorder.queue(Event::ToolFinished { step, call_id, name, outcome });
    }
}

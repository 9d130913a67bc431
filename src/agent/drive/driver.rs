//! Does the I/O that [`Run::next_step`](crate::agent::machine::Run::next_step) asks for and records
//! what happened.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::agent::context::toolbox::Toolbox;
use crate::agent::drive::recorder::Recorder;
use crate::agent::drive::signals::{Interruption, Signals};
use crate::agent::drive::steps;
use crate::agent::inbox::Numbered;
use crate::agent::inbox::{self, Command};
use crate::agent::ledger::keys;
use crate::agent::ledger::retention::Retention;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::limits::quota::Account;
use crate::agent::machine::Step;
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::llm::Model;
use crate::store::{CommitError, Tx, Write};
use crate::types::event::DiscardReason;
use crate::types::run::OnUnknownOutcome;
use crate::types::{Conversation, Effect, Event, RunId, StopReason, ToolCall, ToolOutcome, Usage};

/// How long a run that is left may take to record what has happened in it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Everything that moving one run takes.
#[derive(Debug)]
pub struct Driver {
    /// Where its events go.
    pub recorder: Recorder,
    /// What it asks.
    pub model: Arc<dyn Model>,
    /// What it may do.
    pub tools: Toolbox,
    /// The session's earlier messages.
    pub history: Conversation,
    /// What the session's budgets allow.
    pub session: Option<SessionBudget>,
    /// What its key allows, if that is not everything.
    pub account: Option<Account>,
    /// How long the session and the ended run are kept.
    pub retention: Retention,
    /// What may interrupt it.
    pub signals: Signals,
    /// What others leave for it.
    pub commands: mpsc::UnboundedReceiver<Numbered>,
    /// The number of the last command that it knows of.
    pub commands_seen: u64,
    /// The run of its session that is to be called once this one has ended.
    pub next_in_session: Option<RunId>,
}

/// Why a driver stopped before its run did.
#[derive(Debug, thiserror::Error)]
pub enum Exit {
    /// It was told to.
    #[error("the run is left to others")]
    HandedOff,
    /// Its events could not be recorded.
    #[error(transparent)]
    NotRecorded(#[from] CommitError),
}

impl Driver {
    /// Moves the run until it ends, waits for its client or must be left.
    pub async fn drive(&mut self) -> Result<(), Exit> {
        let end = self.go_on().await;
        if matches!(end, Err(Exit::HandedOff)) && self.signals.validity.is_valid() {
            // What has happened is not to happen again elsewhere.
            let flushed = tokio::time::timeout(LAST_WORDS, self.recorder.flush()).await;
            if !matches!(flushed, Ok(Ok(()))) {
                tracing::warn!(run = %self.recorder.run().spec().id, "could not record the last of a run that is left");
            }
        }
        end
    }

    async fn go_on(&mut self) -> Result<(), Exit> {
        loop {
            self.read_commands();
            match self.recorder.run().next_step() {
                Step::CallModel { step, reserve, closing } => {
                    steps::call_model::call_model(self, step, reserve, closing).await?;
                }
                Step::DiscardStep(reason) => self.discard_step(reason),
                Step::WarnBudget { kind, used, limit } => {
                    self.recorder.queue(Event::BudgetWarning { kind, used, limit });
                }
                Step::RunTools(calls) => steps::run_tools::run_tools(self, calls).await?,
                Step::SettleUnknown { calls, policy } => self.settle_unknown(calls, policy),
                Step::SkipTools(calls) => self.skip_tools(calls),
                Step::CompleteStep => self.complete_step(),
                Step::Finish(reason) => steps::finish::finish(self, reason).await?,
                Step::Done => return Ok(self.recorder.flush().await?),
            }
        }
    }

    /// Takes in what others left for the run since the last look.
    fn read_commands(&mut self) {
        while let Ok((number, command)) = self.commands.try_recv() {
            self.take_in(number, command);
        }
    }

    /// Takes in a command, unless it is known already. To be cancelled twice is no more than once, and so the
    /// safe side.
    pub(in crate::agent) fn take_in(&mut self, number: u64, command: Command) {
        let is_known = number <= self.commands_seen;
        self.commands_seen = self.commands_seen.max(number);
        match command {
            Command::Cancel => {
                self.signals.cancel.cancel();
                // Recorded with what is recorded next, so that it is not forgotten with its number.
                if !self.recorder.run().is_stopping() {
                    self.recorder.queue(Event::StopRequested { reason: StopReason::Cancelled, error: None });
                }
            }
            Command::Steer { messages } if !is_known => self.recorder.queue(Event::MailRead { upto: number, messages }),
            Command::Steer { .. } | Command::Unreadable => {}
        }
    }

    /// Records `events`, after which something begins that cannot be taken back, unless somebody left a
    /// command that is not known yet: then it is taken in, and `false` is returned.
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
                self.read_mail(actual).await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes in what the inbox, which holds `length` commands, has that is not known yet.
    pub(in crate::agent) async fn read_mail(&mut self, length: u64) -> Result<(), CommitError> {
        let (recorder, seen) = (&self.recorder, inbox::known(self.commands_seen, length));
        let run = &recorder.run().spec().id;
        let read = || inbox::read(recorder.store(), recorder.partition(), run, seen);
        let commands = RetryWhileLeased::new(recorder.validity()).read(read).await?;
        let read = seen + commands.len() as u64;
        for (number, command) in (seen + 1..).zip(commands) {
            self.take_in(number, command);
        }
        self.commands_seen = read;
        Ok(())
    }

    /// Turns an interruption into a recorded fact, or into leaving.
    pub(in crate::agent) fn handle_interruption(&mut self, interruption: Interruption) -> Result<(), Exit> {
        match interruption {
            Interruption::Leave => Err(Exit::HandedOff),
            Interruption::Stop(StopReason::Cancelled) if self.recorder.run().is_stopping() => Ok(()),
            Interruption::Stop(reason) => {
                self.recorder.queue(Event::StopRequested { reason, error: None });
                if reason == StopReason::Timeout {
                    self.signals.begin_closing();
                }
                Ok(())
            }
        }
    }

    fn discard_step(&mut self, reason: DiscardReason) {
        let run = self.recorder.run();
        // What an interrupted call took is unknown; it is charged in full, as it was reserved.
        let usage = match reason {
            DiscardReason::Interrupted => {
                let reserved = run.reserved();
                Usage {
                    prompt_tokens: reserved.input_tokens,
                    completion_tokens: reserved.output_tokens,
                    estimated: true,
                    ..Usage::default()
                }
            }
            DiscardReason::StreamBroke | DiscardReason::EmptyResponse => Usage::default(),
        };
        let step = run.step();
        self.recorder.queue(Event::StepDiscarded { step, reason, usage });
    }

    fn settle_unknown(&mut self, calls: Vec<ToolCall>, policy: OnUnknownOutcome) {
        for call in calls {
            self.finish_call(
                &call,
                ToolOutcome::skipped(
                    "The call was interrupted. Whether it took effect is unknown: do not assume either, and do not \
                     repeat it without checking.",
                ),
            );
        }
        if policy == OnUnknownOutcome::Fail {
            self.recorder.queue(Event::StopRequested { reason: StopReason::OutcomeUnknown, error: None });
        }
    }

    fn skip_tools(&mut self, calls: Vec<ToolCall>) {
        let step = self.recorder.run().step();
        for call in calls {
            self.recorder.queue(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
            self.finish_call(&call, ToolOutcome::skipped("The call was not made: the run is stopping."));
        }
    }

    fn complete_step(&mut self) {
        let run = self.recorder.run();
        let Some(report) = run.last_step() else { return };
        let event = Event::StepCompleted {
            step: run.step(),
            usage: report.usage,
            finish_reason: report.finish_reason.clone(),
            latency_ms: report.llm_latency_ms,
            tokens_used: run.used().tokens,
            token_budget: run.spec().limits.token_budget,
        };
        self.recorder.queue(event);
    }

    /// Queues a call's result.
    pub(in crate::agent) fn finish_call(&mut self, call: &ToolCall, outcome: ToolOutcome) {
        let (step, call_id, name) = (self.recorder.run().step(), call.id.clone(), call.name.clone());
        self.recorder.queue(Event::ToolFinished { step, call_id, name, outcome });
    }
}

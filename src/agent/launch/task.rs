//! Drives a run in a task of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::recorder::Recorder;
use crate::agent::drive::signals::Signals;
use crate::agent::drive::steps;
use crate::agent::drive::watcher::RunWatcher;
use crate::agent::follow::Follower;
use crate::agent::follow::active::Live;
use crate::agent::generation::Generation;
use crate::agent::inbox::Command;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::limits::quota::Account;
use crate::agent::ownership::lease::Lease;
use crate::agent::ownership::registry::Registration;
use crate::failpoint;
use crate::store::{CommitError, Unavailable};
use crate::types::run::{OnDisconnect, OnLimit};
use crate::types::{Conversation, Event, Record, RunId, RunSpec, StopReason};

/// Time held back for a closing answer, if a tenth of the run's is more.
const CLOSING_TIME: Duration = Duration::from_secs(10);
/// How soon it is tried again to give a run up that could not be.
const GIVE_UP_AGAIN: Duration = Duration::from_millis(500);

/// A run that is about to be driven here.
#[derive(Debug)]
pub(in crate::agent) struct Ready {
    pub(in crate::agent) spec: Arc<RunSpec>,
    /// Where its model and its tools come from.
    pub(in crate::agent) generation: Arc<Generation>,
    /// What is in its log.
    pub(in crate::agent) records: Vec<Record>,
    pub(in crate::agent) lease: Lease,
    /// The session's earlier messages.
    pub(in crate::agent) history: Conversation,
    /// What its session allows; `None` without a session.
    pub(in crate::agent) budget: Option<SessionBudget>,
    /// What its key allows, if that is not everything.
    pub(in crate::agent) account: Option<Account>,
    /// What others left for it that is not part of it yet.
    pub(in crate::agent) commands: Vec<Command>,
}

impl Agent {
    /// Drives a run in a task of its own; the returned follower has seen everything up to `seq`.
    pub(in crate::agent) fn spawn(&self, ready: Ready, seq: u64) -> Follower {
        let (mut driver, watcher, lease) = self.driver(ready);
        let spec = driver.recorder.run().spec().clone();
        let tail = driver.recorder.tail().clone();
        let reader = tail.reader();
        let (cancel, left) = (driver.signals.cancel.clone(), CancellationToken::new());
        self.active.insert(spec.id.clone(), Live { tail, cancel, left });
        let (agent, entry, run) = (self.clone(), Registration::of(&spec), spec.id.clone());
        self.tasks.spawn(async move {
            let driven = AssertUnwindSafe(watched(&mut driver, watcher)).catch_unwind().await;
            let result = match driven {
                Ok(result) => result,
                Err(_panic) => {
                    tracing::error!(%run, "a run panicked");
                    fail(&mut driver).await
                }
            };
            let result = result.map(|()| driver.next_in_session.take());
            agent.finalize(&run, &entry, lease, result).await;
        });
        let partition = keys::partition_of(&spec);
        Follower::new(self, partition, spec.id.clone(), Some(reader), seq)
    }

    /// Tidies up after a run's driver.
    async fn finalize(&self, run: &RunId, entry: &Registration, lease: Lease, result: Result<Option<RunId>, Exit>) {
        let ended = match &result {
            Ok(next) => self.unregister(run, entry, next.as_ref()).await.inspect_err(|error| {
                tracing::warn!(%run, %error, "an ended run is still named as live");
            }),
            Err(Exit::HandedOff) => Ok(()),
            Err(Exit::NotRecorded(CommitError::Fenced { .. })) => {
                tracing::warn!(%run, "another process took the run over");
                Ok(())
            }
            Err(Exit::NotRecorded(error)) => {
                tracing::error!(%run, %error, "the run's events could not be recorded; it is taken up again later");
                Ok(())
            }
        };
        failpoint::hit("run.unmarked");
        if let Err(error) = lease.release().await {
            tracing::warn!(%run, %error, "the run's lease could not be given back; it runs out");
        }
        failpoint::hit("run.released");
        self.active.remove(run);
        if result.is_err() || ended.is_err() {
            self.orphan(run, entry).await;
        }
    }

    /// Forgets a run that has ended or waits, once the next in its session is called.
    pub(in crate::agent) async fn unregister(
        &self,
        run: &RunId,
        entry: &Registration,
        next: Option<&RunId>,
    ) -> Result<(), Unavailable> {
        if let Some((next, session)) = next.zip(entry.session.as_ref()) {
            self.wake(&entry.tenant, session, next).await?;
        }
        self.replica.unregister(run).await
    }

    /// Makes sure that somebody finds the run. While this process lives it tries; after that, whoever
    /// settles its estate does.
    pub(in crate::agent) async fn orphan(&self, run: &RunId, entry: &Registration) {
        let mut attempts_at_the_end = 0;
        while let Err(error) = self.replica.orphan(run, entry).await {
            tracing::warn!(%run, %error, "a run that was left could not be given up yet");
            attempts_at_the_end += u32::from(self.leaving.is_cancelled());
            if attempts_at_the_end > 2 {
                return;
            }
            tokio::time::sleep(GIVE_UP_AGAIN).await;
        }
    }

    /// What drives a run, and what stands beside it.
    pub(in crate::agent) fn driver(&self, ready: Ready) -> (Driver, RunWatcher, Lease) {
        let Ready { spec, generation, records, lease, history, budget, account, commands } = ready;
        let recorder = Recorder::resume(self.store.clone(), spec.clone(), &records, &lease);
        let left_ms = recorder.run().left_ms();
        let timeout = Duration::from_millis(spec.limits.timeout_ms);
        let closing_time = match spec.on_limit {
            OnLimit::Synthesize => CLOSING_TIME.min(timeout / 10),
            OnLimit::Stop | OnLimit::Error => Duration::ZERO,
        };
        let cancel = CancellationToken::new();
        let signals = Signals {
            cancel: cancel.clone(),
            validity: lease.validity(),
            leave: self.leaving.clone(),
            hand_over: self.handing_over.clone(),
            deadline: Instant::now() + Duration::from_millis(left_ms).saturating_sub(closing_time),
            closing_time,
        };
        let (delivered, inbox) = mpsc::unbounded_channel();
        let read = recorder.run().commands_applied();
        let watcher = RunWatcher {
            store: self.store.clone(),
            partition: keys::partition_of(&spec),
            run: spec.id.clone(),
            read: read + commands.len() as u64,
            commands: lease.commands(),
            delivered,
            cancel,
            tail: recorder.tail().clone(),
            grace: match spec.on_disconnect {
                OnDisconnect::Cancel => Some(Duration::from_millis(spec.reconnect_grace_ms)),
                OnDisconnect::Continue => None,
            },
        };
        let mut driver = Driver {
            model: generation.catalog.model(&spec.upstream),
            tools: Toolbox::new(&generation.tools, &spec),
            recorder,
            history,
            session: budget,
            account,
            retention: self.retention,
            signals,
            commands: inbox,
            commands_seen: read,
            next_in_session: None,
        };
        for (number, command) in (read + 1..).zip(commands) {
            driver.take_in(number, command);
        }
        (driver, watcher, lease)
    }
}

/// Drives a run while its watcher stands by.
async fn watched(driver: &mut Driver, watcher: RunWatcher) -> Result<(), Exit> {
    tokio::select! {
        result = driver.drive() => result,
        () = watcher.watch() => Err(Exit::HandedOff),
    }
}

/// Ends a run whose driver panicked.
async fn fail(driver: &mut Driver) -> Result<(), Exit> {
    let reason = StopReason::InternalError;
    driver.recorder.queue(Event::StopRequested { reason, error: None });
    // A command may come in between, however often.
    while !driver.recorder.run().status().is_final() {
        steps::finish::finish(driver, reason).await?;
    }
    Ok(())
}

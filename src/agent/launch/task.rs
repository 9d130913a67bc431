//! Drives a run in a task of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::meter::Meter;
use crate::agent::drive::notices::Notices;
use crate::agent::drive::recorder::Recorder;
use crate::agent::drive::run_loop;
use crate::agent::drive::signals::Signals;
use crate::agent::drive::steps;
use crate::agent::drive::watcher::RunWatcher;
use crate::agent::drive::when_woken::WhenWoken;
use crate::agent::follow::Follower;
use crate::agent::follow::active::Live;
use crate::agent::launch::Launcher;
use crate::agent::launch::ready::{Prepared, Ready};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::stored::UNCOUNTED;
use crate::agent::machine::{Run, Step};
use crate::agent::ownership::lease::Lease;
use crate::agent::ownership::registry::Registration;
use crate::failpoint;
use crate::store::{CommitError, Unavailable, Watch};
use crate::types::run::{OnDisconnect, OnLimit};
use crate::types::{ErrorKind, Event, RunError, StopReason, Tenant};

/// Why a run fails that cannot be offered what it was offered before.
const LOST_TOOLS: &str = "The definitions of the run's tools are no longer there.";
/// Time held back for a closing answer, if a tenth of the run's is more.
const CLOSING_TIME: Duration = Duration::from_secs(10);

impl Launcher {
    /// Drives a run in a task of its own. The returned follower has seen everything up to `seq`, and shows nothing before
    /// the run's end if its caller `waits_for_the_end`.
    pub(in crate::agent) fn spawn(self: &Arc<Self>, ready: Ready, seq: u64, waits_for_the_end: bool) -> Follower {
        let (driver, watcher, lease) = self.driver(ready);
        let spec = driver.recorder.run().spec().clone();
        let tail = driver.recorder.tail().clone();
        // It counts as a reader before the run is driven.
        let partition = keys::partition_of(&spec);
        let follower = self.followers.follow(partition, spec.id.clone(), Some(tail.clone()), seq);
        let follower = if waits_for_the_end { follower.waiting_for_the_end() } else { follower };
        let (cancel, left) = (driver.signals.cancel.clone(), CancellationToken::new());
        let live = Live { tenant: spec.tenant.clone(), tail, cancel, left };
        self.active.insert(spec.id.clone(), live.clone());
        // Boxed, because a future is copied several times on its way into its task, and once more when that ends.
        self.lifecycle.spawn(Box::pin(self.clone().drive(driver, watcher, lease, live)));
        follower
    }

    /// Drives a run, and tidies up after it. The task of every live run is as large as this future, so what is rare
    /// or short in it is boxed.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` has room for its arguments twice")]
    fn drive(
        self: Arc<Self>,
        mut driver: Driver,
        mut watcher: RunWatcher,
        lease: Lease,
        live: Live,
    ) -> impl Future<Output = ()> + Send {
        async move {
            let driven = AssertUnwindSafe(watched(&mut driver, &mut watcher)).catch_unwind().await;
            let result = match driven {
                Ok(result) => result,
                Err(_panic) => {
                    tracing::error!(run = %driver.recorder.run().spec().id, "the driver of the run panicked");
                    Box::pin(end_panicked(&mut driver)).await
                }
            };
            Box::pin(self.finalize(&mut driver, lease, result, &live)).await;
        }
    }

    /// Unregisters a run whose driver has ended it, or orphans the run for another replica, and releases the lease.
    async fn finalize(self: &Arc<Self>, driver: &mut Driver, lease: Lease, result: Result<(), Exit>, live: &Live) {
        let spec = driver.recorder.run().spec().clone();
        let (run, entry) = (&spec.id, Registration::of(&spec));
        let has_ended = result.is_ok() && driver.recorder.run().status().is_final();
        // The end of a run releases its lease.
        let lease = (!has_ended).then_some(lease);
        if has_ended {
            driver.generation.tools.run_ended(run);
            let recorder = &driver.recorder;
            self.ledger.note_end(&live.tenant, recorder.partition(), run, Some(recorder.bytes())).await;
            if recorder.run().is_to_be_compacted() {
                self.compactions.wish(&spec);
            }
        }
        if let Some(workspaces) = &driver.generation.workspaces {
            if has_ended { workspaces.run_ended(&spec.tenant, run) } else { workspaces.run_left(run) }
        }
        if has_ended || result.is_err() {
            // A run that waits keeps the servers that its request named.
            driver.tools.let_go();
        }
        let ended = match &result {
            Ok(()) => self.leave_run(driver, &entry, live).await,
            Err(Exit::HandedOff) => Ok(()),
            Err(Exit::NotRecorded(CommitError::Fenced { .. })) => {
                tracing::warn!(%run, "another replica drives the run now");
                Ok(())
            }
            Err(Exit::NotRecorded(error)) => {
                tracing::error!(%run, %error, "could not record the run's events; the run is resumed later");
                Ok(())
            }
        };
        if let Some(lease) = lease
            && let Err(error) = lease.release().await
        {
            tracing::warn!(%run, %error, "could not release the run's lease; it expires by itself");
        }
        failpoint::hit("run.released");
        self.active.remove(run, live);
        if result.is_err() || ended.is_err() {
            self.ownership.orphan(run, &entry).await;
        }
    }

    /// Leaves a run that has ended or waits: it is counted and then unregistered. A run that is not counted stays
    /// registered, so that a sweep counts it.
    async fn leave_run(
        self: &Arc<Self>,
        driver: &mut Driver,
        entry: &Registration,
        live: &Live,
    ) -> Result<(), Unavailable> {
        let (run, next) = (driver.recorder.run().spec().id.clone(), driver.next_in_session.take());
        if driver.recorder.run().status().is_final() && driver.recorder.run().spec().parent.is_some() {
            Box::pin(self.tell_of_end(driver)).await?;
        }
        if driver.recorder.run().status().is_final()
            && let Some(counted) = driver.uncounted.take()
        {
            self.active.note_done(&run, live);
            self.ownership.wake_next(entry, next.as_deref()).await?;
            self.count_soon(entry.tenant.clone(), *counted);
            return Ok(());
        }
        // A run that waits may be registered again at any time, so nothing of this is left to be done later.
        self.count(&entry.tenant, driver).await?;
        failpoint::hit("run.counted");
        self.active.note_done(&run, live);
        let unregistered = self.ownership.unregister(&run, entry, next.as_deref()).await;
        failpoint::hit("run.unmarked");
        unregistered.inspect_err(|error| tracing::warn!(%run, %error, "could not unregister a run that waits"))
    }

    /// Tells the run that began the one of this driver, which has ended.
    pub(super) async fn tell_of_end(self: &Arc<Self>, driver: &Driver) -> Result<(), Unavailable> {
        let spec = driver.recorder.run().spec();
        let head = Head { status: driver.recorder.run().status(), ..Head::new(spec) };
        self.tell_parent(&spec.tenant, &head).await
    }

    /// Counts what a run took that its driver has ended or lets wait.
    pub(super) async fn count(&self, tenant: &Tenant, driver: &mut Driver) -> Result<(), Unavailable> {
        let Some(counted) = driver.uncounted.take() else { return Ok(()) };
        self.usage.count(tenant, *counted).await.inspect_err(|error| {
            let run = &driver.recorder.run().spec().id;
            tracing::warn!(%run, %error, "what the run took is counted later");
        })
    }

    /// The driver of a run, its watcher and its lease.
    pub(super) fn driver(&self, ready: Ready) -> (Driver, RunWatcher, Lease) {
        let Ready { idle, generation, prepared } = ready;
        let Prepared { history, budget, account, commands, nudges, memory, first_step_began, tools } = prepared;
        let counted = idle.counted();
        let (log, readers, lease) = idle.into_parts();
        let is_lost = tools.is_none();
        let mut recorder = Recorder::resume(self.ledger.store().clone(), log, readers, &lease);
        recorder.tell(Notices::of(recorder.run().spec(), &generation.hooks, &self.outbox));
        let signals = self.signals(recorder.run(), &lease);
        let tree = self.limits.tree(recorder.run().spec());
        let (found, commands) = watch::channel(commands);
        let read = recorder.run().commands_applied();
        let watcher = watcher(&recorder, &lease, &signals, (nudges, found));
        let mut driver = Driver {
            model: generation.catalog.model(&recorder.run().model().upstream),
            tools: tools.unwrap_or_default(),
            generation,
            handing_over: self.handing_over.clone(),
            recorder,
            history,
            shown: None,
            memory,
            meter: Meter::new(budget, account).in_tree(tree),
            waits_for: None,
            first_step_began,
            retention: self.ledger.shared_retention(),
            signals,
            commands,
            commands_seen: read,
            next_in_session: None,
            counted,
            uncounted: None,
            counts_at: UNCOUNTED,
        };
        driver.count_memory();
        if is_lost {
            let error = RunError::new(ErrorKind::StoreLostState, LOST_TOOLS);
            driver.recorder.queue(Event::StopRequested {
                reason: StopReason::StoreLostState,
                error: Some(error),
                short: None,
            });
        }
        (driver, watcher, lease)
    }

    /// What may interrupt a run that is driven from now on.
    fn signals(&self, run: &Run, lease: &Lease) -> Signals {
        let spec = run.spec();
        let timeout = Duration::from_millis(spec.limits.timeout_ms);
        let closing_time = match spec.on_limit {
            OnLimit::Synthesize => CLOSING_TIME.min(timeout / 10),
            OnLimit::Stop | OnLimit::Error => Duration::ZERO,
        };
        Signals {
            cancel: CancellationToken::new(),
            abandoned: CancellationToken::new(),
            validity: lease.validity(),
            ending: self.lifecycle.ending(),
            deadline: Instant::now() + Duration::from_millis(run.left_ms()).saturating_sub(closing_time),
            closing_time,
        }
    }
}

/// Drives a run while its watcher stands by.
async fn watched(driver: &mut Driver, watcher: &mut RunWatcher) -> Result<(), Exit> {
    tokio::select! {
        result = run_loop::drive(driver) => result,
        () = WhenWoken::new(watcher.watch()) => Err(Exit::HandedOff),
    }
}

/// Ends a run whose driver panicked.
async fn end_panicked(driver: &mut Driver) -> Result<(), Exit> {
    // A model call that was under way is paid for all the same.
    if let Step::DiscardStep(reason) = driver.recorder.run().next_step() {
        run_loop::discard_step(driver, reason).await?;
    }
    driver.meter.cancel_next(&driver.recorder).await?;
    let reason = StopReason::InternalError;
    driver.recorder.queue(Event::stop(reason));
    // A command may come in between, however often.
    while !driver.recorder.run().status().is_final() {
        steps::finish::finish(driver, reason).await?;
    }
    Ok(())
}

/// The watcher of a run, which puts the number of commands into `found`, and whose `nudges` tell of more.
fn watcher(
    recorder: &Recorder,
    lease: &Lease,
    signals: &Signals,
    (nudges, found): (Option<Watch>, watch::Sender<u64>),
) -> RunWatcher {
    let spec = recorder.run().spec();
    RunWatcher {
        store: recorder.store().clone(),
        partition: keys::partition_of(spec),
        run: spec.id.clone(),
        nudges,
        seen: recorder.run().commands_applied(),
        commands: lease.commands(),
        found,
        cancel: signals.cancel.clone(),
        abandoned: signals.abandoned.clone(),
        tail: recorder.tail().clone(),
        grace: match spec.options.on_disconnect {
            // Who decides need not stay, and when a service answers, or the time of a call runs out, no client need be there.
            OnDisconnect::Cancel if recorder.run().needs_no_reader() => None,
            OnDisconnect::Cancel => Some(Duration::from_millis(spec.options.reconnect_grace_ms)),
            OnDisconnect::Continue => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_of_a_live_run_is_small() {
        fn size_of_task<F: Future>(_: impl FnOnce(Arc<Launcher>, Driver, RunWatcher, Lease, Live) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = size_of_task(Launcher::drive);
        assert!(bytes <= 4_096, "it takes {bytes} bytes, of which {} are the driver", size_of::<Driver>());
    }
}

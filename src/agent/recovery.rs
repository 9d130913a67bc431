//! Takes up runs that nobody drives: after a crash, after a client answered, or to end them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::active::Live;
use crate::agent::driver::{Driver, Left, SessionBudget};
use crate::agent::error::unavailable;
use crate::agent::follow::Follower;
use crate::agent::head::{Head, decode, encode};
use crate::agent::lease::Lease;
use crate::agent::machine::Run;
use crate::agent::recorder::{self, Recorder};
use crate::agent::signals::Signals;
use crate::agent::toolbox::Toolbox;
use crate::agent::{Agent, keys, steps};
use crate::kill;
use crate::store::{Check, CommitError, Document, Order, Partition, Scan, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::run::{OnDisconnect, OnLimit};
use crate::types::session::Session;
use crate::types::{Event, Message, Record, RunId, RunSpec, RunStatus, SessionId, StopReason, Tenant};

/// How often a process looks for runs that nobody drives.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Runs looked at in one sweep.
const SWEEP_LIMIT: usize = 1024;
/// An entry whose run does not exist this long after it was named will not exist any more.
const STILLBORN_AFTER: Duration = Duration::from_secs(60);
/// How long a driver whose run is over may take to leave it.
const LEAVING_TIMEOUT: Duration = Duration::from_secs(2);
/// Log entries read at a time.
const PAGE: usize = 256;
/// Time held back for a closing answer, if a tenth of the run's is more.
const CLOSING_TIME: Duration = Duration::from_secs(10);

/// A run that nobody drives, with the lease to do it.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) spec: Arc<RunSpec>,
    pub(super) records: Vec<Record>,
    lease: Lease,
}

impl Idle {
    /// Where the run stands by its log.
    fn status(&self) -> RunStatus {
        Run::new(self.spec.clone()).replayed(&self.records).status()
    }

    /// Leaves the run as it was.
    pub(super) async fn release(self) -> Result<(), Unavailable> {
        self.lease.release().await
    }
}

/// Where a live run is found.
#[derive(Debug, Serialize, Deserialize)]
struct LiveEntry {
    tenant: Tenant,
    session: Option<SessionId>,
    since_ms: u64,
}

impl Agent {
    /// Takes up runs that nobody drives, now and every few seconds.
    pub(super) async fn sweep(&self) {
        let mut tick = tokio::time::interval(SWEEP_EVERY);
        let mut after = None;
        loop {
            tick.tick().await;
            let scan = Scan {
                prefix: keys::RUNS.to_owned(),
                after: after.take(),
                limit: SWEEP_LIMIT,
                order: Order::Ascending,
            };
            let found = self.store.scan(&keys::live_partition(), scan).await;
            let entries = found.unwrap_or_else(|error| {
                tracing::warn!(%error, "could not look for runs that nobody drives");
                Vec::new()
            });
            if entries.len() == SWEEP_LIMIT {
                after = entries.last().map(|(key, _)| key.clone());
            }
            for (key, document) in entries {
                let Some(run) = key.strip_prefix(keys::RUNS).and_then(RunId::parse) else { continue };
                if self.active.get(&run).is_none()
                    && let Err(error) = self.recover(&run, &document).await
                {
                    tracing::warn!(%run, %error, "could not take up a run");
                }
            }
        }
    }

    async fn recover(&self, run: &RunId, found: &Document) -> Result<(), Unavailable> {
        let entry: LiveEntry = decode(&found.value)?;
        let partition = keys::run_partition(&entry.tenant, entry.session.as_ref(), run);
        let document = self.store.get(&partition, &keys::head(run)).await?;
        let version = document.as_ref().map_or(0, |document| document.version);
        let head: Option<Head> = document.map(|document| decode(&document.value)).transpose()?;
        let age = Duration::from_millis(now_ms().saturating_sub(entry.since_ms));
        match head {
            Some(head) if head.status == RunStatus::InProgress => {
                if self.store.get(&partition, &keys::spec(run)).await?.is_none() {
                    return self.give_up(&partition, head, version).await;
                }
                if let Some(idle) = self.take_up(&entry.tenant, &head).await? {
                    if idle.status() != RunStatus::InProgress {
                        return idle.release().await;
                    }
                    tracing::info!(%run, "taking up a run that nobody drives");
                    self.resume(idle, Vec::new()).await?;
                }
                Ok(())
            }
            None if age < STILLBORN_AFTER => Ok(()),
            Some(_) | None => {
                // Unless it was marked again meanwhile.
                let key = keys::run_entry(run);
                let tx = Tx::new(keys::live_partition())
                    .check(Check::Version { key: key.clone(), version: found.version })
                    .write(Write::Delete { key });
                match self.store.commit(tx).await {
                    Ok(()) | Err(CommitError::VersionConflict { .. }) => Ok(()),
                    Err(error) => Err(unavailable(error)),
                }
            }
        }
    }

    /// Ends a run of which the store no longer knows what it was asked to do, unless its head, which
    /// stood at `version`, has changed: then it ended by itself meanwhile.
    async fn give_up(&self, partition: &Partition, head: Head, version: u64) -> Result<(), Unavailable> {
        let (run, reason) = (head.id.clone(), StopReason::StoreLostState);
        let head = Head { status: RunStatus::Failed, reason: Some(reason), ended_ms: Some(now_ms()), ..head };
        let (key, ttl) = (keys::head(&run), Some(self.keep.run));
        match self.store.commit(Tx::new(partition.clone()).put_at(key, version, encode(&head), ttl)).await {
            Ok(()) => {
                tracing::error!(%run, "part of the run is no longer in the store; it fails");
                self.unmark_live(&run).await
            }
            Err(CommitError::VersionConflict { .. }) => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// The lease and the log of a run; `None` while another process has it or once it ended.
    pub(super) async fn take_up(&self, tenant: &Tenant, head: &Head) -> Result<Option<Idle>, Unavailable> {
        if let Some(live) = self.active.get(&head.id) {
            // Whoever reads a run's last event may be faster than its driver is to leave.
            let _ = tokio::time::timeout(LEAVING_TIMEOUT, live.left.cancelled()).await;
        }
        let partition = keys::run_partition(tenant, head.session.as_ref(), &head.id);
        let Some(document) = self.store.get(&partition, &keys::spec(&head.id)).await? else { return Ok(None) };
        let spec: Arc<RunSpec> = Arc::new(decode(&document.value)?);
        let Some(lease) = self.leases.acquire(&spec).await? else { return Ok(None) };
        kill::point("resume.leased");
        // Read after the lease was granted: nobody else writes now.
        let records = self.records(&spec).await?;
        let idle = Idle { spec, records, lease };
        // The head that led here may be older than the log.
        if idle.status().is_final() {
            idle.release().await?;
            return Ok(None);
        }
        Ok(Some(idle))
    }

    /// Goes on with a run. `answers` are its client's; without them it is taken up after a crash.
    pub(super) async fn resume(&self, idle: Idle, answers: Vec<Message>) -> Result<Follower, Unavailable> {
        let Idle { spec, mut records, lease } = idle;
        let mut seq = records.last().map_or(0, |record| record.seq);
        let before = seq;
        let (resumed, entry) = recorder::encode(&mut seq, Event::RunResumed { answers });
        let log = keys::events(&spec.id);
        let append = Write::Append { log: log.clone(), after: records.len() as u64, entries: vec![entry] };
        let mut tx = Tx::new(keys::partition_of(&spec))
            .check(Check::Fence { lease: keys::lease(&spec.id), fence: lease.fence })
            .write(append)
            .write(Write::Put { key: keys::head(&spec.id), value: encode(&Head::new(&spec)), ttl: None })
            // What was to expire with a waiting run lives again.
            .write(Write::Put { key: keys::spec(&spec.id), value: encode(&*spec), ttl: None })
            .write(Write::ExpireLog { log, ttl: Duration::MAX });
        if let Some(id) = &spec.session
            && let Some(found) = self.find_session(&spec.tenant, id).await?
        {
            // Whoever meant to start or delete beside this run learns of it.
            let ttl = self.session_ttl_under(&found.session, &spec);
            let session = Session { active_run: Some(spec.id.clone()), ..found.session };
            tx = tx
                .put_at(keys::session(), found.version, encode(&session), Some(ttl))
                .write(Write::ExpireLog { log: keys::messages(), ttl });
        }
        let (by_tenant, live) =
            (self.index_entry(&spec), Self::mark_live(&spec.tenant, spec.session.as_ref(), &spec.id));
        tokio::try_join!(self.store.commit(by_tenant), self.store.commit(live)).map_err(unavailable)?;
        kill::point("resume.before_record");
        self.store.commit(tx).await.map_err(unavailable)?;
        kill::point("resume.recorded");
        records.push((*resumed).clone());
        let history = match &spec.session {
            Some(session) => self.history(&spec.tenant, session, spec.history_len).await?,
            None => String::new(),
        };
        self.spawn(spec, &records, lease, history.into(), before).await
    }

    /// Ends a run that nobody drives.
    pub(super) async fn stop_idle(&self, tenant: &Tenant, head: &Head) -> Result<(), Unavailable> {
        let Some(Idle { spec, records, lease }) = self.take_up(tenant, head).await? else { return Ok(()) };
        let run = spec.id.clone();
        let mut driver = self.driver(spec, &records, &lease, Arc::from(""), CancellationToken::new()).await?;
        driver.recorder.queue(Event::StopRequested { reason: StopReason::Cancelled, error: None });
        let ended = driver.drive().await;
        lease.release().await?;
        match ended {
            Ok(()) => self.unmark_live(&run).await,
            Err(Left::Told) => Ok(()),
            Err(Left::NotRecorded(error)) => Err(unavailable(error)),
        }
    }

    /// Drives a run in a task of its own; the returned follower has seen everything up to `seq`.
    pub(super) async fn spawn(
        &self,
        spec: Arc<RunSpec>,
        records: &[Record],
        lease: Lease,
        history: Arc<str>,
        seq: u64,
    ) -> Result<Follower, Unavailable> {
        let cancel = CancellationToken::new();
        let mut driver = self.driver(spec.clone(), records, &lease, history, cancel.clone()).await?;
        let left = CancellationToken::new();
        let tail = driver.recorder.tail().clone();
        let reader = tail.reader();
        self.active.insert(spec.id.clone(), Live { tail, cancel, left });
        let agent = self.clone();
        let run = spec.id.clone();
        self.tasks.spawn(async move {
            let result = AssertUnwindSafe(driver.drive()).catch_unwind().await;
            let result = match result {
                Ok(result) => result,
                Err(_panic) => {
                    tracing::error!(%run, "a run panicked");
                    let reason = StopReason::InternalError;
                    driver.recorder.queue(Event::StopRequested { reason, error: None });
                    steps::finish::finish(&mut driver, reason).await
                }
            };
            agent.leave(&run, lease, result).await;
        });
        let partition = keys::partition_of(&spec);
        let (run, active) = (spec.id.clone(), self.active.clone());
        Ok(Follower::new(self.store.clone(), partition, run, active, Some(reader), seq))
    }

    /// Tidies up after a run's driver.
    async fn leave(&self, run: &RunId, lease: Lease, result: Result<(), Left>) {
        let unmarked = match result {
            Ok(()) => self.unmark_live(run).await,
            Err(Left::Told) => Ok(()),
            Err(Left::NotRecorded(CommitError::Fenced { .. })) => {
                tracing::warn!(%run, "another process took the run over");
                Ok(())
            }
            Err(Left::NotRecorded(error)) => {
                tracing::error!(%run, %error, "the run's events could not be recorded; it is taken up again later");
                Ok(())
            }
        };
        kill::point("run.unmarked");
        let released = lease.release().await;
        kill::point("run.released");
        if let Err(error) = unmarked.and(released) {
            tracing::warn!(%run, %error, "could not tidy up after a run");
        }
        self.active.remove(run);
    }

    async fn driver(
        &self,
        spec: Arc<RunSpec>,
        records: &[Record],
        lease: &Lease,
        history: Arc<str>,
        cancel: CancellationToken,
    ) -> Result<Driver, Unavailable> {
        let recorder = Recorder::resume(self.store.clone(), spec.clone(), records, lease.fence);
        let left_ms = recorder.run().deadline_ms().saturating_sub(now_ms());
        let timeout = Duration::from_millis(spec.limits.timeout_ms);
        let closing_time = match spec.on_limit {
            OnLimit::Synthesize => CLOSING_TIME.min(timeout / 10),
            OnLimit::Stop | OnLimit::Error => Duration::ZERO,
        };
        let signals = Signals {
            cancel,
            lost: lease.lost.clone(),
            leave: self.leaving.clone(),
            readers: recorder.tail().readers(),
            grace: match spec.on_disconnect {
                OnDisconnect::Cancel => Some(Duration::from_millis(spec.reconnect_grace_ms)),
                OnDisconnect::Continue => None,
            },
            deadline: Instant::now() + Duration::from_millis(left_ms).saturating_sub(closing_time),
            closing_time,
        };
        let session = match &spec.session {
            Some(id) => {
                let found = self.find_session(&spec.tenant, id).await?;
                let budget = found.map(|found| SessionBudget {
                    tokens: found.session.token_budget,
                    cost: found.session.cost_budget.map(|cost| cost.0),
                });
                Some(budget.unwrap_or_default())
            }
            None => None,
        };
        Ok(Driver {
            model: self.catalog.model(&spec.upstream),
            tools: Toolbox::new(&self.tools, &spec),
            recorder,
            history,
            session,
            keep: self.keep,
            signals,
        })
    }

    async fn records(&self, spec: &RunSpec) -> Result<Vec<Record>, Unavailable> {
        let (partition, log) = (keys::partition_of(spec), keys::events(&spec.id));
        let mut records = Vec::new();
        loop {
            let page = self.store.read_log(&partition, &log, records.len() as u64, PAGE).await?;
            if page.entries.is_empty() {
                return Ok(records);
            }
            for entry in &page.entries {
                let record =
                    recorder::decode(entry).map_err(|error| Unavailable(format!("a log entry is damaged: {error}")))?;
                records.push(record);
            }
        }
    }

    pub(super) fn mark_live(tenant: &Tenant, session: Option<&SessionId>, run: &RunId) -> Tx {
        let entry = LiveEntry { tenant: tenant.clone(), session: session.cloned(), since_ms: now_ms() };
        Tx::new(keys::live_partition()).write(Write::Put {
            key: keys::run_entry(run),
            value: encode(&entry),
            ttl: None,
        })
    }

    async fn unmark_live(&self, run: &RunId) -> Result<(), Unavailable> {
        let tx = Tx::new(keys::live_partition()).write(Write::Delete { key: keys::run_entry(run) });
        self.store.commit(tx).await.map_err(unavailable)
    }
}

impl Run {
    /// The run after `records`.
    #[must_use]
    pub fn replayed(mut self, records: &[Record]) -> Self {
        for record in records {
            self.apply(record);
        }
        self
    }
}

//! Resumes a run without a driver: after a crash, after its client answered, or to end it.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::context::toolbox::Toolbox;
use crate::agent::drive::driver::Exit;
use crate::agent::drive::replay::Replay;
use crate::agent::drive::run_loop;
use crate::agent::error::unavailable;
use crate::agent::follow::Follower;
use crate::agent::generation::Generation;
use crate::agent::inbox;
use crate::agent::launch::Launcher;
use crate::agent::launch::ready::{Idle, Prepared, Ready};
use crate::agent::ledger::due::Due;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::ledger::stored::ClaimEnd;
use crate::agent::ledger::{ReadError, commits, keys};
use crate::agent::limits::quota::Account;
use crate::agent::ownership::registry::Registration;
use crate::agent::run_memory::{self, MemoryShare};
use crate::failpoint;
use crate::store::{CommitError, Store, Unavailable, Watch};
use crate::types::approval::Approval;
use crate::types::clock::now_ms;
use crate::types::event::Leg;
use crate::types::{Event, History, RunSpec, RunStatus, StopReason, Tenant};

/// How long a driver whose run is over may take to leave it.
const LEAVING_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a run was not resumed.
#[derive(Debug)]
pub(in crate::agent) enum NotResumed {
    /// By the count of its bytes, the tenant may not store the client's request of so many. The run is as it was.
    NoRoom(u64),
    /// The store did not answer: the run may have been resumed.
    Failed(Unavailable),
}

/// What a client's request resumes a run with.
#[derive(Debug)]
pub(in crate::agent) struct Answer {
    /// What was decided about calls that waited for an approval.
    pub(in crate::agent) approvals: Vec<Approval>,
    /// The leg that begins; `None` where a reader reads on over the wait.
    pub(in crate::agent) leg: Option<Leg>,
    /// Whether it is of a client, whose tenant has to have room for it.
    pub(in crate::agent) is_of_client: bool,
    /// The claim of the key under which the request was sent.
    pub(in crate::agent) claim: Option<ClaimEnd>,
}

impl From<Unavailable> for NotResumed {
    fn from(error: Unavailable) -> Self {
        Self::Failed(error)
    }
}

impl Launcher {
    /// Acquires the lease of a run and reads its log; `None` if another process drives the run or if it has ended. A
    /// run whose log cannot be read is failed.
    pub(in crate::agent) async fn acquire_idle(
        self: &Arc<Self>,
        tenant: &Tenant,
        head: &Head,
    ) -> Result<Option<Idle>, Unavailable> {
        if let Some(live) = self.active.get(&head.id) {
            // A client that reads a run's last event may send its answer before the driver has left.
            let _ = tokio::time::timeout(LEAVING_TIMEOUT, live.left.cancelled()).await;
        }
        let partition = keys::run_partition(tenant, head.session.as_ref(), &head.id);
        let Some(spec) = self.ledger.spec(&partition, &head.id).await? else { return Ok(None) };
        let Some(lease) = self.ownership.acquire(&spec).await? else { return Ok(None) };
        failpoint::hit("resume.leased");
        // Read after the lease was granted: no other replica can write now.
        let mut log = Replay::new(Arc::new(spec));
        let spec = log.run().spec().clone();
        match self.ledger.read_records(&spec, |record, bytes| log.push(Arc::new(record), bytes)).await {
            Ok(()) => {}
            Err(ReadError::Damaged(error)) => {
                // A later attempt could not read it either, and the run would block its session.
                tracing::error!(run = %spec.id, %error, "an entry of the run's log cannot be read");
                lease.release().await?;
                self.fail_lost(&spec.id, &Registration::of(&spec)).await?;
                return Ok(None);
            }
            Err(ReadError::Store(error)) => {
                lease.release().await?;
                return Err(error);
            }
        }
        let idle = Idle::new(log, lease, &self.telemetry).under(head);
        // The head that led here may be older than the log.
        if idle.status().is_final() {
            idle.release().await?;
            return Ok(None);
        }
        Ok(Some(idle))
    }

    /// Resumes a run: with the `answer` of its client, or without one after a crash. Where its tenant has no room
    /// for that answer, the run waits on.
    pub(in crate::agent) async fn resume(
        self: &Arc<Self>,
        mut idle: Idle,
        answer: Option<Answer>,
        generation: Arc<Generation>,
        memory: MemoryShare,
    ) -> Result<Follower, NotResumed> {
        let before = idle.seq();
        match self.prepare(&mut idle, answer, &generation, memory).await {
            Ok(prepared) => {
                if let Some(due) = idle.due() {
                    let store = self.ledger.store().clone();
                    self.lifecycle.spawn(async move { forget_due(&*store, &due).await });
                }
                Ok(self.spawn(Ready { idle, generation, prepared }, before, false))
            }
            Err(no_room @ NotResumed::NoRoom(_)) => {
                idle.release().await?;
                Err(no_room)
            }
            Err(error @ NotResumed::Failed(_)) => {
                // The commit's outcome is unknown. If it happened, the run needs a driver.
                self.requeue(idle.spec().clone(), idle.lease, None);
                Err(error)
            }
        }
    }

    /// Records that the run is resumed, and reads what its driver needs.
    async fn prepare(
        &self,
        idle: &mut Idle,
        answer: Option<Answer>,
        generation: &Generation,
        memory: MemoryShare,
    ) -> Result<Prepared, NotResumed> {
        let account = self.open_account(idle, generation).await?;
        let spec = idle.spec().clone();
        let tools = self.tools(&spec, generation).await?;
        let session = match &spec.session {
            Some(id) => self.ledger.find_session(&spec.tenant, id).await?,
            None => None,
        };
        let budget = spec
            .session
            .as_ref()
            .map(|_| session.as_ref().map(|found| SessionBudget::of(&found.session)).unwrap_or_default());
        let nothing = || Answer { approvals: Vec::new(), leg: None, is_of_client: false, claim: None };
        let Answer { approvals, leg, is_of_client, claim } = answer.unwrap_or_else(nothing);
        let number = leg.as_ref().map_or_else(|| idle.run().leg(), |leg| leg.number);
        let approvals = approvals.into_iter().map(|approval| Event::ApprovalResolved(Box::new(approval)));
        let (records, entries) = idle.next_records(approvals.chain([Event::RunResumed { leg }]));
        // After a crash nothing comes from a client, and the few bytes are counted with the rest of the log.
        let answer = if is_of_client { entries.1.iter().map(|entry| entry.len() as u64).sum() } else { 0 };
        idle.count(answer);
        let (head, retention) = (Head { leg: number, ..idle.new_head() }, self.ledger.retention());
        // What is stored is what the log follows from.
        let first = idle.run().first_spec().clone();
        let commit = commits::resume((&first, &head), idle.lease.fence(), (answer, claim, entries), session, retention);
        let live = self.ownership.replica.register(&spec.id, &Registration::of(&spec));
        let (index, live) = tokio::join!(self.ledger.commit(commit.index), self.ledger.commit(live));
        if matches!(index, Err(CommitError::CeilingReached { .. })) {
            if let Some(mut account) = account {
                account.free_slot().await;
            }
            self.ownership.replica.unregister(&spec.id).await?;
            return Err(NotResumed::NoRoom(commit.counted));
        }
        index.and(live).map_err(unavailable)?;
        let nudges = self.listen(&spec);
        failpoint::hit("resume.before_record");
        self.ledger.commit(commit.run).await.map_err(unavailable)?;
        failpoint::hit("resume.recorded");
        for record in records {
            idle.push(record);
        }
        let history = self.sessions.history_of(&spec).await?;
        let commands = self.commands(idle).await?;
        Ok(Prepared { history, budget, account, commands, nudges, memory, first_step_began: false, tools })
    }

    /// Records what was decided about some calls of a run that waits for approvals, and leaves the run waiting for the
    /// others. Readers find the decisions and what is left behind what the log had before.
    pub(in crate::agent) async fn keep_approvals(
        &self,
        mut idle: Idle,
        approvals: Vec<Approval>,
    ) -> Result<Follower, Unavailable> {
        let (before, spec) = (idle.seq(), idle.spec().clone());
        let approvals = approvals.into_iter().map(|approval| Event::ApprovalResolved(Box::new(approval)));
        let (records, (length, mut entries)) = idle.next_records(approvals);
        for record in records {
            idle.push(record);
        }
        let outcome = idle.run().outcome(StopReason::Approval, now_ms());
        let (ends, (_, last)) = idle.next_records([Event::RunFinished(Box::new(outcome))]);
        entries.extend(last);
        let told = match self.tell(idle.run(), &ends).await {
            Ok(told) => told,
            Err(error) => {
                idle.release().await?;
                return Err(error);
            }
        };
        let change = commits::decide(&spec, idle.lease.fence(), (length, entries));
        failpoint::hit("approval.before_record");
        let change = told.iter().fold(change, |change, told| told.put(change));
        let kept = self.ledger.commit(change).await;
        failpoint::hit("approval.recorded");
        if let Some(told) = told.filter(|_| kept.is_ok()) {
            told.stored();
        }
        let follower = self.followers.follow(keys::partition_of(&spec), spec.id.clone(), None, before);
        idle.release().await?;
        kept.map_err(unavailable).map(|()| follower)
    }

    /// How much memory the conversation of a run with this head takes, about: its own messages and its session's.
    pub(in crate::agent) async fn memory_of(&self, tenant: &Tenant, head: &Head) -> Result<u64, Unavailable> {
        let history = match &head.session {
            Some(id) => self.ledger.find_session(tenant, id).await?.map_or(0, |found| found.session.bytes),
            None => 0,
        };
        Ok(run_memory::of_stored(head.bytes.saturating_add(history)))
    }

    /// The account of a run that this process resumes.
    pub(super) async fn open_account(
        &self,
        idle: &Idle,
        generation: &Generation,
    ) -> Result<Option<Box<Account>>, Unavailable> {
        self.limits.settle_tree(idle.spec(), idle.charges()).await?;
        self.limits.open_account(idle.spec(), idle.charges(), &generation.quotas).await
    }

    /// Listens for commands to a run, before its inbox is looked at or can have any. `None` in a shared store, where
    /// listening costs more than looking again: there the run's watcher does both.
    pub(in crate::agent) fn listen(&self, spec: &RunSpec) -> Option<Watch> {
        let store = self.ledger.store();
        (!store.is_shared()).then(|| store.watch(&keys::inbox_topic(&keys::partition_of(spec), &spec.id)))
    }

    /// How many commands the run's inbox has.
    pub(super) async fn commands(&self, idle: &Idle) -> Result<u64, Unavailable> {
        inbox::length(self.ledger.store(), &keys::partition_of(idle.spec()), &idle.spec().id).await
    }

    /// Ends an orphaned run; `false` if it has a driver.
    pub(in crate::agent) async fn stop(self: &Arc<Self>, tenant: &Tenant, head: &Head) -> Result<bool, Unavailable> {
        let (launcher, tenant, head) = (self.clone(), tenant.clone(), head.clone());
        let stopping = Box::pin(async move {
            match launcher.acquire_idle(&tenant, &head).await? {
                Some(idle) => launcher.stop_idle(idle, StopReason::Cancelled).await,
                None => Ok(false),
            }
        });
        self.lifecycle.run_detached(stopping).await
    }

    /// Ends an orphaned run; `false` if it has a driver or if its head has changed.
    pub(in crate::agent) async fn stop_unless_changed(
        self: &Arc<Self>,
        tenant: &Tenant,
        head: &Head,
    ) -> Result<bool, Unavailable> {
        let (launcher, tenant, head) = (self.clone(), tenant.clone(), head.clone());
        let stopping = Box::pin(async move {
            let Some(idle) = launcher.acquire_idle(&tenant, &head).await? else { return Ok(false) };
            // While the lease is held, no other replica changes the head.
            let now = launcher.ledger.head(&keys::partition_of(idle.spec()), &head.id).await;
            if now.as_ref().is_ok_and(|now| now.as_ref() == Some(&head)) {
                return launcher.stop_idle(idle, StopReason::Cancelled).await;
            }
            idle.release().await?;
            now.map(|_| false)
        });
        self.lifecycle.run_detached(stopping).await
    }

    /// Ends a run without a driver for this reason; `false` if that is left to others.
    pub(super) async fn stop_idle(self: &Arc<Self>, idle: Idle, reason: StopReason) -> Result<bool, Unavailable> {
        let (spec, due, generation) = (idle.spec().clone(), idle.due(), self.generations.current());
        let prepared = match self.prepare_end(&idle, &generation).await {
            Ok(prepared) => prepared,
            Err(error) => {
                // The replica that tries again need not wait until the lease expires.
                idle.release().await?;
                return Err(error);
            }
        };
        let (mut driver, _watcher, lease) = self.driver(Ready { idle, generation, prepared });
        if driver.recorder.run().status() == RunStatus::InProgress {
            driver.recorder.queue(Event::RunResumed { leg: None });
        }
        driver.recorder.queue(Event::stop(reason));
        let ended = run_loop::drive(&mut driver).await;
        lease.release().await?;
        match ended {
            Ok(()) => {
                failpoint::hit("delegate.idle_stopped");
                self.count(&spec.tenant, &mut driver).await?;
                self.tell_of_end(&driver).await?;
                let recorder = &driver.recorder;
                self.ledger.note_end(&spec.tenant, recorder.partition(), &spec.id, Some(recorder.bytes())).await;
                if let Some(due) = due {
                    forget_due(&**self.ledger.store(), &due).await;
                }
                let next = driver.next_in_session.as_deref();
                self.ownership.unregister_idle(&spec, next).await.map(|()| true)
            }
            Err(Exit::HandedOff) => Ok(false),
            Err(Exit::NotRecorded(error)) => Err(unavailable(error)),
        }
    }

    /// Registers a run without a driver that is to end, and reads what its driver needs for that.
    async fn prepare_end(&self, idle: &Idle, generation: &Generation) -> Result<Prepared, Unavailable> {
        let spec = idle.spec();
        let budget = match &spec.session {
            Some(id) => {
                let found = self.ledger.find_session(&spec.tenant, id).await?;
                Some(found.map(|found| SessionBudget::of(&found.session)).unwrap_or_default())
            }
            None => None,
        };
        let mut account = self.open_account(idle, generation).await?;
        // A run that waits is not registered. From here on it is, so that another replica counts and tells its end if this one dies.
        let live = self.ownership.replica.register(&spec.id, &Registration::of(spec));
        if let Err(error) = self.ledger.commit(live).await {
            if let Some(account) = &mut account {
                account.return_new_slot().await;
            }
            return Err(unavailable(error));
        }
        // The run calls nothing any more, and its commands are read when it ends.
        let (history, commands, tools) = (History::default(), 0, Some(Toolbox::default()));
        Ok(Prepared {
            history,
            budget,
            account,
            commands,
            nudges: None,
            first_step_began: false,
            memory: self.memory.begin(),
            tools,
        })
    }
}

/// Removes an entry of the due index that is over. If that fails, the entry is removed when it is due.
async fn forget_due(store: &dyn Store, due: &Due) {
    if let Err(error) = due.remove(store).await {
        tracing::debug!(run = %due.run, %error, "an entry of the due index stays until it is due");
    }
}

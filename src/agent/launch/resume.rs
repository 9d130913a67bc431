//! Takes up a run that nobody drives: after a crash, after its client answered, or to end it.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::Agent;
use crate::agent::drive::driver::Exit;
use crate::agent::error::unavailable;
use crate::agent::follow::Follower;
use crate::agent::generation::Generation;
use crate::agent::inbox::{self, Command};
use crate::agent::launch::task::Ready;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::log;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::ledger::session::keep_session;
use crate::agent::limits::quota::{Account, Quotas};
use crate::agent::machine::Run;
use crate::agent::ownership::lease::Lease;
use crate::agent::ownership::registry::Registration;
use crate::failpoint;
use crate::store::{Check, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::session::Session;
use crate::types::{Conversation, Event, Message, Record, RunSpec, RunStatus, StopReason, Tenant};

/// How long a driver whose run is over may take to leave it.
const LEAVING_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a run that could not be gone on with is kept from being found.
const GIVE_BACK_AFTER: Duration = Duration::from_millis(500);
/// Log entries read at a time.
const PAGE: usize = 256;

/// A run that nobody drives, with the lease to do it.
#[derive(Debug)]
pub(in crate::agent) struct Idle {
    pub(in crate::agent) spec: Arc<RunSpec>,
    pub(in crate::agent) records: Vec<Record>,
    pub(in crate::agent) lease: Lease,
}

/// What driving a run takes beside its log.
pub(in crate::agent) struct Prepared {
    pub(in crate::agent) history: Conversation,
    pub(in crate::agent) budget: Option<SessionBudget>,
    pub(in crate::agent) account: Option<Account>,
    pub(in crate::agent) commands: Vec<Command>,
}

impl Idle {
    /// The run by its log.
    pub(in crate::agent) fn run(&self) -> Run {
        Run::new(self.spec.clone()).replayed(&self.records)
    }

    /// Where it stands.
    pub(in crate::agent) fn status(&self) -> RunStatus {
        self.run().status()
    }

    /// Leaves the run as it was.
    pub(in crate::agent) async fn release(self) -> Result<(), Unavailable> {
        self.lease.release().await
    }
}

impl Agent {
    /// The lease and the log of a run; `None` while another process has it or once it ended.
    pub(in crate::agent) async fn acquire_idle(
        &self,
        tenant: &Tenant,
        head: &Head,
    ) -> Result<Option<Idle>, Unavailable> {
        if let Some(live) = self.active.get(&head.id) {
            // Whoever reads a run's last event may be faster than its driver is to leave.
            let _ = tokio::time::timeout(LEAVING_TIMEOUT, live.left.cancelled()).await;
        }
        let partition = keys::run_partition(tenant, head.session.as_ref(), &head.id);
        let Some(document) = self.store.get(&partition, &keys::spec(&head.id)).await? else { return Ok(None) };
        let spec: Arc<RunSpec> = Arc::new(decode(&document.value)?);
        let Some(lease) = self.leases.acquire(&spec).await? else { return Ok(None) };
        failpoint::hit("resume.leased");
        // Read after the lease was granted: nobody else writes now.
        let records = match self.records(&spec).await {
            Ok(records) => records,
            Err(error) => {
                lease.release().await?;
                return Err(error);
            }
        };
        let idle = Idle { spec, records, lease };
        // The head that led here may be older than the log.
        if idle.status().is_final() {
            idle.release().await?;
            return Ok(None);
        }
        Ok(Some(idle))
    }

    /// Goes on with a run. `answers` are its client's; without them it is taken up after a crash.
    pub(in crate::agent) async fn resume(
        &self,
        idle: Idle,
        answers: Vec<Message>,
        generation: Arc<Generation>,
    ) -> Result<Follower, Unavailable> {
        let Idle { spec, mut records, lease } = idle;
        let before = records.last().map_or(0, |record| record.seq);
        let prepared = match self.prepare(&spec, &generation.quotas, &mut records, &lease, answers).await {
            Ok(prepared) => prepared,
            Err(error) => {
                // Whether it goes on is unknown; if it does, somebody must.
                self.requeue(&spec, lease);
                return Err(error);
            }
        };
        let Prepared { history, budget, account, commands } = prepared;
        Ok(self.spawn(Ready { spec, generation, records, lease, history, budget, account, commands }, before))
    }

    /// Leaves a run, which may not even exist, to whoever finds it. In the background: the store may not
    /// answer for a while.
    pub(in crate::agent) fn requeue(&self, spec: &Arc<RunSpec>, lease: Lease) {
        let (agent, spec) = (self.clone(), spec.clone());
        self.tasks.spawn(async move {
            if let Err(error) = lease.release().await {
                tracing::warn!(run = %spec.id, %error, "the run's lease could not be given back; it runs out");
            }
            // What failed once may do so again, and whoever finds the run tries at once.
            tokio::time::sleep(GIVE_BACK_AFTER).await;
            agent.orphan(&spec.id, &Registration::of(&spec)).await;
        });
    }

    /// Records that a run goes on and reads what that takes.
    async fn prepare(
        &self,
        spec: &Arc<RunSpec>,
        quotas: &Quotas,
        records: &mut Vec<Record>,
        lease: &Lease,
        answers: Vec<Message>,
    ) -> Result<Prepared, Unavailable> {
        let account = self.open_account(spec, records, quotas).await?;
        let mut seq = records.last().map_or(0, |record| record.seq);
        let (resumed, entry) = log::encode(&mut seq, now_ms(), Event::RunResumed { answers });
        let log = keys::events(&spec.id);
        let append = Write::Append { log: log.clone(), after: records.len() as u64, entries: vec![entry] };
        let mut tx = Tx::new(keys::partition_of(spec))
            .check(Check::Fence { lease: keys::lease(&spec.id), fence: lease.fence() })
            .write(append)
            .write(Write::Put { key: keys::head(&spec.id), value: encode(&Head::new(spec)), ttl: None })
            // What was to expire with a waiting run lives again.
            .write(Write::Put { key: keys::spec(&spec.id), value: encode(&**spec), ttl: None })
            .write(Write::ExpireLog { log, ttl: Duration::MAX })
            .write(Write::ExpireLog { log: keys::inbox(&spec.id), ttl: Duration::MAX });
        let mut budget = spec.session.as_ref().map(|_| SessionBudget::default());
        if let Some(id) = &spec.session
            && let Some(found) = self.find_session(&spec.tenant, id).await?
        {
            budget = Some(SessionBudget::of(&found.session));
            // Whoever meant to start or delete beside this run learns of it.
            let ttl = self.session_ttl_under(&found.session, spec);
            let holder = if spec.concurrent { found.session.active_run.clone() } else { Some(spec.id.clone()) };
            let session = Session { active_run: holder, ..found.session };
            self.index_session(&spec.tenant, &session, ttl).await?;
            tx = keep_session(tx.put_at(keys::session(), found.version, encode(&session), Some(ttl)), ttl);
        }
        let (by_tenant, live) = (self.index_entry(spec), self.replica.register(&spec.id, &Registration::of(spec)));
        tokio::try_join!(self.store.commit(by_tenant), self.store.commit(live)).map_err(unavailable)?;
        failpoint::hit("resume.before_record");
        self.store.commit(tx).await.map_err(unavailable)?;
        failpoint::hit("resume.recorded");
        records.push((*resumed).clone());
        let history = self.history_of(spec).await?;
        let commands = self.commands(spec, records).await?;
        Ok(Prepared { history, budget, account, commands })
    }

    /// What others left for a run with these records, beyond what they say was read.
    pub(in crate::agent) async fn commands(
        &self,
        spec: &Arc<RunSpec>,
        records: &[Record],
    ) -> Result<Vec<Command>, Unavailable> {
        let read = Run::new(spec.clone()).replayed(records).commands_applied();
        inbox::read(&self.store, &keys::partition_of(spec), &spec.id, read).await
    }

    /// Ends a run that nobody drives; `false` if somebody does.
    pub(in crate::agent) async fn stop(&self, tenant: &Tenant, head: &Head) -> Result<bool, Unavailable> {
        let (agent, tenant, head) = (self.clone(), tenant.clone(), head.clone());
        self.run_detached(async move { agent.stop_attached(&tenant, &head).await }).await
    }

    async fn stop_attached(&self, tenant: &Tenant, head: &Head) -> Result<bool, Unavailable> {
        let Some(Idle { spec, records, lease }) = self.acquire_idle(tenant, head).await? else { return Ok(false) };
        let (run, entry) = (spec.id.clone(), Registration::of(&spec));
        let budget = match &spec.session {
            Some(id) => {
                let found = self.find_session(&spec.tenant, id).await?;
                Some(found.map(|found| SessionBudget::of(&found.session)).unwrap_or_default())
            }
            None => None,
        };
        let generation = self.generation();
        let account = self.open_account(&spec, &records, &generation.quotas).await?;
        // What was left for it is read when it ends.
        let commands = Vec::new();
        let ready =
            Ready { spec, generation, records, lease, history: Conversation::default(), budget, account, commands };
        let (mut driver, _attendant, lease) = self.driver(ready);
        if driver.recorder.run().status() == RunStatus::InProgress {
            driver.recorder.queue(Event::RunResumed { answers: Vec::new() });
        }
        driver.recorder.queue(Event::StopRequested { reason: StopReason::Cancelled, error: None });
        let ended = driver.drive().await;
        lease.release().await?;
        match ended {
            Ok(()) => self.unregister(&run, &entry, driver.next_in_session.as_ref()).await.map(|()| true),
            Err(Exit::HandedOff) => Ok(false),
            Err(Exit::NotRecorded(error)) => Err(unavailable(error)),
        }
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
                    log::decode(entry).map_err(|error| Unavailable(format!("a log entry is damaged: {error}")))?;
                records.push(record);
            }
        }
    }
}

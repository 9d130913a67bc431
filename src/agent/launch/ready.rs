//! A run and the lease to drive it, before its driver begins: first idle, then ready.

use std::sync::Arc;

use bytes::Bytes;

use crate::agent::context::toolbox::Toolbox;
use crate::agent::drive::replay::Replay;
use crate::agent::generation::Generation;
use crate::agent::ledger::due::Due;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::log;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::limits::charge::Charges;
use crate::agent::limits::quota::Account;
use crate::agent::machine::Run;
use crate::agent::ownership::lease::Lease;
use crate::agent::run_memory::MemoryShare;
use crate::store::{Unavailable, Watch};
use crate::telemetry::run::{RunReaders, Telemetry};
use crate::types::clock::now_ms;
use crate::types::{Event, History, Record, RunSpec, RunStatus};

/// A run without a driver, and the lease to drive it. Its log was read and folded once.
#[derive(Debug)]
pub(in crate::agent) struct Idle {
    log: Replay,
    /// What reads the records that this replica adds.
    readers: RunReaders,
    pub(in crate::agent) lease: Lease,
    /// When its wait is over, if it waits: Unix milliseconds.
    waits_until_ms: Option<u64>,
    /// How many bytes of it are counted as stored.
    counted: u64,
}

impl Idle {
    /// The run with this log.
    pub(in crate::agent) fn new(log: Replay, lease: Lease, telemetry: &Telemetry) -> Self {
        let readers = telemetry.of_run(log.run().spec(), || log.run().counted());
        Self { log, readers, lease, waits_until_ms: None, counted: 0 }
    }

    /// A run that was just created with this log of these records, and with so many bytes counted as stored.
    pub(in crate::agent) fn created(
        log: Replay,
        records: &[Arc<Record>],
        lease: Lease,
        counted: u64,
        telemetry: &Telemetry,
    ) -> Self {
        let spec = log.run().spec().clone();
        let mut readers = telemetry.of_run(&spec, || Run::new(spec.clone()).counted());
        for record in records {
            readers.recorded(record);
        }
        Self { log, readers, lease, waits_until_ms: None, counted }
    }

    /// The same run, which waits as long as `head` says and is counted as it says.
    pub(super) fn under(self, head: &Head) -> Self {
        Self { waits_until_ms: head.waits_until_ms, counted: head.bytes, ..self }
    }

    /// Its head once it is driven from now on.
    pub(super) fn new_head(&self) -> Head {
        Head { bytes: self.counted, ..Head::new(self.spec()) }
    }

    /// Notes that so many bytes more of it are counted as stored.
    pub(super) fn count(&mut self, bytes: u64) {
        self.counted += bytes;
    }

    /// How many bytes of it are counted as stored.
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// Its entry in the due index, if it waits.
    pub(super) fn due(&self) -> Option<Due> {
        self.waits_until_ms.map(|at_ms| Due::wait_over(self.spec(), at_ms))
    }

    /// The run as its records have it.
    pub(in crate::agent) fn run(&self) -> &Run {
        self.log.run()
    }

    /// Its specification.
    pub(in crate::agent) fn spec(&self) -> &Arc<RunSpec> {
        self.run().spec()
    }

    /// Whether its log is empty.
    pub(in crate::agent) fn has_lost_its_log(&self) -> bool {
        self.entries() == 0
    }

    /// How many entries its log has.
    pub(in crate::agent) fn entries(&self) -> u64 {
        self.log.entries()
    }

    /// What its steps are to be charged.
    pub(in crate::agent) fn charges(&self) -> &Charges {
        self.log.charges()
    }

    /// Its status.
    pub(in crate::agent) fn status(&self) -> RunStatus {
        self.run().status()
    }

    /// The number of the last public event.
    pub(in crate::agent) fn seq(&self) -> u64 {
        self.log.seq()
    }

    /// The record of an event that happens now, the number of entries before it, and its entry.
    pub(super) fn next_record(&self, event: Event) -> (Arc<Record>, (u64, Bytes)) {
        let (record, entry) = log::encode(&mut self.seq(), now_ms(), event);
        (record, (self.log.entries(), entry))
    }

    /// The same of several events.
    pub(super) fn next_records(
        &self,
        events: impl IntoIterator<Item = Event>,
    ) -> (Vec<Arc<Record>>, (u64, Vec<Bytes>)) {
        let (mut seq, at_ms) = (self.seq(), now_ms());
        let (records, entries) = events.into_iter().map(|event| log::encode(&mut seq, at_ms, event)).unzip();
        (records, (self.log.entries(), entries))
    }

    /// Applies a record that is in the log now.
    pub(super) fn push(&mut self, record: Arc<Record>) {
        self.readers.recorded(&record);
        let bytes = log::size(&record);
        self.log.push(record, bytes);
    }

    /// Replaces the run's specification, before it begins.
    pub(super) fn respecify(&mut self, spec: RunSpec) {
        self.log.respecify(spec);
    }

    /// Leaves the run as it was.
    pub(in crate::agent) async fn release(self) -> Result<(), Unavailable> {
        self.lease.release().await
    }

    pub(super) fn into_parts(self) -> (Replay, RunReaders, Lease) {
        (self.log, self.readers, self.lease)
    }
}

/// A run that is about to be driven here.
#[derive(Debug)]
pub(in crate::agent) struct Ready {
    pub(in crate::agent) idle: Idle,
    /// Where its upstream and the tools that it answers itself are found.
    pub(in crate::agent) generation: Arc<Generation>,
    pub(in crate::agent) prepared: Prepared,
}

/// What driving a run takes beside its log.
#[derive(Debug)]
pub(in crate::agent) struct Prepared {
    /// The session's earlier messages.
    pub(in crate::agent) history: History,
    /// What its session allows; `None` without a session.
    pub(in crate::agent) budget: Option<SessionBudget>,
    /// What its key allows, if that is not everything.
    pub(in crate::agent) account: Option<Box<Account>>,
    /// How many commands its inbox holds.
    pub(in crate::agent) commands: u64,
    /// What tells of more, if that is listened to already.
    pub(in crate::agent) nudges: Option<Watch>,
    /// Its share of the memory for live runs.
    pub(in crate::agent) memory: MemoryShare,
    /// Whether its first step began when it was created.
    pub(in crate::agent) first_step_began: bool,
    /// Its tools. `None` if the store lost their definitions, so that the run cannot be resumed.
    pub(in crate::agent) tools: Option<Toolbox>,
}

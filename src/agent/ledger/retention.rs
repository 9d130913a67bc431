//! How long everything is kept. No other module decides this.

use std::time::Duration;

use crate::types::RunSpec;
use crate::types::session::Session;

/// How long an unfinished run's index entry is kept, beyond its timeout and an ended run's time. Nothing renews it while the
/// run is queued or its replicas are down, and a run without it could not be found. To shorten it when the run ends would take
/// one more commit for each run, in another partition. It does not follow how long ended runs are kept: queues and hours
/// without a replica are as long where that is short, and an entry takes about a hundred bytes.
const UNFINISHED: Duration = Duration::from_secs(24 * 3600);
/// How much longer than its session an index entry is kept, since a run's end renews only the session, for the same reason. Nor
/// does it follow how long sessions are kept: a run may go on for as long in a session that is kept for an hour.
const INDEX_SLACK: Duration = Duration::from_secs(2 * 24 * 3600);

/// How long the definitions of a run's tools are kept, beyond the time that a run may wait and be kept. No run is
/// queued or driven for as long at a stretch, and each begin or resumption renews the time.
const OFFERED: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long things are kept, and how much of them at hand.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// An ended run, after its end.
    pub run: Duration,
    /// How long a run may wait for its client.
    pub wait: Duration,
    /// A session, after its last change.
    pub session: Duration,
    /// Most bytes of sessions' messages that are kept in memory.
    pub history_bytes: u64,
    /// Most bytes of ended runs that are kept, where they lie in this process's memory; the oldest go first.
    pub ended_bytes: Option<u64>,
    /// Most bytes that may be sent to one run while it is live, all together.
    pub inbox_bytes: u64,
    /// Most bytes that a tenant may store.
    pub tenant_bytes: u64,
    /// How long a row of usage is kept, after it was last changed.
    pub usage: Duration,
    /// How many rows of usage of one day and tenant tell users apart.
    pub usage_rows: u64,
    /// Most bytes of memory for the conversations of live runs, all together.
    pub run_bytes: u64,
}

/// How much longer than a run it is known how much of the run is counted as used, so that nothing is counted after that
/// is no longer known.
const COUNTED: Duration = Duration::from_secs(3_600);
/// The same for a run that waits, which may be resumed: then nothing renews this time until the run ends or waits again.
const COUNTED_WAITING: Duration = Duration::from_secs(30 * 24 * 3_600);

impl Retention {
    /// How long it stays known where a session stood that was deleted.
    pub(super) const DELETED_SESSION_ENTRY: Duration = Duration::from_secs(3600);

    /// How long a caller's key holds, after the end of the longest run. Not a setting: it is a promise to clients, which
    /// cannot see settings, and as long as other APIs keep theirs.
    pub(in crate::agent) const KEY_HOLDS: Duration = Duration::from_secs(24 * 3600);

    /// How long the claims of a run are kept from now on that begins to wait for its client, not for the first time: a
    /// claim is made for one wait.
    pub(in crate::agent) fn waiting_claim_ttl(&self, spec: &RunSpec) -> Duration {
        Self::KEY_HOLDS.saturating_add(self.wait).saturating_add(Duration::from_millis(spec.limits.timeout_ms))
    }

    /// How long a session is kept after its last change.
    pub(super) fn session_ttl(&self, session: &Session) -> Duration {
        session.ttl_s.map_or(self.session, Duration::from_secs)
    }

    /// How long a session is kept from now on while this run is under way in it: not less than the run
    /// may take and wait.
    pub(super) fn session_ttl_under(&self, session: &Session, spec: &RunSpec) -> Duration {
        let run = Duration::from_millis(spec.limits.timeout_ms).saturating_add(self.waiting_run_ttl());
        self.session_ttl(session).max(run)
    }

    /// How long the entry of a session that is kept for `ttl` stands in its tenant's index.
    pub(super) fn session_entry_ttl(ttl: Duration) -> Duration {
        ttl.saturating_add(INDEX_SLACK)
    }

    /// How long the definitions of tools are kept after a run that is offered them began or was resumed.
    pub(super) fn offer_ttl(&self) -> Duration {
        self.waiting_run_ttl().saturating_add(OFFERED)
    }

    /// How long it is known how much of a run is counted as used, after the run ended or began to wait.
    pub(in crate::agent) fn usage_marker_ttl(&self, has_ended: bool) -> Duration {
        if has_ended { self.run + COUNTED } else { self.waiting_run_ttl().saturating_add(COUNTED_WAITING) }
    }

    /// How long the entry of a run stands in its tenant's index.
    pub(super) fn run_entry_ttl(&self, spec: &RunSpec) -> Duration {
        UNFINISHED + self.run + Duration::from_millis(spec.limits.timeout_ms)
    }

    /// How long the documents of a run are kept that begins to wait. The due index ends the wait earlier; should its
    /// entry be lost, the run expires.
    pub(super) fn waiting_run_ttl(&self) -> Duration {
        self.wait.saturating_add(self.run)
    }

    /// How much longer the documents of a run are kept that waits until `at_ms`, which is `now_ms` now.
    pub(in crate::agent) fn waiting_run_ttl_left(&self, at_ms: u64, now_ms: u64) -> Duration {
        Duration::from_millis(at_ms.saturating_sub(now_ms)).saturating_add(self.run)
    }

    /// How long it is known where the calls of a run are answered later, after one of them was made.
    pub(in crate::agent) fn callback_ttl(&self, spec: &RunSpec) -> Duration {
        self.waiting_run_entry_ttl(spec)
    }

    /// How long it is known what a run and those below it took together, after the last reservation: the run may wait meanwhile.
    pub(in crate::agent) fn tree_ttl(&self, spec: &RunSpec) -> Duration {
        self.waiting_run_entry_ttl(spec).saturating_add(UNFINISHED)
    }

    /// How long the entry of a run that begins to wait stands in its tenant's index.
    pub(super) fn waiting_run_entry_ttl(&self, spec: &RunSpec) -> Duration {
        self.waiting_run_ttl().saturating_add(Duration::from_millis(spec.limits.timeout_ms))
    }
}

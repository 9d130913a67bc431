//! What replicas know together of a model that is not asked: one document, and how each change turns it into the next. Pure.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::llm::error_class::ErrorClass;
use crate::llm::health::breaker::{Change, Known, Opening};
use crate::llm::health::shared::{Claim, Target};

/// How long a probe is claimed at a time: so long after the replica that probes has died, another one may.
const CLAIM_MS: u64 = 10_000;
/// A claim that lasts longer than this need not be renewed yet.
const RENEW_MS: u64 = 8_000;
/// How long a document outlives the time at which a probe is due: as long as nothing asks for the model.
const KEPT: Duration = Duration::from_secs(600);

/// What replicas know of a model that is not asked. Times are Unix milliseconds by the store's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    upstream: Arc<str>,
    fingerprint: Arc<str>,
    model: Arc<str>,
    class: ErrorClass,
    streak: u32,
    /// When a probe is due.
    until_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probe: Option<Probe>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Probe {
    replica: String,
    until_ms: u64,
}

/// What becomes of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edit {
    Keep,
    Put(Entry),
    Delete,
}

/// A replica that changes a document now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Editor<'a> {
    pub(super) replica: &'a str,
    pub(super) now_ms: u64,
}

impl Editor<'_> {
    /// Makes known what changed of a model, with times from now. Of two replicas that found it to fail, the longer wait
    /// counts, and a probe of another one goes on.
    pub(super) fn save(self, target: &Target, found: Option<&Entry>, change: Change) -> Edit {
        match (change, found) {
            (Change::Closed, Some(_)) => Edit::Delete,
            (Change::Released, Some(entry)) if entry.is_probed_by(self.replica) => {
                Edit::Put(Entry { probe: None, ..entry.clone() })
            }
            // Where there is none, another replica's probe was answered since this one's began.
            (Change::Closed | Change::Released | Change::Reopened(_), None) | (Change::Released, Some(_)) => Edit::Keep,
            (Change::Opened(opening), None) => Edit::Put(self.open(target, opening)),
            (Change::Opened(opening) | Change::Reopened(opening), Some(entry)) => {
                let mut next = self.open(target, opening);
                next.streak = next.streak.max(entry.streak);
                if entry.until_ms > next.until_ms {
                    (next.until_ms, next.class) = (entry.until_ms, entry.class);
                }
                let is_over = matches!(change, Change::Reopened(_)) && entry.is_probed_by(self.replica);
                next.probe = entry.live_probe(self.now_ms).filter(|_| !is_over).cloned();
                if next == *entry { Edit::Keep } else { Edit::Put(next) }
            }
        }
    }

    /// Claims the probe of a model, of which `unsaved` is not known to the others yet. A claim of this replica's that is there
    /// already is that of a call that is gone.
    pub(super) fn claim(self, target: &Target, found: Option<&Entry>, unsaved: Option<Change>) -> (Edit, Claim) {
        let opened = match (found, unsaved) {
            (Some(entry), _) => entry.clone(),
            (None, Some(Change::Opened(opening))) => self.open(target, opening),
            (None, _) => return (Edit::Keep, Claim::Closed),
        };
        let others = opened.live_probe(self.now_ms).filter(|probe| probe.replica != self.replica);
        let busy_ms = opened.until_ms.max(others.map_or(0, |probe| probe.until_ms)).saturating_sub(self.now_ms);
        if busy_ms > 0 {
            return (Edit::Keep, Claim::Denied(busy_ms));
        }
        (Edit::Put(Entry { probe: Some(self.probe()), ..opened }), Claim::Granted)
    }

    /// Keeps the claim of a call that is under way.
    pub(super) fn renew(self, found: Option<&Entry>) -> Edit {
        match found {
            Some(entry) if entry.is_probed_by(self.replica) && !entry.is_claimed_until(self.now_ms + RENEW_MS) => {
                Edit::Put(Entry { probe: Some(self.probe()), ..entry.clone() })
            }
            Some(_) | None => Edit::Keep,
        }
    }

    /// What this replica knows by a document, with times from now.
    pub(super) fn read(self, entry: &Entry) -> Known {
        let from_now = |until_ms: u64| until_ms.saturating_sub(self.now_ms);
        let Entry { class, streak, until_ms, .. } = *entry;
        let others = entry.live_probe(self.now_ms).filter(|probe| probe.replica != self.replica);
        Known {
            opening: Opening { class, streak, until_ms: from_now(until_ms) },
            probed_until_ms: others.map(|probe| from_now(probe.until_ms)),
        }
    }

    fn open(self, target: &Target, Opening { class, streak, until_ms }: Opening) -> Entry {
        let Target { upstream, fingerprint, model } = target.clone();
        let until_ms = self.now_ms.saturating_add(until_ms);
        Entry { upstream, fingerprint, model, class, streak, until_ms, probe: None }
    }

    fn probe(self) -> Probe {
        Probe { replica: self.replica.to_owned(), until_ms: self.now_ms.saturating_add(CLAIM_MS) }
    }
}

impl Entry {
    pub(super) fn target(&self) -> Target {
        let Self { upstream, fingerprint, model, .. } = self.clone();
        Target { upstream, fingerprint, model }
    }

    /// How long the document is kept.
    pub(super) fn ttl(&self, now_ms: u64) -> Duration {
        let busy_until_ms = self.until_ms.max(self.probe.as_ref().map_or(0, |probe| probe.until_ms));
        Duration::from_millis(busy_until_ms.saturating_sub(now_ms)).saturating_add(KEPT)
    }

    fn live_probe(&self, now_ms: u64) -> Option<&Probe> {
        self.probe.as_ref().filter(|probe| probe.until_ms > now_ms)
    }

    fn is_probed_by(&self, replica: &str) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.replica == replica)
    }

    fn is_claimed_until(&self, until_ms: u64) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.until_ms > until_ms)
    }
}

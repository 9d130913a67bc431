//! Translates a transaction into the arguments of the commit script: pure.
//!
//! The script compares conditions with what Redis holds now. What a write expects of earlier writes of the same
//! transaction is worked out here: after an append the log's length is known, after a deletion everything is.

use std::time::Duration;

use bytes::Bytes;

use super::keys::KeySpace;
use super::numbered::Numbered;
use crate::store::{Check, CommitError, Fence, Key, Tx, Write};

/// A transaction as conditions and writes of the commit script.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The Redis keys of conditions and writes, each once.
    keys: Numbered<String>,
    /// The conditions' arguments.
    conditions: Vec<Bytes>,
    /// What each condition is about, to turn a refusal into an error.
    expected: Vec<Expected>,
    /// The writes' arguments.
    writes: Vec<Bytes>,
    written: usize,
    /// The error that the transaction ends with if all conditions hold; nothing is written then.
    certain_refusal: Option<CommitError>,
}

/// What a condition is about.
#[derive(Debug)]
enum Expected {
    Version(Key),
    Fence(Key),
    Head(Key),
    /// The counter, and what earlier writes of the transaction add to it.
    Ceiling(Key, i128),
}

/// How long the token of a released lease is kept.
pub(super) const TOKEN_KEPT: Duration = Duration::from_hours(1);

/// The number of the first key after those that every commit names.
const FIRST_KEY: usize = 5;

impl Plan {
    /// The plan of a transaction.
    pub(super) fn of(tx: &Tx, space: &KeySpace) -> Self {
        let mut plan = Self::default();
        for check in &tx.checks {
            match check {
                Check::Version { key, version } => {
                    plan.condition("V", space.document(key), version.to_string(), Expected::Version(key.clone()));
                }
                Check::Fence { lease, fence } => {
                    plan.condition("F", space.lease(lease), fence_text(*fence), Expected::Fence(lease.clone()));
                }
            }
        }
        let mut known = Known::default();
        for write in &tx.writes {
            if let Err(certain_refusal) = plan.expect(write, &mut known, space) {
                plan.certain_refusal = Some(certain_refusal);
                plan.writes.clear();
                plan.written = 0;
                return plan;
            }
            plan.write(write, space);
        }
        if let Some((lease, fence)) = tx.releases.as_deref() {
            plan.release(space.lease(lease), *fence);
        }
        plan
    }

    /// Whether the outcome is certain without the server.
    pub(super) fn is_empty(&self) -> bool {
        self.expected.is_empty() && self.written == 0
    }

    /// Whether the transaction writes anything.
    pub(super) fn writes(&self) -> bool {
        self.written > 0
    }

    /// Whether the transaction happens if all conditions hold.
    pub(super) fn may_happen(&self) -> bool {
        self.certain_refusal.is_none()
    }

    /// Moves the plan's keys to the end of `keys`, and its conditions and writes to the end of `arguments`.
    pub(super) fn encode(&mut self, keys: &mut Vec<String>, arguments: &mut Vec<Bytes>) {
        self.keys.append_to(keys);
        arguments.push(text(self.expected.len()));
        arguments.append(&mut self.conditions);
        arguments.push(text(self.written));
        arguments.append(&mut self.writes);
    }

    /// The outcome if all conditions hold.
    pub(super) fn outcome(self) -> Result<(), CommitError> {
        self.certain_refusal.map_or(Ok(()), Err)
    }

    /// The error that the server's refusal means. `condition` is the number, from 1, of the first condition that does
    /// not hold; `actual` is what the server found instead. `None` if these make no sense.
    pub(super) fn refusal(&self, condition: usize, actual: &str) -> Option<CommitError> {
        Some(match self.expected.get(condition.checked_sub(1)?)? {
            Expected::Version(key) => CommitError::VersionConflict { key: key.clone(), actual: actual.parse().ok()? },
            Expected::Fence(lease) => CommitError::Fenced { lease: lease.clone() },
            Expected::Head(log) => CommitError::SequenceConflict { log: log.clone(), actual: actual.parse().ok()? },
            Expected::Ceiling(counter, added) => {
                let value = saturated(i128::from(actual.parse::<i64>().ok()?) + added);
                CommitError::CeilingReached { counter: counter.clone(), value }
            }
        })
    }

    fn condition(&mut self, kind: &'static str, key: String, expected: String, about: Expected) {
        let key = self.key(key);
        self.conditions.extend([Bytes::from_static(kind.as_bytes()), key, expected.into()]);
        self.expected.push(about);
    }

    /// Adds the condition that a write needs. Fails if earlier writes make certain that it does not hold.
    fn expect(&mut self, write: &Write, known: &mut Known, space: &KeySpace) -> Result<(), CommitError> {
        match write {
            Write::Append { log, after, entries } => {
                match known.head(log) {
                    Some(actual) if actual != *after => {
                        return Err(CommitError::SequenceConflict { log: log.clone(), actual });
                    }
                    Some(_) => {}
                    None => self.condition("L", space.log(log), after.to_string(), Expected::Head(log.clone())),
                }
                known.set_head(log, after.saturating_add(entries.len() as u64));
            }
            Write::DeleteLog { log } => known.set_head(log, 0),
            Write::ExpireLog { log, ttl } if ttl.is_zero() => known.set_head(log, 0),
            Write::Add { counter, delta, ceiling } => {
                let (from_zero, added) = known.sum(counter);
                // Counters saturate at `i64::MAX`, so a ceiling there refuses nothing.
                if let Some(ceiling) = ceiling.filter(|ceiling| *delta > 0 && *ceiling < i64::MAX) {
                    let most = i128::from(ceiling) - i128::from(*delta) - added;
                    if !from_zero {
                        let about = Expected::Ceiling(counter.clone(), added);
                        self.condition("C", space.counter(counter), most.to_string(), about);
                    } else if most < 0 {
                        return Err(CommitError::CeilingReached { counter: counter.clone(), value: saturated(added) });
                    }
                }
                known.set_sum(counter, from_zero, added + i128::from(*delta));
            }
            Write::DeleteCounter { counter } => known.set_sum(counter, true, 0),
            Write::ExpireCounter { counter, ttl } if ttl.is_zero() => known.set_sum(counter, true, 0),
            Write::Put { .. } | Write::Delete { .. } | Write::ExpireLog { .. } | Write::ExpireCounter { .. } => {}
        }
        Ok(())
    }

    fn write(&mut self, write: &Write, space: &KeySpace) {
        match write {
            Write::Put { key, value, ttl } if *ttl != Some(Duration::ZERO) => {
                let ttl = ttl.and_then(millis).map_or_else(String::new, |ttl| ttl.to_string());
                let name = Bytes::copy_from_slice(key.as_bytes());
                self.push("P", space.document(key), [name, ttl.into(), value.clone()]);
            }
            Write::Put { key, .. } | Write::Delete { key } => {
                self.push("D", space.document(key), [Bytes::copy_from_slice(key.as_bytes())]);
            }
            Write::Append { entries, .. } if entries.is_empty() => {}
            Write::Append { log, entries, .. } => {
                let entries = std::iter::once(text(entries.len())).chain(entries.iter().cloned());
                self.push("A", space.log(log), entries);
            }
            Write::ExpireLog { log, ttl } if !ttl.is_zero() => self.expire(space.log(log), *ttl),
            Write::ExpireCounter { counter, ttl } if !ttl.is_zero() => self.expire(space.counter(counter), *ttl),
            Write::DeleteLog { log } | Write::ExpireLog { log, .. } => self.push("X", space.log(log), []),
            Write::Add { counter, delta, .. } if *delta != 0 => {
                self.push("I", space.counter(counter), [Bytes::from(delta.to_string())]);
            }
            Write::Add { .. } => {}
            Write::DeleteCounter { counter } | Write::ExpireCounter { counter, .. } => {
                self.push("X", space.counter(counter), []);
            }
        }
    }

    fn release(&mut self, lease: String, fence: Fence) {
        let kept = TOKEN_KEPT.as_millis().to_string();
        self.push("R", lease, [fence_text(fence), released_text(fence), kept].map(Bytes::from));
    }

    fn expire(&mut self, key: String, ttl: Duration) {
        let ttl = millis(ttl).map_or_else(String::new, |ttl| ttl.to_string());
        self.push("E", key, [Bytes::from(ttl)]);
    }

    fn push(&mut self, kind: &'static str, key: String, arguments: impl IntoIterator<Item = Bytes>) {
        let key = self.key(key);
        self.writes.extend([Bytes::from_static(kind.as_bytes()), key]);
        self.writes.extend(arguments);
        self.written += 1;
    }

    /// The number of a key in the script's `KEYS`.
    fn key(&mut self, key: String) -> Bytes {
        text(FIRST_KEY + self.keys.number(key))
    }
}

/// What is known of the state after the writes so far.
#[derive(Debug, Default)]
struct Known {
    heads: Vec<(Key, u64)>,
    /// Each counter, whether it started at zero for certain, and what was added to it.
    sums: Vec<(Key, bool, i128)>,
}

impl Known {
    fn head(&self, log: &Key) -> Option<u64> {
        self.heads.iter().rev().find(|(known, _)| known == log).map(|(_, head)| *head)
    }

    fn set_head(&mut self, log: &Key, head: u64) {
        self.heads.push((log.clone(), head));
    }

    fn sum(&self, counter: &Key) -> (bool, i128) {
        let found = self.sums.iter().rev().find(|(known, ..)| known == counter);
        found.map_or((false, 0), |(_, from_zero, added)| (*from_zero, *added))
    }

    fn set_sum(&mut self, counter: &Key, from_zero: bool, added: i128) {
        self.sums.push((counter.clone(), from_zero, added));
    }
}

/// What a lease's value begins with while this fence is valid.
pub(super) fn fence_text(fence: Fence) -> String {
    format!("{}:{}:", fence.token, fence.nonce)
}

/// A lease's value once it is released: its token without a holder.
fn released_text(fence: Fence) -> String {
    format!("{}::0:", fence.token)
}

/// Whole milliseconds, at least 1; `None` for a century and longer, which is kept for ever.
pub(super) fn millis(ttl: Duration) -> Option<u64> {
    const CENTURY: u128 = 100 * 365 * 86_400_000;
    let millis = ttl.as_nanos().div_ceil(1_000_000).max(1);
    if millis < CENTURY { u64::try_from(millis).ok() } else { None }
}

/// A number as text, without an allocation for the small ones.
fn text(number: usize) -> Bytes {
    const SMALL: [&str; 16] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"];
    let small = SMALL.get(number).map(|text| Bytes::from_static(text.as_bytes()));
    small.unwrap_or_else(|| Bytes::from(number.to_string()))
}

fn saturated(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

//! From a transaction to what the commit script is told: pure.
//!
//! The script only compares what stands now. What a write expects of the writes before it is worked out
//! here: after an append a log's length is known, after a deletion everything is.

use std::time::Duration;

use bytes::Bytes;

use super::keys::Place;
use crate::store::{Check, CommitError, Fence, Key, Tx, Write};

/// A transaction in the terms of the script.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// What is named, each once.
    keys: Vec<String>,
    /// Number and text of the conditions.
    conditions: Vec<Bytes>,
    /// What each condition is about.
    expected: Vec<Expected>,
    /// Number and text of the writes.
    writes: Vec<Bytes>,
    written: usize,
    /// The refusal that is certain once the conditions hold. Then nothing is written.
    doom: Option<CommitError>,
}

/// What a condition is about, to say what was found instead.
#[derive(Debug)]
enum Expected {
    Version(Key),
    Fence(Key),
    Head(Key),
    /// With what earlier writes of the transaction add.
    Ceiling(Key, i128),
}

/// The first key after those that every commit names.
const FIRST_KEY: usize = 4;

impl Plan {
    /// Works out what to ask and what to write.
    pub(super) fn of(tx: &Tx, place: &Place) -> Self {
        let mut plan = Self::default();
        for check in &tx.checks {
            match check {
                Check::Version { key, version } => {
                    plan.condition("V", place.document(key), version.to_string(), Expected::Version(key.clone()));
                }
                Check::Fence { lease, fence } => {
                    plan.condition("F", place.lease(lease), fence_text(*fence), Expected::Fence(lease.clone()));
                }
            }
        }
        let mut known = Known::default();
        for write in &tx.writes {
            if let Err(doom) = plan.expect(write, &mut known, place) {
                plan.doom = Some(doom);
                plan.writes.clear();
                plan.written = 0;
                return plan;
            }
            plan.write(write, place);
        }
        plan
    }

    /// Whether there is nothing to ask the server.
    pub(super) fn is_empty(&self) -> bool {
        self.expected.is_empty() && self.written == 0
    }

    /// Whether it writes anything.
    pub(super) fn writes(&self) -> bool {
        self.written > 0
    }

    /// Whether it happens if the conditions hold.
    pub(super) fn may_happen(&self) -> bool {
        self.doom.is_none()
    }

    /// Takes out what is named, to follow `keys`, and what is to be done, to follow `arguments`.
    pub(super) fn tell(&mut self, keys: &mut Vec<String>, arguments: &mut Vec<Bytes>) {
        keys.append(&mut self.keys);
        arguments.push(text(self.expected.len()));
        arguments.append(&mut self.conditions);
        arguments.push(text(self.written));
        arguments.append(&mut self.writes);
    }

    /// What comes of conditions that all hold.
    pub(super) fn outcome(self) -> Result<(), CommitError> {
        self.doom.map_or(Ok(()), Err)
    }

    /// Why it did not happen, given the number of the first condition that does not hold, from 1, and
    /// what stands there instead. `None` if the server's answer makes no sense.
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

    /// Adds what a write expects; the refusal if that is certain not to hold.
    fn expect(&mut self, write: &Write, known: &mut Known, place: &Place) -> Result<(), CommitError> {
        match write {
            Write::Append { log, after, entries } => {
                match known.head(log) {
                    Some(actual) if actual != *after => {
                        return Err(CommitError::SequenceConflict { log: log.clone(), actual });
                    }
                    Some(_) => {}
                    None => self.condition("L", place.log(log), after.to_string(), Expected::Head(log.clone())),
                }
                known.set_head(log, after.saturating_add(entries.len() as u64));
            }
            Write::DeleteLog { log } => known.set_head(log, 0),
            Write::ExpireLog { log, ttl } if ttl.is_zero() => known.set_head(log, 0),
            Write::Add { counter, delta, ceiling } => {
                let (from_zero, added) = known.sum(counter);
                // Sums end where numbers do, so the greatest ceiling holds nothing back.
                if let Some(ceiling) = ceiling.filter(|ceiling| *delta > 0 && *ceiling < i64::MAX) {
                    let most = i128::from(ceiling) - i128::from(*delta) - added;
                    if !from_zero {
                        let about = Expected::Ceiling(counter.clone(), added);
                        self.condition("C", place.counter(counter), most.to_string(), about);
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

    fn write(&mut self, write: &Write, place: &Place) {
        match write {
            Write::Put { key, value, ttl } if *ttl != Some(Duration::ZERO) => {
                let ttl = ttl.and_then(millis).map_or_else(String::new, |ttl| ttl.to_string());
                let name = Bytes::copy_from_slice(key.as_bytes());
                self.push("P", place.document(key), [name, ttl.into(), value.clone()]);
            }
            Write::Put { key, .. } | Write::Delete { key } => {
                self.push("D", place.document(key), [Bytes::copy_from_slice(key.as_bytes())]);
            }
            Write::Append { entries, .. } if entries.is_empty() => {}
            Write::Append { log, entries, .. } => {
                let entries = std::iter::once(text(entries.len())).chain(entries.iter().cloned());
                self.push("A", place.log(log), entries);
            }
            Write::ExpireLog { log, ttl } if !ttl.is_zero() => self.expire(place.log(log), *ttl),
            Write::ExpireCounter { counter, ttl } if !ttl.is_zero() => self.expire(place.counter(counter), *ttl),
            Write::DeleteLog { log } | Write::ExpireLog { log, .. } => self.push("X", place.log(log), []),
            Write::Add { counter, delta, .. } if *delta != 0 => {
                self.push("I", place.counter(counter), [Bytes::from(delta.to_string())]);
            }
            Write::Add { .. } => {}
            Write::DeleteCounter { counter } | Write::ExpireCounter { counter, .. } => {
                self.push("X", place.counter(counter), []);
            }
        }
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

    /// The number of a key, as the script counts.
    fn key(&mut self, key: String) -> Bytes {
        let found = self.keys.iter().position(|known| *known == key);
        let index = found.unwrap_or_else(|| {
            self.keys.push(key);
            self.keys.len() - 1
        });
        text(FIRST_KEY + index)
    }
}

/// What the writes so far make certain.
#[derive(Debug, Default)]
struct Known {
    heads: Vec<(Key, u64)>,
    /// What was added, and whether the counter was removed before.
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

/// What a lease begins with while this fence holds.
pub(super) fn fence_text(fence: Fence) -> String {
    format!("{}:{}:", fence.token, fence.nonce)
}

/// Whole milliseconds, at least 1; `None` for longer than anything is kept.
pub(super) fn millis(ttl: Duration) -> Option<u64> {
    const CENTURY: u128 = 100 * 365 * 86_400_000;
    let millis = ttl.as_nanos().div_ceil(1_000_000).max(1);
    if millis < CENTURY { u64::try_from(millis).ok() } else { None }
}

/// A number as text; most are small.
fn text(number: usize) -> Bytes {
    const SMALL: [&str; 16] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"];
    let small = SMALL.get(number).map(|text| Bytes::from_static(text.as_bytes()));
    small.unwrap_or_else(|| Bytes::from(number.to_string()))
}

fn saturated(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

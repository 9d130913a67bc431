//! Whether a transaction may happen: pure, and the same for every backend that decides in Rust.
//!
//! Everything is decided before the first write, so that a refused transaction has no effect.

use super::{Check, CommitError, Fence, Key, Unavailable, Write};

/// What a partition holds now, without what has expired.
pub(super) trait CurrentState {
    /// The version of a document; 0 if there is none.
    fn version(&self, key: &Key) -> Result<u64, Unavailable>;
    /// The number of a log's last entry; 0 if there is none.
    fn head(&self, log: &Key) -> Result<u64, Unavailable>;
    /// A counter's value; 0 for an unknown one.
    fn counter(&self, counter: &Key) -> Result<i64, Unavailable>;
    /// Whether the lease is still this holder's; it may have expired.
    fn holds(&self, lease: &Key, fence: Fence) -> bool;
}

/// Returns the first check that does not hold as an error. The checks come first, in their order; then what each
/// write expects of the state that the writes before it leave behind.
pub(super) fn decide(checks: &[Check], writes: &[Write], state: &impl CurrentState) -> Result<(), CommitError> {
    for check in checks {
        match check {
            Check::Version { key, version } => {
                let actual = state.version(key)?;
                if actual != *version {
                    return Err(CommitError::VersionConflict { key: key.clone(), actual });
                }
            }
            Check::Fence { lease, fence } => {
                if !state.holds(lease, *fence) {
                    return Err(CommitError::Fenced { lease: lease.clone() });
                }
            }
        }
    }
    for (index, write) in writes.iter().enumerate() {
        match write {
            Write::Append { log, after, .. } => {
                let actual = head_after(&writes[..index], log, state.head(log)?);
                if actual != *after {
                    return Err(CommitError::SequenceConflict { log: log.clone(), actual });
                }
            }
            Write::Add { counter, delta, ceiling: Some(ceiling) } if *delta > 0 => {
                let value = value_after(&writes[..index], counter, state.counter(counter)?);
                if value.saturating_add(*delta) > *ceiling {
                    return Err(CommitError::CeilingReached { counter: counter.clone(), value });
                }
            }
            Write::Put { .. }
            | Write::Delete { .. }
            | Write::DeleteLog { .. }
            | Write::ExpireLog { .. }
            | Write::Add { .. }
            | Write::DeleteCounter { .. }
            | Write::ExpireCounter { .. } => {}
        }
    }
    Ok(())
}

/// The number of a log's last entry after these writes; before them it was `head`.
fn head_after(writes: &[Write], log: &Key, head: u64) -> u64 {
    writes.iter().fold(head, |head, write| match write {
        Write::Append { log: other, entries, .. } if other == log => head + entries.len() as u64,
        Write::DeleteLog { log: other } if other == log => 0,
        Write::ExpireLog { log: other, ttl } if other == log && ttl.is_zero() => 0,
        Write::Append { .. }
        | Write::DeleteLog { .. }
        | Write::ExpireLog { .. }
        | Write::Put { .. }
        | Write::Delete { .. }
        | Write::Add { .. }
        | Write::DeleteCounter { .. }
        | Write::ExpireCounter { .. } => head,
    })
}

/// A counter's value after these writes; before them it was `value`.
fn value_after(writes: &[Write], counter: &Key, value: i64) -> i64 {
    writes.iter().fold(value, |value, write| match write {
        Write::Add { counter: other, delta, .. } if other == counter => value.saturating_add(*delta),
        Write::DeleteCounter { counter: other } if other == counter => 0,
        Write::ExpireCounter { counter: other, ttl } if other == counter && ttl.is_zero() => 0,
        Write::Add { .. }
        | Write::DeleteCounter { .. }
        | Write::ExpireCounter { .. }
        | Write::Put { .. }
        | Write::Delete { .. }
        | Write::Append { .. }
        | Write::DeleteLog { .. }
        | Write::ExpireLog { .. } => value,
    })
}

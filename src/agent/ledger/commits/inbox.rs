//! What changes in the inbox of a run.

use std::time::Duration;

use bytes::Bytes;

use crate::agent::ledger::keys;
use crate::agent::machine::budget::signed;
use crate::store::{Check, Partition, Tx, Write};
use crate::types::{RunId, RunSpec};

/// Sends a command to a run whose head has this version and whose inbox has `after` commands. The inbox has at most
/// `ceiling` bytes, unless the command's are not counted. It expires after `ttl` if the run waits for its client.
pub fn send(
    partition: Partition,
    (run, version): (&RunId, u64),
    (after, command): (u64, Bytes),
    ceiling: Option<u64>,
    ttl: Option<Duration>,
) -> Tx {
    let (log, counter) = (keys::inbox(run), keys::inbox_bytes(run));
    let delta = signed(command.len() as u64);
    let topic = keys::inbox_topic(&partition, run);
    let mut tx = Tx::new(partition).check(Check::Version { key: keys::head(run), version }).write(Write::Append {
        log,
        after,
        entries: vec![command],
    });
    if let Some(ceiling) = ceiling {
        tx = tx.write(Write::Add { counter, delta, ceiling: Some(signed(ceiling)) });
    }
    let tx = if let Some(ttl) = ttl { keep_inbox(tx, run, ttl) } else { tx };
    Tx { notify: Some(topic), ..tx }
}

/// Removes a run's inbox.
pub fn delete_inbox(tx: Tx, run: &RunId) -> Tx {
    tx.write(Write::DeleteLog { log: keys::inbox(run) }).write(Write::DeleteCounter { counter: keys::inbox_bytes(run) })
}

/// Lets a run's inbox expire after `ttl`.
pub(super) fn keep_inbox(tx: Tx, run: &RunId, ttl: Duration) -> Tx {
    tx.write(Write::ExpireLog { log: keys::inbox(run), ttl })
        .write(Write::ExpireCounter { counter: keys::inbox_bytes(run), ttl })
}

/// Fails the commit if the inbox of a run has more commands than so many.
pub(super) fn no_more_commands(tx: Tx, spec: &RunSpec, seen: u64) -> Tx {
    tx.write(Write::Append { log: keys::inbox(&spec.id), after: seen, entries: Vec::new() })
}

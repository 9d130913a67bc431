//! Jobs of the writer, and their answers.

use std::collections::HashSet;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::store::watch::Topics;
use crate::store::{CommitError, Durability, Fence, Key, Partition, Tx, Unavailable};

/// A request to the writer.
pub(super) enum Request {
    /// A job. Those of a partition are done in the order in which they were sent; several are in one batch.
    Do(Job),
    /// The last request: sync, close the files, end the thread.
    Close(oneshot::Sender<()>),
}

/// A part of a batch.
pub(super) enum Job {
    Commit(Tx, Answer<(), CommitError>),
    Acquire(Partition, Key, Duration, Answer<Option<Fence>>),
    Renew(Partition, Key, Fence, Duration, Answer<bool>),
    Release(Partition, Key, Fence, Answer<()>),
}

impl Job {
    fn partition(&self) -> &Partition {
        match self {
            Self::Commit(tx, _) => &tx.partition,
            Self::Acquire(partition, ..) | Self::Renew(partition, ..) | Self::Release(partition, ..) => partition,
        }
    }

    /// Whether it has to be synced if it happens.
    fn wants_sync(&self) -> bool {
        matches!(self, Self::Commit(tx, _) if wants_sync(tx))
    }
}

fn wants_sync(tx: &Tx) -> bool {
    tx.durability == Durability::Synced && !tx.writes.is_empty()
}

/// Where a job's result goes.
pub(super) type Answer<T, E = Unavailable> = oneshot::Sender<Result<T, E>>;

/// A job that was done; it is answered once its batch is durable.
pub(super) enum Done {
    Commit(Tx, Result<(), CommitError>, Answer<(), CommitError>),
    Acquire(Option<Fence>, Answer<Option<Fence>>),
    Renew(bool, Answer<bool>),
    Release(Answer<()>),
}

impl Done {
    /// The transaction, if it changed something.
    pub(super) fn change(&self) -> Option<&Tx> {
        match self {
            Self::Commit(tx, Ok(()), _) if !tx.writes.is_empty() => Some(tx),
            Self::Commit(..) | Self::Acquire(..) | Self::Renew(..) | Self::Release(_) => None,
        }
    }

    /// Whether there is a change.
    pub(super) fn changed(&self) -> bool {
        self.change().is_some()
    }

    /// Whether there is a change that asks to be synced.
    pub(super) fn wants_sync(&self) -> bool {
        self.change().is_some_and(wants_sync)
    }

    /// Sends the result, or the batch's error if the whole batch failed. A caller that stopped waiting gets none.
    pub(super) fn answer(self, batch: &Result<(), Unavailable>, topics: &Topics) {
        match self {
            Self::Commit(tx, result, answer) => {
                let result = batch.clone().map_err(CommitError::from).and(result);
                if let (Ok(()), Some(topic)) = (&result, &tx.notify) {
                    topics.notify(topic);
                }
                let _ = answer.send(result);
            }
            Self::Acquire(fence, answer) => {
                let _ = answer.send(batch.clone().map(|()| fence));
            }
            Self::Renew(held, answer) => {
                let _ = answer.send(batch.clone().map(|()| held));
            }
            Self::Release(answer) => {
                let _ = answer.send(batch.clone());
            }
        }
    }
}

/// Parts jobs that wait at the same time into two batches: those that are done first because they need no sync, and the
/// others. The jobs of one partition keep their order, so what stands behind a job to be synced is done after it.
pub(super) fn by_durability(jobs: Vec<Job>) -> [Vec<Job>; 2] {
    let [mut first, mut synced] = [const { Vec::new() }; 2];
    let mut partitions = HashSet::new();
    for job in jobs {
        if job.wants_sync() || partitions.contains(job.partition()) {
            partitions.insert(job.partition().clone());
            synced.push(job);
        } else {
            first.push(job);
        }
    }
    [first, synced]
}

/// Takes the requests that wait behind the first one: at most `limit` in all, and none after a request to close.
pub(super) fn drain(
    first: Request,
    requests: &Receiver<Request>,
    limit: usize,
) -> (Vec<Job>, Option<oneshot::Sender<()>>) {
    let mut batch = Vec::new();
    for request in std::iter::once(first).chain(requests.try_iter()) {
        match request {
            Request::Do(job) => batch.push(job),
            Request::Close(answer) => return (batch, Some(answer)),
        }
        if batch.len() == limit {
            break;
        }
    }
    (batch, None)
}

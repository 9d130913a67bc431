//! Jobs of the writer, and their answers.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::store::watch::Topics;
use crate::store::{CommitError, Durability, Fence, Key, Partition, Tx, Unavailable};

/// A request to the writer.
pub(super) enum Request {
    /// A job. Jobs are done in the order in which they were sent, several in one batch.
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
        self.change().is_some_and(|tx| tx.durability == Durability::Synced)
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

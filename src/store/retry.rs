//! Doing a change again that was refused because another one came first.

use std::time::Duration;

use super::CommitError;
use crate::types::pauses::Pauses;

/// How often a change is attempted. With the pauses below the last attempt is made after a second to two.
const ATTEMPTS: u32 = 12;

/// Pauses between attempts. They are spread, so that many who were refused together do not meet again.
const PAUSES: Pauses = Pauses::new(Duration::from_millis(5), Duration::from_millis(200));

/// An error that may say that a change was refused because another one came first.
pub trait Conflict {
    /// Whether another attempt, which reads anew what the change depends on, may succeed.
    fn is_conflict(&self) -> bool;
}

impl Conflict for CommitError {
    fn is_conflict(&self) -> bool {
        match self {
            Self::VersionConflict { .. } | Self::SequenceConflict { .. } => true,
            Self::CeilingReached { .. } | Self::Fenced { .. } | Self::Unavailable(_) => false,
        }
    }
}

/// Makes attempts at a change until one is not refused by a conflict. Each attempt reads what it depends on. The
/// error of the last attempt is returned if all are refused.
///
/// # Errors
/// The first error that is no conflict, or the last conflict.
pub async fn retry_conflicts<T, E: Conflict>(mut attempt: impl AsyncFnMut() -> Result<T, E>) -> Result<T, E> {
    let mut pauses = PAUSES;
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(error) if error.is_conflict() => tokio::time::sleep(pauses.draw()).await,
            result => return result,
        }
    }
    attempt().await
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use crate::store::memory::MemoryStore;
    use crate::store::{Key, Partition, Store, Tx, Unavailable};

    #[tokio::test(start_paused = true)]
    async fn changes_that_meet_are_all_made() {
        let (store, partition, key) = (MemoryStore::default(), Partition::new("p"), Key::from("document"));
        let change = async || {
            retry_conflicts(async || {
                let version = store.get(&partition, &key).await?.map_or(0, |document| document.version);
                // Others come in between, as over a network.
                tokio::time::sleep(Duration::from_micros(100)).await;
                store.commit(Tx::new(partition.clone()).put_at(key.clone(), version, "x".into(), None)).await
            })
            .await
        };
        let results = join_all((0..30).map(|_| change())).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(store.get(&partition, &key).await.unwrap().unwrap().version, 30);
    }

    #[tokio::test(start_paused = true)]
    async fn only_conflicts_are_tried_again_and_not_for_ever() {
        let away = CommitError::Unavailable(Unavailable("away".to_owned()));
        let conflict = CommitError::VersionConflict { key: "document".into(), actual: 7 };
        for (error, expected) in [(away, 1), (conflict, ATTEMPTS)] {
            let mut attempts = 0;
            let result: Result<(), _> = retry_conflicts(async || {
                attempts += 1;
                Err(error.clone())
            })
            .await;
            assert_eq!((result, attempts), (Err(error.clone()), expected));
        }
    }
}

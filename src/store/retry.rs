//! Repeats a change that was refused because another change came first.

use std::time::Duration;

use tokio::time::Instant;

use crate::types::pauses::Pauses;

/// How long attempts are made. Of those who change the same thing at once one succeeds in the time that an attempt
/// takes, so a hundred of them are through after some seconds.
const GIVE_UP_AFTER: Duration = Duration::from_secs(15);

/// Pauses between attempts. They are spread, so that many who were refused together do not meet again.
const PAUSES: Pauses = Pauses::new(Duration::from_millis(5), Duration::from_millis(200));

/// Attempts at a change, each of which reads what the change depends on. Others who change the same may come first;
/// then it is attempted again:
///
/// ```ignore
/// let mut retry = RetryConflicts::new();
/// while retry.next().await {
///     // Read, change and commit. Return unless another change came first.
/// }
/// // Others came first for as long as attempts are made.
/// ```
#[derive(Debug)]
pub struct RetryConflicts {
    pauses: Pauses,
    /// `None` before the first attempt.
    until: Option<Instant>,
}

impl RetryConflicts {
    /// No attempt yet.
    #[must_use]
    pub fn new() -> Self {
        Self { pauses: PAUSES, until: None }
    }

    /// Pauses, unless it is the first attempt. `false` if attempts were made for long enough.
    pub async fn next(&mut self) -> bool {
        match self.until {
            None => self.until = Some(Instant::now() + GIVE_UP_AFTER),
            Some(until) if Instant::now() >= until => return false,
            Some(_) => tokio::time::sleep(self.pauses.draw()).await,
        }
        true
    }
}

impl Default for RetryConflicts {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use crate::store::memory::MemoryStore;
    use crate::store::{CommitError, Key, Partition, Store, Tx};

    #[tokio::test(start_paused = true)]
    async fn changes_that_meet_are_all_made() {
        let (store, partition, key) = (MemoryStore::default(), Partition::new("p"), Key::from("document"));
        let change = async || {
            let mut retry = RetryConflicts::new();
            while retry.next().await {
                let version = store.get(&partition, &key).await.unwrap().map_or(0, |document| document.version);
                // Others come in between, as over a network.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let tx = Tx::new(partition.clone()).put_at(key.clone(), version, "x".into(), None);
                match store.commit(tx).await {
                    Ok(()) => return true,
                    Err(error) => assert!(matches!(error, CommitError::VersionConflict { .. }), "{error}"),
                }
            }
            false
        };
        let results = join_all((0..100).map(|_| change())).await;
        assert!(results.iter().all(|made| *made), "{results:?}");
        assert_eq!(store.get(&partition, &key).await.unwrap().unwrap().version, 100);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_attempt_is_made_at_once_and_the_last_after_a_while() {
        let (since, mut retry, mut made) = (Instant::now(), RetryConflicts::new(), Vec::new());
        while retry.next().await {
            made.push(since.elapsed());
        }
        assert_eq!(made[0], Duration::ZERO);
        let last = made[made.len() - 1];
        assert!(last >= GIVE_UP_AFTER && last <= GIVE_UP_AFTER + Duration::from_millis(201), "{made:?}");
        assert!((75..200).contains(&made.len()), "{made:?}");
    }
}

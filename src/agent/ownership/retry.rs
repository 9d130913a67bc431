//! How a driver waits for a store that does not answer: as long as its lease is certainly valid.

use std::time::Duration;

use crate::agent::ownership::lease::LeaseValidity;
use crate::store::Unavailable;
use crate::types::pauses::Pauses;

const PAUSES: Pauses = Pauses::new(Duration::from_millis(50), Duration::from_secs(1));

/// The pauses of one wait.
#[derive(Debug, Clone)]
pub struct RetryWhileLeased {
    validity: LeaseValidity,
    pauses: Pauses,
}

impl RetryWhileLeased {
    /// RetryWhileLeased for as long as `validity` lasts.
    pub fn new(validity: &LeaseValidity) -> Self {
        Self { validity: validity.clone(), pauses: PAUSES }
    }

    /// Pauses; `false` at once if the lease is no longer certainly valid.
    pub async fn lasts(&mut self, error: &Unavailable) -> bool {
        if !self.validity.is_valid() {
            return false;
        }
        tracing::debug!(%error, "waiting for the store");
        tokio::select! {
            () = tokio::time::sleep(self.pauses.draw()) => {}
            () = self.validity.expired() => {}
        }
        true
    }

    /// What `read` reads once the store answers.
    pub async fn read<T, F>(mut self, read: impl Fn() -> F) -> Result<T, Unavailable>
    where
        F: Future<Output = Result<T, Unavailable>>,
    {
        loop {
            match read().await {
                Err(error) if self.lasts(&error).await => {}
                result => return result,
            }
        }
    }
}

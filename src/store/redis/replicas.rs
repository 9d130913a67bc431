//! Whether a primary has replicas, which must then confirm what is written.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::dial::Role;

/// How long a primary whose last replica disconnected still needs a replica's confirmation.
pub(super) const CONFIRM_AFTER_LOSS: Duration = Duration::from_secs(60);

/// When a primary was last seen with a replica.
#[derive(Debug, Default)]
pub(super) struct Replicas(Mutex<Option<Instant>>);

impl Replicas {
    /// Takes in what the primary said about itself.
    pub(super) fn note(&self, role: Role) {
        if role.replicas > 0 {
            *self.0.lock() = Some(Instant::now());
        }
    }

    /// Whether a replica must confirm what is written: the primary has replicas, or had some lately.
    pub(super) fn expected(&self) -> bool {
        let seen = *self.0.lock();
        seen.is_some_and(|seen| seen.elapsed() < CONFIRM_AFTER_LOSS)
    }
}

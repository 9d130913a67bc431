//! Limits a log line that many runs would repeat to one a minute.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How often it is said.
const EVERY: Duration = Duration::from_secs(60);

/// When something was last said.
#[derive(Debug, Default)]
pub(in crate::agent) struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Whether it is to be said now; then it is not to be said for a minute.
    pub(in crate::agent) fn is_due(&self) -> bool {
        let (now, mut said) = (Instant::now(), self.0.lock());
        let is_due = said.is_none_or(|said| now.duration_since(said) >= EVERY);
        if is_due {
            *said = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_said_once_a_minute() {
        let seldom = Seldom::default();
        let mut said = 0;
        for _ in 0..240 {
            said += u32::from(seldom.is_due());
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        assert_eq!(said, 2);
    }
}

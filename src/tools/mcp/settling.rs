//! How long after a change of its tools a server is asked for them. Decides purely.
//!
//! Servers that load their tools tell of each, so a moment is waited for more. A server that tells of changes without end is
//! asked more and more seldom.

use std::time::Duration;

use tokio::time::Instant;

/// How long after the first change, which doubles with each that follows.
const FIRST: Duration = Duration::from_millis(100);
/// The longest such time.
const LONGEST: Duration = Duration::from_secs(5);
/// A change that follows so long after the one before is the first again.
const CALM_AFTER: Duration = Duration::from_secs(10);

/// The changes that followed each other.
#[derive(Debug, Default)]
pub(super) struct Settling {
    changes: u32,
    last: Option<Instant>,
}

impl Settling {
    /// How long to wait after a change of now.
    pub(super) fn after(&mut self, now: Instant) -> Duration {
        let is_calm = self.last.is_none_or(|last| now.duration_since(last) >= CALM_AFTER);
        self.changes = if is_calm { 0 } else { self.changes.saturating_add(1) };
        self.last = Some(now);
        FIRST.saturating_mul(1 << self.changes.min(10)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_whose_tools_change_without_end_is_asked_seldom() {
        let (mut settling, mut now) = (Settling::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = settling.after(now);
            now += pause;
            pauses.push(pause.as_millis());
        }
        assert_eq!((&pauses[..3], pauses[8]), (&[100, 200, 400][..], 5_000));
        assert_eq!(settling.after(now + CALM_AFTER), FIRST);
    }
}

//! How soon a token is asked for in place of one that the server refused. Decides purely.
//!
//! A server that refuses every token would else have its authorization server asked for one with each call.

use std::time::Duration;

/// How old a token must be that was given in place of a refused one, before it is replaced for the same reason. It doubles with
/// each that is refused.
const FIRST: Duration = Duration::from_secs(5);
/// The longest such time.
const LONGEST: Duration = Duration::from_secs(60);
/// A token that is refused when it is older than this was a good one.
const GOOD: Duration = Duration::from_secs(120);

/// The tokens in a row that were refused.
#[derive(Debug, Default)]
pub(super) struct Refusals(u32);

impl Refusals {
    /// Whether the refused token, given so long ago, is replaced now.
    pub(super) fn replaces(&mut self, age: Duration) -> bool {
        if age >= GOOD {
            self.0 = 0;
        }
        let rest = match self.0.checked_sub(1) {
            None => Duration::ZERO,
            Some(more) => FIRST.saturating_mul(1 << more.min(10)).min(LONGEST),
        };
        let replaces = age >= rest;
        if replaces {
            self.0 = self.0.saturating_add(1);
        }
        replaces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_refuses_every_token_has_them_replaced_more_and_more_seldom() {
        let (mut refusals, seconds) = (Refusals::default(), Duration::from_secs);
        assert!(refusals.replaces(seconds(0)), "the first may have been withdrawn");
        for rest in [5, 10, 20, 40, 60, 60] {
            assert!(!refusals.replaces(seconds(rest - 1)), "{rest}");
            assert!(refusals.replaces(seconds(rest)), "{rest}");
        }
        assert!(refusals.replaces(seconds(120)) && !refusals.replaces(seconds(1)) && refusals.replaces(seconds(5)));
    }
}

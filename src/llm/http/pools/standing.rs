//! What is known of an address and of a key (pure): how much it has to do, and until when it rests.

use std::time::Duration;

use tokio::time::Instant;

use super::blame::{KeyFault, Severity};

/// How many failures in a row, each of which may be the request's fault, are taken for the server's.
const MOST_STRIKES: u32 = 3;
/// Most models for which a key rests by themselves. Beyond it, the key rests for all.
const MOST_MODELS: usize = 256;

/// What is known of an address.
#[derive(Debug, Default)]
pub struct AddressStanding {
    /// Calls that are under way.
    pub active: u32,
    /// Until when it rests; after that, one call tries it, and until that call succeeds, one more each cooldown.
    rests_until: Option<Instant>,
    /// Failures since the last success.
    strikes: u32,
}

impl AddressStanding {
    /// Whether it may take a call.
    pub fn is_ready(&self, now: Instant) -> bool {
        self.rests_until.is_none_or(|until| until <= now)
    }

    /// Takes a call, unless the address rests and is not the `last` resort. A call that comes after a rest keeps others away
    /// for as long as the cooldown. Returns whether the call is taken.
    pub fn enter(&mut self, now: Instant, cooldown: Duration, last: bool) -> bool {
        if !self.is_ready(now) && !last {
            return false;
        }
        self.active += 1;
        if self.rests_until.is_some_and(|until| until <= now) {
            self.rests_until = now.checked_add(cooldown);
        }
        true
    }

    /// A call is over.
    pub fn leave(&mut self) {
        self.active -= 1;
    }

    /// A call failed. Returns whether the address rests for so long from now on.
    pub fn fail(&mut self, severity: Severity, now: Instant, rest: Duration) -> bool {
        self.strikes += 1;
        if severity == Severity::Possible && self.strikes < MOST_STRIKES && self.rests_until.is_none() {
            return false;
        }
        self.strikes = 0;
        self.rests_until = now.checked_add(rest);
        true
    }

    /// A call was answered. Returns whether the address had rested.
    pub fn succeed(&mut self) -> bool {
        self.strikes = 0;
        self.rests_until.take().is_some()
    }
}

/// What is known of a key.
#[derive(Debug, Default)]
pub struct KeyStanding {
    whole: Option<Rest>,
    /// By a number of the model: rate limits are each model's own.
    by_model: Vec<(u64, Rest)>,
}

/// Until when a key rests, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    pub until: Instant,
    pub fault: KeyFault,
}

impl KeyStanding {
    /// The rest of the key that this model's calls must heed, if there is one.
    pub fn rest(&self, model: u64, now: Instant) -> Option<Rest> {
        let of_model = self.by_model.iter().find(|(of, _)| *of == model).map(|(_, rest)| *rest);
        let rests = [self.whole, of_model].into_iter().flatten().filter(|rest| rest.until > now);
        rests.max_by_key(|rest| rest.until)
    }

    /// The key rests from now on: for this model after a rate limit, else for all. A rest that lasts longer goes on.
    pub fn fail(&mut self, model: u64, rest: Rest, now: Instant) {
        self.by_model.retain(|(of, rest)| rest.until > now && *of != model);
        if rest.fault == KeyFault::RateLimit && self.by_model.len() < MOST_MODELS {
            self.by_model.push((model, rest));
        } else if self.whole.is_none_or(|longer| longer.until < rest.until) {
            self.whole = Some(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_address_is_tried_by_one_call_after_each_rest() {
        let mut address = AddressStanding::default();
        let now = Instant::now();
        assert!(
            address.enter(now, 10 * SECOND, false)
                && address.is_ready(now)
                && address.fail(Severity::Certain, now, 10 * SECOND)
        );
        assert!(!address.is_ready(now + 9 * SECOND) && address.is_ready(now + 10 * SECOND));
        assert!(address.enter(now + 10 * SECOND, 10 * SECOND, false));
        assert!(!address.is_ready(now + 19 * SECOND), "one call tries it");
        assert!(!address.enter(now + 10 * SECOND, 10 * SECOND, false), "also if others chose it at the same moment");
        assert!(address.is_ready(now + 20 * SECOND), "that call may never tell");
        assert!(address.succeed() && address.is_ready(now + 11 * SECOND) && !address.succeed());
        assert_eq!(address.active, 2);
        assert!(
            address.fail(Severity::Certain, now, SECOND) && address.enter(now, SECOND, true),
            "nothing else is left"
        );
        address.leave();
        assert_eq!(address.active, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_that_may_be_the_requests_fault_count_if_nothing_succeeds_between() {
        let mut address = AddressStanding::default();
        let now = Instant::now();
        let fail = |address: &mut AddressStanding| address.fail(Severity::Possible, now, SECOND);
        assert!(!fail(&mut address) && !fail(&mut address));
        assert!(!address.succeed());
        assert!(!fail(&mut address) && !fail(&mut address) && fail(&mut address));
        assert!(fail(&mut address), "it has failed the call that tried it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_rests_for_one_model_or_for_all() {
        let mut key = KeyStanding::default();
        let now = Instant::now();
        let rest = |fault, seconds| Rest { until: now + seconds * SECOND, fault };
        let (limited, refused) = (rest(KeyFault::RateLimit, 5), rest(KeyFault::Refused, 2));
        key.fail(1, limited, now);
        assert_eq!((key.rest(1, now), key.rest(2, now)), (Some(limited), None));
        assert_eq!(key.rest(1, now + 5 * SECOND), None);
        key.fail(2, refused, now);
        assert_eq!((key.rest(1, now), key.rest(2, now)), (Some(limited), Some(refused)));
        key.fail(3, rest(KeyFault::Quota, 1), now);
        assert_eq!(key.rest(2, now), Some(refused), "the longer rest counts");
        for model in 0..=256 {
            key.fail(model, limited, now);
        }
        assert_eq!((key.by_model.len(), key.rest(999, now)), (MOST_MODELS, Some(limited)));
    }
}

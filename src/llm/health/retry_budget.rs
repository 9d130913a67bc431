//! Bounds how many more calls an upstream gets because calls fail. Pure.

/// What a retry takes, in hundredths.
const RETRY: u32 = 100;
/// What is there at first.
const FIRST: u32 = 10 * RETRY;
/// What can be saved up: enough for an upstream that breaks off all that a replica streams, once.
const MOST: u32 = 1_000 * RETRY;

/// The retries that an upstream's calls have earned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryBudget {
    /// In hundredths of a retry.
    earned: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { earned: FIRST }
    }
}

impl RetryBudget {
    /// A call that is no retry is made, of which a hundred earn so many retries.
    pub fn earn(&mut self, percent: u32) {
        self.earned = self.earned.saturating_add(percent).min(MOST.max(percent));
    }

    /// A retry was no load that an upstream in trouble could not bear: it was answered.
    pub fn give_back(&mut self) {
        self.earned = self.earned.saturating_add(RETRY).min(MOST.max(self.earned));
    }

    /// Takes a retry, if one is earned.
    pub fn take(&mut self) -> bool {
        let left = self.earned.checked_sub(RETRY);
        self.earned = left.unwrap_or(self.earned);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_add_a_tenth_to_the_calls_beside_a_few_that_were_saved() {
        let (mut budget, mut retries) = (RetryBudget::default(), 0);
        for _ in 0..1_000 {
            budget.earn(10);
            while budget.take() {
                retries += 1;
            }
        }
        assert_eq!(retries, 10 + 100);
        let mut well = RetryBudget::default();
        (0..2_400).for_each(|_| well.earn(10));
        assert_eq!((0..10_000).filter(|_| well.take()).count(), 250, "streams that break all at once are all repeated");
        (0..100_000).for_each(|_| well.earn(10));
        assert_eq!((0..10_000).filter(|_| well.take()).count(), 1_000, "no more is saved up");
        well.give_back();
        assert!(well.take() && !well.take());
        let mut none = RetryBudget::default();
        assert_eq!(
            (0..100)
                .filter(|_| {
                    none.earn(0);
                    none.take()
                })
                .count(),
            10
        );
    }
}

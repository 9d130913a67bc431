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
    /// What a call earns, in hundredths of a retry.
    percent: u32,
    earned: u32,
}

impl RetryBudget {
    /// One that a hundred calls add so many retries to.
    #[must_use]
    pub fn new(percent: u32) -> Self {
        Self { percent, earned: FIRST.max(percent) }
    }

    /// A call that is no retry is made.
    pub fn earn(&mut self) {
        self.earned = self.earned.saturating_add(self.percent).min(MOST);
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
        let (mut budget, mut retries) = (RetryBudget::new(10), 0);
        for _ in 0..1_000 {
            budget.earn();
            while budget.take() {
                retries += 1;
            }
        }
        assert_eq!(retries, 10 + 100);
        let mut well = RetryBudget::new(10);
        (0..2_400).for_each(|_| well.earn());
        assert_eq!((0..10_000).filter(|_| well.take()).count(), 250, "streams that break all at once are all repeated");
        (0..100_000).for_each(|_| well.earn());
        assert_eq!((0..10_000).filter(|_| well.take()).count(), 1_000, "no more is saved up");
        let mut none = RetryBudget::new(0);
        assert_eq!(
            (0..100)
                .filter(|_| {
                    none.earn();
                    none.take()
                })
                .count(),
            10
        );
    }
}

//! When breakers open and for how long, by what calls fail with. Pure.

use crate::llm::error_class::ErrorClass;

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// So many failures open it, if they are at least half of the calls; 0 for never.
    pub failures: u32,
    /// Within this time.
    pub window_ms: u64,
    /// How long it is open the first time.
    pub cooldown_ms: u64,
    /// How long it is open at most, unless the upstream itself names a time.
    pub most_cooldown_ms: u64,
    /// How many retries a hundred calls of the upstream earn.
    pub retry_percent: u32,
}

/// The longest that an upstream may ask to be left alone.
pub(super) const MOST_RETRY_AFTER_MS: u64 = 10 * 60_000;
/// A shorter wait than this is no reason to let no other call through.
const LEAST_RETRY_AFTER_MS: u64 = 1_000;
/// How long a refusal lasts that a person must mend, at first and at most.
const REFUSED_MS: (u64, u64) = (60_000, 10 * 60_000);
/// Doublings of a cooldown that make a difference.
const MOST_STREAK: u32 = 16;

impl BreakerPolicy {
    /// It never opens, and every call may be repeated as often as its caller likes.
    pub const OFF: Self =
        Self { failures: 0, window_ms: 0, cooldown_ms: 0, most_cooldown_ms: 0, retry_percent: 10_000 };

    /// How long a breaker is open that opens for this failure, so often in a row.
    pub(super) fn open_ms(&self, failure: Failure, streak: u32) -> u64 {
        let (first, most) = if needs_a_person(failure.class) {
            REFUSED_MS
        } else {
            (self.cooldown_ms, self.most_cooldown_ms.max(self.cooldown_ms))
        };
        let own = first.saturating_mul(1 << (streak.clamp(1, MOST_STREAK) - 1)).min(most);
        let asked = failure.retry_after_ms.filter(|wait| *wait >= LEAST_RETRY_AFTER_MS);
        asked.map_or(own, |wait| wait.min(MOST_RETRY_AFTER_MS))
    }
}

/// How a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure it is.
    pub class: ErrorClass,
    /// How long the upstream asks to wait.
    pub retry_after_ms: Option<u64>,
}

/// What a failure does to a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Nothing: the upstream is well.
    Pass,
    /// It counts; enough of them open the breaker.
    Count,
    /// It opens the breaker if it is the second and no call is answered: one may be too large for what is left of a limit.
    OpenIfRepeated,
    /// It opens the breaker at once.
    Open,
}

impl Failure {
    /// What it does to a breaker.
    pub(super) fn treatment(self) -> Treatment {
        match self.class {
            // Callers may name any model, and to be told that there is none costs nothing.
            ErrorClass::NotFound
            | ErrorClass::ContextLength
            | ErrorClass::NotTaken
            | ErrorClass::InvalidRequest => Treatment::Pass,
            ErrorClass::Unreachable
            | ErrorClass::Overloaded
            | ErrorClass::TimedOut
            | ErrorClass::Broken
            // These may be about what one caller asks for, and the next one does not.
            | ErrorClass::Forbidden
            | ErrorClass::Misconfigured => Treatment::Count,
            ErrorClass::Denied | ErrorClass::Unpaid => Treatment::Open,
            ErrorClass::RateLimited => match self.retry_after_ms {
                Some(wait) if wait >= LEAST_RETRY_AFTER_MS => Treatment::OpenIfRepeated,
                Some(_) => Treatment::Pass,
                None => Treatment::Count,
            },
        }
    }
}

/// Whether a call may be made nevertheless where there is no other model: the upstream refuses it at once and at no cost, and only
/// a call tells whether someone has mended what is wrong.
pub(super) fn is_lenient(class: ErrorClass) -> bool {
    needs_a_person(class) || matches!(class, ErrorClass::Forbidden | ErrorClass::Misconfigured)
}

/// Whether no call succeeds before a person mends what is wrong, whatever is asked.
fn needs_a_person(class: ErrorClass) -> bool {
    matches!(class, ErrorClass::Denied | ErrorClass::Unpaid)
}

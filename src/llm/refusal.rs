//! Why a model is not asked for now.

use std::fmt;
use std::time::Duration;

use super::error_class::ErrorClass;

/// Why a model is not asked for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// How it failed.
    pub class: ErrorClass,
    /// How long it is not asked.
    pub for_now: Duration,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.for_now.as_millis().div_ceil(1_000);
        write!(f, "it is not asked for {seconds} s, because it {}", self.class.clause())
    }
}

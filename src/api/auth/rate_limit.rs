//! Counts each caller's requests in this process, and writes the rate limit headers of responses.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::RwLock;

use crate::api::auth::caller::CallerId;
use crate::api::error::ApiError;
use crate::api::wire::error::ErrorCode;

type Limiter = RateLimiter<CallerId, DefaultKeyedStateStore<CallerId>, DefaultClock, StateInformationMiddleware>;

/// Counts requests in this process. What it counted outlives the configuration: a caller that stays has
/// no more requests after a change than before it.
#[derive(Debug, Default)]
pub struct RequestRates(RwLock<HashMap<NonZeroU32, Arc<Limiter>>>);

/// What a caller's allowance came to with this request.
#[derive(Debug)]
pub struct Allowance {
    /// Requests a minute.
    pub limit: NonZeroU32,
    /// How many more are taken at once.
    pub remaining: u32,
    /// Until the allowance is whole again; for a refusal, until the next request is taken.
    pub reset: Duration,
    /// Whether this request is taken.
    pub allowed: bool,
}

impl RequestRates {
    /// Forgets those who have not called for so long that it makes no difference.
    pub fn tidy(&self) {
        let mut limiters = self.0.write();
        limiters.retain(|_, limiter| {
            limiter.retain_recent();
            !limiter.is_empty()
        });
    }

    /// Counts a request.
    pub fn count(&self, who: &CallerId, limit: NonZeroU32) -> Allowance {
        let known = self.0.read().get(&limit).cloned();
        let limiter = known.unwrap_or_else(|| {
            let mut limiters = self.0.write();
            limiters.entry(limit).or_insert_with(|| Arc::new(limiter(limit))).clone()
        });
        check(limit, &limiter, who)
    }
}

/// The refusal of a request that is one too many.
pub fn too_many(allowance: &Allowance) -> ApiError {
    let message = format!("more than {} requests a minute", allowance.limit);
    let error = ApiError::new(ErrorCode::RateLimited, message);
    error.retry_after(allowance.reset.as_secs() + 1)
}

fn limiter(per_minute: NonZeroU32) -> Limiter {
    RateLimiter::keyed(Quota::per_minute(per_minute)).with_middleware::<StateInformationMiddleware>()
}

fn check(limit: NonZeroU32, limiter: &Limiter, key: &CallerId) -> Allowance {
    let every = Duration::from_secs(60) / limit.get();
    match limiter.check_key(key) {
        Ok(state) => {
            let remaining = state.remaining_burst_capacity();
            Allowance { limit, remaining, reset: every * (limit.get() - remaining), allowed: true }
        }
        Err(until) => {
            let reset = until.wait_time_from(DefaultClock::default().now());
            Allowance { limit, remaining: 0, reset, allowed: false }
        }
    }
}

/// Says in an answer's headers where the caller's allowance stands.
pub fn write_allowance(allowance: &Allowance, headers: &mut HeaderMap) {
    let reset = format!("{}ms", allowance.reset.as_millis());
    let entries = [
        ("x-ratelimit-limit-requests", HeaderValue::from(allowance.limit.get())),
        ("x-ratelimit-remaining-requests", HeaderValue::from(allowance.remaining)),
    ];
    for (name, value) in entries {
        headers.insert(HeaderName::from_static(name), value);
    }
    if let Ok(value) = HeaderValue::from_str(&reset) {
        headers.insert(HeaderName::from_static("x-ratelimit-reset-requests"), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_key_and_stay_counted() {
        let rates = RequestRates::default();
        let limit = |most| NonZeroU32::new(most).unwrap();
        let is_allowed = |name: &str, most| rates.count(&CallerId::Key(name.to_owned()), limit(most)).allowed;
        assert!(is_allowed("one", 2) && is_allowed("one", 2));
        assert!(!is_allowed("one", 2));
        rates.tidy();
        assert!(!is_allowed("one", 2), "only callers are forgotten whose allowance is whole again");
        assert!(is_allowed("two", 2), "each key has its own allowance");
        assert!(is_allowed("one", 3), "a limit that changed begins with a whole allowance here; the store counts on");
    }
}

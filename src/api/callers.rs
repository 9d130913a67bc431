//! Who calls: keys, and how often each may call.
//!
//! A caller's requests are first counted here, which costs nothing and keeps a flood from the store, and
//! then by the store for all replicas together.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use parking_lot::RwLock;
use subtle::ConstantTimeEq;

use crate::agent::limits::rate::Asker;
use crate::agent::{Agent, Generation};
use crate::api::error::ApiError;
use crate::api::wire::error::ErrorCode;
use crate::config::key;
use crate::types::Tenant;

type Limiter = RateLimiter<RateKey, DefaultKeyedStateStore<RateKey>, DefaultClock, StateInformationMiddleware>;

/// Who made a request, and what it is served by.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose runs and sessions it sees.
    pub tenant: Tenant,
    /// The name of its key.
    pub key_name: Option<String>,
    /// The agents that it may use; `None` for all.
    pub agents: Option<Vec<String>>,
    /// The configuration that the whole request is served by.
    pub generation: Arc<Generation>,
}

impl Caller {
    /// Whether it may use this agent.
    pub fn may_use(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.iter().any(|allowed| allowed == agent))
    }
}

/// Counts requests in this process. What it counted outlives the configuration: a caller that stays has
/// no more requests after a change than before it.
#[derive(Debug, Default)]
pub struct RequestRates(RwLock<HashMap<NonZeroU32, Arc<Limiter>>>);

/// Whose requests are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RateKey {
    /// Those of all callers with the key of this name.
    Key(String),
    /// Those from an address, without a key.
    Address(IpAddr),
}

/// What stands before the routes that are not open to everyone.
#[derive(Debug, Clone)]
pub struct Guard {
    /// Where requests are counted in this process.
    pub rates: Arc<RequestRates>,
    /// Where they are counted for all replicas, and what the configuration says of callers.
    pub agent: Agent,
}

/// What a caller's allowance came to with this request.
struct Allowance {
    limit: NonZeroU32,
    remaining: u32,
    /// Until the allowance is whole again; for a refusal, until the next request is taken.
    reset: Duration,
    allowed: bool,
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

    fn count(&self, who: &RateKey, limit: NonZeroU32) -> Allowance {
        let known = self.0.read().get(&limit).cloned();
        let limiter = known.unwrap_or_else(|| {
            let mut limiters = self.0.write();
            limiters.entry(limit).or_insert_with(|| Arc::new(limiter(limit))).clone()
        });
        check(limit, &limiter, who)
    }
}

/// Who calls, by the key that the headers show, and how many requests a minute it may send.
fn identify(generation: &Arc<Generation>, headers: &HeaderMap) -> Result<(Caller, Option<NonZeroU32>), ApiError> {
    let generation = generation.clone();
    if generation.keys.is_empty() {
        let limit = generation.requests_per_minute.and_then(NonZeroU32::new);
        return Ok((Caller { tenant: Tenant::default_tenant(), key_name: None, agents: None, generation }, limit));
    }
    let presented = presented_key(headers)?.ok_or_else(|| unauthorized("no API key was sent"))?;
    let hash = key::hash(presented);
    // Looking a hash up tells nothing of the key; the comparison takes the same time for all.
    let known = generation.keys.get_key_value(&hash).filter(|(known, _)| bool::from(known.ct_eq(&hash)));
    let (_, key) = known.ok_or_else(|| unauthorized("the API key is not valid"))?;
    let limit = key.requests_per_minute.and_then(NonZeroU32::new);
    let (tenant, key_name, agents) = (key.tenant.clone(), Some(key.name.clone()), key.agents.clone());
    Ok((Caller { tenant, key_name, agents, generation }, limit))
}

/// Lets a request pass if its key is valid and its allowance is not used up. The handler finds the
/// [`Caller`] in the request's extensions.
pub async fn admit(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let address = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |info| info.0.ip());
    let (caller, limit) = match identify(&guard.agent.generation(), request.headers()) {
        Ok(known) => known,
        Err(error) => return error.into_response(),
    };
    let rate_key = caller.key_name.clone().map_or(RateKey::Address(address), RateKey::Key);
    let mut allowance = limit.map(|limit| guard.rates.count(&rate_key, limit));
    if let Some(allowance) = allowance.as_mut().filter(|allowance| allowance.allowed) {
        let asker = match &rate_key {
            RateKey::Key(name) => Asker::Key { tenant: &caller.tenant, name },
            RateKey::Address(address) => Asker::Address(*address),
        };
        if let Some(taken) = guard.agent.count_request(asker, allowance.limit).await {
            allowance.allowed = taken.allowed;
            allowance.remaining = taken.remaining;
            allowance.reset = taken.reset;
        }
    }
    let refused = allowance.as_ref().filter(|allowance| !allowance.allowed);
    let mut response = if let Some(allowance) = refused {
        too_many(allowance).into_response()
    } else {
        request.extensions_mut().insert(caller);
        next.run(request).await
    };
    if let Some(allowance) = allowance {
        write_allowance(&allowance, response.headers_mut());
    }
    response
}

fn presented_key(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).is_ok();
    let bearer = headers.get(header::AUTHORIZATION);
    let plain = headers.get("x-api-key");
    if bearer.is_some_and(|value| !text(value)) || plain.is_some_and(|value| !text(value)) {
        return Err(unauthorized("the API key is not valid"));
    }
    let bearer = match bearer.and_then(|value| value.to_str().ok()) {
        Some(value) => match value.split_once(' ') {
            Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => Some(key),
            _ => return Err(unauthorized("the authorization header is not `Bearer KEY`")),
        },
        None => None,
    };
    let plain = plain.and_then(|value| value.to_str().ok());
    match (bearer, plain) {
        (Some(bearer), Some(plain)) if bearer != plain => {
            Err(unauthorized("authorization and x-api-key hold different keys"))
        }
        (bearer, plain) => Ok(bearer.or(plain)),
    }
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidApiKey, message)
}

fn too_many(allowance: &Allowance) -> ApiError {
    let message = format!("more than {} requests a minute", allowance.limit);
    let error = ApiError::new(ErrorCode::RateLimited, message);
    error.retry_after(allowance.reset.as_secs() + 1)
}

fn limiter(per_minute: NonZeroU32) -> Limiter {
    RateLimiter::keyed(Quota::per_minute(per_minute)).with_middleware::<StateInformationMiddleware>()
}

fn check(limit: NonZeroU32, limiter: &Limiter, key: &RateKey) -> Allowance {
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

fn write_allowance(allowance: &Allowance, headers: &mut HeaderMap) {
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
        let is_allowed = |name: &str, most| rates.count(&RateKey::Key(name.to_owned()), limit(most)).allowed;
        assert!(is_allowed("one", 2) && is_allowed("one", 2));
        assert!(!is_allowed("one", 2));
        rates.tidy();
        assert!(!is_allowed("one", 2), "only callers are forgotten whose allowance is whole again");
        assert!(is_allowed("two", 2), "each key has its own allowance");
        assert!(is_allowed("one", 3), "a limit that changed begins with a whole allowance here; the store counts on");
    }
}

//! Authentication: keys, and how many requests each caller may send.
//!
//! A caller's requests are first counted in this process, which costs nothing and protects the store from a flood.
//! Then the store counts them for all replicas together.

mod caller;
mod keys;
mod rate_limit;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;

pub use caller::{Caller, CallerId};
pub use rate_limit::RequestRates;

use crate::agent::limits::rate::RateKey;
use crate::agent::{Agent, Generation};
use crate::api::auth::rate_limit::{too_many, write_allowance};
use crate::api::error::ApiError;
use crate::api::log_fields::LogFields;
use crate::api::trace::trace_id;
use crate::config::Scope;
use crate::net::client_address::counted_as;

/// What stands before the routes that are not open to everyone.
#[derive(Debug, Clone)]
pub struct Guard {
    /// Where requests are counted in this process.
    pub rates: Arc<RequestRates>,
    /// Where they are counted for all replicas, and what the configuration says of callers.
    pub agent: Agent,
}

/// Whether the headers show a key that is valid, where keys are asked for.
pub fn check_key(generation: &Arc<Generation>, headers: &HeaderMap) -> Result<(), ApiError> {
    keys::identify(generation, headers).map(drop)
}

/// Refuses headers that show no key of this scope, where keys are asked for.
pub fn check_scope(generation: &Arc<Generation>, headers: &HeaderMap, scope: Scope) -> Result<(), ApiError> {
    keys::identify(generation, headers)?.0.check(scope)
}

/// Lets a request pass if its key is valid and its allowance is not used up. The handler then
/// extracts its [`Caller`].
pub async fn admit(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let address = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |info| info.0.ip());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (caller, limit) = match keys::identify(&guard.agent.generation(), request.headers()) {
        Ok(known) => known,
        Err(error) => {
            let mut response = error.into_response();
            LogFields::of(&mut response).route = route;
            return response;
        }
    };
    let (tenant, key) = (caller.tenant.clone(), caller.key_name.clone());
    let trace_id = trace_id(request.headers());
    let caller_id = caller.key_name.clone().map_or_else(|| CallerId::Address(counted_as(address)), CallerId::Key);
    let mut allowance = limit.map(|limit| guard.rates.count(&caller_id, limit));
    if let Some(allowance) = allowance.as_mut().filter(|allowance| allowance.allowed) {
        let rate_key = match &caller_id {
            CallerId::Key(name) => RateKey::Key { tenant: &caller.tenant, name },
            CallerId::Address(address) => RateKey::Address(*address),
        };
        if let Some(taken) = guard.agent.limits().count_request(rate_key, allowance.limit).await {
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
        request.extensions_mut().insert(caller_id);
        next.run(request).await
    };
    if let Some(allowance) = allowance {
        write_allowance(&allowance, response.headers_mut());
    }
    let logged = LogFields::of(&mut response);
    (logged.tenant, logged.key, logged.trace_id, logged.route) = (Some(tenant), key, trace_id, route);
    response
}

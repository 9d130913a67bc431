//! Authentication: keys, the tokens that they give, and how many requests each caller may send.
//!
//! A caller's requests are first counted in this process, which costs nothing and protects the store from a flood.
//! Then the store counts them for all replicas together.

mod caller;
mod gate;
mod in_query;
mod keys;
mod rate_limit;
mod standing;
pub mod token;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::request::Parts;

pub use caller::{Caller, CallerId};
pub use gate::{forbidden, of_run};
pub use rate_limit::RequestRates;

use crate::agent::Agent;
use crate::agent::limits::rate::RateKey;
use crate::api::auth::keys::Identified;
use crate::api::auth::rate_limit::{Allowance, too_many, write_allowance};
use crate::api::auth::token::Token;
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

/// Whether the headers show a key or a token that is valid, where keys are asked for.
pub fn check_key(agent: &Agent, headers: &HeaderMap) -> Result<(), ApiError> {
    identify(agent, headers, None).map(drop)
}

/// Refuses headers that show no key of this scope, where keys are asked for.
pub fn check_scope(agent: &Agent, headers: &HeaderMap, scope: Scope) -> Result<(), ApiError> {
    identify(agent, headers, None)?.caller.check(scope)
}

fn identify(agent: &Agent, headers: &HeaderMap, in_query: Option<&str>) -> Result<Identified, ApiError> {
    keys::identify(&agent.generation(), headers, in_query, agent.revocations().now_ms())
}

/// Who calls. A token in the query is in the request's address no longer.
fn identify_request(agent: &Agent, parts: &mut Parts, route: &str) -> Result<Identified, ApiError> {
    let in_query = in_query::take_token(parts, route);
    // Without keys there are no tokens, and whoever calls may call.
    let in_query = if agent.generation().keys.is_empty() { None } else { in_query? };
    identify(agent, &parts.headers, in_query.as_deref())
}

/// Lets a request pass if its key or token is valid and its allowance is not used up. The handler then
/// extracts its [`Caller`].
pub async fn admit(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let address = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |info| info.0.ip());
    let route = parts.extensions.get::<MatchedPath>().cloned();
    let path = route.as_ref().map(MatchedPath::as_str).unwrap_or_default();
    let Identified { caller, limit, shown } = match identify_request(&guard.agent, &mut parts, path) {
        Ok(known) => known,
        Err(error) => {
            let mut response = error.into_response();
            LogFields::of(&mut response).route = route;
            return response;
        }
    };
    let (tenant, key, token) = (caller.tenant.clone(), caller.key_name.clone(), caller.token.clone());
    let trace_id = trace_id(&parts.headers);
    let caller_id = caller.key_name.clone().map_or_else(|| CallerId::Address(counted_as(address)), CallerId::Key);
    let allowance = match limit {
        Some(limit) => Some(guard.count(&caller, &caller_id, limit).await),
        None => None,
    };
    let refused = allowance.as_ref().filter(|allowance| !allowance.allowed);
    let mut response = if let Some(allowance) = refused {
        too_many(allowance).into_response()
    } else if let Err(error) = guard.check_token(token.as_deref(), &mut parts, path).await {
        error.into_response()
    } else {
        parts.extensions.insert(caller);
        parts.extensions.insert(caller_id);
        next.run(Request::from_parts(parts, body)).await
    };
    if let Some(allowance) = allowance {
        write_allowance(&allowance, response.headers_mut());
    }
    let logged = LogFields::of(&mut response);
    logged.token = token.as_ref().map(|token| token.id.clone());
    (logged.tenant, logged.key, logged.trace_id, logged.route) = (Some(tenant), key, trace_id, route);
    match shown {
        Some(shown) => standing::bounded(response, shown, guard.agent),
        None => response,
    }
}

impl Guard {
    /// Counts a request, here and for all replicas.
    async fn count(&self, caller: &Caller, caller_id: &CallerId, limit: NonZeroU32) -> Allowance {
        let mut allowance = self.rates.count(caller_id, limit);
        if !allowance.allowed {
            return allowance;
        }
        let rate_key = match caller_id {
            CallerId::Key(name) => RateKey::Key { tenant: &caller.tenant, name },
            CallerId::Address(address) => RateKey::Address(*address),
        };
        if let Some(taken) = self.agent.limits().count_request(rate_key, allowance.limit).await {
            allowance.allowed = taken.allowed;
            allowance.remaining = taken.remaining;
            allowance.reset = taken.reset;
        }
        allowance
    }

    /// Refuses a token that was revoked, and what it is not good for.
    async fn check_token(&self, token: Option<&Token>, parts: &mut Parts, route: &str) -> Result<(), ApiError> {
        let Some(token) = token else { return Ok(()) };
        standing::check_revoked(token, &self.agent).await?;
        gate::pass(token, &self.agent, parts, route).await
    }
}

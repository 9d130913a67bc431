//! Identifies the caller by the key of its request.

use std::num::NonZeroU32;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use subtle::ConstantTimeEq;

use crate::agent::Generation;
use crate::api::auth::caller::Caller;
use crate::api::error::ApiError;
use crate::api::wire::error::ErrorCode;
use crate::config::{Scopes, key};
use crate::types::Tenant;

/// Who calls, by the key that the headers show, and how many requests a minute it may send.
pub fn identify(generation: &Arc<Generation>, headers: &HeaderMap) -> Result<(Caller, Option<NonZeroU32>), ApiError> {
    let generation = generation.clone();
    if generation.keys.is_empty() {
        let limit = generation.requests_per_minute.and_then(NonZeroU32::new);
        let (tenant, scopes) = (Tenant::default_tenant(), Scopes::all());
        return Ok((Caller { tenant, key_name: None, agents: None, scopes, generation }, limit));
    }
    let presented = presented_key(headers)?.ok_or_else(|| unauthorized("no API key was sent"))?;
    let hash = key::hash(presented);
    // Looking a hash up tells nothing of the key; the comparison takes the same time for all.
    let known = generation.keys.get_key_value(&hash).filter(|(known, _)| bool::from(known.ct_eq(&hash)));
    let (_, key) = known.ok_or_else(|| unauthorized("the API key is not valid"))?;
    let limit = key.requests_per_minute.and_then(NonZeroU32::new);
    let (tenant, key_name, agents) = (key.tenant.clone(), Some(key.name.clone()), key.agents.clone());
    Ok((Caller { tenant, key_name, agents, scopes: key.scopes.clone(), generation }, limit))
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

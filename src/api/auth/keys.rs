//! Identifies the caller by the key or the token of its request.

use std::num::NonZeroU32;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use subtle::ConstantTimeEq;

use crate::agent::Generation;
use crate::api::auth::caller::Caller;
use crate::api::auth::standing::{Shown, check_time};
use crate::api::auth::token::{PREFIX, Token};
use crate::api::error::ApiError;
use crate::api::wire::error::ErrorCode;
use crate::config::{KeyConfig, Scopes, Secret, key};
use crate::types::Tenant;

/// Who calls, and what is counted and looked at besides.
#[derive(Debug)]
pub struct Identified {
    /// The caller.
    pub caller: Caller,
    /// How many requests a minute it may send, with all that show the same key or its tokens.
    pub limit: Option<NonZeroU32>,
    /// The token, where one is shown.
    pub shown: Option<Shown>,
}

/// Who calls, by the key or the token that the headers show or that was in the query. Whether a token was revoked is to be looked at.
pub fn identify(
    generation: &Arc<Generation>,
    headers: &HeaderMap,
    in_query: Option<&str>,
    now_ms: u64,
) -> Result<Identified, ApiError> {
    let generation = generation.clone();
    if generation.keys.is_empty() {
        let limit = generation.requests_per_minute.and_then(NonZeroU32::new);
        let (tenant, scopes) = (Tenant::default_tenant(), Scopes::all());
        let caller = Caller { tenant, key_name: None, agents: None, scopes, token: None, generation };
        return Ok(Identified { caller, limit, shown: None });
    }
    let in_header = if in_query.is_some() { None } else { presented_key(headers)? };
    let presented = in_query.or(in_header).ok_or_else(|| unauthorized("no API key was sent"))?;
    let hash = key::hash(presented);
    // Looking a hash up tells nothing of the key; the comparison takes the same time for all.
    let known = generation.keys.get_key_value(&hash).filter(|(known, _)| bool::from(known.ct_eq(&hash)));
    let (key, token) = match known {
        Some((_, key)) if in_query.is_none() => (key.clone(), None),
        Some(_) | None if presented.starts_with(PREFIX) => {
            let (token, key) = read_token(presented, &generation)?;
            check_time(&token, now_ms)?;
            (key, Some(Arc::new(token)))
        }
        Some(_) | None => return Err(unauthorized("the API key is not valid")),
    };
    let scopes = token.as_ref().map_or_else(|| key.scopes.clone(), |token| token.scopes(&key.scopes));
    let limit = key.requests_per_minute.and_then(NonZeroU32::new);
    let KeyConfig { tenant, name, agents, .. } = key;
    let shown = token.clone().map(|token| Shown {
        text: Secret::new(presented),
        token,
        scopes: scopes.clone(),
        agents: agents.clone(),
    });
    let caller = Caller { tenant, key_name: Some(name), agents, scopes, token, generation };
    Ok(Identified { caller, limit, shown })
}

fn read_token(presented: &str, generation: &Generation) -> Result<(Token, KeyConfig), ApiError> {
    let read = generation.tokens.as_ref().and_then(|config| Token::read(presented, config, generation.keys.values()));
    let invalid = || {
        let message = "the token is not valid: it is not signed by this server, or the key that gave it is gone";
        ApiError::new(ErrorCode::InvalidToken, message)
    };
    read.map(|(token, key)| (token, key.clone())).ok_or_else(invalid)
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

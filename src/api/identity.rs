//! How a repeated request is recognised: by a key that its caller chose, or by its bytes and the count of attempts
//! that a client library sends.

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use crate::agent::{RequestKey, RequestKeyKind};
use crate::api::auth::Caller;
use crate::api::canonical::canonical;
use crate::api::equal_body::hash_members;
use crate::api::error::ApiError;
use crate::config::key::to_hex;
use crate::types::Outcome;

/// Names the request, for its caller to repeat it safely.
const KEY: &str = "idempotency-key";
/// Longest key.
const MAX_KEY: usize = 255;
/// How often OpenAI's libraries have sent the request before.
const RETRY_COUNT: &str = "x-stainless-retry-count";
/// Says that the answer was given before.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What the headers say of the request's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestIdentity {
    /// The caller's key.
    Key(String),
    /// A client library's attempt, counted from 0.
    Attempt(u64),
    /// None: whether the request came before cannot be told.
    Unnamed,
}

impl RequestIdentity {
    /// Reads the headers. A key takes precedence over a count. A count that is not a number is ignored, because
    /// clients do not set this header on purpose.
    fn read(headers: &HeaderMap) -> Result<Self, ApiError> {
        let mut keys = headers.get_all(KEY).iter();
        if let Some(key) = keys.next() {
            let visible = key.as_bytes().iter().all(u8::is_ascii_graphic);
            return match key.to_str() {
                Ok(text) if visible && (1..=MAX_KEY).contains(&text.len()) && keys.next().is_none() => {
                    Ok(Self::Key(text.to_owned()))
                }
                Ok(_) | Err(_) => {
                    let message = format!("must be one key of 1 to {MAX_KEY} visible ASCII characters");
                    Err(ApiError::invalid(KEY, message))
                }
            };
        }
        let count = headers.get(RETRY_COUNT).and_then(|count| count.to_str().ok()?.parse().ok());
        Ok(count.map_or(Self::Unnamed, Self::Attempt))
    }

    /// Whether the caller chose a key.
    pub fn is_key(&self) -> bool {
        matches!(self, Self::Key(_))
    }

    /// The key by which a repetition of the request to `route` is recognised; `None` if there is none.
    /// `body` is valid; `session` is what a header says.
    pub fn request_key(
        &self,
        route: &str,
        caller: &Caller,
        body: &str,
        session: Option<&str>,
    ) -> Result<Option<RequestKey>, ApiError> {
        let session = session.unwrap_or_default();
        Ok(match self {
            Self::Unnamed => None,
            Self::Key(key) => Some(RequestKey {
                name: hash(&["key", route, key]),
                fingerprint: hash(&[&canonical(body)?, session]),
                kind: RequestKeyKind::Key,
            }),
            Self::Attempt(count) => {
                // A library sends the same bytes again.
                let name = hash(&["attempt", route, caller.key_name.as_deref().unwrap_or_default(), session, body]);
                let kind = if *count == 0 { RequestKeyKind::FirstAttempt } else { RequestKeyKind::Repeated };
                Some(RequestKey { fingerprint: name.clone(), name, kind })
            }
        })
    }

    /// The same where a request that says nothing of its identity is known by all that it says: clients there repeat a
    /// request whose connection was cut without a word. `beside` is what its headers say.
    pub fn key_or_equal(
        &self,
        route: &str,
        caller: &Caller,
        body: &str,
        beside: &str,
    ) -> Result<Option<RequestKey>, ApiError> {
        let kind = match self {
            Self::Key(_) => return self.request_key(route, caller, body, Some(beside)),
            Self::Unnamed => RequestKeyKind::Equal { counted: false },
            Self::Attempt(0) => RequestKeyKind::Equal { counted: true },
            Self::Attempt(_) => RequestKeyKind::Repeated,
        };
        let mut said = hash_of(&["equal", route, caller.key_name.as_deref().unwrap_or_default(), beside]);
        hash_members(body, &mut said)?;
        let name = to_hex(&said.finalize().into());
        Ok(Some(RequestKey { fingerprint: name.clone(), name, kind }))
    }

    /// The same for a request that only a key makes safe to send again.
    pub fn chosen_key(&self, route: &str, caller: &Caller, body: &str) -> Result<Option<RequestKey>, ApiError> {
        if self.is_key() { self.request_key(route, caller, body, None) } else { Ok(None) }
    }

    /// Whether the same request, sent again, finds the run that this one started.
    pub fn finds_its_run(&self) -> bool {
        *self != Self::Unnamed
    }

    /// Whether a client library should send the request again at once after its run ended so. Under a key the same
    /// answer would come again; without one, what the run's tools did would happen again. Where the server has asked
    /// its upstream again already, libraries would multiply its attempts.
    pub fn may_try_again(&self, outcome: &Outcome) -> bool {
        let retried = outcome.error.as_ref().is_some_and(|error| error.kind.was_retried());
        !self.is_key() && !retried && outcome.may_be_repeated()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RequestIdentity {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        Self::read(&parts.headers)
    }
}

/// Marks an answer that was given before.
pub fn mark_replayed(headers: &mut HeaderMap) {
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
}

/// SHA-256 of all parts, in hex. Where one ends and the next begins is part of it.
fn hash(parts: &[&str]) -> String {
    to_hex(&hash_of(parts).finalize().into())
}

fn hash_of(parts: &[&str]) -> Sha256 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Tenant;

    #[test]
    fn hashed_parts_are_not_confused_with_one_another() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_eq!(hash(&[]).len(), 64);
    }

    #[test]
    fn idempotency_keys_are_visible_ascii() {
        let read = |name: &'static str, values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(name, HeaderValue::from_bytes(value).unwrap());
            }
            RequestIdentity::read(&headers)
        };
        for good in ["k", "a-1_2/3=\"~", &"x".repeat(255)] {
            assert_eq!(read(KEY, &[good.as_bytes()]).unwrap(), RequestIdentity::Key(good.to_owned()));
        }
        let long = "x".repeat(256);
        let bad: [&[&[u8]]; 6] = [&[b""], &[long.as_bytes()], &["é".as_bytes()], &[b"a b"], &[b"\ta"], &[b"a", b"b"]];
        for values in bad {
            let error = read(KEY, values).unwrap_err();
            let (param, code) = (error.object().param, error.object().code);
            assert_eq!((param, code), (Some(KEY.to_owned()), "invalid_value"), "{values:?}");
        }
        assert_eq!(read(RETRY_COUNT, &[b"2"]).unwrap(), RequestIdentity::Attempt(2));
        for odd in ["", "-1", "x", "1.0"] {
            assert_eq!(read(RETRY_COUNT, &[odd.as_bytes()]).unwrap(), RequestIdentity::Unnamed, "{odd}");
        }
    }

    #[test]
    fn a_key_is_for_a_route_and_a_count_for_a_caller_and_its_bytes() {
        let caller = |key: &str| Caller {
            tenant: Tenant::default_tenant(),
            agents: None,
            scopes: crate::config::Scopes::all(),
            token: None,
            key_name: Some(key.into()),
            generation: std::sync::Arc::default(),
        };
        let request_key = |identity: &RequestIdentity, route: &str, key: &str, body: &str| {
            identity.request_key(route, &caller(key), body, None).unwrap().unwrap()
        };
        let key = RequestIdentity::Key("k".into());
        let first = request_key(&key, "r", "one", "{}");
        assert_eq!(first, request_key(&key, "r", "two", "{ }"), "all keys of a tenant share what they name");
        assert_ne!(first.name, request_key(&key, "s", "one", "{}").name);
        assert_ne!(first.fingerprint, request_key(&key, "r", "one", r#"{"a":1}"#).fingerprint);
        assert_ne!(
            first.fingerprint,
            key.request_key("r", &caller("one"), "{}", Some("s")).unwrap().unwrap().fingerprint
        );
        let first = request_key(&RequestIdentity::Attempt(0), "r", "one", "{}");
        let again = request_key(&RequestIdentity::Attempt(1), "r", "one", "{}");
        assert_eq!(
            (&first.name, first.kind, again.kind),
            (&again.name, RequestKeyKind::FirstAttempt, RequestKeyKind::Repeated)
        );
        assert_ne!(first.name, request_key(&RequestIdentity::Attempt(1), "r", "two", "{}").name);
        assert_ne!(first.name, request_key(&RequestIdentity::Attempt(1), "r", "one", r#"{"stream":true}"#).name);
        assert_eq!(RequestIdentity::Unnamed.request_key("r", &caller("one"), "{}", None).unwrap(), None);
    }

    #[test]
    fn requests_that_say_the_same_are_known_by_that() {
        let caller = |key: &str| Caller {
            tenant: Tenant::default_tenant(),
            agents: None,
            scopes: crate::config::Scopes::all(),
            token: None,
            key_name: Some(key.into()),
            generation: std::sync::Arc::default(),
        };
        let name = |identity: RequestIdentity, route: &str, key: &str, beside: &str, body: &str| {
            let key = identity.key_or_equal(route, &caller(key), body, beside).unwrap().unwrap();
            (key.name, key.kind)
        };
        let (unnamed, first) = (RequestIdentity::Unnamed, RequestIdentity::Attempt(0));
        let (one, kind) = name(unnamed.clone(), "r", "one", "", r#"{"a":1}"#);
        assert_eq!(kind, RequestKeyKind::Equal { counted: false });
        let streamed = r#"{"a":1,"stream":true}"#;
        assert_eq!(name(first, "r", "one", "", streamed), (one.clone(), RequestKeyKind::Equal { counted: true }));
        let again = RequestIdentity::Attempt(1);
        assert_eq!(name(again, "r", "one", "", streamed), (one.clone(), RequestKeyKind::Repeated));
        for (route, key, beside, body) in [
            ("s", "one", "", r#"{"a":1}"#),
            ("r", "two", "", r#"{"a":1}"#),
            ("r", "one", "s", r#"{"a":1}"#),
            ("r", "one", "", "{}"),
        ] {
            assert_ne!(name(unnamed.clone(), route, key, beside, body).0, one);
        }
        let key = RequestIdentity::Key("k".into());
        assert_eq!(name(key, "r", "one", "", streamed).1, RequestKeyKind::Key);
    }
}

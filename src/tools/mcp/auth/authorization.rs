//! What the requests of a connection show of who asks, beside what all requests to the server do.

use std::sync::Arc;

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::oauth::{NoToken, Tokens};
use crate::config::{CallerCredentials, Secret};

/// What the requests of a connection show of who asks.
#[derive(Debug, Clone, Default)]
pub(in crate::tools::mcp) enum Authorization {
    /// Nothing more.
    #[default]
    Nothing,
    /// A header that stays the same, and the secret in it.
    Header(HeaderName, HeaderValue, Secret),
    /// A token of an authorization server.
    Token(Arc<Tokens>),
}

/// What one request shows.
#[derive(Debug, Default)]
pub(in crate::tools::mcp) struct Shown {
    header: Option<(HeaderName, HeaderValue)>,
    token: Option<Secret>,
}

impl Shown {
    /// Adds it to the headers of a request, in the place of one with the same name.
    pub(in crate::tools::mcp) fn add_to(&self, headers: &mut HeaderMap) {
        if let Some((name, value)) = &self.header {
            headers.insert(name, value.clone());
        }
    }
}

impl Authorization {
    /// What shows this secret. The error is a clause.
    pub(in crate::tools::mcp) fn of(credentials: &CallerCredentials, secret: &Secret) -> Result<Self, String> {
        let value = sensitive(&format!("{}{}", credentials.prefix, secret.expose()));
        let value = value.ok_or("the credentials of this caller hold characters that an HTTP header cannot carry")?;
        Ok(Self::Header(credentials.header.clone(), value, secret.clone()))
    }

    /// The secret that all requests show alike.
    pub(in crate::tools::mcp) fn secret(&self) -> Option<Secret> {
        match self {
            Self::Header(_, _, secret) => Some(secret.clone()),
            Self::Nothing | Self::Token(_) => None,
        }
    }

    /// The tokens that change from request to request.
    pub(in crate::tools::mcp) fn tokens(&self) -> Option<Arc<Tokens>> {
        match self {
            Self::Token(tokens) => Some(tokens.clone()),
            Self::Nothing | Self::Header(..) => None,
        }
    }

    /// Returns once there is what the next request shows, so that the request itself need not wait for it.
    pub(in crate::tools::mcp) async fn ready(&self) -> Result<(), NoToken> {
        self.shown().await.map(drop)
    }

    /// What the next request shows.
    pub(in crate::tools::mcp) async fn shown(&self) -> Result<Shown, NoToken> {
        match self {
            Self::Nothing => Ok(Shown::default()),
            Self::Header(name, value, _) => Ok(Shown { header: Some((name.clone(), value.clone())), token: None }),
            Self::Token(tokens) => bearer(tokens.current().await?),
        }
    }

    /// What the same request shows after the server answered with 401 and these headers; `None` if there is nothing else.
    pub(in crate::tools::mcp) async fn after_refusal(
        &self,
        shown: &Shown,
        headers: &HeaderMap,
    ) -> Result<Option<Shown>, NoToken> {
        let (Self::Token(tokens), Some(refused)) = (self, &shown.token) else { return Ok(None) };
        let said = headers.get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if said.contains("insufficient_scope") {
            return Ok(None);
        }
        let next = tokens.in_place_of(refused).await?;
        if next == *refused { Ok(None) } else { bearer(next).map(Some) }
    }
}

fn bearer(token: Secret) -> Result<Shown, NoToken> {
    let value = sensitive(&format!("Bearer {}", token.expose())).ok_or_else(NoToken::unsendable)?;
    Ok(Shown { header: Some((AUTHORIZATION, value)), token: Some(token) })
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

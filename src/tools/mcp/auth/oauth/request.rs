//! What an authorization server is asked for, and what it answers.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde::Deserialize;
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::config::Secret;

/// Longest code of an error that is told on.
const MAX_CODE: usize = 64;
/// Longest token.
const MAX_TOKEN: usize = 16 << 10;

/// What a token is asked for with.
#[derive(Debug)]
pub(super) struct TokenRequest<'a> {
    pub(super) client_id: &'a str,
    pub(super) client_secret: Option<&'a Secret>,
    /// Whether the secret is sent in the body.
    pub(super) in_body: bool,
    /// If absent, the client's own credentials are what it is asked for with.
    pub(super) refresh_token: Option<&'a Secret>,
    pub(super) scope: Option<&'a str>,
    pub(super) resource: &'a str,
}

impl TokenRequest<'_> {
    /// The body, a form.
    pub(super) fn body(&self) -> String {
        let mut form = Serializer::new(String::new());
        match self.refresh_token {
            Some(token) => form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", token.expose()),
            None => form.append_pair("grant_type", "client_credentials"),
        };
        form.append_pair("resource", self.resource);
        if let Some(scope) = self.scope {
            form.append_pair("scope", scope);
        }
        match self.client_secret {
            // A client without a secret only says what it is called.
            None => drop(form.append_pair("client_id", self.client_id)),
            Some(secret) if self.in_body => {
                form.append_pair("client_id", self.client_id).append_pair("client_secret", secret.expose());
            }
            Some(_) => {}
        }
        form.finish()
    }

    /// The header that shows the secret, where that is not in the body.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let secret = self.client_secret.filter(|_| !self.in_body)?;
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!("{}:{}", encoded(self.client_id), encoded(secret.expose()));
        let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair))).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// A token that was given.
#[derive(Debug, Clone)]
pub(super) struct Granted {
    pub(super) token: Secret,
    /// How long it counts, if that was said.
    pub(super) expires_in: Option<Duration>,
    /// What the next one is asked for with, if that is another one.
    pub(super) refresh_token: Option<Secret>,
}

#[derive(Deserialize)]
struct Answer {
    access_token: Option<String>,
    token_type: Option<String>,
    expires_in: Option<serde_json::Value>,
    refresh_token: Option<String>,
    error: Option<String>,
}

/// Reads an answer. The error is a clause without secrets.
pub(super) fn read(status: u16, body: &[u8]) -> Result<Granted, String> {
    let answer: Option<Answer> = serde_json::from_slice(body).ok();
    if !(200..300).contains(&status) {
        let code = answer.and_then(|answer| answer.error).map(|code| format!(": {}", told(&code))).unwrap_or_default();
        return Err(format!("its authorization server answered HTTP {status}{code}"));
    }
    let answer = answer.ok_or("its authorization server did not answer as OAuth says")?;
    let token = answer.access_token.filter(|token| !token.is_empty() && token.len() <= MAX_TOKEN);
    let token = token.ok_or("its authorization server gave no token")?;
    if !answer.token_type.is_none_or(|kind| kind.eq_ignore_ascii_case("bearer")) {
        return Err("its authorization server gave a token of another kind than Bearer".to_owned());
    }
    // Some write the number as a string.
    let seconds = answer.expires_in.and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()));
    let refresh_token = answer.refresh_token.filter(|token| !token.is_empty()).map(Secret::new);
    Ok(Granted { token: Secret::new(token), expires_in: seconds.map(Duration::from_secs), refresh_token })
}

/// The code of an error, with nothing in it but what codes have.
fn told(code: &str) -> String {
    code.chars().filter(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.')).take(MAX_CODE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_sent_in_one_place() {
        let (secret, refresh) = (Secret::new("s:é"), Secret::new("r&1"));
        let request = TokenRequest {
            client_id: "a b",
            client_secret: Some(&secret),
            in_body: false,
            refresh_token: None,
            scope: Some("x y"),
            resource: "https://a.test/mcp",
        };
        let grant = "grant_type=client_credentials&resource=https%3A%2F%2Fa.test%2Fmcp&scope=x+y";
        assert_eq!(request.body(), grant);
        assert_eq!(request.authorization().unwrap(), format!("Basic {}", STANDARD.encode("a+b:s%3A%C3%A9")).as_str());
        let in_body = TokenRequest { in_body: true, ..request };
        assert_eq!(in_body.body(), format!("{grant}&client_id=a+b&client_secret=s%3A%C3%A9"));
        assert_eq!(in_body.authorization(), None);
        let public = TokenRequest { client_secret: None, refresh_token: Some(&refresh), scope: None, ..in_body };
        assert!(public.body().starts_with("grant_type=refresh_token&refresh_token=r%261&resource="));
        assert!(public.body().ends_with("&client_id=a+b") && public.authorization().is_none());
    }

    #[test]
    fn an_answer_is_a_token_or_a_clause_without_secrets() {
        let granted = read(200, br#"{"access_token": "t", "token_type": "bearer", "expires_in": "60"}"#).unwrap();
        assert_eq!((granted.token.expose(), granted.expires_in), ("t", Some(Duration::from_secs(60))));
        let refused = |status, body: &str| read(status, body.as_bytes()).unwrap_err();
        let echo = r#"{"error": "invalid_client\n<b>", "error_description": "the secret hush is wrong"}"#;
        assert_eq!(refused(401, echo), "its authorization server answered HTTP 401: invalid_clientb");
        assert_eq!(refused(502, "<html>"), "its authorization server answered HTTP 502");
        for bad in ["", "[]", r#"{"access_token": ""}"#, r#"{"access_token": "t", "token_type": "mac"}"#] {
            refused(200, bad);
        }
    }
}

//! The secrets that a server is given, and what it says without them.
//!
//! A server may quote its own key in an answer or an error. What it says is shown to models, stored and logged, so each secret
//! is replaced before anything else is done with the text.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::config::{McpServerConfig, McpTransport, Secret};
use crate::tools::mcp::auth::Tokens;

/// What stands for a secret.
const HIDDEN: &str = "***";
/// Shorter texts stand in many words; they are no secrets that could be kept.
const SHORTEST: usize = 4;
/// The shortest line of a secret that is one by itself.
const SHORTEST_LINE: usize = 8;
/// The shortest value in the query of an address that counts as a key.
const SHORTEST_IN_QUERY: usize = 8;

/// The secrets of one server. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Secrets {
    fixed: Arc<[Secret]>,
    /// Those that change while the connection lasts.
    tokens: Option<Arc<Tokens>>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Secrets").field(&self.fixed.len()).finish()
    }
}

impl Secrets {
    /// What a server with this configuration must not tell.
    pub(super) fn of(config: &McpServerConfig) -> Self {
        match &config.transport {
            McpTransport::Stdio(command) => Self::new(command.secrets.iter().cloned()),
            McpTransport::Http(endpoint) => {
                let headers = endpoint.headers.iter().filter_map(|(_, value)| value.secret.clone());
                let query = endpoint.url.query_pairs().map(|(_, value)| value);
                let query = query.filter(|value| value.len() >= SHORTEST_IN_QUERY).map(|value| Secret::new(&*value));
                Self::new(headers.chain(query))
            }
        }
    }

    /// These, and one more if there is one.
    #[must_use]
    pub(super) fn and(self, more: Option<Secret>) -> Self {
        if more.is_none() { self } else { Self::new(self.fixed.iter().cloned().chain(more)) }
    }

    /// These, and whichever tokens the server is shown.
    #[must_use]
    pub(super) fn and_those_of(self, tokens: Option<Arc<Tokens>>) -> Self {
        Self { tokens, ..self }
    }

    /// All that count now.
    fn all(&self) -> Cow<'_, [Secret]> {
        match &self.tokens {
            None => Cow::Borrowed(&self.fixed),
            Some(tokens) => Self::new(self.fixed.iter().cloned().chain(tokens.secrets())).fixed.to_vec().into(),
        }
    }

    /// These, the longest first: one may be part of another. Of one that has several lines each line is a secret too, as
    /// a server may write them one by one.
    pub(super) fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let with_lines = secrets.into_iter().flat_map(|secret| {
            let lines: Vec<_> =
                secret.expose().lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE).collect();
            let lines: Vec<_> = if lines.len() > 1 { lines.into_iter().map(Secret::new).collect() } else { Vec::new() };
            lines.into_iter().chain([secret])
        });
        let mut secrets: Vec<Secret> = with_lines.filter(|secret| secret.expose().len() >= SHORTEST).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        Self { fixed: secrets.into(), tokens: None }
    }

    /// A text without secrets, and without the beginning of one at its end, where the text may have been cut.
    pub(super) fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let (all, mut hidden) = (self.all(), Cow::Borrowed(text));
        for secret in all.iter().map(Secret::expose) {
            if hidden.contains(secret) {
                hidden = hidden.replace(secret, HIDDEN).into();
            }
        }
        let cut = all.iter().find_map(|secret| beginning_at_end(&hidden, secret.expose()));
        cut.map_or_else(|| hidden.clone(), |kept| format!("{}{HIDDEN}", &hidden[..kept]).into())
    }

    /// The same for all strings of a value, the names of members included.
    pub(super) fn hide_in(&self, value: &mut Value) {
        if self.fixed.is_empty() && self.tokens.is_none() {
            return;
        }
        match value {
            Value::String(text) => self.hide_in_text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_in(item)),
            Value::Object(members) => {
                if members.keys().any(|name| matches!(self.hide(name), Cow::Owned(_))) {
                    let hidden = std::mem::take(members).into_iter();
                    *members = hidden.map(|(name, value)| (self.hide(&name).into_owned(), value)).collect();
                }
                members.values_mut().for_each(|value| self.hide_in(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn hide_in_text(&self, text: &mut String) {
        if let Cow::Owned(hidden) = self.hide(text) {
            *text = hidden;
        }
    }
}

/// Where the beginning of a secret begins with which a text ends.
fn beginning_at_end(text: &str, secret: &str) -> Option<usize> {
    let longest = secret.len().saturating_sub(1).min(text.len());
    let found = (SHORTEST..=longest)
        .rev()
        .find(|length| secret.is_char_boundary(*length) && text.as_bytes().ends_with(&secret.as_bytes()[..*length]))?;
    Some(text.len() - found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{McpEndpoint, SentValue};
    use crate::tools::mcp::testing::config;

    fn secrets(secrets: &[&str]) -> Secrets {
        Secrets::new(secrets.iter().map(|secret| Secret::new(*secret)))
    }

    #[test]
    fn secrets_are_replaced_wherever_they_stand() {
        let secrets = secrets(&["sk-12345", "sk-12345-long", "abc"]);
        assert_eq!(secrets.hide("key sk-12345-long, abc, sk-12345!"), "key ***, abc, ***!");
        let mut value = json!({"sk-12345": ["a", {"b": "xsk-12345"}], "n": 12345});
        secrets.hide_in(&mut value);
        assert_eq!(value, json!({"***": ["a", {"b": "x***"}], "n": 12345}));
        assert!(!format!("{secrets:?}").contains("sk-"));
    }

    #[test]
    fn a_secret_that_was_cut_off_is_replaced_too() {
        let secrets = secrets(&["sk-12345"]);
        assert_eq!(secrets.hide("refused: sk-123"), "refused: ***");
        assert_eq!(secrets.hide("a task"), "a task", "so little of it tells nothing");
    }

    #[test]
    fn headers_and_keys_in_the_query_of_an_address_are_secrets() {
        let url = url::Url::parse("http://127.0.0.1:9/mcp?key=k-0123456789&page=7").unwrap();
        let secret = Some(Secret::new("sk-12345"));
        let headers = vec![(http::header::AUTHORIZATION, SentValue { whole: Secret::new("Bearer sk-12345"), secret })];
        let config = McpServerConfig { transport: McpTransport::Http(McpEndpoint { url, headers }), ..config("test") };
        let said = "Bearer sk-12345 at /mcp?key=k-0123456789&page=7";
        assert_eq!(Secrets::of(&config).hide(said), "Bearer *** at /mcp?key=***&page=7");
    }
}

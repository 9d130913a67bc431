//! Tokens for pages: what a key lets one do, signed, so that every replica knows it without asking the store. Pure.

use std::fmt;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::config::{KeyConfig, Scope, Scopes, Secret, TokensConfig};
use crate::types::json::compact;
use crate::types::{RunId, SessionId, Tenant};

/// What a token begins with; no key does that `loopgate key new` makes.
pub const PREFIX: &str = "lgt_";
/// What a signature is of, beside the token: it is not to be one of anything else.
const CONTEXT: &[u8] = b"loopgate token 1\0";

/// One thing that a token lets its holder do, in the run or the session that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum May {
    /// Read runs and their events, and the session with its messages.
    Follow,
    /// Send messages to live runs, and cancel runs.
    Steer,
    /// Start runs in the session, and answer those that wait for their client.
    Start,
    /// Answer questions of tools.
    Answer,
    /// Decide calls that wait for an approval.
    Approve,
}

impl May {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Follow, Self::Steer, Self::Start, Self::Answer, Self::Approve];

    /// What requests call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Follow => "follow",
            Self::Steer => "steer",
            Self::Start => "start",
            Self::Answer => "answer",
            Self::Approve => "approve",
        }
    }

    /// What a key needs that gives it.
    pub fn scopes(self) -> &'static [Scope] {
        match self {
            Self::Follow => &[Scope::Read],
            Self::Steer => &[Scope::Steer, Scope::Cancel],
            Self::Start => &[Scope::Run],
            Self::Answer => &[Scope::Steer],
            Self::Approve => &[Scope::Approvals],
        }
    }
}

impl fmt::Display for May {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a token is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// One run.
    Run(RunId),
    /// One session and its runs.
    Session(SessionId),
}

/// What a token says. A replica of an older version refuses one that says more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Its name, by which it is revoked and which the log has.
    pub id: String,
    /// The name of the key that gave it.
    pub key: String,
    /// Whose runs and sessions that key sees.
    pub tenant: Tenant,
    /// What it is for.
    pub on: Bound,
    /// What may be done there.
    pub may: Vec<May>,
    /// The only agent that may be started; `None` for those that the key may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The end user of all runs that it starts; `None` for nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What its key had revoked when it was given.
    pub epoch: u64,
    /// When it expires, Unix milliseconds.
    pub expires_ms: u64,
}

impl Token {
    /// Whether it lets its holder do this.
    pub fn may(&self, what: May) -> bool {
        self.may.contains(&what)
    }

    /// What a key's scopes leave of what the token needs.
    pub fn scopes(&self, of_key: &Scopes) -> Scopes {
        let needed = self.may.iter().flat_map(|may| may.scopes()).copied();
        Scopes::of(needed.filter(|scope| of_key.contains(*scope)))
    }

    /// The text that its holder shows, given by this key.
    pub fn sign(&self, config: &TokensConfig, key: &KeyConfig) -> String {
        let said = compact(self).expect("tokens hold only strings and numbers");
        let said = URL_SAFE_NO_PAD.encode(said);
        let signature = URL_SAFE_NO_PAD.encode(sign(&config.secret, key, &said));
        format!("{PREFIX}{said}.{signature}")
    }

    /// What such a text says, if one of the keys gave it: a key that is gone, renamed, another one by now or another tenant's gave
    /// none. The comparison of signatures takes the same time for all.
    pub fn read<'a>(
        text: &str,
        config: &TokensConfig,
        mut keys: impl Iterator<Item = &'a KeyConfig>,
    ) -> Option<(Self, &'a KeyConfig)> {
        let (said, signature) = text.strip_prefix(PREFIX)?.split_once('.')?;
        let token: Self = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(said).ok()?).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let key = keys.find(|key| key.name == token.key && key.tenant == token.tenant)?;
        let mut secrets = [Some(&config.secret), config.previous.as_ref()].into_iter().flatten();
        let is_signed = |secret: &Secret| {
            let signed = signed(key, said);
            hmac::verify(&signing_key(secret), &signed, &signature).is_ok()
        };
        secrets.any(is_signed).then_some((token, key))
    }
}

/// The signature covers the key's hash: a key that is replaced under the same name voids what it gave.
fn signed(key: &KeyConfig, said: &str) -> Vec<u8> {
    [CONTEXT, &key.hash, said.as_bytes()].concat()
}

fn sign(secret: &Secret, key: &KeyConfig, said: &str) -> hmac::Tag {
    hmac::sign(&signing_key(secret), &signed(key, said))
}

fn signing_key(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{QuotaConfig, key};

    fn key_of(name: &str, secret: &str, tenant: &str) -> KeyConfig {
        KeyConfig {
            name: name.into(),
            tenant: Tenant::parse(tenant).unwrap(),
            hash: key::hash(secret),
            agents: None,
            scopes: Scopes::of_tenant(),
            requests_per_minute: None,
            per_user: crate::config::ShareConfig::default(),
            request_mcp: false,
            quota: QuotaConfig::default(),
            policy: std::sync::Arc::default(),
            layers: [].into(),
        }
    }

    fn config(secret: &str, previous: Option<&str>) -> TokensConfig {
        TokensConfig { secret: Secret::new(secret), previous: previous.map(Secret::new) }
    }

    fn token() -> Token {
        Token {
            id: "tok_1".into(),
            key: "web".into(),
            tenant: Tenant::parse("acme").unwrap(),
            on: Bound::Session(SessionId::parse("s").unwrap()),
            may: vec![May::Follow, May::Start],
            agent: Some("clerk".into()),
            user: None,
            epoch: 7,
            expires_ms: 1_000,
        }
    }

    #[test]
    fn what_is_signed_is_read_by_all_who_share_the_secret_and_by_nobody_else() {
        let key = key_of("web", "one", "acme");
        let text = token().sign(&config("a", None), &key);
        let read = |text: &str, config: &TokensConfig, key: &KeyConfig| {
            Token::read(text, config, std::iter::once(key)).map(|(token, _)| token)
        };
        assert_eq!(read(&text, &config("a", None), &key), Some(token()));
        assert_eq!(
            read(&text, &config("b", Some("a")), &key),
            Some(token()),
            "it was signed before the secret was replaced"
        );
        assert_eq!(read(&text, &config("b", None), &key), None);
        for other in [key_of("web", "two", "acme"), key_of("app", "one", "acme"), key_of("web", "one", "rival")] {
            assert_eq!(read(&text, &config("a", None), &other), None, "the key is another one by now");
        }
    }

    #[test]
    fn nothing_of_a_token_can_be_changed() {
        let (key, config) = (key_of("web", "one", "acme"), config("a", None));
        let text = token().sign(&config, &key);
        let is_read = |text: &str| Token::read(text, &config, std::iter::once(&key)).is_some();
        assert!(is_read(&text));
        for place in PREFIX.len()..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(!is_read(&changed), "{place}");
            assert!(!is_read(&text[..place]));
        }
        let wider = Token { may: May::ALL.to_vec(), ..token() };
        let said = URL_SAFE_NO_PAD.encode(compact(&wider).unwrap());
        let (_, signature) = text.split_once('.').unwrap();
        assert!(!is_read(&format!("{PREFIX}{said}.{signature}")));
        for odd in ["", PREFIX, "lgt_.", "lgt_e30.e30", "lgt_é.é", &text[PREFIX.len()..]] {
            assert!(!is_read(odd), "{odd}");
        }
    }

    #[test]
    fn a_token_has_no_scope_that_its_key_has_lost() {
        let scopes = Token { may: May::ALL.to_vec(), ..token() }.scopes(&Scopes::of([Scope::Read, Scope::Memory]));
        assert_eq!(scopes, Scopes::of([Scope::Read]));
    }
}

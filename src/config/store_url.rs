//! `store.url`: the kind of store, and where it keeps its data.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use toml::Spanned;
use toml::de::DeValue;

use super::redis_url::RedisUrl;
use super::value::{FromToml, Misread, text};
use super::values::Recorded;

/// A backend and where it keeps things.
#[derive(Debug, Clone)]
pub enum StoreUrl {
    /// Files in a directory.
    Embedded(PathBuf),
    /// This process only.
    Memory,
    /// Redis, shared by all replicas of this server.
    Redis(RedisUrl),
}

const STORE_FORM: &str = "\"embedded:DIR\", \"memory:\" or a Redis URL";

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("embedded", directory)) if !directory.is_empty() => Ok(Self::Embedded(directory.into())),
            Some((scheme, _)) if scheme.starts_with("redis") || scheme.starts_with("valkey") => {
                text.parse().map(Self::Redis)
            }
            _ => Err(format!("must be {STORE_FORM}")),
        }
    }
}

/// Without passwords.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded(directory) => write!(f, "embedded:{}", directory.display()),
            Self::Memory => f.write_str("memory:"),
            Self::Redis(url) => url.fmt(f),
        }
    }
}

impl FromToml for StoreUrl {
    fn form() -> String {
        STORE_FORM.into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        text(value, STORE_FORM)?.parse().map_err(|what: String| Misread::new(value, what))
    }

    fn show(&self) -> String {
        format!("\"{self}\"")
    }

    fn recorded(&self) -> Recorded {
        let value = Recorded::shown(self.show());
        match self {
            Self::Embedded(_) | Self::Memory => value,
            Self::Redis(url) => url.passwords().fold(value, |value, password| value.with_secret(password.expose())),
        }
    }
}

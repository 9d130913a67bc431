//! `[server]` and `[store]`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use super::Options;
use super::quantity::{Delay, Size, seconds};
use super::reader::Section;
use super::redis_url::RedisUrl;
use super::value::{FromToml, Misread, parsed, text};

/// How the HTTP server behaves.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Most bytes of a request's body.
    pub max_body: u64,
    /// Most open connections.
    pub max_connections: u32,
    /// From the signal until new runs are refused.
    pub drain_delay: Duration,
    /// How long runs then have until they are stopped at a step's end.
    pub drain_timeout: Duration,
    /// Origins that browsers may call from: exact ones, or `*` for all. Empty: no CORS headers.
    pub cors_origins: Vec<String>,
    /// For callers without a key; `None` without end.
    pub requests_per_minute: Option<u32>,
}

impl ServerConfig {
    pub(super) fn read(section: &mut Section<'_>, options: &Options, has_keys: bool) -> Self {
        let listen = section.key(
            "listen",
            "Address and port; beyond this machine it needs keys, or `--insecure-no-auth`.",
            SocketAddr::from(([127, 0, 0, 1], 8080)),
        );
        let listen = refuse_open_door(section, listen, options, has_keys);
        let Size(max_body) = section.key("max_body", "Most bytes of a request's body.", Size(10 << 20));
        let max_connections = section.key("max_connections", "Most open connections.", 10_000);
        let Delay(drain_delay) = section.key(
            "drain_delay",
            "How long new runs are still taken after SIGTERM, while load balancers learn of it.",
            Delay(seconds(5)),
        );
        let Delay(drain_timeout) = section.key(
            "drain_timeout",
            "How long live runs then have to end before they are stopped.",
            Delay(seconds(30)),
        );
        let origins: Vec<Origin> = section.key(
            "cors_origins",
            "Origins whose pages may call this server, such as `\"https://chat.example.com\"`; `\"*\"` is all.",
            Vec::new(),
        );
        let requests_per_minute = section.section("rate_limit", |limit| {
            limit.optional(
                "requests_per_minute",
                "Most requests a minute from one address without a key, over all replicas.",
            )
        });
        Self {
            listen,
            max_body,
            max_connections,
            drain_delay,
            drain_timeout,
            cors_origins: origins.into_iter().map(|Origin(origin)| origin).collect(),
            requests_per_minute,
        }
    }
}

/// The address to listen on, which must not be open to other machines without keys.
fn refuse_open_door(section: &Section<'_>, written: SocketAddr, options: &Options, has_keys: bool) -> SocketAddr {
    let listen = options.listen.unwrap_or(written);
    if !listen.ip().to_canonical().is_loopback() && !has_keys && !options.insecure_no_auth {
        let what = format!(
            "other machines reach {listen}, so callers need keys: declare them as [keys.NAME], listen on \
             127.0.0.1, or accept everyone with --insecure-no-auth"
        );
        if options.listen.is_some() {
            section.refuse_outside("--listen", what);
        } else {
            section.refuse("listen", what);
        }
    }
    listen
}

/// Where runs and sessions are kept, and how long.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Where.
    pub url: StoreUrl,
    /// How long a session is kept after its last change.
    pub session_ttl: Duration,
    /// How long a run can be read after its end.
    pub run_ttl: Duration,
}

impl StoreConfig {
    pub(super) fn read(section: &mut Section<'_>, options: &Options) -> Self {
        let url = section.key(
            "url",
            "`embedded:DIR` keeps everything in a directory, `memory:` loses it at the end; several replicas \
             share a Redis or Valkey: `redis://HOST`, `redis-sentinel://HOSTS/MASTER`, `redis-cluster://HOSTS`.",
            StoreUrl::Embedded("./data".into()),
        );
        Self {
            url: options.store.clone().unwrap_or(url),
            session_ttl: section.key(
                "session_ttl",
                "How long a session is kept after its last change.",
                seconds(30 * 86_400),
            ),
            run_ttl: section.key("run_ttl", "How long a run can be read after its end.", seconds(86_400)),
        }
    }
}

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
}

impl FromToml for SocketAddr {
    fn form() -> String {
        "address and port".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        parsed(value, "an address and port such as \"127.0.0.1:8080\" or \"[::1]:8080\"")
    }

    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

/// `*`, or scheme, host and port as browsers send them.
struct Origin(String);

impl FromToml for Origin {
    fn form() -> String {
        "origin".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "an origin such as \"https://chat.example.com\", without a path, or \"*\"";
        let text = text(value, FORM)?;
        let is_origin = |url: Url| url.origin().is_tuple() && url.origin().ascii_serialization() == text;
        if text == "*" || Url::parse(text).is_ok_and(is_origin) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Misread::new(value, format!("this is not {FORM}")))
        }
    }

    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}

//! `[server]`: how the HTTP server behaves.

use std::net::SocketAddr;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use super::options::Options;
use super::quantity::{Delay, Size, seconds};
use super::reader::Section;
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
    /// How long a new connection may take to send the headers of its first request.
    pub header_timeout: Duration,
    /// How long a connection is kept open between requests.
    pub keep_alive: Duration,
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
        section.read_at_start();
        let listen = section.key(
            "listen",
            "Address and port to listen on. One that other machines can reach needs keys, or `--insecure-no-auth`.",
            SocketAddr::from(([127, 0, 0, 1], 8080)),
        );
        let listen = options.listen.unwrap_or(listen);
        section.record("listen", listen.recorded());
        refuse_exposure(section, listen, options, has_keys);
        let Size(max_body) = section.key("max_body", "Largest request body.", Size(10 << 20));
        let max_connections =
            section.key("max_connections", "Most connections open at the same time; further ones wait.", 10_000);
        let header_timeout = section.key(
            "header_timeout",
            "Most time for a new connection to send the headers of its first request.",
            seconds(5),
        );
        let keep_alive = section.key(
            "keep_alive",
            "How long a connection stays open between requests. Choose more than the load balancer's own idle \
             timeout, or its requests meet connections that are just being closed.",
            seconds(75),
        );
        let Delay(drain_delay) = section.key(
            "drain_delay",
            "How long new runs are still accepted after SIGTERM, so that load balancers have time to stop sending them.",
            Delay(seconds(5)),
        );
        let Delay(drain_timeout) = section.key(
            "drain_timeout",
            "How long runs may then take to finish. Those that do not are resumed by another replica, or at the next \
             start.",
            Delay(seconds(30)),
        );
        let origins: Vec<Origin> = section.key(
            "cors_origins",
            "Origins whose web pages may call this server, such as `\"https://chat.example.com\"`; `\"*\"` allows all.",
            Vec::new(),
        );
        let requests_per_minute = section.section("rate_limit", |limit| {
            limit.optional(
                "requests_per_minute",
                "Most requests a minute from one IP address, over all replicas together.",
            )
        });
        Self {
            listen,
            max_body,
            max_connections,
            header_timeout,
            keep_alive,
            drain_delay,
            drain_timeout,
            cors_origins: origins.into_iter().map(|Origin(origin)| origin).collect(),
            requests_per_minute,
        }
    }
}

/// Refuses an address that is open to other machines without keys.
fn refuse_exposure(section: &Section<'_>, listen: SocketAddr, options: &Options, has_keys: bool) {
    if let Some(what) = exposure(listen, options, has_keys) {
        if options.listen.is_some() {
            section.refuse_outside("--listen", what);
        } else {
            section.refuse("listen", what);
        }
    }
}

/// What is wrong with listening there, if other machines then call without keys.
pub(super) fn exposure(listen: SocketAddr, options: &Options, has_keys: bool) -> Option<String> {
    let is_open = !listen.ip().to_canonical().is_loopback() && !has_keys && !options.insecure_no_auth;
    is_open.then(|| {
        format!(
            "other machines reach {listen}, so callers need keys: declare them as [keys.NAME], listen on \
             127.0.0.1, or accept everyone with --insecure-no-auth"
        )
    })
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

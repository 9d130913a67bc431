//! `[server]`: how the HTTP server behaves.

use std::net::SocketAddr;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use super::answers_later::PublicUrl;
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
    /// Most bytes that may be sent to one run while it is live, all together.
    pub max_inbox: u64,
    /// Most bytes of request bodies in memory, all together.
    pub body_memory: u64,
    /// Most bytes that readers of logs hold, all together.
    pub reader_memory: u64,
    /// Most bytes of memory for the conversations of live runs, all together.
    pub run_memory: u64,
    /// Most open connections.
    pub max_connections: u32,
    /// Most of them from one address; `None` without end.
    pub max_connections_per_address: Option<u32>,
    /// How long a new connection may take to send the headers of its first request.
    pub header_timeout: Duration,
    /// How long a connection is kept open between requests.
    pub keep_alive: Duration,
    /// How long a client may take nothing of its answer.
    pub write_timeout: Duration,
    /// From the signal until new runs are refused; `None`: as the store has it, see [`Settings::drain_delay`].
    ///
    /// [`Settings::drain_delay`]: super::Settings::drain_delay
    pub drain_delay: Option<Duration>,
    /// How long runs then have until they are stopped at a step's end.
    pub drain_timeout: Duration,
    /// Origins that browsers may call from: exact ones, or `*` for all. Empty: no CORS headers.
    pub cors_origins: Vec<String>,
    /// Names by which the server may be called while it has no keys, besides loopback ones and addresses.
    pub hosts: Vec<String>,
    /// For callers without a key; `None` without end.
    pub requests_per_minute: Option<u32>,
    /// Where the services of tools reach it.
    pub public_url: Option<Url>,
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
        let bounds = Bounds::read(section);
        let drain_delay: Option<Delay> = section.optional(
            "drain_delay",
            "How long new runs are still accepted after SIGTERM, so that load balancers have time to stop sending them. If not \
             given: 5s where replicas share a Redis, else none, since load balancers have no other server to choose.",
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
        let (hosts, public_url) = read_names(section);
        let requests_per_minute = section.section("rate_limit", |limit| {
            limit.optional(
                "requests_per_minute",
                "Most requests a minute from one IP address (IPv6: from one /64), over all replicas together.",
            )
        });
        Self {
            listen,
            max_body: bounds.max_body,
            max_inbox: bounds.max_inbox,
            body_memory: bounds.body_memory,
            reader_memory: bounds.reader_memory,
            run_memory: bounds.run_memory,
            max_connections: bounds.max_connections,
            max_connections_per_address: bounds.max_connections_per_address,
            header_timeout: bounds.header_timeout,
            keep_alive: bounds.keep_alive,
            write_timeout: bounds.write_timeout,
            drain_delay: drain_delay.map(|Delay(delay)| delay),
            drain_timeout,
            cors_origins: origins.into_iter().map(|Origin(origin)| origin).collect(),
            hosts,
            requests_per_minute,
            public_url,
        }
    }
}

/// The names by which it may be called while it has no keys, and the URL at which services reach it.
fn read_names(section: &mut Section<'_>) -> (Vec<String>, Option<Url>) {
    let hosts: Vec<HostName> = section.key(
        "hosts",
        "Names by which this server may be called while no keys are declared, such as `\"loopgate.internal\"`; \
         `\"*\"` allows all. `localhost` and IP addresses are always allowed. Without this bound a web page could \
         let a name of its own point to a server on its visitor's machine.",
        Vec::new(),
    );
    let public_url: Option<PublicUrl> = section.optional(
        "public_url",
        "URL at which the services of tools reach this server, or any replica of it, such as `\"https://agents.example.com\"`. Tools \
         whose services [answer later](tools.md#answers-that-come-later) need it. While no keys are declared, the server may \
         be called by the name in it.",
    );
    let own_name = public_url.as_ref().and_then(PublicUrl::host);
    let names = hosts.into_iter().map(|HostName(name)| name).chain(own_name).collect();
    (names, public_url.map(|PublicUrl(url)| url))
}

/// What bounds bodies and connections.
struct Bounds {
    max_body: u64,
    max_inbox: u64,
    body_memory: u64,
    reader_memory: u64,
    run_memory: u64,
    max_connections: u32,
    max_connections_per_address: Option<u32>,
    header_timeout: Duration,
    keep_alive: Duration,
    write_timeout: Duration,
}

impl Bounds {
    fn read(section: &mut Section<'_>) -> Self {
        let Size(max_body) = section.key("max_body", "Largest request body.", Size(10 << 20));
        let Size(max_inbox) = section.key(
            "max_inbox",
            "Most bytes of messages that may be sent to one run while it is live, all together. They join its \
             conversation, so more would seldom fit its model.",
            Size(1 << 20),
        );
        let Size(body_memory) = section.key(
            "body_memory",
            "Most memory for request bodies that are being read, all together. Large ones wait for up to 5 s, then \
             get 503 `overloaded`; bodies of up to 64 KiB have a quarter of it to themselves. Of large ones that have \
             arrived, as many are worked on at the same time as fit into a quarter of it. Requests that wait, such as \
             for a budget, have an eighth of it; a further one is refused at once. One key, or one address where there are \
             no keys, gets half of each part; one body of `max_body` always fits.",
            Size(64 << 20),
        );
        let Size(reader_memory) = section.key(
            "reader_memory",
            "Most memory for events that were read from logs and that clients have not taken yet, all together; a reader \
             takes 384 KiB of it while it is behind its run, and waits if there is none. A trace takes 8 MiB until it is \
             made, then its own size, and 503 `overloaded` tells that there is none. One key, or one address where there \
             are no keys, gets half.",
            Size(64 << 20),
        );
        let run_memory = run_memory(section);
        let max_connections = section.key(
            "max_connections",
            "Most connections open at the same time. A further one replaces that which has been idle for longest; where \
             none is idle it gets 503 `overloaded`. Probes are always answered.",
            10_000,
        );
        let max_connections_per_address = section.optional(
            "max_connections_per_address",
            "Most connections from one IP address (IPv6: from one /64); further ones get 429. Leave it out behind a load \
             balancer, whose few addresses all connections come from.",
        );
        let [header_timeout, keep_alive, write_timeout] = read_timeouts(section);
        Self {
            max_body,
            max_inbox,
            body_memory,
            reader_memory,
            run_memory,
            max_connections,
            max_connections_per_address,
            header_timeout,
            keep_alive,
            write_timeout,
        }
    }
}

/// How long connections may do nothing: before a first request, between requests, and while a response is written.
fn read_timeouts(section: &mut Section<'_>) -> [Duration; 3] {
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
    let write_timeout = section.key(
        "write_timeout",
        "How long a client may take nothing of what it is sent, or less than 16 KiB of more that waits for it, until \
         its connection is closed.",
        seconds(30),
    );
    [header_timeout, keep_alive, write_timeout]
}

fn run_memory(section: &mut Section<'_>) -> u64 {
    let Size(bytes) = section.key(
        "run_memory",
        "Most memory for the conversations of live runs, all together: each counts twice, for the request to its model. \
         Where a new run finds no room it gets 503 `overloaded`; a quarter is kept for runs that are resumed. What \
         joins the conversation of a live run is counted and never refused. One run always fits.",
        Size(192 << 20),
    );
    bytes
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

/// `*`, or a host's name without a port.
struct HostName(String);

impl FromToml for HostName {
    fn form() -> String {
        "host name".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "a host name such as \"loopgate.internal\", without a port, or \"*\"";
        let text = text(value, FORM)?;
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if text == "*" || (!text.is_empty() && is_name(text)) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Misread::new(value, format!("this is not {FORM}")))
        }
    }

    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}

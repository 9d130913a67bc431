//! `[traces]`: where the traces of runs are sent, and which.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::Url;

use super::quantity::seconds;
use super::ratio::Ratio;
use super::reader::Section;
use super::secret::Secret;
use super::value::{FromToml, Word};
use super::values::Recorded;

/// Where the traces of runs are sent, and which.
#[derive(Debug, Clone, PartialEq)]
pub struct TracesConfig {
    /// Where; `None` if they are not.
    pub url: Option<Url>,
    /// How they are sent there.
    pub protocol: OtlpProtocol,
    /// What is sent with them, such as a key.
    pub headers: Vec<(http::HeaderName, Secret)>,
    /// What traces come from: names and values.
    pub resource: Vec<(String, String)>,
    /// The part of all runs whose traces are sent, from 0 to 1.
    pub ratio: f64,
    /// Whether a caller's `traceparent` decides whether its runs are among them.
    pub follow_caller: bool,
    /// Whether the traces of all runs are sent that failed.
    pub keep_failed: bool,
    /// Whether the traces of all runs are sent that a limit or budget ended.
    pub keep_limited: bool,
    /// The traces of all runs are sent that took so long.
    pub keep_slower_than: Option<Duration>,
    /// How much of what was said is told.
    pub content: TracedContent,
    /// Most runs that wait for being sent.
    pub queue: u32,
    /// How long the collector may take for an answer.
    pub timeout: Duration,
}

/// How traces are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// As protobuf in HTTP requests.
    Http,
    /// By gRPC.
    Grpc,
}

/// How much of what was said traces tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TracedContent {
    /// Nothing.
    Off,
    /// The first 500 characters of each attribute.
    Previews,
    /// The first 50,000 characters of each attribute.
    Full,
}

/// Where the collector is, without and with the path for traces.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// How traces are sent, and with which headers: what is said of traces goes first.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";

impl TracesConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        section.read_at_start();
        let protocol = protocol(section);
        let url = url(section, protocol);
        let headers = headers(section);
        let resource = resource(section);
        let Ratio(ratio) = section.key(
            "ratio",
            "Part of all runs whose traces are sent, from 0 to 1. The run's id decides, so all replicas choose alike.",
            Ratio(1.0),
        );
        Self {
            url,
            protocol,
            headers,
            resource,
            ratio,
            follow_caller: section.key(
                "follow_caller",
                "Whether the sampled flag of a request's `traceparent` decides in place of `ratio`, so that traces are whole. \
                 Switch it off where callers are not trusted with how much is sent.",
                true,
            ),
            keep_failed: section.key("keep_failed", "Whether the traces of all runs are sent that failed.", true),
            keep_limited: section.key(
                "keep_limited",
                "Whether the traces of all runs are sent that a limit or a budget ended.",
                true,
            ),
            keep_slower_than: section
                .optional("keep_slower_than", "The traces of all runs are sent that were under way for at least so long."),
            content: section.key(
                "content",
                "How much traces tell of what was said to and by models and tools: nothing, the first 500 characters of each \
                 attribute, or the first 50,000. What looks like a key or password is left out, as far as it can be \
                 recognised.",
                TracedContent::Off,
            ),
            queue: section.key(
                "queue",
                "Most ended runs whose traces wait to be sent. Beyond it, traces are dropped and counted: a collector that is \
                 slow or gone delays no run.",
                1_000,
            ),
            timeout: section.key("timeout", "Most time for the collector to answer.", seconds(10)),
        }
    }
}

/// Whether OpenTelemetry's variables switch traces off.
fn is_disabled(section: &Section<'_>) -> bool {
    let says = |variable, word: &str| section.env(variable).is_some_and(|value| value.eq_ignore_ascii_case(word));
    says(DISABLED, "true") || says(EXPORTER, "none")
}

/// Refuses what a variable says, if traces are sent: a host may set it for other programs.
fn refuse_variable(section: &Section<'_>, variable: &str, what: impl Into<String>) {
    let has_endpoint =
        section.is_written("endpoint") || section.env(ENDPOINT).is_some() || section.env(TRACES_ENDPOINT).is_some();
    if has_endpoint && !is_disabled(section) {
        section.refuse_outside(variable, what);
    }
}

/// The first of these variables that is set, and its value.
fn first_set(section: &Section<'_>, variables: [&'static str; 2]) -> Option<(&'static str, String)> {
    variables.into_iter().find_map(|variable| Some((variable, section.env(variable)?)))
}

fn protocol(section: &mut Section<'_>) -> OtlpProtocol {
    let written: Option<OtlpProtocol> = section.optional(
        "protocol",
        "How traces are sent: `http/protobuf` if nothing says. `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL` and \
         `OTEL_EXPORTER_OTLP_PROTOCOL` go first.",
    );
    let found = first_set(section, PROTOCOLS).and_then(|(variable, named)| {
        let known = OtlpProtocol::WORDS.iter().find(|(word, _)| *word == named);
        if known.is_none() {
            refuse_variable(section, variable, "must be `http/protobuf` or `grpc`");
        }
        known.map(|(_, protocol)| *protocol)
    });
    if let Some(found) = &found {
        section.record("protocol", found.recorded());
    }
    found.or(written).unwrap_or(OtlpProtocol::Http)
}

/// Where traces are sent, with the path.
fn url(section: &mut Section<'_>, protocol: OtlpProtocol) -> Option<Url> {
    let written: Option<String> = section.optional(
        "endpoint",
        "Base URL of the collector, such as `\"http://localhost:4318\"`; `/v1/traces` is appended to it, unless `protocol` is \
         `grpc`. `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, which has the path, and `OTEL_EXPORTER_OTLP_ENDPOINT` go first. Without \
         any of them, or with `OTEL_SDK_DISABLED` set to `true` or `OTEL_TRACES_EXPORTER` to `none`, no traces are sent.",
    );
    let is_disabled = is_disabled(section);
    let whole = section.env(TRACES_ENDPOINT).map(|url| (TRACES_ENDPOINT, url, true));
    let named = whole.or_else(|| section.env(ENDPOINT).map(|url| (ENDPOINT, url, false)));
    let found = named.or_else(|| written.map(|url| ("endpoint", url, false)));
    let (origin, text, is_whole) = found.filter(|_| !is_disabled)?;
    match parse_endpoint(&text) {
        Ok(mut url) => {
            if origin != "endpoint" {
                section.record("endpoint", Recorded::shown(format!("\"{url}\"")));
            }
            if protocol == OtlpProtocol::Http && !is_whole {
                url.set_path(&format!("{}/v1/traces", url.path().trim_end_matches('/')));
            }
            Some(url)
        }
        Err(what) if origin == "endpoint" => {
            section.refuse(origin, what);
            None
        }
        Err(what) => {
            section.refuse_outside(origin, what);
            None
        }
    }
}

fn parse_endpoint(text: &str) -> Result<Url, String> {
    let wrong = || "must be a URL that begins with http:// or https://".to_owned();
    let url = Url::parse(text).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong());
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err("must hold neither credentials nor a query; give keys in headers_env".to_owned());
    }
    Ok(url)
}

/// What is sent with traces, such as a key.
fn headers(section: &mut Section<'_>) -> Vec<(http::HeaderName, Secret)> {
    let written: Option<String> = section.optional(
        "headers_env",
        "Environment variable that holds headers for the collector, such as `api-key=…,x-tenant=…`. \
         `OTEL_EXPORTER_OTLP_TRACES_HEADERS` and `OTEL_EXPORTER_OTLP_HEADERS` go first.",
    );
    let of_hosts = first_set(section, HEADERS).map(|(variable, _)| variable);
    let Some(variable) = of_hosts.map(str::to_owned).or(written) else {
        return Vec::new();
    };
    let Some(text) = section.env(&variable) else {
        section.refuse("headers_env", format!("the environment variable {variable} is unset or empty"));
        return Vec::new();
    };
    section.record("headers_env", Recorded::shown(format!("\"{variable}\"")));
    section.record_secret("headers_env", &text);
    parse_headers(&text).unwrap_or_else(|| {
        const WRONG: &str = "must be a list such as `name=value,name=value`";
        match of_hosts {
            Some(variable) => refuse_variable(section, variable, WRONG),
            None => section.refuse("headers_env", format!("{variable} {WRONG}")),
        }
        Vec::new()
    })
}

fn parse_headers(text: &str) -> Option<Vec<(http::HeaderName, Secret)>> {
    let pairs = parse_pairs(text)?.into_iter().map(|(name, value)| {
        http::HeaderValue::from_str(&value).ok()?;
        Some((http::HeaderName::from_bytes(name.as_bytes()).ok()?, Secret::new(value)))
    });
    pairs.collect()
}

/// What traces come from.
fn resource(section: &mut Section<'_>) -> Vec<(String, String)> {
    let service: Option<String> = section.optional(
        "service_name",
        "The name under which traces appear: `loopgate` if nothing says. `OTEL_SERVICE_NAME` goes first, then `service.name` in \
         `OTEL_RESOURCE_ATTRIBUTES`, whose other attributes traces have too.",
    );
    let mut all = match section.env(RESOURCE).map(|text| parse_pairs(&text)) {
        Some(None) => {
            refuse_variable(section, RESOURCE, "must be a list such as `name=value,name=value`");
            Vec::new()
        }
        Some(Some(pairs)) => pairs,
        None => Vec::new(),
    };
    let in_list = all.iter().position(|(name, _)| name == "service.name").map(|at| all.remove(at).1);
    let service =
        section.env(SERVICE_NAME).or(in_list).or(service).unwrap_or_else(|| env!("CARGO_PKG_NAME").to_owned());
    section.record("service_name", Recorded::shown(format!("{service:?}")));
    all.insert(0, ("service.name".to_owned(), service));
    if all.iter().all(|(name, _)| name != "service.version") {
        all.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    }
    all
}

/// A list as OpenTelemetry's variables have it: values may be percent-encoded.
fn parse_pairs(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?.into_owned();
        (!name.trim().is_empty()).then(|| (name.trim().to_owned(), value))
    });
    pairs.collect()
}

impl Word for OtlpProtocol {
    const WORDS: &'static [(&'static str, Self)] = &[("http/protobuf", Self::Http), ("grpc", Self::Grpc)];
}

impl Word for TracedContent {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("previews", Self::Previews), ("full", Self::Full)];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_opentelemetry_writes_them() {
        let pairs =
            |text| parse_pairs(text).map(|pairs| pairs.into_iter().map(|(a, b)| a + "|" + &b).collect::<Vec<_>>());
        assert_eq!(pairs("a=b, c=d%20e,").unwrap(), ["a|b", "c|d e"]);
        assert_eq!(pairs("a=b=c").unwrap(), ["a|b=c"]);
        assert_eq!(pairs("a"), None);
        assert!(parse_headers("api key=1").is_none() && parse_headers("key=a%0Ab").is_none());
    }

    #[test]
    fn an_endpoint_holds_no_credentials() {
        assert!(parse_endpoint("http://localhost:4318").is_ok());
        for bad in ["localhost:4318", "ftp://a", "http://u:p@a", "http://u@a", "http://a/?key=1", "http://a/#key"] {
            assert!(parse_endpoint(bad).is_err(), "{bad}");
        }
    }
}

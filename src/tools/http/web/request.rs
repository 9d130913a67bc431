//! `http_request`: requests of a model's own making, to hosts that the operator lists.
//!
//! The model chooses address, method, headers and body; the operator chooses hosts, methods, and headers such as keys, which the
//! model neither sees nor can replace. All of it goes through the egress guard as well, so a listed host with a private
//! address is reached only if the guard is told of it. The operator's headers are sent only where a certificate shows who listens.

use std::collections::BTreeMap;

use ::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use ::http::{Method, StatusCode};
use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use url::Url;

use crate::config::HttpRequestConfig;
use crate::net::fetch::{FetchError, FetchLimits, Fetcher, GuardedRequest, Redirects};
use crate::net::guard::{HostPattern, Hosts};
use crate::tools::builtin::{define, json_query};
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::Effect;
use crate::types::conversation::Part;

/// Headers that a model may send: they say what is wanted. Others may say who asks or by which method, and services know too many of
/// those for a list of them.
const THE_MODELS: [&str; 7] =
    ["accept", "accept-charset", "accept-language", "content-language", "content-type", "prefer", "range"];
const THE_MODELS_BEGIN: &str = "if-";

/// Headers of an answer that a model is told.
const TOLD: [&str; 6] = ["content-type", "location", "retry-after", "link", "etag", "last-modified"];

/// The tool.
pub struct HttpRequest {
    spec: ToolSpec,
    fetcher: Fetcher,
    limits: FetchLimits,
    hosts: Hosts,
    methods: Vec<Method>,
    credentials: HeaderMap,
}

impl std::fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpRequest")
            .field("hosts", &self.hosts)
            .field("methods", &self.methods)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Arguments<'a> {
    url: String,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, borrow)]
    body: Option<&'a RawValue>,
    #[serde(default)]
    select: Option<String>,
}

impl HttpRequest {
    /// One that asks through `fetcher`.
    pub(super) fn new(config: &HttpRequestConfig, fetcher: Fetcher) -> Self {
        let hosts = config.hosts.iter().map(HostPattern::written).collect::<Vec<_>>().join(", ");
        let description = format!(
            "Sends an HTTP request and returns the status and body of the answer. It may go to these hosts: {hosts}."
        );
        let methods: Vec<&str> = config.methods.iter().map(Method::as_str).collect();
        let parameters = json!({
            "type": "object",
            "properties": {
                "url": {"type": "string", "description": "The whole address, with its query"},
                "method": {"enum": methods, "description": format!("{} if absent", methods[0])},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                "body": {"description": "What is sent: a text as it is, anything else as JSON"},
                "select": {"type": "string", "description": "A JMESPath expression that selects what is needed of a JSON answer"},
            },
            "required": ["url"],
            "additionalProperties": false,
        });
        let parameters = to_raw_value(&parameters).expect("a value of JSON is always JSON text");
        let only_reads = config.methods.iter().all(Method::is_safe);
        let effect = config.effect.unwrap_or(if only_reads { Effect::Read } else { Effect::Write });
        let mut credentials = HeaderMap::new();
        for (name, value) in &config.headers {
            // One that cannot be sent is a mistake of the configuration.
            let Ok(mut value) = HeaderValue::from_str(value.expose()) else { continue };
            value.set_sensitive(true);
            credentials.insert(name.clone(), value);
        }
        let limits = FetchLimits {
            max_body: usize::try_from(config.max_response).unwrap_or(usize::MAX),
            timeout: config.timeout,
            redirects: Redirects::SameOrigin,
            content_types: None,
        };
        let spec = ToolSpec {
            description,
            parameters,
            effect,
            timeout: Some(config.timeout),
            ..define::spec("http_request", "", "{}")
        };
        let (hosts, methods) = (config.hosts.iter().cloned().collect(), config.methods.clone());
        Self { spec, fetcher, limits, hosts, methods, credentials }
    }

    fn request(&self, arguments: &Arguments<'_>, context: &CallContext) -> Result<GuardedRequest, String> {
        let url = self.fetcher.guard().parse(arguments.url.trim()).map_err(|refusal| refusal.to_string())?;
        if !self.credentials.is_empty() && !self.is_certain(&url) {
            return Err("the address must begin with https:// and name no port".to_owned());
        }
        let method = match &arguments.method {
            None => &self.methods[0],
            Some(name) => {
                let known = self.methods.iter().find(|method| method.as_str() == name);
                known.ok_or_else(|| format!("the method {name:?} is not allowed"))?
            }
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &arguments.headers {
            let (name, value) = header(name, value)?;
            if self.credentials.contains_key(&name) {
                return Err(format!("the header {name} is set by the operator"));
            }
            headers.append(name, value);
        }
        let (body, kind) = match arguments.body.map(|body| (body, serde_json::from_str::<String>(body.get()))) {
            None => (Bytes::new(), None),
            Some((_, Ok(text))) => (Bytes::from(text), Some("text/plain; charset=utf-8")),
            Some((json, Err(_))) => (Bytes::copy_from_slice(json.get().as_bytes()), Some("application/json")),
        };
        if let Some(kind) = kind {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
        }
        if !method.is_safe()
            && let Ok(id) = HeaderValue::from_str(context.call.as_str())
        {
            headers.insert("idempotency-key", id);
        }
        Ok(GuardedRequest {
            method: method.clone(),
            url,
            headers,
            credentials: self.credentials.clone(),
            body,
            limits: self.limits.clone(),
            only: Some(self.hosts.clone()),
        })
    }

    /// Whether it is certain that the host meant by the operator gets what is sent. The model chooses scheme and port: without
    /// TLS others hear it, and at another port another service of the host may. The operator vouches for hosts of its own network.
    fn is_certain(&self, url: &Url) -> bool {
        let is_own = url.host_str().is_some_and(|host| self.fetcher.guard().policy().private_hosts.name(host));
        is_own || (url.scheme() == "https" && url.port().is_none())
    }

    /// A failure after which it is not known whether the request took effect is another than one that had none.
    fn failed(&self, method: &Method, error: &FetchError) -> ToolError {
        if error.was_sent && !method.is_safe() && self.spec.effect != Effect::Read {
            return ToolError::Lost(format!("The request was sent, and its answer is lost: {error}."));
        }
        ToolError::Failed(format!("The request got no answer: {error}."))
    }
}

#[async_trait]
impl Tool for HttpRequest {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        let arguments: Arguments<'_> = define::decode(arguments)?;
        let request = self
            .request(&arguments, context)
            .map_err(|reason| ToolError::Failed(format!("The request was not sent: {reason}.")))?;
        let method = request.method.clone();
        let answer = self.fetcher.fetch(request).await.map_err(|error| self.failed(&method, &error))?;
        let (status, headers) = (answer.status, answer.headers.clone());
        let (body, was_cut) = answer.body.up_to_cap().await.map_err(|error| self.failed(&method, &error))?;
        let text = tell(status, &headers, &body, was_cut, arguments.select.as_deref());
        Ok(ToolAnswer {
            parts: vec![Part::text(text)],
            is_error: status.is_client_error() || status.is_server_error(),
            bytes: body.len() as u64,
            status: Some(status.as_u16()),
            ..ToolAnswer::default()
        })
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let shown: String = name.chars().take(100).collect();
    let parsed =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{shown:?} is not the name of a header"))?;
    let lower = parsed.as_str();
    if !THE_MODELS.contains(&lower) && !lower.starts_with(THE_MODELS_BEGIN) {
        let those = THE_MODELS.join(", ");
        return Err(format!("the header {lower} is not for you to send; {those} and those that begin with if- are"));
    }
    let value = HeaderValue::from_str(value).map_err(|_| format!("the value of the header {lower} cannot be sent"))?;
    Ok((parsed, value))
}

/// The answer in words: its status, a few headers, and its body or what is selected of it.
fn tell(status: StatusCode, headers: &HeaderMap, body: &[u8], was_cut: bool, select: Option<&str>) -> String {
    let shown = TOLD.iter().filter_map(|name| {
        let value = headers.get(*name)?.to_str().ok()?;
        Some(format!("{name}: {}\n", value.chars().take(500).collect::<String>()))
    });
    let note = if was_cut { "\n\n[The answer is longer; the rest was not read.]" } else { "" };
    format!("{status}\n{}\n{}{note}", shown.collect::<String>(), content(body, was_cut, select))
}

fn content(body: &[u8], was_cut: bool, select: Option<&str>) -> String {
    match (std::str::from_utf8(body), select) {
        (Ok(text), Some(query)) if !was_cut => match serde_json::from_str::<&RawValue>(text) {
            Ok(json) => match json_query::select(query, json) {
                Ok(selected) => selected.get().to_owned(),
                Err(why) => format!("{text}\n\n[All of it, as nothing could be selected. {why}]"),
            },
            Err(_) => format!("{text}\n\n[All of it: it is no JSON, of which something could be selected.]"),
        },
        (Ok(text), _) => text.to_owned(),
        (Err(error), _) if error.error_len().is_none() => String::from_utf8_lossy(&body[..error.valid_up_to()]).into(),
        (Err(_), _) if body.contains(&0) => format!("[{} bytes that are no text]", body.len()),
        (Err(_), _) => String::from_utf8_lossy(body).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Secret;
    use crate::net::guard::{Guard, Policy};
    use crate::tools::testing::context;

    fn tool(headers: Vec<(HeaderName, Secret)>) -> HttpRequest {
        let host = |name: &str| -> HostPattern { name.parse().unwrap() };
        let config = HttpRequestConfig {
            hosts: vec![host("api.example.com"), host("wiki.internal")],
            methods: vec![Method::GET],
            effect: None,
            headers,
            timeout: Duration::from_secs(1),
            max_response: 1_000,
        };
        let policy = Policy {
            ports: vec![80, 443, 8443],
            private_hosts: [host("wiki.internal")].into_iter().collect(),
            ..Policy::default()
        };
        HttpRequest::new(&config, Fetcher::new(Guard::new(policy)).unwrap())
    }

    #[test]
    fn what_the_operator_sends_goes_only_where_it_is_certain_who_listens() {
        let with = tool(vec![(HeaderName::from_static("x-key"), Secret::new("hush"))]);
        let without = tool(Vec::new());
        for (url, is_certain) in [
            ("https://api.example.com/a", true),
            ("https://api.example.com:443/a", true),
            ("http://wiki.internal/a", true),
            ("https://wiki.internal:8443/a", true),
            ("http://api.example.com/a", false),
            ("http://api.example.com:443/a", false),
            ("https://api.example.com:8443/a", false),
        ] {
            let json = RawValue::from_string(json!({"url": url}).to_string()).unwrap();
            let arguments: Arguments<'_> = serde_json::from_str(json.get()).unwrap();
            let asked = |tool: &HttpRequest| tool.request(&arguments, &context(Duration::from_secs(1)));
            assert_eq!(asked(&with).is_ok(), is_certain, "{url}");
            assert!(asked(&without).is_ok(), "{url}");
        }
    }

    #[test]
    fn headers_that_are_not_the_models_are_refused() {
        for name in [
            "Authorization",
            "cookie",
            "Host",
            "X-Forwarded-For",
            "proxy-authorization",
            "x-loopgate-fence",
            "X-HTTP-Method-Override",
            "X-HTTP-Method",
            "X-Method-Override",
            "X-Real-IP",
            "X-Original-URL",
            "X-Rewrite-URL",
            "X-Client-IP",
            "True-Client-IP",
            "CF-Connecting-IP",
            "Metadata-Flavor",
            "X-aws-ec2-metadata-token",
            "X-aws-ec2-metadata-token-ttl-seconds",
            "api-key",
            "x-goog-api-key",
            "via",
            "accept-encoding",
            "a b",
            "",
        ] {
            assert!(header(name, "x").is_err(), "{name}");
        }
        for name in ["Accept", "accept-language", "Content-Type", "If-None-Match", "range", "Prefer"] {
            assert!(header(name, "x").is_ok(), "{name}");
        }
        assert!(header("accept", "text/plain").is_ok() && header("accept", "a\r\nb: c").is_err());
    }

    #[test]
    fn an_answer_is_told_with_its_status_and_in_part() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("set-cookie", HeaderValue::from_static("secret"));
        let body = br#"{"items": [{"id": 1}, {"id": 2}]}"#;
        let of = |select, was_cut| tell(StatusCode::OK, &headers, body, was_cut, select);
        assert_eq!(of(Some("items[*].id"), false), "200 OK\ncontent-type: application/json\n\n[1,2]");
        assert!(of(None, false).ends_with("{\"items\": [{\"id\": 1}, {\"id\": 2}]}"));
        assert!(of(Some("items["), false).contains("nothing could be selected"));
        assert!(of(Some("items"), true).ends_with("the rest was not read.]"));
        assert!(tell(StatusCode::OK, &headers, b"\0\x01\xff", false, None).ends_with("[3 bytes that are no text]"));
        assert!(tell(StatusCode::OK, &headers, "é".as_bytes().split_at(1).0, true, None).contains("the rest"));
    }
}

//! Tools that are HTTP endpoints of the operator's choice.
//!
//! The operator decides where a request goes and which headers it has. The model fills in parameters
//! and cannot leave the path and query that were meant for them. Redirects are not followed, so the
//! headers reach no other server.

mod answer;
mod declared;
mod identity;
mod template;

use std::fmt;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use ::http::{Method, Request, StatusCode, Uri};
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::value::RawValue;

use crate::config::{HttpToolConfig, Identity, SentIdentity};
use crate::failpoint;
use crate::net::client::{CannotConnect, HttpClient, Reach, common_headers};
use crate::net::correlation::Correlation;
use crate::tools::http::answer::{Answer, Unreadable};
use crate::tools::http::declared::Declared;
use crate::tools::http::template::{Arguments, Template};
use crate::tools::{CallContext, Source, Told, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::conversation::Part;
use crate::types::{TraceContext, TraceParent};

/// Why a tool cannot be set up, in one sentence without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HttpToolError(pub String);

/// Most time for opening a connection: that a service cannot be reached is known before a call's time is up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an unused connection is kept: less than common servers do. One that a server closes just as a request
/// is sent on it leaves it open whether the request arrived.
const KEEP_IDLE: Duration = Duration::from_secs(4);

/// The client that all HTTP tools share. It goes through no proxy.
pub fn client() -> Result<HttpClient, CannotConnect> {
    HttpClient::new(&Reach { connect_timeout: Some(CONNECT_TIMEOUT), keep_idle: Some(KEEP_IDLE), ..Reach::default() })
}

/// A tool that is an HTTP endpoint.
pub struct HttpTool {
    spec: ToolSpec,
    method: Method,
    template: Template,
    declared: Declared,
    headers: HeaderMap,
    send_identity: SentIdentity,
    max_response_bytes: usize,
    client: HttpClient,
}

impl HttpTool {
    /// A tool that sends its requests with `client`, which should be one that [`client`] made.
    pub fn new(config: &HttpToolConfig, client: HttpClient) -> Result<Self, HttpToolError> {
        let HttpToolConfig {
            name,
            description,
            method,
            url,
            effect,
            headers,
            send_identity,
            parameters,
            timeout,
            max_response,
        } = config.clone();
        if arguments_go(&method).is_none() {
            return Err(HttpToolError(format!(
                "the method {method} is not one of GET, HEAD, DELETE, POST, PUT, PATCH"
            )));
        }
        let template = Template::parse(&url).map_err(HttpToolError)?;
        let declared = Declared::by(&parameters);
        if let Some(unknown) = template.parameters().find(|name| !declared.names(name)) {
            return Err(HttpToolError(format!("the URL names `{{{unknown}}}`, which the parameters do not declare")));
        }
        let headers = headers.into_iter().map(|(name, value)| {
            let sent = HeaderValue::from_str(value.expose());
            let mut sent = sent.map_err(|_| HttpToolError(format!("the header {name} cannot be sent")))?;
            sent.set_sensitive(true);
            Ok((name, sent))
        });
        let own = headers.collect::<Result<HeaderMap, _>>()?;
        let mut headers = common_headers();
        headers.extend(own);
        let max_response_bytes = usize::try_from(max_response).unwrap_or(usize::MAX);
        let spec = ToolSpec { name, description, parameters, effect, timeout, source: Source::Http };
        Ok(Self { spec, method, template, declared, headers, send_identity, max_response_bytes, client })
    }

    fn request(&self, raw: &RawValue, context: &CallContext) -> Result<Request<Bytes>, ToolError> {
        let unreadable = |error| ToolError::Failed(format!("The arguments cannot be read: {error}. Nothing was sent."));
        let mut arguments: Arguments = serde_json::from_str(raw.get()).map_err(unreadable)?;
        // Nested too deep, or a number too large, they are JSON and yet no values that can be looked into.
        let values = serde_json::from_str(raw.get()).map_err(unreadable)?;
        if let Some(unknown) = self.declared.undeclared(&values) {
            return Err(ToolError::Failed(format!("The tool has no parameter `{unknown}`. Nothing was sent.")));
        }
        let mut url = self.template.fill(&mut arguments).map_err(ToolError::Failed)?;
        let mut body = None;
        match arguments_go(&self.method) {
            Some(Place::Body) => body = Some(serde_json::to_vec(&arguments).expect("JSON encodes as JSON")),
            Some(Place::Query) | None => template::append_query(&mut url, &arguments),
        }
        let uri = Uri::try_from(String::from(url))
            .map_err(|_| ToolError::Failed("The arguments do not make up a URL.".into()))?;
        let (mut request, mut headers) = (Request::new(Bytes::new()), self.headers.clone());
        self.add_headers(&mut headers, context)?;
        if let Some(body) = body {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            *request.body_mut() = Bytes::from(body);
        }
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (self.method.clone(), uri, headers);
        Ok(request)
    }

    /// Adds what the service should know of the call.
    fn add_headers(&self, headers: &mut HeaderMap, context: &CallContext) -> Result<(), ToolError> {
        let id = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| ToolError::Failed("The call's id fits no header.".into()))
        };
        headers.insert("idempotency-key", id(context.call.as_str())?);
        headers.insert("x-loopgate-call-id", id(context.call.as_str())?);
        headers.insert("x-loopgate-run-id", id(context.run.as_str())?);
        headers.insert("x-loopgate-step", HeaderValue::from(context.step));
        headers.insert("x-loopgate-fence", HeaderValue::from(context.fence));
        let remaining_ms = u64::try_from(context.timeout.as_millis()).unwrap_or(u64::MAX);
        headers.insert("x-loopgate-deadline-ms", HeaderValue::from(remaining_ms));
        let parent = context.trace.as_ref().map(TraceContext::parent);
        let correlation = Correlation {
            trace_parent: parent.as_ref().map(TraceParent::as_str),
            trace_state: context.trace.as_ref().and_then(|trace| trace.state.as_deref()),
            request_id: context.request_id.as_deref(),
        };
        correlation.add_to(headers);
        identity::add(headers, &self.send_identity, context)
    }
}

#[async_trait]
impl Tool for HttpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn tells_caller(&self) -> bool {
        self.send_identity != SentIdentity::default()
    }

    fn too_long(&self, told: Told<'_>) -> Option<Identity> {
        identity::too_long(&self.send_identity, told)
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        let request = self.request(arguments, context)?;
        let name = &self.spec.name;
        let response = self.client.send(request).await.map_err(|error| {
            // Of all failures only this one is certain to have come before the service got the request.
            let was_reached = !error.is_connect();
            tracing::warn!(run = %context.run, call = %context.call, tool = name, was_reached, %error, "an HTTP tool gave no answer");
            // A server that refuses us later has not read the request, as far as it keeps to the rules.
            if error.is_tls() && !was_reached {
                ToolError::Failed(format!(
                    "The service behind `{name}` cannot be trusted or understood in TLS. Nothing was sent."
                ))
            } else if was_reached {
                ToolError::Lost(format!(
                    "The service behind `{name}` was called, and the connection broke before it answered."
                ))
            } else {
                ToolError::Failed(format!("The service behind `{name}` could not be reached. Nothing was sent."))
            }
        })?;
        failpoint::hit("tool.answering");
        let status = response.status;
        let answer = answer::read(response, self.max_response_bytes).await.map_err(|error| {
            let why = match error {
                Unreadable::Broken(error) => {
                    tracing::warn!(run = %context.run, call = %context.call, tool = name, %error, "an HTTP tool's answer broke off");
                    format!("The service behind `{name}` broke off its answer, HTTP {status}.")
                }
                Unreadable::Compressed(encoding) => format!(
                    "The service behind `{name}` answered HTTP {status}, but compressed its answer ({encoding}), which \
                     was not asked for and cannot be read."
                ),
            };
            // A status of failure says what came of the call, whatever its reasons were. One of success does not: only
            // the body may tell that the service did nothing.
            if status.is_success() || is_of_gateway(status) { ToolError::Lost(why) } else { ToolError::Failed(why) }
        })?;
        if is_of_gateway(status) {
            let page = answer.part.map_or_else(String::new, |part| format!(": {}", clip(&part.in_words())));
            return Err(ToolError::Lost(format!(
                "The service behind `{name}` was called, and its answer did not arrive. HTTP {status}{page}"
            )));
        }
        Ok(judge(status, answer))
    }
}

/// Where the arguments that the URL does not name are sent.
enum Place {
    Query,
    Body,
}

fn arguments_go(method: &Method) -> Option<Place> {
    match *method {
        Method::GET | Method::HEAD | Method::DELETE => Some(Place::Query),
        Method::POST | Method::PUT | Method::PATCH => Some(Place::Body),
        _ => None,
    }
}

/// Whether a gateway answers in place of the service, which it asked and of which it got no answer that it could pass on.
/// So it is unknown what the service did. With 503, 429 and 425 a service or gateway says that it does not do what it was
/// asked, and with 408 that it never got all of it.
fn is_of_gateway(status: StatusCode) -> bool {
    // A widespread gateway says 520, 522 or 524 in place of 502 and 504.
    matches!(status.as_u16(), 502 | 504 | 520 | 522 | 524)
}

/// The beginning of a gateway's page.
fn clip(page: &str) -> &str {
    const MOST: usize = 1_000;
    &page[..page.floor_char_boundary(MOST)]
}

/// What the model is told of an answer, by its status.
fn judge(status: StatusCode, Answer { part, bytes }: Answer) -> ToolAnswer {
    let part = match (status, part) {
        (status, _) if status.is_redirection() => {
            Part::text(format!("HTTP {status}: the service redirects elsewhere, which is not followed."))
        }
        (status, None) => Part::text(format!("HTTP {status}, without content.")),
        (status, Some(part)) if status.is_success() => part,
        (status, Some(part)) => Part::text(format!("HTTP {status}: {}", part.in_words())),
    };
    let is_error = !status.is_success();
    ToolAnswer { parts: vec![part], is_error, bytes, status: Some(status.as_u16()), ..ToolAnswer::default() }
}

impl fmt::Debug for HttpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTool").field("name", &self.spec.name).field("method", &self.method).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! Tools that are HTTP endpoints of the operator's choice.
//!
//! The operator decides where a request goes and which headers it has. The model fills in parameters
//! and cannot leave the path and query that were meant for them. Redirects are not followed, so the
//! headers reach no other server.

mod answer;
mod declared;
mod fill;
mod identity;
pub mod later;
pub mod openapi;
mod service;
mod streamed;
mod template;
pub mod web;

use std::fmt;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Method, Request, Uri};
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use url::Url;

use crate::config::{BodyType, HttpToolConfig, Identity, RequestTemplates};
use crate::net::client::{CannotConnect, HttpClient, Reach};
pub use crate::tools::http::answer::parts_of;
use crate::tools::http::declared::Declared;
use crate::tools::http::later::AnswersLater;
pub use crate::tools::http::service::HttpToolError;
use crate::tools::http::service::Service;
use crate::tools::http::template::{Arguments, Template};
use crate::tools::{CallContext, Source, Told, Tool, ToolAnswer, ToolError, ToolSpec};

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
    /// Where else arguments go.
    templates: RequestTemplates,
    declared: Declared,
    service: Service,
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
            parameters,
            templates,
            timeout,
            answers_later,
            ..
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
        if let Some(unknown) = templates.arguments().into_iter().find(|name| !declared.names(name)) {
            return Err(HttpToolError(format!(
                "a template names `{{{unknown}}}`, which the parameters do not declare"
            )));
        }
        let service = Service::new(client, &config.headers, config.send_identity.clone(), config.max_response)?
            .answering_later(answers_later.as_ref().map(AnswersLater::new));
        let spec = ToolSpec { name, description, parameters, effect, timeout, source: Source::Http };
        Ok(Self { spec, method, template, templates, declared, service })
    }

    fn request(&self, raw: &RawValue, context: &CallContext) -> Result<Request<Bytes>, ToolError> {
        let mut arguments: Arguments = serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
        looked_into(raw, &self.declared)?;
        self.templates.body.as_ref().map_or(Ok(()), |_| self.refuse_unplaced(&arguments))?;
        let filled = fill::fill(&self.templates, &arguments).map_err(ToolError::Failed)?;
        let mut url = self.template.fill(&mut arguments).map_err(ToolError::Failed)?;
        for name in self.templates.arguments() {
            arguments.remove(name);
        }
        if !filled.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&filled.query);
        }
        let body = if self.templates.body.is_some() { filled.body } else { self.rest(&mut url, &arguments)? };
        let uri = Uri::try_from(String::from(url))
            .map_err(|_| ToolError::Failed("The arguments do not make up a URL.".into()))?;
        let (mut request, mut headers) = (Request::new(Bytes::new()), self.service.headers(context)?);
        // To extend them by nothing would make them larger too.
        if !filled.headers.is_empty() {
            headers.extend(filled.headers);
        }
        if let Some((kind, body)) = body {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
            *request.body_mut() = body;
        }
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (self.method.clone(), uri, headers);
        Ok(request)
    }

    /// Refuses arguments that no template names, where nothing else is sent: patterns of names may have declared them.
    fn refuse_unplaced(&self, arguments: &Arguments) -> Result<(), ToolError> {
        let named = self.templates.arguments();
        let is_placed = |name: &&String| {
            named.contains(name.as_str()) || self.template.parameters().any(|parameter| parameter == *name)
        };
        match arguments.keys().find(|name| !is_placed(name)) {
            None => Ok(()),
            Some(name) => {
                Err(ToolError::Failed(format!("The argument `{name}` has no place in the request. Nothing was sent.")))
            }
        }
    }

    /// Writes the arguments that nothing names, where there is no template for the body: as a body with its media type, or into the query.
    fn rest(&self, url: &mut Url, arguments: &Arguments) -> Result<Option<(&'static str, Bytes)>, ToolError> {
        match (arguments_go(&self.method), self.templates.body_type) {
            (Some(Place::Body), BodyType::Form) => {
                Ok(Some(("application/x-www-form-urlencoded", fill::form(arguments))))
            }
            (Some(Place::Body), BodyType::Json | BodyType::Text) => {
                let body = serde_json::to_vec(arguments).expect("JSON encodes as JSON");
                Ok(Some(("application/json", body.into())))
            }
            (Some(Place::Query) | None, _) => {
                fill::refuse_taken(&self.templates, arguments).map_err(ToolError::Failed)?;
                template::append_query(url, arguments);
                Ok(None)
            }
        }
    }
}

#[async_trait]
impl Tool for HttpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn tells_caller(&self) -> bool {
        self.service.tells_caller()
    }

    fn too_long(&self, told: Told<'_>) -> Option<Identity> {
        identity::too_long(&self.service.send_identity, told)
    }

    fn answers_within(&self) -> Option<Duration> {
        self.service.answers_within()
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        let request = self.request(arguments, context)?;
        self.service.call(&self.spec.name, request, context).await
    }
}

/// The arguments as values, if all of them are declared.
fn looked_into(raw: &RawValue, declared: &Declared) -> Result<Map<String, Value>, ToolError> {
    // Nested too deep, or a number too large, they are JSON and yet no values that can be looked into.
    let values = serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
    match declared.undeclared(&values) {
        Some(unknown) => Err(ToolError::Failed(format!("The tool has no parameter `{unknown}`. Nothing was sent."))),
        None => Ok(values),
    }
}

fn unreadable(error: &serde_json::Error) -> ToolError {
    ToolError::Failed(format!("The arguments cannot be read: {error}. Nothing was sent."))
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

impl fmt::Debug for HttpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTool").field("name", &self.spec.name).field("method", &self.method).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! Tools from an OpenAPI document: each operation is a tool.
//!
//! The operator vouches for the document, but seldom wrote it. So what is not understood in it costs the operation in which it
//! stands, and nothing else.
//!
//! | file | holds |
//! | --- | --- |
//! | `fetch` | asks the operator's URL for a document |
//! | `document` | parses a document, and follows its references |
//! | `tree` | parses JSON of which little may become much |
//! | `budget` | how much may be made of a document |
//! | `operation` | the operations in it |
//! | `server` | which servers an operation may have |
//! | `input` | where each argument of an operation goes |
//! | `schema` | schemas of a document as JSON schemas |
//! | `write` | a call's arguments as a request |

mod budget;
mod document;
mod fetch;
mod input;
mod operation;
mod schema;
mod server;
#[cfg(test)]
mod tests;
mod tree;
mod write;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, COOKIE};
use ::http::{Method, Request, Uri};
use async_trait::async_trait;
use serde_json::value::RawValue;

use self::document::Document;
pub use self::fetch::fetch;
use self::input::{Input, Place};
pub use self::operation::Skipped;
use self::operation::{Operation, Operations};
use self::server::Servers;
use super::declared::Declared;
use super::later::AnswersLater;
use super::service::{HttpToolError, Service};
use super::{identity, looked_into};
use crate::config::{Identity, OpenApiConfig, Secret};
use crate::net::client::HttpClient;
use crate::tools::registry::is_tool_name;
use crate::tools::{CallContext, Source, Told, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::Effect;
use crate::types::pattern::matches;

/// Longest name of a tool.
const MAX_NAME: usize = 64;

/// What a document became.
#[derive(Debug)]
pub struct OpenApiTools {
    /// A tool for each operation, in the order of the document.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The operations that became none.
    pub skipped: Vec<Skipped>,
}

/// Makes tools of a document, which send their requests with `client`. Fails if the document as a whole cannot be used.
pub fn tools(config: &OpenApiConfig, client: &HttpClient) -> Result<OpenApiTools, HttpToolError> {
    let document = config.document.as_deref().ok_or_else(|| HttpToolError("its document was not fetched".into()))?;
    let document = Document::parse(document).map_err(|what| HttpToolError(format!("its document {what}")))?;
    let is_wanted = |name: &str| {
        let named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (config.include.is_empty() || named(&config.include)) && !named(&config.exclude)
    };
    let Operations { usable, mut skipped } = operation::read(&document, &is_wanted, &|input| is_given(config, input));
    let service = Service::new(client.clone(), &config.headers, config.send_identity.clone(), config.max_response)?;
    let servers = Servers::of(&document, config);
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    let mut names = BTreeSet::new();
    for operation in usable {
        let id = operation.name.clone();
        let made = servers
            .base(operation.server.as_ref())
            .and_then(|base| OpenApiTool::new(config, operation, base, service.clone()));
        match made {
            Ok(tool) if names.insert(tool.spec.name.clone()) => tools.push(Arc::new(tool)),
            Ok(_) => skipped.push(Skipped { operation: id, reason: "another operation has its name".to_owned() }),
            Err(reason) => skipped.push(Skipped { operation: id, reason }),
        }
    }
    Ok(OpenApiTools { tools, skipped })
}

/// Whether requests have this parameter anyway, because the operator gives it.
fn is_given(config: &OpenApiConfig, input: &Input) -> bool {
    let has_header = |name: &str| config.headers.iter().any(|(own, _)| own.as_str().eq_ignore_ascii_case(name));
    match input.place {
        Place::Header { .. } => has_header(&input.name),
        Place::Cookie => has_header(COOKIE.as_str()),
        Place::Query(_) | Place::JsonInQuery => config.query.iter().any(|(own, _)| *own == input.name),
        Place::Path { .. } | Place::Member | Place::Body => false,
    }
}

/// A tool that is an operation of a document.
struct OpenApiTool {
    spec: ToolSpec,
    operation: Operation,
    base: String,
    query: Vec<(String, Secret)>,
    declared: Declared,
    service: Service,
}

impl OpenApiTool {
    fn new(config: &OpenApiConfig, operation: Operation, base: String, service: Service) -> Result<Self, String> {
        let name = format!("{}__{}", config.name, operation.name);
        let name = if name.len() <= MAX_NAME { name } else { shortened(&name) };
        if !is_tool_name(&name) {
            return Err("its name is none that a tool may have".to_owned());
        }
        let spec = ToolSpec {
            name,
            description: operation.description.clone(),
            parameters: operation.parameters.clone(),
            effect: config.effects.of(&operation.name).unwrap_or_else(|| by_method(&operation.method)),
            timeout: config.timeout,
            source: Source::OpenApi,
        };
        let declared = Declared::by(&spec.parameters);
        let answers_later = config.answer_later(&operation.name).map(AnswersLater::new);
        let service = service.answering_later(answers_later);
        Ok(Self { spec, operation, base, query: config.query.clone(), declared, service })
    }

    fn request(&self, raw: &RawValue, context: &CallContext) -> Result<Request<bytes::Bytes>, ToolError> {
        let arguments = looked_into(raw, &self.declared)?;
        let Operation { path, inputs, method, .. } = &self.operation;
        let call = context.call.as_str();
        let written = write::write(call, &self.base, path, inputs, &self.query, &arguments);
        let mut written = written.map_err(ToolError::Failed)?;
        for (name, value) in &self.query {
            written.url.query_pairs_mut().append_pair(name, value.expose());
        }
        let uri = Uri::try_from(written.url.as_str())
            .map_err(|_| ToolError::Failed("The arguments do not make up a URL.".into()))?;
        let mut headers = self.service.headers(context)?;
        for (name, value) in &written.headers {
            // The body says of which type it is; all else that is said already is not for arguments to say.
            if name != CONTENT_TYPE && headers.contains_key(name) {
                return Err(ToolError::Failed(format!("The header {name} is set already. Nothing was sent.")));
            }
            headers.insert(name, value.clone());
        }
        let mut request = Request::new(written.body);
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method.clone(), uri, headers);
        Ok(request)
    }
}

/// What repeating an operation does, as its method promises.
fn by_method(method: &Method) -> Effect {
    match *method {
        Method::GET | Method::HEAD => Effect::Read,
        Method::PUT | Method::DELETE => Effect::Idempotent,
        _ => Effect::Write,
    }
}

/// The beginning of a name, and a mark that tells it from others with the same beginning.
fn shortened(name: &str) -> String {
    const MARK: usize = 8;
    let mark = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(name.as_bytes()));
    format!("{}_{}", &name[..MAX_NAME - MARK - 1], &mark[..MARK])
}

#[async_trait]
impl Tool for OpenApiTool {
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

impl fmt::Debug for OpenApiTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { method, path, .. } = &self.operation;
        f.debug_struct("OpenApiTool")
            .field("name", &self.spec.name)
            .field("method", method)
            .field("path", path)
            .finish_non_exhaustive()
    }
}

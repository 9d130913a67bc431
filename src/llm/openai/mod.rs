//! Upstreams that speak OpenAI's chat completions.
//!
//! | file | holds |
//! | --- | --- |
//! | `request` | a model request as a body |
//! | `answer` | the response while it arrives: timeouts, kinds of answers |
//! | `decode` | bytes into deltas and a turn, without I/O |
//! | `chunk`, `assemble` | one chunk's meaning; chunks into a turn |
//! | `messages`, `tools`, `sampling` | what a request holds, as JSON and back |
//! | `object` | JSON objects, written member by member |
//! | `fault`, `failure` | what can be wrong with an answer; what an upstream's errors mean |
//!
//! Retries are not here: see [`retry`](super::retry).

mod answer;
mod assemble;
mod chunk;
pub mod decode;
mod failure;
pub mod fault;
pub mod messages;
mod object;
mod request;
pub mod sampling;
pub mod tools;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use async_stream::try_stream;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::Client;
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

use self::answer::Answer;
use self::fault::Fault;
use self::request::OutputBound;
use super::{Delta, DeltaStream, Model, ModelError, ModelErrorKind, ModelRequest};
use crate::config::{OpenAiUpstream, Secret};

/// Longest message of an error, in characters.
const MAX_MESSAGE: usize = 500;
/// The wait before an attempt that need not wait.
const AT_ONCE: Duration = Duration::from_millis(1);
/// How long the list of models may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest list of models, in bytes.
const MAX_LIST: usize = 1 << 20;

/// Why an upstream cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenAiError {
    /// Another scheme than HTTP.
    #[error("the base_url must begin with http:// or https://")]
    BaseUrl,
    /// The key holds line ends or other control characters.
    #[error("the key holds characters that no header can carry")]
    ApiKey,
}

/// A model at an OpenAI-compatible upstream.
#[derive(Debug, Clone)]
pub struct OpenAiModel {
    upstream: Arc<Upstream>,
    recovers_text_tool_calls: bool,
}

impl OpenAiModel {
    /// Sets an upstream up. Nothing is sent yet. `client` comes from
    /// [`http_client`](super::http::http_client), which decides on connecting.
    pub fn new(name: &str, config: &OpenAiUpstream, client: Client) -> Result<Self, OpenAiError> {
        let OpenAiUpstream { base_url, first_byte_timeout, idle_timeout, .. } = config.clone();
        if !matches!(base_url.scheme(), "http" | "https") {
            return Err(OpenAiError::BaseUrl);
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        if let Some(key) = &config.api_key {
            let bearer = format!("Bearer {}", key.expose());
            let mut bearer = HeaderValue::try_from(bearer).map_err(|_| OpenAiError::ApiKey)?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let upstream = Upstream {
            name: name.to_owned(),
            completions: endpoint(&base_url, &["chat", "completions"]),
            models: endpoint(&base_url, &["models"]),
            headers,
            api_key: config.api_key.clone(),
            bound: output_bound(&base_url),
            first_byte_timeout,
            idle_timeout,
            client,
        };
        Ok(Self { upstream: Arc::new(upstream), recovers_text_tool_calls: config.recover_text_tool_calls })
    }

    /// The names of the models that the upstream offers; takes at most 5 seconds.
    async fn ask_for_models(&self) -> Result<Vec<String>, ModelError> {
        let upstream = &self.upstream;
        let list = upstream.list_models();
        tokio::time::timeout(LIST_TIMEOUT, list)
            .await
            .unwrap_or_else(|_| Err(upstream.error(ModelErrorKind::Timeout, "did not list its models in time")))
    }
}

impl Model for OpenAiModel {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<String>, ModelError>> {
        Box::pin(self.ask_for_models())
    }

    fn stream(&self, request: ModelRequest) -> DeltaStream {
        let upstream = Arc::clone(&self.upstream);
        Box::pin(try_stream! {
            let post = upstream.post(&request);
            let deadline = request.deadline;
            drop(request);
            let mut answer = Answer::request(upstream, post, deadline).await?;
            let mut deltas = Vec::new();
            loop {
                let more = answer.read(&mut deltas).await;
                for delta in deltas.drain(..) {
                    yield delta;
                }
                if !more? {
                    break;
                }
            }
            yield Delta::Finished(Box::new(answer.finish()?));
        })
    }

    fn recovers_text_tool_calls(&self) -> bool {
        self.recovers_text_tool_calls
    }
}

/// An upstream, ready to be asked.
struct Upstream {
    name: String,
    completions: Url,
    models: Url,
    headers: HeaderMap,
    api_key: Option<Secret>,
    bound: OutputBound,
    first_byte_timeout: Duration,
    idle_timeout: Duration,
    client: Client,
}

impl Upstream {
    fn post(&self, request: &ModelRequest) -> reqwest::RequestBuilder {
        self.client
            .post(self.completions.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(request::body(request, self.bound))
    }

    async fn list_models(&self) -> Result<Vec<String>, ModelError> {
        #[derive(Deserialize)]
        struct List {
            data: Option<Vec<Entry>>,
        }
        #[derive(Deserialize)]
        struct Entry {
            id: String,
        }

        let request = self.client.get(self.models.clone()).headers(self.headers.clone());
        let mut response = request.send().await.map_err(|error| self.unreachable(error))?;
        if !response.status().is_success() {
            return Err(answer::refused(self, response, Instant::now() + LIST_TIMEOUT).await);
        }
        let mut body = Vec::new();
        while let Some(bytes) = response.chunk().await.map_err(|error| self.broken_off(error))? {
            if body.len() + bytes.len() > MAX_LIST {
                return Err(self.error(ModelErrorKind::Rejected, "lists its models in more than 1 MiB"));
            }
            body.extend_from_slice(&bytes);
        }
        let list: List = serde_json::from_slice(&body)
            .map_err(|_| self.error(ModelErrorKind::Rejected, "does not list its models as OpenAI does"))?;
        Ok(list.data.unwrap_or_default().into_iter().map(|entry| entry.id).collect())
    }

    /// An error of this upstream; `what` follows its name.
    fn error(&self, kind: ModelErrorKind, what: impl fmt::Display) -> ModelError {
        let mut message = format!("upstream {} {what}", self.name);
        if let Some(key) = self.api_key.as_ref().map(Secret::expose).filter(|key| !key.is_empty()) {
            message = message.replace(key, "[key]");
        }
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
            message.truncate(end);
            message.push('…');
        }
        ModelError { kind, message, status: None, retry_after: None }
    }

    fn fault(&self, fault: &Fault) -> ModelError {
        let kind = if let Fault::Reported(report) = fault { report.kind(None) } else { ModelErrorKind::Transient };
        self.error(kind, fault)
    }

    fn unreachable(&self, error: reqwest::Error) -> ModelError {
        if error.is_timeout() {
            return self.error(ModelErrorKind::Timeout, "did not accept a connection in time");
        }
        let error = error.without_url();
        let cause = root_cause(&error);
        // Servers close connections that were kept for the next request, often just as it is sent. That
        // says nothing about how they are: the next attempt need not wait.
        let closed = cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
        ModelError {
            retry_after: closed.then_some(AT_ONCE),
            ..self.error(ModelErrorKind::Transient, format_args!("cannot be reached: {cause}"))
        }
    }

    fn broken_off(&self, error: reqwest::Error) -> ModelError {
        self.error(
            ModelErrorKind::Transient,
            format_args!("broke off its answer: {}", root_cause(&error.without_url())),
        )
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The innermost error, which says what happened; the outer ones only say during what.
fn root_cause(error: &reqwest::Error) -> &(dyn Error + 'static) {
    let mut cause: &(dyn Error + 'static) = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause
}

fn endpoint(base: &Url, path: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    url
}

fn output_bound(base: &Url) -> OutputBound {
    let host = base.host_str().unwrap_or_default();
    if host == "api.openai.com" || host.ends_with(".api.openai.com") {
        OutputBound::MaxCompletionTokens
    } else {
        OutputBound::MaxTokens
    }
}

#[cfg(test)]
mod tests;

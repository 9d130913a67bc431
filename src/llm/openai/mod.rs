//! Upstreams that speak OpenAI's chat completions.
//!
//! | file | holds |
//! | --- | --- |
//! | `request` | a model request as a body |
//! | `answer` | the response while it arrives: timeouts, kinds of answers |
//! | `decode` | bytes into deltas and a turn, without I/O |
//! | `chunk`, `assemble` | one chunk's meaning; chunks into a turn |
//! | `repeated` | chunks that need not be parsed |
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
pub mod finish_reason;
pub mod messages;
mod object;
mod repeated;
mod request;
pub mod sampling;
pub mod tools;
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use async_stream::try_stream;
use http::Uri;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

use self::answer::Answer;
use self::request::OutputBound;
use self::upstream::Upstream;
use super::{Delta, DeltaStream, Model, ModelError, ModelErrorKind, ModelRequest};
use crate::config::OpenAiUpstream;
use crate::net::client::{HttpClient, common_headers};
use crate::types::sampling::Sampling;
use crate::types::tool::WrittenCalls;

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
    written_calls: WrittenCalls,
}

impl OpenAiModel {
    /// Sets an upstream up. Nothing is sent yet. `client` comes from
    /// [`http_client`](super::http::http_client), which decides on connecting.
    pub fn new(name: &str, config: &OpenAiUpstream, client: HttpClient) -> Result<Self, OpenAiError> {
        let OpenAiUpstream { base_url, first_byte_timeout, idle_timeout, .. } = config.clone();
        if !matches!(base_url.scheme(), "http" | "https") {
            return Err(OpenAiError::BaseUrl);
        }
        let mut headers = common_headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        if let Some(key) = &config.api_key {
            let bearer = format!("Bearer {}", key.expose());
            let mut bearer = HeaderValue::try_from(bearer).map_err(|_| OpenAiError::ApiKey)?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let upstream = Upstream {
            name: name.to_owned(),
            completions: endpoint(&base_url, &["chat", "completions"])?,
            models: endpoint(&base_url, &["models"])?,
            headers,
            api_key: config.api_key.clone(),
            bound: if config.is_openai() { OutputBound::MaxCompletionTokens } else { OutputBound::MaxTokens },
            takes_unknown: config.pass_unknown_members,
            first_byte_timeout,
            idle_timeout,
            client,
        };
        Ok(Self { upstream: Arc::new(upstream), written_calls: config.written_calls })
    }

    /// The names of the models that the upstream offers; takes at most 5 seconds.
    async fn ask_for_models(&self) -> Result<Vec<String>, ModelError> {
        let upstream = &self.upstream;
        let list = list_models(upstream);
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
            yield Delta::Begun;
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

    fn written_calls(&self) -> WrittenCalls {
        self.written_calls
    }

    fn unsent<'s>(&self, sampling: &'s Sampling) -> Vec<&'s str> {
        if self.upstream.takes_unknown { Vec::new() } else { sampling::undocumented(sampling).collect() }
    }
}

fn endpoint(base: &Url, path: &[&str]) -> Result<Uri, OpenAiError> {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    url.set_fragment(None);
    Uri::try_from(url.as_str()).map_err(|_| OpenAiError::BaseUrl)
}

async fn list_models(upstream: &Upstream) -> Result<Vec<String>, ModelError> {
    #[derive(Deserialize)]
    struct List {
        data: Option<Vec<Entry>>,
    }
    #[derive(Deserialize)]
    struct Entry {
        id: String,
    }

    let response = upstream.client.send(upstream.get_models()).await;
    let mut response = response.map_err(|error| upstream.unreachable(&error))?;
    if !response.status.is_success() {
        return Err(answer::refused(upstream, response, Instant::now() + LIST_TIMEOUT).await);
    }
    upstream.check_encoding(&response.headers)?;
    let mut body = Vec::new();
    while let Some(bytes) = response.body.chunk().await.map_err(|error| upstream.broken_off(&error))? {
        if body.len() + bytes.len() > MAX_LIST {
            return Err(upstream.error(ModelErrorKind::Rejected, "lists its models in more than 1 MiB"));
        }
        body.extend_from_slice(&bytes);
    }
    let list: List = serde_json::from_slice(&body)
        .map_err(|_| upstream.error(ModelErrorKind::Rejected, "does not list its models as OpenAI does"))?;
    Ok(list.data.unwrap_or_default().into_iter().map(|entry| entry.id).collect())
}

#[cfg(test)]
mod tests;

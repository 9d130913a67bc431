//! Upstreams that speak OpenAI's chat completions.
//!
//! | file | holds |
//! | --- | --- |
//! | `request` | a model request as a body |
//! | `decode` | bytes into deltas and a turn, without I/O |
//! | `chunk`, `assemble` | one chunk's meaning; chunks into a turn |
//! | `messages`, `tools`, `sampling` | what a request holds, as JSON and back |
//!
//! What upstreams of all dialects share is in [`http`](super::http), retries are in [`retry`](super::retry).

mod assemble;
mod chunk;
pub mod decode;
pub mod finish_reason;
pub mod messages;
mod request;
pub mod sampling;
pub mod tools;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::Uri;
use http::header::AUTHORIZATION;

use self::decode::Decoder;
use self::request::OutputBound;
use super::http::answer::ask;
use super::http::list::list_models;
use super::http::upstream::{Upstream, UpstreamError, endpoint};
use super::{DeltaStream, Model, ModelError, ModelRequest};
use crate::config::OpenAiUpstream;
use crate::net::client::HttpClient;
use crate::types::sampling::Sampling;
use crate::types::tool::WrittenCalls;

/// A model at an OpenAI-compatible upstream.
#[derive(Debug, Clone)]
pub struct OpenAiModel {
    upstream: Arc<Upstream>,
    completions: Uri,
    bound: OutputBound,
    /// Whether it is sent what OpenAI does not document.
    takes_unknown: bool,
    /// Whether it is asked for an answer in one piece where nobody reads the answer as it is said.
    may_ask_in_one_piece: bool,
    written_calls: WrittenCalls,
}

impl OpenAiModel {
    /// Sets an upstream up. Nothing is sent yet. `client` comes from
    /// [`http_client`](super::http::http_client), which decides on connecting.
    pub fn new(name: &str, config: &OpenAiUpstream, client: HttpClient) -> Result<Self, UpstreamError> {
        let base_url = &config.http.base_url;
        let models = endpoint(base_url, &["models"])?;
        let upstream = Upstream::new(name, "a chat completions API", &config.http, models, client)?;
        Ok(Self {
            upstream: Arc::new(upstream.with_key(AUTHORIZATION, "Bearer ")?),
            completions: endpoint(base_url, &["chat", "completions"])?,
            bound: if config.is_openai() { OutputBound::MaxCompletionTokens } else { OutputBound::MaxTokens },
            takes_unknown: config.pass_unknown_members,
            may_ask_in_one_piece: config.ask_in_one_piece,
            written_calls: config.written_calls,
        })
    }
}

impl Model for OpenAiModel {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<String>, ModelError>> {
        Box::pin(list_models(&self.upstream))
    }

    fn stream(&self, request: ModelRequest) -> DeltaStream {
        let in_one_piece = self.may_ask_in_one_piece && request.in_one_piece;
        let body = request::body(&request, self.bound, self.takes_unknown, in_one_piece);
        let post = self.upstream.post(&self.completions, body, &request);
        ask(self.upstream.clone(), post, request.deadline, Decoder::default())
    }

    fn written_calls(&self) -> WrittenCalls {
        self.written_calls
    }

    fn unsent<'s>(&self, sampling: &'s Sampling) -> Vec<&'s str> {
        if self.takes_unknown { Vec::new() } else { sampling::undocumented(sampling).collect() }
    }
}

#[cfg(test)]
mod tests;

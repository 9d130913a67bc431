//! Upstreams that speak the Gemini API.
//!
//! | file | holds |
//! | --- | --- |
//! | `request` | a model request as a body |
//! | `contents`, `parts`, `media` | the conversation as contents, a message as parts, pictures, sound and documents |
//! | `tools`, `sampling`, `thinking` | what else a request holds, as JSON |
//! | `tool_name` | names of tools that the API does not take |
//! | `support` | what a request may ask for that these upstreams do not have |
//! | `decode` | bytes into deltas and a turn, without I/O |
//! | `chunk`, `assemble`, `piece` | one chunk's meaning; chunks into a turn; one part of it |
//! | `finish_reason` | why a turn ended |
//! | `models` | the names of models, and what they tell of the model |
//!
//! What upstreams of all dialects share is in [`http`](super::http), retries are in [`retry`](super::retry).

mod assemble;
mod chunk;
mod contents;
pub mod decode;
mod finish_reason;
mod media;
mod models;
mod parts;
mod piece;
mod request;
mod sampling;
mod support;
mod thinking;
mod tool_name;
mod tools;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream;
use http::header::HeaderName;
use url::Url;

use self::chunk::API;
use self::decode::Decoder;
use super::http::answer::ask;
use super::http::call::Uris;
use super::http::in_one_piece::come_in_one_piece;
use super::http::list::list_models;
use super::http::upstream::{Access, Upstream, UpstreamError, endpoint};
use super::left_out;
use super::offered::OfferedModel;
use super::unsupported::Unsupported;
use super::{DeltaStream, Model, ModelError, ModelErrorKind, ModelRequest};
use crate::config::GeminiUpstream;
use crate::types::Message;
use crate::types::sampling::Sampling;

/// A model at an upstream that speaks the Gemini API.
#[derive(Debug, Clone)]
pub struct GeminiModel {
    name: Arc<str>,
    upstream: Arc<Upstream>,
    bases: Arc<[Url]>,
    /// Whether it is asked for an answer in one piece where no client reads the answer as it is said.
    may_ask_in_one_piece: bool,
}

impl GeminiModel {
    /// Sets an upstream up. Nothing is sent yet.
    pub fn new(name: &str, config: &GeminiUpstream, access: impl Into<Access>) -> Result<Self, UpstreamError> {
        let bases: Arc<[Url]> = config.http.urls().cloned().collect();
        // The API names fifty models unless it is asked for more.
        let models = |base: &Url| endpoint(&with_query(base.clone(), "pageSize", "1000"), &["models"]);
        let models = Uris::of(&bases, models)?;
        let upstream = Upstream::new(name, API, &config.http, models, access.into())?;
        let upstream = upstream.with_key(HeaderName::from_static("x-goog-api-key"), "")?;
        Ok(Self {
            name: name.into(),
            upstream: Arc::new(upstream),
            bases,
            may_ask_in_one_piece: config.ask_in_one_piece,
        })
    }

    /// Where a model is asked.
    fn endpoints(&self, model: &str, in_one_piece: bool) -> Result<Uris, UpstreamError> {
        let (collection, model) = models::place(model);
        Uris::of(&self.bases, |base| {
            if in_one_piece {
                endpoint(base, &[collection, &format!("{model}:generateContent")])
            } else {
                let base = with_query(base.clone(), "alt", "sse");
                endpoint(&base, &[collection, &format!("{model}:streamGenerateContent")])
            }
        })
    }
}

fn with_query(mut url: Url, name: &str, value: &str) -> Url {
    url.query_pairs_mut().append_pair(name, value);
    url
}

impl Model for GeminiModel {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(list_models(&self.upstream, models::offered))
    }

    fn has_elsewhere(&self) -> bool {
        self.upstream.has_elsewhere()
    }

    fn stream(&self, request: ModelRequest) -> DeltaStream {
        let request = left_out::without(request);
        let in_one_piece = request.in_one_piece && self.may_ask_in_one_piece;
        let Ok(uris) = self.endpoints(&request.model, in_one_piece) else {
            let message = format!("upstream {} has no model of such a name", self.name);
            return Box::pin(stream::iter([Err(ModelError::new(ModelErrorKind::Rejected, message))]));
        };
        let author = format!("{}/{}", self.name, request.model);
        let body = request::body(&request, &author);
        let post = self.upstream.post(uris, body, &request);
        let decoder = Decoder::new(author.into(), request.parallel_tool_calls);
        let deltas = ask(self.upstream.clone(), post, request.deadline, decoder);
        if in_one_piece { come_in_one_piece(deltas) } else { deltas }
    }

    fn may_answer_in_one_piece(&self) -> bool {
        self.may_ask_in_one_piece
    }

    fn refuses_part(&self, message: &Message) -> Option<(usize, String)> {
        support::limits(&self.name).unsupported_part_of(message)
    }

    fn refuses(&self, sampling: &Sampling, messages: &[Message]) -> Option<Unsupported> {
        support::limits(&self.name).unsupported(support::refused_member(sampling), messages)
    }

    fn unsent<'s>(&self, model: &str, sampling: &'s Sampling) -> Vec<&'s str> {
        [left_out::given(model, sampling), support::unsent(sampling)].concat()
    }
}

#[cfg(test)]
mod tests;

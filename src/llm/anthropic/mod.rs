//! Upstreams that speak Anthropic's Messages.
//!
//! | file | holds |
//! | --- | --- |
//! | `request` | a model request as a body |
//! | `turns`, `blocks`, `media` | the conversation as turns, a message as blocks, pictures and documents |
//! | `tools`, `sampling`, `thinking` | what else a request holds, as JSON |
//! | `support` | what a request may ask for that these upstreams do not have |
//! | `decode` | bytes into deltas and a turn, without I/O |
//! | `event`, `assemble` | one event's meaning; events into a turn |
//! | `stop_reason` | why a turn ended |
//!
//! What upstreams of all dialects share is in [`http`](super::http), retries are in [`retry`](super::retry).

mod assemble;
mod blocks;
pub mod decode;
mod event;
mod media;
mod request;
mod sampling;
mod stop_reason;
mod support;
mod thinking;
mod tools;
mod turns;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::Uri;
use http::header::{HeaderName, HeaderValue};

use self::decode::Decoder;
use self::request::Manner;
use super::http::answer::ask;
use super::http::call::Uris;
use super::http::list::{list_models, offered};
use super::http::upstream::{Access, Upstream, UpstreamError, endpoint};
use super::left_out;
use super::offered::OfferedModel;
use super::unsupported::Unsupported;
use super::{DeltaStream, Model, ModelError, ModelRequest};
use crate::config::AnthropicUpstream;
use crate::types::Message;
use crate::types::sampling::Sampling;

/// A model at an upstream that speaks Anthropic's Messages.
#[derive(Debug, Clone)]
pub struct AnthropicModel {
    name: Arc<str>,
    upstream: Arc<Upstream>,
    messages: Uris,
    manner: Manner,
}

impl AnthropicModel {
    /// Sets an upstream up. Nothing is sent yet.
    pub fn new(name: &str, config: &AnthropicUpstream, access: impl Into<Access>) -> Result<Self, UpstreamError> {
        let bases: Vec<_> = config.http.urls().cloned().collect();
        let models = Uris::of(&bases, models)?;
        let header = |text: &str| HeaderValue::try_from(text).map_err(|_| UpstreamError::Header);
        let upstream = Upstream::new(name, "a Messages API", &config.http, models, access.into())?;
        let mut upstream = upstream
            .with_key(HeaderName::from_static("x-api-key"), "")?
            .with_header(HeaderName::from_static("anthropic-version"), header(&config.version)?);
        if !config.beta.is_empty() {
            let beta = header(&config.beta.join(","))?;
            upstream = upstream.with_header(HeaderName::from_static("anthropic-beta"), beta);
        }
        Ok(Self {
            name: name.into(),
            upstream: Arc::new(upstream),
            messages: Uris::of(&bases, |base| endpoint(base, &["messages"]))?,
            manner: Manner { max_tokens: config.max_tokens, prompt_cache: config.prompt_cache },
        })
    }
}

/// Where the models are listed. The API names twenty of them unless it is asked for more.
fn models(base_url: &url::Url) -> Result<Uri, UpstreamError> {
    let mut url = base_url.clone();
    url.query_pairs_mut().append_pair("limit", "1000");
    endpoint(&url, &["models"])
}

impl Model for AnthropicModel {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(list_models(&self.upstream, offered))
    }

    fn has_elsewhere(&self) -> bool {
        self.upstream.has_elsewhere()
    }

    fn stream(&self, request: ModelRequest) -> DeltaStream {
        let request = left_out::without(request);
        let author = format!("{}/{}", self.name, request.model);
        let body = request::body(&request, &author, self.manner);
        let post = self.upstream.post(self.messages.clone(), body, &request);
        ask(self.upstream.clone(), post, request.deadline, Decoder::new(author.into()))
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

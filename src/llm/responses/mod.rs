//! Upstreams that speak OpenAI's Responses.
//!
//! | file | holds |
//! | --- | --- |
//! | `request` | a model request as a body |
//! | `items`, `content` | a message as input items; pictures, documents and text as their content |
//! | `tools`, `sampling` | what else a request holds, as JSON |
//! | `support` | what a request may ask for that these upstreams do not have |
//! | `decode` | bytes into deltas and a turn, without I/O |
//! | `event`, `written`, `assemble` | one event's members; which item it means; events into a turn |
//! | `few` | lists with a bound |
//! | `status` | why a turn ended |
//!
//! The upstream keeps nothing: each request holds the whole conversation, with the reasoning of the model that is asked, which
//! is encrypted. What upstreams of all dialects share is in [`http`](super::http), retries are in [`retry`](super::retry).

mod assemble;
mod content;
pub mod decode;
mod event;
mod few;
mod items;
mod request;
mod sampling;
mod status;
mod support;
mod tools;
mod written;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use http::header::{AUTHORIZATION, HeaderName};

use self::decode::Decoder;
use self::items::is_reasoning_of;
use self::request::Manner;
use super::http::answer::ask;
use super::http::call::Uris;
use super::http::list::{list_models, offered};
use super::http::upstream::{Access, Upstream, UpstreamError, endpoint};
use super::left_out;
use super::offered::OfferedModel;
use super::unsupported::Unsupported;
use super::{DeltaStream, Model, ModelError, ModelRequest};
use crate::config::ResponsesUpstream;
use crate::types::Message;
use crate::types::conversation::Content;
use crate::types::sampling::Sampling;

/// A model at an upstream that speaks OpenAI's Responses.
#[derive(Debug, Clone)]
pub struct ResponsesModel {
    name: Arc<str>,
    upstream: Arc<Upstream>,
    responses: Uris,
    manner: Manner,
}

impl ResponsesModel {
    /// Sets an upstream up. Nothing is sent yet.
    pub fn new(name: &str, config: &ResponsesUpstream, access: impl Into<Access>) -> Result<Self, UpstreamError> {
        let bases: Vec<_> = config.http.urls().cloned().collect();
        let models = Uris::of(&bases, |base| endpoint(base, &["models"]))?;
        let upstream = Upstream::new(name, "a Responses API", &config.http, models, access.into())?;
        Ok(Self {
            name: name.into(),
            upstream: Arc::new(match config.key_header {
                None => upstream.with_key(AUTHORIZATION, "Bearer ")?,
                Some(header) => upstream.with_key(HeaderName::from_static(header), "")?,
            }),
            responses: Uris::of(&bases, |base| endpoint(base, &["responses"]))?,
            manner: Manner {
                is_openai: config.is_openai(),
                takes_unknown: config.pass_unknown_members,
                summary: config.reasoning_summary,
                encrypted: config.encrypted_reasoning,
            },
        })
    }

    /// Asks, with the reasoning of this signature.
    fn ask(&self, request: &ModelRequest, author: &Arc<str>, reasoning: Option<&str>) -> DeltaStream {
        let body = request::body(request, reasoning, self.manner);
        let post = self.upstream.post(self.responses.clone(), body, request);
        ask(self.upstream.clone(), post, request.deadline, Decoder::new(author.clone()))
    }

    /// The answer, or that to the same request without reasoning if the upstream cannot read what it once encrypted: its key
    /// belongs to another account now, or it has lost its own. Otherwise the conversation could not be continued.
    async fn unless_refused(self, mut answer: DeltaStream, request: ModelRequest, author: Arc<str>) -> DeltaStream {
        match answer.next().await {
            Some(Err(error)) if error.refuses_reasoning => {
                let (upstream, model) = (&self.name, &request.model);
                tracing::warn!(%upstream, %model, %error, "the upstream cannot read the model's earlier reasoning; asking without it");
                self.ask(&request, &author, None)
            }
            first => Box::pin(stream::iter(first).chain(answer)),
        }
    }
}

impl Model for ResponsesModel {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(list_models(&self.upstream, offered))
    }

    fn has_elsewhere(&self) -> bool {
        self.upstream.has_elsewhere()
    }

    fn stream(&self, request: ModelRequest) -> DeltaStream {
        let request = left_out::without(request);
        let author: Arc<str> = format!("{}/{}", self.name, request.model).into();
        let first = self.ask(&request, &author, Some(&author));
        let reasons = |message: &Message| match message.content() {
            Content::Encoded(..) => false,
            Content::Parts(parts) => parts.list.iter().any(|part| is_reasoning_of(part, &author)),
        };
        if !request.conversation.iter().any(reasons) {
            return first;
        }
        Box::pin(stream::once(self.clone().unless_refused(first, request, author)).flatten())
    }

    fn refuses_part(&self, message: &Message) -> Option<(usize, String)> {
        support::limits(&self.name).unsupported_part_of(message)
    }

    fn refuses(&self, sampling: &Sampling, messages: &[Message]) -> Option<Unsupported> {
        let member = support::refused_member(sampling, self.manner.takes_unknown);
        support::limits(&self.name).unsupported(member, messages)
    }

    fn unsent<'s>(&self, model: &str, sampling: &'s Sampling) -> Vec<&'s str> {
        [left_out::given(model, sampling), support::unsent(sampling, self.manner.takes_unknown)].concat()
    }
}

#[cfg(test)]
mod tests;

//! Upstreams that speak OpenAI's chat completions.
//!
//! | file | holds |
//! | --- | --- |
//! | `request` | a model request as a body |
//! | `decode` | bytes into deltas and a turn, without I/O |
//! | `chunk`, `content_list`, `assemble` | one chunk's meaning; chunks into a turn |
//! | `messages`, `tools`, `sampling` | what a request holds, as JSON and back |
//!
//! What upstreams of all dialects share is in [`http`](super::http), retries are in [`retry`](super::retry).

mod assemble;
mod chunk;
mod content_list;
pub mod decode;
pub mod finish_reason;
pub mod messages;
mod request;
pub mod sampling;
pub mod tools;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderName};
use url::Url;

use self::decode::Decoder;
use super::http::answer::ask;
use super::http::call::Uris;
use super::http::in_one_piece::come_in_one_piece;
use super::http::list::{list_models, offered};
use super::http::upstream::{Access, Upstream, UpstreamError, endpoint};
use super::left_out;
use super::offered::OfferedModel;
use super::unsupported::{Place, Unsupported, given_member, given_of_vendors, is_of_vendors};
use super::{DeltaStream, Model, ModelError, ModelRequest};
use crate::config::{ChatManner, OpenAiUpstream};
use crate::types::Message;
use crate::types::sampling::Sampling;
use crate::types::tool::WrittenCalls;

/// Values of members that ask for nothing.
const HARMLESS: [&str; 5] = ["false", "0", "{}", "[]", "[\"text\"]"];

/// A model at an OpenAI-compatible upstream.
#[derive(Debug, Clone)]
pub struct OpenAiModel {
    name: Arc<str>,
    upstream: Arc<Upstream>,
    completions: Uris,
    /// Where the deployments of models are, at an upstream whose addresses name these.
    deployments: Option<Arc<[Url]>>,
    chat: ChatManner,
    /// Whether it is sent what OpenAI does not document.
    takes_unknown: bool,
    /// Whether it is asked for an answer in one piece where no client reads the answer as it is said.
    may_ask_in_one_piece: bool,
    written_calls: WrittenCalls,
}

impl OpenAiModel {
    /// Sets an upstream up. Nothing is sent yet.
    pub fn new(name: &str, config: &OpenAiUpstream, access: impl Into<Access>) -> Result<Self, UpstreamError> {
        let mut bases: Vec<Url> = config.http.urls().cloned().collect();
        if let Some(version) = &config.api_version {
            for base in &mut bases {
                base.query_pairs_mut().append_pair("api-version", version);
            }
        }
        let models = Uris::of(&bases, |base| endpoint(base, &["models"]))?;
        let upstream = Upstream::new(name, "a chat completions API", &config.http, models, access.into())?;
        Ok(Self {
            name: name.into(),
            upstream: Arc::new(match config.key_header {
                None => upstream.with_key(AUTHORIZATION, "Bearer ")?,
                Some(header) => upstream.with_key(HeaderName::from_static(header), "")?,
            }),
            completions: Uris::of(&bases, |base| endpoint(base, &["chat", "completions"]))?,
            deployments: config.api_version.is_some().then(|| bases.into()),
            chat: config.chat,
            takes_unknown: config.pass_unknown_members,
            may_ask_in_one_piece: config.ask_in_one_piece,
            written_calls: config.written_calls,
        })
    }

    /// Where this model is asked.
    fn completions_of(&self, model: &str) -> Uris {
        let of_deployment = |base: &Url| endpoint(base, &["deployments", model, "chat", "completions"]);
        let of_deployments = self.deployments.as_deref().and_then(|bases| Uris::of(bases, of_deployment).ok());
        of_deployments.unwrap_or_else(|| self.completions.clone())
    }
}

impl Model for OpenAiModel {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(list_models(&self.upstream, offered))
    }

    fn has_elsewhere(&self) -> bool {
        self.upstream.has_elsewhere()
    }

    fn stream(&self, request: ModelRequest) -> DeltaStream {
        let request = left_out::without(request);
        let in_one_piece = self.may_ask_in_one_piece && request.in_one_piece;
        let author = self.chat.returned_reasoning.map(|_| format!("{}/{}", self.name, request.model));
        let signed = author.as_deref().unwrap_or_default();
        let body = request::body(&request, &self.chat, self.takes_unknown, in_one_piece, signed);
        let post = self.upstream.post(self.completions_of(&request.model), body, &request);
        let deltas = ask(self.upstream.clone(), post, request.deadline, Decoder::new(author));
        if in_one_piece { come_in_one_piece(deltas) } else { deltas }
    }

    fn may_answer_in_one_piece(&self) -> bool {
        self.may_ask_in_one_piece
    }

    fn written_calls(&self) -> WrittenCalls {
        self.written_calls
    }

    fn unsent<'s>(&self, model: &str, sampling: &'s Sampling) -> Vec<&'s str> {
        let undocumented = (!self.takes_unknown).then(|| sampling::undocumented(sampling));
        let undocumented = undocumented.into_iter().flatten().filter(|name| !is_of_vendors(name));
        let of_upstream = sampling::given(sampling, self.chat.left_out).chain(undocumented);
        left_out::given(model, sampling).into_iter().chain(of_upstream).collect()
    }

    fn refuses(&self, sampling: &Sampling, _messages: &[Message]) -> Option<Unsupported> {
        let refused: Vec<_> = self.chat.refused.iter().map(|name| (*name, &HARMLESS[..])).collect();
        let of_vendors = || given_of_vendors(sampling, &[]).filter(|_| !self.takes_unknown);
        let name = given_member(sampling, &refused).or_else(of_vendors)?;
        let message = format!("the upstream {} has no `{name}`: leave it out", self.name);
        Some(Unsupported { place: Place::Member(name), message })
    }
}

#[cfg(test)]
mod tests;

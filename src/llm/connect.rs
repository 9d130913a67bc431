//! The model of an upstream, by the dialect that the upstream speaks.

use std::sync::Arc;

use super::Model;
use super::anthropic::AnthropicModel;
use super::demo::DemoModel;
use super::gemini::GeminiModel;
use super::http::upstream::UpstreamError;
use super::openai::OpenAiModel;
use super::responses::ResponsesModel;
use crate::config::{Upstream, UpstreamKind};
use crate::net::client::HttpClient;

/// The model behind an upstream. `client` makes the HTTP client of the upstreams that need one.
pub fn connect<E: From<UpstreamError>>(
    upstream: &Upstream,
    client: impl FnOnce() -> Result<HttpClient, E>,
) -> Result<Arc<dyn Model>, E> {
    let name = &upstream.name;
    Ok(match &upstream.kind {
        UpstreamKind::Demo => Arc::new(DemoModel::default()),
        UpstreamKind::OpenAi(openai) => Arc::new(OpenAiModel::new(name, openai, client()?)?),
        UpstreamKind::Responses(responses) => Arc::new(ResponsesModel::new(name, responses, client()?)?),
        UpstreamKind::Anthropic(anthropic) => Arc::new(AnthropicModel::new(name, anthropic, client()?)?),
        UpstreamKind::Gemini(gemini) => Arc::new(GeminiModel::new(name, gemini, client()?)?),
    })
}

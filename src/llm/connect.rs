//! The model of an upstream, by the dialect that the upstream speaks.

use std::sync::Arc;

use super::Model;
use super::anthropic::AnthropicModel;
use super::demo::DemoModel;
use super::gemini::GeminiModel;
use super::http::upstream::{Access, UpstreamError};
use super::openai::OpenAiModel;
use super::responses::ResponsesModel;
use crate::config::{Upstream, UpstreamKind};

/// The model behind an upstream. `access` makes what the upstreams are reached with that are not built in.
pub fn connect<E: From<UpstreamError>>(
    upstream: &Upstream,
    access: impl FnOnce() -> Result<Access, E>,
) -> Result<Arc<dyn Model>, E> {
    let name = &upstream.name;
    Ok(match &upstream.kind {
        UpstreamKind::Embedded(_) => return Err(UpstreamError::Absent.into()),
        UpstreamKind::Demo => Arc::new(DemoModel::default()),
        UpstreamKind::OpenAi(openai) => Arc::new(OpenAiModel::new(name, openai, access()?)?),
        UpstreamKind::Responses(responses) => Arc::new(ResponsesModel::new(name, responses, access()?)?),
        UpstreamKind::Anthropic(anthropic) => Arc::new(AnthropicModel::new(name, anthropic, access()?)?),
        UpstreamKind::Gemini(gemini) => Arc::new(GeminiModel::new(name, gemini, access()?)?),
    })
}

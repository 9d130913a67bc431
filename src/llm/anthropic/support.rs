//! What a request may ask for that Anthropic's Messages do not have.
//!
//! What changes the answer is refused with its name. What only helps an upstream is left out, and the caller is told.

use super::event::API;
use super::media::{document_refusal, image_refusal};
use super::sampling::{OWN, TIERS};
use super::thinking::is_effort;
use crate::llm::unsupported::{DECISIVE, Limits, given_member, given_of_vendors, is_decisive, is_of_vendors};
use crate::types::conversation::{Dialect, PartKind};
use crate::types::sampling::{ResponseFormat, Sampling};

/// What an upstream of this name cannot take.
pub(super) fn limits(upstream: &str) -> Limits<'_> {
    Limits { upstream, api: API, refusal }
}

/// The names of members that the upstream is not sent.
pub(super) fn unsent(sampling: &Sampling) -> Vec<&str> {
    let tier = sampling.service_tier.as_deref().is_some_and(|tier| !TIERS.contains(&tier));
    let hints = [
        ("verbosity", sampling.verbosity.is_some()),
        ("prompt_cache_key", sampling.prompt_cache_key.is_some()),
        ("service_tier", tier),
    ];
    let hints = hints.into_iter().filter_map(|(name, is_given)| is_given.then_some(name));
    let extra = sampling.extra.members(Dialect::OpenaiChat).iter().map(|(name, _)| name.as_str());
    let is_refused = |name: &str| is_decisive(name) || is_of_vendors(name);
    let unknown = extra.filter(|name| !OWN.contains(name) && !is_refused(name));
    hints.chain(unknown).collect()
}

/// The first member that cannot be heeded, and why.
pub(super) fn refused_member(sampling: &Sampling) -> Option<(&'static str, String)> {
    let has_no = |name: &'static str| (name, format!("has no `{name}`: leave it out"));
    let penalises = |penalty: Option<f64>| penalty.is_some_and(|penalty| penalty != 0.0);
    if sampling.seed.is_some() {
        return Some(has_no("seed"));
    }
    if penalises(sampling.frequency_penalty) {
        return Some(has_no("frequency_penalty"));
    }
    if penalises(sampling.presence_penalty) {
        return Some(has_no("presence_penalty"));
    }
    if sampling.temperature.is_some_and(|temperature| temperature > 1.0) {
        return Some(("temperature", "takes a `temperature` of at most 1".to_owned()));
    }
    if sampling.reasoning_effort.as_deref().is_some_and(|word| !is_effort(word)) {
        let what = "takes as `reasoning_effort` none, minimal, low, medium, high, xhigh or max";
        return Some(("reasoning_effort", what.to_owned()));
    }
    if let Some(ResponseFormat::JsonObject | ResponseFormat::JsonSchema { schema: None, .. }) = sampling.response_format
    {
        let what = "has no `response_format` without a schema: use `json_schema` with one, or leave it out";
        return Some(("response_format", what.to_owned()));
    }
    given_member(sampling, &DECISIVE).or_else(|| given_of_vendors(sampling, &OWN)).map(has_no)
}

/// Why a part of a message cannot be sent.
fn refusal(part: &PartKind) -> Option<String> {
    match part {
        PartKind::Image { source, .. } => image_refusal(source),
        PartKind::File { source, .. } => document_refusal(source),
        PartKind::Audio { .. } => Some("takes no sound (`input_audio`)".to_owned()),
        PartKind::Text(_)
        | PartKind::Refusal(_)
        | PartKind::Thinking(_)
        | PartKind::Link(_)
        | PartKind::ToolCall(_)
        | PartKind::ToolResult(_)
        | PartKind::Unknown { .. } => None,
    }
}

//! What a request may ask for that OpenAI's Responses do not have.
//!
//! What changes the answer is refused with its name. What only helps an upstream is left out, and the caller is told.

use super::event::API;
use crate::llm::unsupported::{DECISIVE, Limits, given_member, given_of_vendors, is_decisive, is_of_vendors};
use crate::types::conversation::{Dialect, PartKind};
use crate::types::sampling::{ResponseFormat, Sampling, Stop};
/// What this dialect documents, the chat dialect does not read, and is passed on as it came.
const OWN: [&str; 4] = ["prompt_cache_options", "prompt_cache_retention", "reasoning", "truncation"];
/// Members of this dialect that the server writes itself, or that would have the upstream keep a conversation.
const RESERVED: [&str; 13] = [
    "background",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "previous_response_id",
    "prompt",
    "store",
    "stream",
    "stream_options",
    "text",
];

/// What an upstream of this name cannot take.
pub(super) fn limits(upstream: &str) -> Limits<'_> {
    Limits { upstream, api: API, refusal }
}

/// The names of members that the upstream is not sent.
pub(super) fn unsent(sampling: &Sampling, takes_unknown: bool) -> Vec<&str> {
    let extra = sampling.extra.members(Dialect::OpenaiChat).iter();
    let unsent = extra.filter(|(name, json)| {
        let is_refused_else = is_decisive(name) || (!takes_unknown && is_of_vendors(name));
        // Nothing is stored in any case.
        let is_heeded = name == "store" && json.get() == "false";
        !is_refused_else && !is_heeded && !is_sent(name, takes_unknown)
    });
    unsent.map(|(name, _)| name.as_str()).collect()
}

/// Whether a member is passed on as it came that the chat dialect does not read.
pub(super) fn is_sent(name: &str, takes_unknown: bool) -> bool {
    let is_taken = is_decisive(name) || RESERVED.contains(&name);
    OWN.contains(&name) || (takes_unknown && !is_taken)
}

/// The first member that cannot be heeded, and why.
pub(super) fn refused_member(sampling: &Sampling, takes_unknown: bool) -> Option<(&'static str, String)> {
    let has_no = |name: &'static str| (name, format!("has no `{name}`: leave it out"));
    let penalises = |penalty: Option<f64>| penalty.is_some_and(|penalty| penalty != 0.0);
    let stops = match &sampling.stop {
        None => false,
        Some(Stop::Text(_)) => true,
        Some(Stop::Texts(texts)) => !texts.is_empty(),
    };
    let given = [
        ("seed", sampling.seed.is_some()),
        ("stop", stops),
        ("frequency_penalty", penalises(sampling.frequency_penalty)),
        ("presence_penalty", penalises(sampling.presence_penalty)),
    ];
    if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Some(has_no(name));
    }
    if let Some(ResponseFormat::JsonSchema { schema: None, .. }) = sampling.response_format {
        let what = "wants the schema of a `response_format` of type `json_schema`";
        return Some(("response_format", what.to_owned()));
    }
    let of_vendors = || given_of_vendors(sampling, &OWN).filter(|_| !takes_unknown);
    given_member(sampling, &DECISIVE).or_else(of_vendors).map(has_no)
}

/// Why a part of a message cannot be sent.
fn refusal(part: &PartKind) -> Option<String> {
    match part {
        PartKind::Audio { .. } => Some("takes no sound (`input_audio`)".to_owned()),
        PartKind::Text(_)
        | PartKind::Refusal(_)
        | PartKind::Thinking(_)
        | PartKind::Image { .. }
        | PartKind::File { .. }
        | PartKind::Link(_)
        | PartKind::ToolCall(_)
        | PartKind::ToolResult(_)
        | PartKind::Unknown { .. } => None,
    }
}

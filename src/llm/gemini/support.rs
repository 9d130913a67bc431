//! What a request may ask for that the Gemini API does not have.
//!
//! What changes the answer is refused with its name. What only helps an upstream is left out, and the caller is told.

use super::chunk::API;
use super::media;
use super::sampling::{OWN, TIERS};
use super::thinking::is_effort;
use crate::llm::unsupported::{
    Place, Unsupported, given_member, given_of_vendors, is_of_vendors, refused_part, unsupported_part,
};
use crate::types::Message;
use crate::types::conversation::Dialect;
use crate::types::sampling::Sampling;

/// Members that decide about the answer and have no counterpart; each is refused unless it is one of these values, which
/// ask for nothing.
const DECISIVE: [(&str, &[&str]); 8] = [
    ("audio", &[]),
    ("logit_bias", &["{}"]),
    ("logprobs", &["false"]),
    ("modalities", &["[]", "[\"text\"]"]),
    ("prediction", &[]),
    ("response_format", &[]),
    ("top_logprobs", &["0"]),
    ("web_search_options", &[]),
];

/// What of a request the upstream cannot do.
pub(super) fn unsupported(upstream: &str, sampling: &Sampling, messages: &[Message]) -> Option<Unsupported> {
    if let Some((name, what)) = refused_member(sampling) {
        return Some(Unsupported { place: Place::Member(name), message: sentence(upstream, &what) });
    }
    unsupported_part(messages, |message| unsupported_part_of(upstream, message))
}

/// The first part of a message that the upstream cannot take, and why.
pub(super) fn unsupported_part_of(upstream: &str, message: &Message) -> Option<(usize, String)> {
    refused_part(message, media::refusal).map(|(part, what)| (part, sentence(upstream, &what)))
}

fn sentence(upstream: &str, what: &str) -> String {
    format!("the upstream {upstream}, which speaks {API}, {what}")
}

/// The names of members that the upstream is not sent.
pub(super) fn unsent(sampling: &Sampling) -> Vec<&str> {
    let has_tier = |tier: &str| tier == "auto" || TIERS.iter().any(|(known, _)| *known == tier);
    let hints = [
        ("verbosity", sampling.verbosity.is_some()),
        ("prompt_cache_key", sampling.prompt_cache_key.is_some()),
        ("user", sampling.user.is_some()),
        ("safety_identifier", sampling.safety_identifier.is_some()),
        ("service_tier", sampling.service_tier.as_deref().is_some_and(|tier| !has_tier(tier))),
    ];
    let hints = hints.into_iter().filter_map(|(name, is_given)| is_given.then_some(name));
    let extra = sampling.extra.members(Dialect::OpenaiChat).iter().map(|(name, _)| name.as_str());
    let is_refused = |name: &str| DECISIVE.iter().any(|(known, _)| *known == name) || is_of_vendors(name);
    let unknown = extra.filter(|name| !OWN.contains(name) && !is_refused(name));
    hints.chain(unknown).collect()
}

/// The first member that cannot be heeded, and why.
fn refused_member(sampling: &Sampling) -> Option<(&'static str, String)> {
    if sampling.seed.is_some_and(|seed| i32::try_from(seed).is_err()) {
        return Some(("seed", "takes a `seed` from -2147483648 to 2147483647".to_owned()));
    }
    if sampling.reasoning_effort.as_deref().is_some_and(|word| !is_effort(word)) {
        let what = "takes as `reasoning_effort` none, minimal, low, medium, high, xhigh or max";
        return Some(("reasoning_effort", what.to_owned()));
    }
    let refused = given_member(sampling, &DECISIVE).or_else(|| given_of_vendors(sampling, &OWN));
    refused.map(|name| (name, format!("has no `{name}`: leave it out")))
}

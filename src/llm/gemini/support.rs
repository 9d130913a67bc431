//! What a request may ask for that the Gemini API does not have.
//!
//! What changes the answer is refused with its name. What only helps an upstream is left out, and the caller is told.

use super::chunk::API;
use super::media;
use super::sampling::{OWN, TIERS};
use super::thinking::is_effort;
use crate::llm::unsupported::{DECISIVE, Limits, given_member, given_of_vendors, is_decisive, is_of_vendors};
use crate::types::conversation::Dialect;
use crate::types::sampling::Sampling;

/// What an upstream of this name cannot take.
pub(super) fn limits(upstream: &str) -> Limits<'_> {
    Limits { upstream, api: API, refusal: media::refusal }
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
    let is_refused = |name: &str| is_decisive(name) || is_of_vendors(name);
    let unknown = extra.filter(|name| !OWN.contains(name) && !is_refused(name));
    hints.chain(unknown).collect()
}

/// The first member that cannot be heeded, and why.
pub(super) fn refused_member(sampling: &Sampling) -> Option<(&'static str, String)> {
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

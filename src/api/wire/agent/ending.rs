//! What the last event of a stream says.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::wire::RunNames;
use crate::api::wire::agent::object::AgentObject;
use crate::api::wire::openai_error::ErrorObject;
use crate::api::wire::usage::UsageObject;
use crate::types::Outcome;

/// What the last event says.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ending<'a> {
    /// The event's number.
    pub seq: u64,
    /// How the run ended.
    pub agent: AgentObject<'a>,
    /// Tokens of this response: since the run began, or its client answered.
    pub usage: UsageObject,
    /// The final text.
    pub output_text: &'a str,
    /// The words in which the model declined to answer, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<&'a str>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
}

impl<'a> Ending<'a> {
    /// That the run ended so.
    pub fn new(seq: u64, outcome: &'a Outcome, names: &'a RunNames, with_report: bool) -> Self {
        Self {
            seq,
            agent: AgentObject::new(&names.id, names.session.as_ref(), outcome, with_report),
            usage: outcome.leg_usage().into(),
            output_text: &outcome.output_text,
            refusal: Some(outcome.refusal.as_str()).filter(|text| !text.is_empty()),
            error: outcome.error.as_ref().map(ErrorObject::from),
        }
    }
}

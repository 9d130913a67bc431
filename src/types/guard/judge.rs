//! Guardrails that are asked: what a model or a service is asked about a text, and what it said.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::point::GuardPoint;
use crate::types::CallId;
use crate::types::error::ErrorKind;
use crate::types::json::is_default;
use crate::types::price::StepModel;
use crate::types::reservation::Reservation;
use crate::types::usage::{Usage, Used};

/// A model that judges texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelJudge {
    /// The model, as the configuration names it.
    pub model: String,
    /// By what it judges.
    pub prompt: String,
    /// Most output tokens of one call.
    pub max_output_tokens: u32,
    /// How long one call may take, in milliseconds.
    pub timeout_ms: u64,
    /// Whether a text passes that it has no verdict about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fails_open: bool,
}

/// A text that a guardrail is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The step in which it is judged.
    pub step: u32,
    /// The guardrail's name.
    pub name: String,
    /// Who is asked.
    pub of: Judge,
    /// What is judged.
    pub on: GuardPoint,
    /// The last of the messages that are judged, by its place in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<u32>,
    /// The call whose arguments or result are judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// A digest of the text, by which a verdict about another text of the same call is told apart.
    #[serde(default, skip_serializing_if = "is_default")]
    pub digest: u64,
}

/// Who is asked about a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judge {
    /// A model.
    Model,
    /// A service, or a program.
    Webhook,
}

impl Asked {
    /// Under which step's number is reserved what a model call takes that judges between two steps: that of the next.
    #[must_use]
    pub fn next_step(&self) -> u32 {
        // What users say is judged in the name of the step that it is for.
        if self.on == GuardPoint::Input { self.step } else { self.step.saturating_add(1) }
    }

    /// Whether both are the same guardrail about the same text.
    #[must_use]
    pub fn is_about(&self, other: &Self) -> bool {
        let of = |asked: &Self| (asked.on, asked.message, asked.digest);
        of(self) == of(other) && self.name == other.name && self.call_id == other.call_id
    }
}

/// A model is asked about a text; what that may take is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judging {
    /// About what.
    #[serde(flatten)]
    pub asked: Asked,
    /// The model that is asked.
    pub model: Arc<StepModel>,
    /// What its call may take.
    pub reserved: Reservation,
    /// What is set aside for it beyond what the step's own call has left of its reservation; all of it between steps.
    pub set_aside: Reservation,
    /// Whether it is settled with a step that is under way. Otherwise it is settled by itself, under the number of the next step.
    #[serde(default, skip_serializing_if = "is_default")]
    pub in_step: bool,
}

/// A guardrail was asked about a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// About what.
    #[serde(flatten)]
    pub asked: Asked,
    /// What it said.
    pub verdict: Verdict,
    /// Why, in the words of a service. They may be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long it took.
    pub latency_ms: u64,
    /// What that took of a model; `None` of a service, and of a model that was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Box<JudgeCall>>,
}

/// A call of a model that judged a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgeCall {
    /// The model.
    pub model: Arc<StepModel>,
    /// What the run is charged for it.
    pub usage: Usage,
    /// What it may have taken beyond that: the key is charged for it.
    #[serde(default, skip_serializing_if = "Used::is_nothing")]
    pub unconfirmed: Used,
    /// How it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<ErrorKind>,
    /// See [`Judging::in_step`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub in_step: bool,
}

/// What a guardrail said that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The text passes.
    Pass,
    /// The text fails.
    Fail,
    /// Nothing that counts: `on_failure` decides.
    NoAnswer,
    /// The run did not wait for it. It is asked again if the run goes on.
    Dropped,
}

impl Verdict {
    /// The verdict as it is written on the wire and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NoAnswer => "no_answer",
            Self::Dropped => "dropped",
        }
    }
}

impl Judged {
    /// Who was asked: `model` or `webhook`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.asked.of {
            Judge::Model => "model",
            Judge::Webhook => "webhook",
        }
    }
}

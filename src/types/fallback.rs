//! The models that a run may call in place of its own, and how it comes to do so.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::error::ErrorKind;
use crate::types::price::{Price, StepModel};
use crate::types::usage::{Micros, Usage};

/// Most models that a run may fall back to.
pub const MOST_FALLBACKS: usize = 8;

/// A model that a run falls back to, pinned when the run is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// The model.
    pub model: Arc<StepModel>,
    /// Most tokens of input and output together that it takes.
    pub context_window: u64,
    /// Most output tokens that are reserved for one call of it.
    pub max_output_tokens: u64,
}

/// What the plan of a call depends on of the model that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTerms {
    /// What its tokens cost.
    pub price: Price,
    /// Most tokens of input and output together that it takes.
    pub context_window: u64,
    /// Most output tokens that are reserved for one call of it.
    pub max_output_tokens: u64,
}

impl Fallback {
    /// What the plan of its calls depends on.
    #[must_use]
    pub fn terms(&self) -> CallTerms {
        let Self { model, context_window, max_output_tokens } = self;
        CallTerms { price: model.price, context_window: *context_window, max_output_tokens: *max_output_tokens }
    }
}

/// What a run took of a model that it fell back to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackUsage {
    /// The upstream and its model, with a slash between them.
    pub model: String,
    /// Tokens.
    pub usage: Usage,
    /// Their cost.
    pub cost: Micros,
}

/// A run goes on with another model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FellBack {
    /// The step whose call failed; the one before if the model was not called at all.
    pub step: u32,
    /// The model that is called from now on.
    pub to: Arc<StepModel>,
    /// The upstream that was called before.
    pub from_upstream: String,
    /// Its model.
    pub from_model: String,
    /// How many models in a row the run has left without an answer, counted from 1.
    pub attempt: u32,
    /// What failed.
    pub kind: ErrorKind,
    /// Why, in a sentence that may be shown.
    pub cause: String,
    /// The models that came before this one in the run's order and are not asked, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

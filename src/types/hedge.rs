//! Two calls of one step: a second model is asked beside a model that says nothing yet, and the step goes on with the call
//! that speaks first.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::error::ErrorKind;
use crate::types::price::StepModel;
use crate::types::reservation::Reservation;
use crate::types::usage::{Usage, Used};

/// A second call of a step begins; what it may take is reserved beside what the first may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HedgeStarted {
    /// The step, whose first call has said nothing yet.
    pub step: u32,
    /// The model that is called now. It may be that of the first call, at another server or with another key.
    pub to: Arc<StepModel>,
    /// The upstream of the first call.
    pub from_upstream: String,
    /// Its model.
    pub from_model: String,
    /// How long the first call had said nothing.
    pub after_ms: u64,
    /// What is set aside for the second call.
    pub reserved: Reservation,
}

/// One of the two calls of a step is dropped; the step goes on with the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HedgeEnded {
    /// The step.
    pub step: u32,
    /// The call that the step goes on with.
    pub kept: KeptCall,
    /// The model that the run goes on with, if it is another than before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Arc<StepModel>>,
    /// The model of the call that was dropped.
    pub dropped: Arc<StepModel>,
    /// What the run is charged for that call.
    pub usage: Usage,
    /// What it may have taken beyond that: the key is charged for it.
    #[serde(default, skip_serializing_if = "Used::is_nothing")]
    pub unconfirmed: Used,
    /// How that call failed, and why in a sentence that may be shown; `None` if the other one was faster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<(ErrorKind, String)>,
}

/// Which of its two calls a step goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptCall {
    /// The call that the step began with.
    First,
    /// The call that was made beside it.
    Second,
}

impl KeptCall {
    /// The other of the two.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// The call in a word, as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Second => "second",
        }
    }
}

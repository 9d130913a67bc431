//! Rules of an operator by which texts of a run are judged.

use serde::{Deserialize, Serialize};

use super::judge::{Judged, ModelJudge, Verdict};
use super::point::GuardPoint;
use crate::types::CallId;
use crate::types::json::is_default;

/// Most memory for a compiled expression of a guardrail, in bytes.
pub const MAX_COMPILED: usize = 1 << 20;

/// A rule by which texts of a run are judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guardrail {
    /// Its name.
    pub name: String,
    /// What is judged.
    pub on: GuardPoint,
    /// What is wrong with a text.
    pub rule: GuardrailRule,
    /// Whether a text that fails ends the run; otherwise it is told.
    #[serde(default)]
    pub tripwire: bool,
    /// How bad it is.
    #[serde(default)]
    pub severity: Severity,
}

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum GuardrailRule {
    /// An expression matches it.
    Regex {
        /// The expression.
        pattern: String,
    },
    /// It is too long.
    MaxLength {
        /// The most characters that it may have.
        chars: u32,
    },
    /// A service says so.
    Webhook {
        /// The hook that reaches the service.
        hook: String,
        /// Whether a text passes that it has no verdict about.
        #[serde(default, skip_serializing_if = "is_default")]
        fails_open: bool,
    },
    /// A model says so.
    Model(Box<ModelJudge>),
}

impl GuardrailRule {
    /// What is wrong with a text that fails, in words that do not repeat the text.
    #[must_use]
    pub fn objection(&self) -> String {
        match self {
            Self::Regex { .. } => "the pattern of the guardrail matches".to_owned(),
            Self::MaxLength { chars } => format!("it has more than {chars} characters"),
            Self::Webhook { .. } => "the service of the guardrail objects to it".to_owned(),
            Self::Model(_) => "the model of the guardrail objects to it".to_owned(),
        }
    }

    /// Whether a model or a service is asked, which takes time and may fail.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        match self {
            Self::Regex { .. } | Self::MaxLength { .. } => false,
            Self::Webhook { .. } | Self::Model(_) => true,
        }
    }

    /// Whether a text passes that has no verdict.
    fn fails_open(&self) -> bool {
        match self {
            Self::Webhook { fails_open, .. } => *fails_open,
            Self::Model(judge) => judge.fails_open,
            Self::Regex { .. } | Self::MaxLength { .. } => true,
        }
    }
}

/// How bad it is that a text fails a guardrail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Hardly.
    Low,
    /// Somewhat.
    #[default]
    Medium,
    /// Very.
    High,
    /// As bad as can be.
    Critical,
}

impl Severity {
    /// Its name in the configuration and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// A text failed a guardrail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Triggered {
    /// The guardrail's name.
    pub name: String,
    /// What was judged.
    pub on: GuardPoint,
    /// Whether it ends the run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tripwire: bool,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, without the text.
    pub reason: String,
    /// The step in which it was judged.
    pub step: u32,
    /// The message of the run that was judged, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<u32>,
    /// The call whose arguments or result were judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
}

impl Triggered {
    /// A text that was judged in this step fails this guardrail.
    #[must_use]
    pub fn new(rail: &Guardrail, step: u32) -> Self {
        let Guardrail { name, on, rule, tripwire, severity } = rail;
        Self {
            name: name.clone(),
            on: *on,
            tripwire: *tripwire,
            severity: *severity,
            reason: rule.objection(),
            step,
            message: None,
            call_id: None,
        }
    }

    /// That a text fails this guardrail by what the guardrail said when it was asked; `None` if the text passes.
    #[must_use]
    pub fn by(rail: &Guardrail, judged: &Judged) -> Option<Self> {
        let reason = match judged.verdict {
            Verdict::Fail => judged.reason.clone().unwrap_or_else(|| rail.rule.objection()),
            Verdict::NoAnswer if !rail.rule.fails_open() => "it could not be judged".to_owned(),
            Verdict::Pass | Verdict::NoAnswer | Verdict::Dropped => return None,
        };
        let (message, call_id) = (judged.asked.message, judged.asked.call_id.clone());
        Some(Self { reason, message, call_id, ..Self::new(rail, judged.asked.step) })
    }
}

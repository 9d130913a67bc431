//! The events of a run, as far as they are shown. Pure.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::client::ErrorText;
use crate::cli::text::{clean, count, line};

/// Most characters of arguments, results and causes that are shown.
pub(super) const MOST_SHOWN: usize = 400;

/// An event of a run, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Event {
    /// Chunks of text have none.
    #[serde(default)]
    pub(super) r#type: String,
    #[serde(default)]
    pub(super) run_id: String,
    #[serde(default)]
    pub(super) model: String,
    #[serde(default)]
    pub(super) upstream: String,
    #[serde(default)]
    pub(super) dropped_upstream: String,
    #[serde(default)]
    pub(super) dropped_model: String,
    pub(super) session_id: Option<String>,
    #[serde(default)]
    pub(super) step: u32,
    #[serde(default)]
    pub(super) name: String,
    pub(super) arguments: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) content: String,
    #[serde(default)]
    pub(super) is_error: bool,
    #[serde(default)]
    pub(super) outcome_unknown: bool,
    #[serde(default)]
    pub(super) latency_ms: u64,
    #[serde(default)]
    pub(super) text: String,
    #[serde(default)]
    pub(super) message: String,
    pub(super) progress: Option<f64>,
    pub(super) total: Option<f64>,
    #[serde(default)]
    pub(super) cause: String,
    pub(super) reason: Option<String>,
    /// Of an approval.
    #[serde(default)]
    pub(super) decision: String,
    pub(super) by: Option<String>,
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) scope: String,
    #[serde(default)]
    pub(super) used: f64,
    #[serde(default)]
    pub(super) limit: f64,
    #[serde(default)]
    pub(super) finish_reason: String,
    pub(super) usage: Option<Usage>,
    pub(super) agent: Option<AgentMember>,
    #[serde(default)]
    pub(super) call_id: String,
    /// Of a run below.
    #[serde(default)]
    pub(super) depth: u32,
    #[serde(default)]
    pub(super) status: String,
    pub(super) stop_reason: Option<String>,
    pub(super) tree: Option<Tree>,
    #[serde(rename = "event")]
    pub(super) inner: Option<Box<Event>>,
    pub(super) error: Option<ErrorText>,
    #[serde(default)]
    pub(super) choices: Vec<Choice>,
}

/// What events have in `agent`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum AgentMember {
    /// The agent of a run that begins below.
    Name(String),
    Ending(Box<Ending>),
}

/// What a run and all below it took.
#[derive(Debug, Deserialize)]
pub(super) struct Tree {
    pub(super) runs: u32,
    pub(super) usage: Usage,
    pub(super) cost_usd: f64,
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, usage, cost_usd } = self;
        let runs = if *runs > 1 { format!(" in {}", count(runs, "run")) } else { String::new() };
        write!(f, "{usage}{runs}, ${cost_usd}")
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    pub(super) delta: Delta,
}

#[derive(Debug, Deserialize)]
pub(super) struct Delta {
    #[serde(default)]
    pub(super) content: String,
    #[serde(default)]
    pub(super) refusal: String,
}

/// Tokens.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Usage {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
}

impl Usage {
    /// Those that were read and those that were written.
    pub(in crate::cli) fn total(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens in, {} out", self.prompt_tokens, self.completion_tokens)
    }
}

/// How a run ended or why it waits.
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Ending {
    pub(in crate::cli) status: String,
    pub(in crate::cli) stop_reason: String,
    pub(super) message: Option<String>,
    pub(super) run_id: String,
    pub(super) iterations: u32,
    pub(super) tool_calls: u32,
    pub(in crate::cli) cost_usd: f64,
    pub(super) required_action: Option<RequiredAction>,
    #[serde(default)]
    pub(super) warnings: Vec<String>,
    pub(super) tree: Option<Tree>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RequiredAction {
    pub(super) calls: Vec<RequiredCall>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RequiredCall {
    pub(super) name: String,
}

impl Event {
    /// What the server says if this is no event of the run but an error that ends the stream.
    pub(in crate::cli) fn stream_error(&self) -> Option<String> {
        let error = self.error.as_ref().filter(|_| self.r#type.is_empty())?;
        Some(clean(&error.message))
    }
}

impl Ending {
    /// What there is to say of the end besides its reason.
    pub(in crate::cli) fn remarks(&self) -> Vec<String> {
        let message = self.message.as_ref().map(|message| line(message, MOST_SHOWN));
        let calls = self.required_action.as_ref().map(|action| {
            let names: Vec<_> = action.calls.iter().map(|call| line(&call.name, MOST_SHOWN)).collect();
            let names = names.join(", ");
            match self.stop_reason.as_str() {
                "approval" => {
                    let run = line(&self.run_id, MOST_SHOWN);
                    format!("waits for an approval of {names}: POST /v1/runs/{run}/approvals decides")
                }
                "tool_pending" => format!("waits for services to answer {names}"),
                _ => format!("waits for its client to answer {names}"),
            }
        });
        let warnings = self.warnings.iter().map(|warning| format!("warning: {}", line(warning, MOST_SHOWN)));
        message.into_iter().chain(calls).chain(warnings).collect()
    }
}

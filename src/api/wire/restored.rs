//! What a session's snapshot says of the place that it is from, and what of that is another where it is restored.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agent::session::environment::Environment;

/// Most warnings of one kind.
const MOST_TOLD: usize = 50;
/// How much of a run's id is told.
const LONGEST_ID: usize = 64;

/// The agent of a session where it is exported.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentObject {
    /// The upstream and its model, with a slash between them.
    #[schema(example = "openai/gpt-5")]
    pub model: String,
    /// The names of the server's tools that it has.
    #[serde(default)]
    pub tools: BTreeSet<String>,
}

impl From<Environment> for EnvironmentObject {
    fn from(Environment { model, tools }: Environment) -> Self {
        Self { model, tools }
    }
}

/// What a restored session had otherwise where it was exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RestoreWarning {
    /// `agent_missing`, `model_changed`, `tool_removed`, `tool_added`, `pending_calls_dropped` or `run_dropped`.
    #[schema(example = "tool_removed")]
    pub code: &'static str,
    /// The same in a sentence.
    pub message: String,
    /// The tool, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// What becomes of a run that had not ended.
#[derive(Debug, PartialEq, Eq)]
pub struct LeftRun {
    /// The run.
    pub id: String,
    /// Whether it waited for answers to calls.
    pub waited: bool,
    /// Whether what it said is imported.
    pub is_kept: bool,
}

impl RestoreWarning {
    /// That these runs of the session had not ended, and go on nowhere.
    pub fn of_runs(left: &[LeftRun]) -> impl Iterator<Item = Self> {
        left.iter().take(MOST_TOLD).map(|LeftRun { id, waited, is_kept }| {
            let run: String = id.chars().take(LONGEST_ID).collect();
            let (code, message) = match (waited, is_kept) {
                (true, true) => (
                    "pending_calls_dropped",
                    format!(
                        "the run {run} waited for answers to calls and does not go on here; what was said is kept, and these calls \
                         have the result that the run ended before they were answered"
                    ),
                ),
                (true, false) => (
                    "pending_calls_dropped",
                    format!("the run {run} waited for answers to calls; it and its calls are not restored"),
                ),
                (false, _) => (
                    "run_dropped",
                    format!("the run {run} had not ended when the session was exported; what it says is not restored"),
                ),
            };
            Self { code, message, tool: None }
        })
    }
}

/// What is otherwise for the runs of an agent. A snapshot that does not say how it was is compared with nothing.
pub fn compare(
    agent: Option<&str>,
    then: Option<&EnvironmentObject>,
    now: Option<&Environment>,
) -> Vec<RestoreWarning> {
    let Some(agent) = agent else { return Vec::new() };
    let warning = |code, message, tool| RestoreWarning { code, message, tool };
    let Some(now) = now else {
        let message = format!("the agent {agent:?} of the session does not exist here, or has no model");
        return vec![warning("agent_missing", message, None)];
    };
    let Some(then) = then else { return Vec::new() };
    let mut told = Vec::new();
    if then.model != now.model {
        let message = format!("the agent {agent:?} called {} and calls {} here", then.model, now.model);
        told.push(warning("model_changed", message, None));
    }
    let missing = then.tools.difference(&now.tools).take(MOST_TOLD);
    told.extend(missing.map(|tool| {
        let message = format!("the agent {agent:?} had the tool {tool:?}, and has not here");
        warning("tool_removed", message, Some(tool.clone()))
    }));
    let new = now.tools.difference(&then.tools).take(MOST_TOLD);
    told.extend(new.map(|tool| {
        let message = format!("the agent {agent:?} has the tool {tool:?} here, and had not");
        warning("tool_added", message, Some(tool.clone()))
    }));
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_otherwise_is_told() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let then = EnvironmentObject { model: "u/m".into(), tools: names(&["a", "b"]) };
        let now = |model: &str, tools: &[&str]| Environment { model: model.into(), tools: names(tools) };
        let codes = |agent, then: Option<&EnvironmentObject>, now: Option<Environment>| {
            let told = compare(agent, then, now.as_ref());
            told.into_iter().map(|warning| (warning.code, warning.tool.unwrap_or_default())).collect::<Vec<_>>()
        };
        let agent = Some("default");
        assert!(codes(agent, Some(&then), Some(now("u/m", &["a", "b"]))).is_empty());
        assert_eq!(
            codes(agent, Some(&then), Some(now("u/n", &["b", "c"]))),
            [("model_changed", String::new()), ("tool_removed", "a".into()), ("tool_added", "c".into())]
        );
        assert_eq!(codes(agent, Some(&then), None), [("agent_missing", String::new())]);
        assert!(codes(agent, None, Some(now("u/n", &[]))).is_empty(), "it does not say how it was");
        assert!(codes(None, Some(&then), None).is_empty(), "its runs name their own");
    }
}

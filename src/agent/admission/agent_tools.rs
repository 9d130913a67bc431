//! What tools have in common by which a model names another agent: who is named in them, and when they are offered.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::agent::admission::Admission;
use crate::agent::admission::select::Selected;
use crate::agent::error::StartError;
use crate::agent::generation::Generation;
use crate::agent::request::NewRun;
use crate::types::Effect;
use crate::types::json::RawValueEq;
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::pattern::matches;
use crate::types::policy::Policy;

/// An agent that may be named, and what it is for.
type Target = (String, Option<String>);

/// Such a tool, before it is known which agents it names.
#[derive(Debug)]
pub(super) struct AgentTool {
    /// Its name.
    pub(super) name: &'static str,
    /// What a model does by it, as it stands behind "cannot".
    pub(super) does: &'static str,
    /// What a model is told of it. The agents follow.
    pub(super) description: String,
    /// Its parameters, of which `agent` gets the names.
    pub(super) parameters: Value,
}

impl AgentTool {
    /// The tool, as a model sees it that may name these.
    fn naming(mut self, targets: &[Target]) -> ToolDefinition {
        for (name, what) in targets {
            match what {
                // Writing to a text does not fail.
                Some(what) => drop(write!(self.description, "\n- {name}: {what}")),
                None => drop(write!(self.description, "\n- {name}")),
            }
        }
        let names: Vec<&str> = targets.iter().map(|(name, _)| name.as_str()).collect();
        self.parameters["properties"]["agent"]["enum"] = json!(names);
        ToolDefinition {
            name: self.name.to_owned(),
            description: Some(self.description),
            parameters: to_raw_value(&self.parameters).ok().map(RawValueEq),
            ..ToolDefinition::default()
        }
    }
}

/// Whether the request wants no tool of this name, or the policy allows none.
fn is_left_out(name: &str, new: &NewRun, policy: Option<&Policy>) -> bool {
    new.options.tool_choice == ToolChoice::None
        || new.tools.as_ref().is_some_and(|wanted| !wanted.iter().any(|pattern| matches(pattern, name)))
        || policy.is_some_and(|policy| policy.always_denies(name, Effect::Read))
}

impl Admission {
    /// Offers a run such a tool, which names those of `agents` that are there and that the caller may use. Returns what the caller
    /// should know.
    pub(super) async fn offer_agents(
        &self,
        (tool, agents): (AgentTool, Vec<&String>),
        new: &NewRun,
        (generation, policy): (&Generation, Option<&Policy>),
        selected: &mut Selected,
    ) -> Result<Option<String>, StartError> {
        let AgentTool { name, does, .. } = tool;
        if is_left_out(name, new, policy) {
            return Ok(None);
        }
        if selected.has(name) || new.client_tools.iter().any(|tool| tool.name == name) {
            return Ok(Some(format!("the model cannot {does}: another tool has the name {name:?}")));
        }
        let (mut targets, mut missing) = (Vec::new(), Vec::new());
        let may_use = |agent: &String| new.allowed_agents.as_ref().is_none_or(|allowed| allowed.contains(agent));
        for agent in agents.into_iter().filter(|agent| may_use(agent)) {
            match self.agents.description(generation, &new.tenant, agent).await {
                Ok(Some(description)) => targets.push((agent.clone(), description)),
                // An agent that cannot be used now does not keep the model from the others.
                Ok(None) | Err(StartError::AgentUnreadable { .. }) => missing.push(agent.as_str()),
                Err(error) => return Err(error),
            }
        }
        if !targets.is_empty() {
            selected.add_own([Arc::new(tool.naming(&targets))].into_iter());
        }
        let warning = format!("the model cannot {does} to agents that are not there: {}", missing.join(", "));
        Ok((!missing.is_empty()).then_some(warning))
    }
}

//! Whether a run may have its work done by other agents that its own one is made of.

use std::sync::Arc;

use serde_json::json;
use serde_json::value::to_raw_value;

use crate::agent::admission::Admission;
use crate::agent::admission::select::Selected;
use crate::agent::catalog::Resolved;
use crate::agent::error::{Field, StartError};
use crate::agent::generation::Generation;
use crate::agent::request::NewRun;
use crate::types::composite::Composite;
use crate::types::delegate::DELEGATE;
use crate::types::json::RawValueEq;
use crate::types::offer::ToolDefinition;
use crate::types::policy::Policy;
use crate::types::run::OnLimit;
use crate::types::{Effect, RunSpec};

impl Admission {
    /// Offers a run of a composite agent the tool by which it has others work. Fails if they cannot do its work now.
    pub(super) async fn offer_parts(
        &self,
        (new, resolved): (&NewRun, &Resolved),
        (generation, policy): (&Generation, Option<&Policy>),
        selected: &mut Selected,
    ) -> Result<(), StartError> {
        let (agent, Some(composite)) = (&resolved.agent_name, &resolved.settings.rules.composite) else {
            return Ok(());
        };
        if new.of.as_ref().is_some_and(|of| of.parent.depth >= of.tree.max_depth) {
            let message = format!(
                "the agent {agent:?} is made of others, and stands too deep in its tree of runs to begin any: \
                 `delegation.max_depth` of the first run's agent says how deep that may be"
            );
            return Err(invalid("model", message));
        }
        if policy.is_some_and(|policy| policy.always_denies(DELEGATE, Effect::Read)) {
            let message =
                format!("the agent {agent:?} is made of others, and a policy denies it the tool `{DELEGATE}`");
            return Err(invalid("model", message));
        }
        for part in composite.agents() {
            if new.allowed_agents.as_ref().is_some_and(|allowed| !allowed.iter().any(|one| one == part)) {
                return Err(StartError::AgentForbidden(part.to_owned()));
            }
            if self.agents.description(generation, &new.tenant, part).await?.is_none() {
                let why = format!("it is made of the agent {part:?}, which is not there");
                return Err(StartError::AgentUnreadable { agent: agent.clone(), why });
            }
        }
        selected.add_own([Arc::new(definition(composite))].into_iter());
        Ok(())
    }
}

/// Refuses what only a model could do, if the agent has none.
pub(super) fn refuse_unfit(new: &NewRun, resolved: &Resolved) -> Result<(), StartError> {
    let (agent, Some(composite)) = (&resolved.agent_name, &resolved.settings.rules.composite) else { return Ok(()) };
    let no_model = |field, what: &str| {
        Err(invalid(field, format!("the agent {agent:?} is made of others and has no model of its own: {what}")))
    };
    if new.compacts() {
        return no_model("model", "there is none that could shorten a conversation");
    }
    if !new.client_tools.is_empty() {
        return no_model("tools", "there is none that could call tools of the request; ask one of its agents");
    }
    if new.servers.is_some() {
        return no_model(
            "tools",
            "there is none that could call tools of MCP servers of the request; ask one of its agents",
        );
    }
    if new.tools.is_some() {
        return no_model("agent.tools", "its agents have their own tools");
    }
    if new.prompt.is_some() && new.of.is_none() {
        return no_model("agent.prompt", "its agents have their own prompts");
    }
    if !composite.has_one_answer() && new.options.sampling.asks_for_json() {
        let what = "its answer has those of all of its agents; give it a `consolidate` agent, whose answer can be JSON";
        return no_model("response_format", what);
    }
    Ok(())
}

/// A run of a composite agent gives no closing answer.
pub(super) fn pin(spec: &mut RunSpec) {
    if spec.rules.composite.is_some() && spec.on_limit == OnLimit::Synthesize {
        spec.on_limit = OnLimit::Stop;
    }
}

/// Refuses to say what a request would be that no model answers.
pub(super) fn refuse_dry_run(spec: &RunSpec) -> Result<(), StartError> {
    let Some(composite) = &spec.rules.composite else { return Ok(()) };
    let agents: Vec<_> = composite.agents().collect();
    let message = format!(
        "the agent {:?} is made of others and calls no model itself; ask for a dry run of one of them: {}",
        spec.agent,
        agents.join(", ")
    );
    Err(invalid("agent.dry_run", message))
}

fn invalid(field: &'static str, message: String) -> StartError {
    StartError::Invalid { field: Field::Member(field), message }
}

/// The tool, by which no model calls these agents.
fn definition(composite: &Composite) -> ToolDefinition {
    let agents: Vec<_> = composite.agents().collect();
    let schema = json!({
        "type": "object",
        "properties": {"agent": {"type": "string", "enum": agents}},
        "required": ["agent"],
        "additionalProperties": false,
    });
    ToolDefinition {
        name: DELEGATE.to_owned(),
        description: Some("Has another agent work on the conversation.".to_owned()),
        parameters: to_raw_value(&schema).ok().map(RawValueEq),
        ..ToolDefinition::default()
    }
}

//! Whether a model may hand its run off, to which agents, and what the run keeps for that.

use std::fmt::Write;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::to_raw_value;

use crate::agent::admission::Admission;
use crate::agent::admission::select::Selected;
use crate::agent::error::StartError;
use crate::agent::generation::Generation;
use crate::agent::request::{ApprovalPatch, AskedPrompt, GuardsPatch, NewRun, RulesPatch};
use crate::types::handoff::{HANDOFF, HandoffTerms};
use crate::types::json::RawValueEq;
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::pattern::matches;
use crate::types::policy::{Layer, Policy};
use crate::types::rules::LoopRules;
use crate::types::{Effect, Message, RunSpec};

/// Longest reason for a handoff, in characters.
const MOST_REASON: usize = 1_000;
/// Longest message to the next agent, in characters.
const MOST_MESSAGE: usize = 20_000;

/// An agent that may go on with a run, and what it is for.
type Target = (String, Option<String>);

/// What a request asked for that holds for whichever agent goes on with its run.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AskedOfRun {
    pub(super) system: Vec<Message>,
    pub(super) tools: Option<Vec<String>>,
    pub(super) policy: Option<Arc<Layer>>,
    pub(super) approval: ApprovalPatch,
    pub(super) rules: RulesPatch,
    pub(super) guards: GuardsPatch,
    pub(super) prompt: Option<Box<AskedPrompt>>,
}

impl Admission {
    /// Offers a run the tool by which its model hands it off, if its agent may and anyone is there. Returns what the caller should know.
    pub(super) async fn offer_handoffs(
        &self,
        (new, rules, agent): (&NewRun, &LoopRules, &str),
        (generation, policy): (&Generation, Option<&Policy>),
        selected: &mut Selected,
    ) -> Result<Option<String>, StartError> {
        if rules.handoff.to.is_empty() || new.compacts() || is_left_out(new) {
            return Ok(None);
        }
        if policy.is_some_and(|policy| policy.always_denies(HANDOFF, Effect::Read)) {
            return Ok(None);
        }
        if selected.has(HANDOFF) || new.client_tools.iter().any(|tool| tool.name == HANDOFF) {
            return Ok(Some(format!("the model cannot hand the run off: another tool has the name {HANDOFF:?}")));
        }
        let (mut targets, mut missing) = (Vec::new(), Vec::new());
        let may_use = |agent: &String| new.allowed_agents.as_ref().is_none_or(|allowed| allowed.contains(agent));
        let others = rules.handoff.to.iter().filter(|name| *name != agent && may_use(name));
        for name in others {
            match self.agents.description(generation, &new.tenant, name).await {
                Ok(Some(description)) => targets.push((name.clone(), description)),
                // An agent that cannot be used now does not keep the run from the others.
                Ok(None) | Err(StartError::AgentUnreadable { .. }) => missing.push(name.as_str()),
                Err(error) => return Err(error),
            }
        }
        if !targets.is_empty() {
            selected.add_own([Arc::new(definition(&targets))].into_iter());
        }
        let warning = format!("the model cannot hand the run off to agents that are not there: {}", missing.join(", "));
        Ok((!missing.is_empty()).then_some(warning))
    }
}

/// Whether the request wants no such tool.
fn is_left_out(new: &NewRun) -> bool {
    new.options.tool_choice == ToolChoice::None
        || new.tools.as_ref().is_some_and(|wanted| !wanted.iter().any(|pattern| matches(pattern, HANDOFF)))
}

/// The tool, as a model sees it that may hand its run to these.
fn definition(targets: &[Target]) -> ToolDefinition {
    let mut description =
        "Hands this conversation to another agent, which goes on with it in your place: it answers the user from the \
                           next turn on, and you do not. Call it when another agent should take over. The agents are:"
            .to_owned();
    for (name, what) in targets {
        match what {
            // Writing to a text does not fail.
            Some(what) => drop(write!(description, "\n- {name}: {what}")),
            None => drop(write!(description, "\n- {name}")),
        }
    }
    let names: Vec<&str> = targets.iter().map(|(name, _)| name.as_str()).collect();
    let schema = json!({
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": names, "description": "Who is to go on"},
            "reason": {"type": "string", "minLength": 1, "maxLength": MOST_REASON, "description": "Why, in a sentence"},
            "message": {"type": "string", "maxLength": MOST_MESSAGE, "description": "What that agent should know to go on"},
        },
        "required": ["agent", "reason"],
        "additionalProperties": false,
    });
    ToolDefinition {
        name: HANDOFF.to_owned(),
        description: Some(description),
        parameters: to_raw_value(&schema).ok().map(RawValueEq),
        ..ToolDefinition::default()
    }
}

/// Keeps in a run's specification what another agent's run of it is made of, if its model may hand it off.
pub(super) fn note(spec: &mut RunSpec, new: &NewRun) {
    if !spec.own_tools.iter().any(|tool| tool.name == HANDOFF) {
        return;
    }
    let asked = AskedOfRun {
        system: new.system.clone(),
        tools: new.tools.clone(),
        policy: new.policy.clone(),
        approval: new.approval,
        rules: new.rules.clone(),
        guards: new.guards,
        prompt: new.prompt.clone(),
    };
    // It was read of JSON, or is made of what is written as JSON.
    let Ok(asked) = to_raw_value(&asked) else { return };
    spec.handoff.terms = Some(Arc::new(HandoffTerms {
        allowed_agents: new.allowed_agents.clone(),
        above: new.of.as_ref().and_then(|of| of.policy.clone()),
        asked: RawValueEq(asked),
        names_servers: new.servers.is_some(),
    }));
}

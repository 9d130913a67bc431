//! Whether a model may hand its run off, to which agents, and what the run keeps for that.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::to_raw_value;

use crate::agent::admission::Admission;
use crate::agent::admission::agent_tools::AgentTool;
use crate::agent::admission::select::Selected;
use crate::agent::error::StartError;
use crate::agent::generation::Generation;
use crate::agent::request::{ApprovalPatch, AskedPrompt, GuardsPatch, NewRun, RulesPatch};
use crate::types::handoff::{HANDOFF, HandoffTerms};
use crate::types::json::RawValueEq;
use crate::types::policy::{Layer, Policy};
use crate::types::rules::LoopRules;
use crate::types::{Message, RunSpec};

/// Longest reason for a handoff, in characters.
const MOST_REASON: usize = 1_000;
/// Longest message to the next agent, in characters.
const MOST_MESSAGE: usize = 20_000;

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
        of_run: (&Generation, Option<&Policy>),
        selected: &mut Selected,
    ) -> Result<Option<String>, StartError> {
        if rules.handoff.to.is_empty() || new.compacts() {
            return Ok(None);
        }
        let others = rules.handoff.to.iter().filter(|name| *name != agent).collect();
        self.offer_agents((tool(), others), new, of_run, selected).await
    }
}

/// The tool by which a model hands its run off.
fn tool() -> AgentTool {
    let description = "Hands this conversation to another agent, which goes on with it in your place: it answers the user from the \
                       next turn on, and you do not. Call it when another agent should take over. The agents are:";
    let parameters = json!({
        "type": "object",
        "properties": {
            "agent": {"type": "string", "description": "Who is to go on"},
            "reason": {"type": "string", "minLength": 1, "maxLength": MOST_REASON, "description": "Why, in a sentence"},
            "message": {"type": "string", "maxLength": MOST_MESSAGE, "description": "What that agent should know to go on"},
        },
        "required": ["agent", "reason"],
        "additionalProperties": false,
    });
    AgentTool { name: HANDOFF, does: "hand the run off", description: description.to_owned(), parameters }
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

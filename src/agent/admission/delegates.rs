//! Whether a run may begin others, of which agents, and what it shares with them.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::json;
use serde_json::value::to_raw_value;

use crate::agent::admission::Admission;
use crate::agent::admission::select::Selected;
use crate::agent::error::StartError;
use crate::agent::generation::Generation;
use crate::agent::request::NewRun;
use crate::types::delegate::{DELEGATE, Delegation, TaskHistory};
use crate::types::json::RawValueEq;
use crate::types::lineage::{SessionBound, Tree, TreeBound};
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::pattern::matches;
use crate::types::policy::Policy;
use crate::types::question::ASK_USER;
use crate::types::session::Session;
use crate::types::{Effect, RunSpec};

/// An agent to whom a run may delegate, and what it is for.
type Target = (String, Option<String>);

impl Admission {
    /// Offers a run the tool by which it delegates, if its agent may and anyone is there. Returns what the caller should know.
    pub(super) async fn offer_delegates(
        &self,
        (new, rules): (&NewRun, &Delegation),
        (generation, policy): (&Generation, Option<&Policy>),
        selected: &mut Selected,
    ) -> Result<Option<String>, StartError> {
        if !may_delegate(new, rules) || is_left_out(new) {
            return Ok(None);
        }
        if policy.is_some_and(|policy| policy.always_denies(DELEGATE, Effect::Read)) {
            return Ok(None);
        }
        if selected.has(DELEGATE) || new.client_tools.iter().any(|tool| tool.name == DELEGATE) {
            let warning = format!("the model cannot delegate: another tool has the name {DELEGATE:?}");
            return Ok(Some(warning));
        }
        let (mut targets, mut missing) = (Vec::new(), Vec::new());
        let may_use = |agent: &String| new.allowed_agents.as_ref().is_none_or(|allowed| allowed.contains(agent));
        for name in rules.to.iter().filter(|name| may_use(name)) {
            match self.agents.description(generation, &new.tenant, name).await {
                Ok(Some(description)) => targets.push((name.clone(), description)),
                // An agent that cannot be used now does not keep the model from the others.
                Ok(None) | Err(StartError::AgentUnreadable { .. }) => missing.push(name.as_str()),
                Err(error) => return Err(error),
            }
        }
        if !targets.is_empty() {
            selected.add_own([Arc::new(definition(&targets, rules.history))].into_iter());
        }
        let warning = format!("the model cannot delegate to agents that are not there: {}", missing.join(", "));
        Ok((!missing.is_empty()).then_some(warning))
    }
}

/// Whether the agent delegates to anyone, and the run does not stand as deep in its tree as one may.
fn may_delegate(new: &NewRun, rules: &Delegation) -> bool {
    let is_above = new.of.as_ref().is_none_or(|of| of.parent.depth < of.tree.max_depth);
    !rules.to.is_empty() && is_above && !new.compacts()
}

/// Whether the request wants no such tool.
fn is_left_out(new: &NewRun) -> bool {
    new.options.tool_choice == ToolChoice::None
        || new.tools.as_ref().is_some_and(|wanted| !wanted.iter().any(|pattern| matches(pattern, DELEGATE)))
}

/// The tool, as a model sees it that may delegate to these.
fn definition(targets: &[Target], history: TaskHistory) -> ToolDefinition {
    let sees = match history {
        TaskHistory::Fresh => "sees nothing of this conversation, so the task must say all that it needs",
        TaskHistory::Fork => "sees what was said before you began to work, and nothing since then",
    };
    let mut description = format!(
        "Has another agent do a part of the work, and returns its answer. That agent {sees}. Several calls of one turn are worked \
         on at the same time. The agents are:"
    );
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
            "agent": {"type": "string", "enum": names, "description": "Who is to do it"},
            "task": {"type": "string", "minLength": 1, "description": "What is to be done, and what the answer is to have"},
            "context": {"type": "string", "description": "What the agent should know for it"},
        },
        "required": ["agent", "task"],
        "additionalProperties": false,
    });
    ToolDefinition {
        name: DELEGATE.to_owned(),
        description: Some(description),
        parameters: to_raw_value(&schema).ok().map(RawValueEq),
        ..ToolDefinition::default()
    }
}

/// Pins what a run has of the runs above it, and what it shares with those below.
pub(super) fn place_in_tree(spec: &mut RunSpec, new: &NewRun, session: Option<&Session>) {
    if let Some(of) = &new.of {
        spec.parent = Some(of.parent.clone());
        spec.limits.max_iterations = spec.limits.max_iterations.min(of.max_iterations);
        spec.limits.timeout_ms = spec.limits.timeout_ms.min(of.timeout_ms);
        // Nobody is there to ask.
        spec.own_tools.retain(|tool| tool.name != ASK_USER);
        spec.tree = Some(of.tree.clone());
    }
    if !spec.own_tools.iter().any(|tool| tool.name == DELEGATE) {
        return;
    }
    let bound = TreeBound {
        run: spec.id.clone(),
        tokens: spec.limits.token_budget,
        cost: spec.limits.cost_budget,
        tool_calls: spec.limits.max_tool_calls,
    };
    let mut tree = match &new.of {
        Some(of) => (*of.tree).clone(),
        None => Tree {
            bounds: Vec::new(),
            session: session.and_then(bound_of),
            max_depth: spec.rules.delegation.max_depth,
            allowed_agents: new.allowed_agents.clone(),
        },
    };
    tree.bounds.extend(Some(bound).filter(TreeBound::is_any));
    spec.tree = Some(Arc::new(tree));
}

/// The budgets of a session, if it has any.
fn bound_of(session: &Session) -> Option<SessionBound> {
    let (tokens, cost) = (session.token_budget, session.cost_budget);
    (tokens.is_some() || cost.is_some()).then(|| SessionBound { session: session.id.clone(), tokens, cost })
}

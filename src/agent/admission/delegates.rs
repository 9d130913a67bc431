//! Whether a run may begin others, of which agents, and what it shares with them.

use std::sync::Arc;

use serde_json::json;

use crate::agent::admission::Admission;
use crate::agent::admission::agent_tools::AgentTool;
use crate::agent::admission::select::Selected;
use crate::agent::error::StartError;
use crate::agent::generation::Generation;
use crate::agent::request::NewRun;
use crate::types::RunSpec;
use crate::types::delegate::{DELEGATE, Delegation, TaskHistory};
use crate::types::lineage::{SessionBound, Tree, TreeBound};
use crate::types::policy::Policy;
use crate::types::question::ASK_USER;
use crate::types::session::Session;

impl Admission {
    /// Offers a run the tool by which it delegates, if its agent may and anyone is there. Returns what the caller should know.
    pub(super) async fn offer_delegates(
        &self,
        (new, rules): (&NewRun, &Delegation),
        of_run: (&Generation, Option<&Policy>),
        selected: &mut Selected,
    ) -> Result<Option<String>, StartError> {
        if !may_delegate(new, rules) {
            return Ok(None);
        }
        self.offer_agents((tool(rules.history), rules.to.iter().collect()), new, of_run, selected).await
    }
}

/// Whether the agent delegates to anyone, and the run does not stand as deep in its tree as one may.
fn may_delegate(new: &NewRun, rules: &Delegation) -> bool {
    let is_above = new.of.as_ref().is_none_or(|of| of.parent.depth < of.tree.max_depth);
    !rules.to.is_empty() && is_above && !new.compacts()
}

/// The tool by which a model delegates.
fn tool(history: TaskHistory) -> AgentTool {
    let sees = match history {
        TaskHistory::Fresh => "sees nothing of this conversation, so the task must say all that it needs",
        TaskHistory::Fork => "sees what was said before you began to work, and nothing since then",
    };
    let description = format!(
        "Has another agent do a part of the work, and returns its answer. That agent {sees}. Several calls of one turn are worked \
         on at the same time. The agents are:"
    );
    let parameters = json!({
        "type": "object",
        "properties": {
            "agent": {"type": "string", "description": "Who is to do it"},
            "task": {"type": "string", "minLength": 1, "description": "What is to be done, and what the answer is to have"},
            "context": {"type": "string", "description": "What the agent should know for it"},
        },
        "required": ["agent", "task"],
        "additionalProperties": false,
    });
    AgentTool { name: DELEGATE, does: "delegate", description, parameters }
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

//! What is asked of a run that another one begins. Pure.

use std::sync::Arc;

use crate::agent::delegating::{Child, Task};
use crate::agent::request::{AskedPrompt, ChildOf, NewRun};
use crate::types::lineage::{Link, Parent, Tree};
use crate::types::prompt::PromptMode;
use crate::types::sampling::Sampling;
use crate::types::trace::SpanKey;
use crate::types::{Message, Role, RunSpec, Used};

/// How many steps may be voided because the model's stream broke: no client has seen any text of them.
const MAX_DISCARDS: u32 = 2;

/// The request for a run that `parent` begins.
pub(super) fn request(parent: &RunSpec, child: &Child) -> NewRun {
    let (rules, started) = (&parent.rules.delegation, &child.started);
    let of = ChildOf {
        parent: Arc::new(Parent {
            link: Link::Delegate,
            run: parent.id.clone(),
            session: parent.session.clone(),
            call: started.call_id.clone(),
            root: parent.root().clone(),
            depth: started.depth,
            max_output_chars: rules.max_output_chars,
        }),
        tree: tree(parent, child.kept),
        policy: parent.policy.clone(),
        max_iterations: rules.max_iterations,
        timeout_ms: child.timeout_ms,
    };
    let mut new = NewRun::child(parent.tenant.clone(), started.run.clone(), of);
    new.key_name.clone_from(&parent.key_name);
    new.allowed_agents = parent.tree.as_ref().and_then(|tree| tree.allowed_agents.clone());
    new.model = Some(started.agent.clone());
    new.options.sampling = Arc::new(Sampling { user: parent.options.sampling.user.clone(), ..Sampling::default() });
    match &child.task {
        Task::Alone(task) => new.messages = vec![Message::text(Role::User, task)],
        Task::Shared(shared) => {
            new.system.clone_from(&shared.system);
            new.messages.clone_from(&shared.messages);
            if shared.is_last {
                new.options.sampling = parent.options.sampling.clone();
                new.max_output_tokens = parent.bounds_output.then_some(parent.max_output_tokens);
            }
        }
    }
    new.options.max_discards = MAX_DISCARDS;
    new.metadata.clone_from(&parent.metadata);
    new.request_id.clone_from(&parent.request_id);
    new.trace = parent.outgoing_trace(SpanKey::ToolCall(&started.call_id, 1));
    new.prompt = Some(Box::new(AskedPrompt { mode: Some(PromptMode::Minimal), ..AskedPrompt::default() }));
    new
}

/// What it shares with the runs above it: of the budgets of `parent` all but what that keeps for itself.
fn tree(parent: &RunSpec, kept: Used) -> Arc<Tree> {
    let mut tree = parent.tree.clone().unwrap_or_default();
    if kept.is_nothing() {
        return tree;
    }
    for bound in Arc::make_mut(&mut tree).bounds.iter_mut().filter(|bound| bound.run == parent.id) {
        bound.tokens = bound.tokens.map(|tokens| tokens.saturating_sub(kept.tokens));
        bound.cost = bound.cost.map(|cost| cost.saturating_sub(kept.cost));
    }
    tree
}

//! What the calls of a run are judged by: the rules of the server, of the key, of the agent and of the request.

use std::sync::Arc;

use crate::agent::error::{Field, StartError};
use crate::agent::generation::Generation;
use crate::agent::request::{ApprovalPatch, NewRun};
use crate::config::AgentConfig;
use crate::types::approval::{ApprovalMode, ApprovalTerms};
use crate::types::hook::{HookPoint, PinnedHook};
use crate::types::policy::{Layer, Policy};

/// The policy of a run; `None` if nothing stands against any of its calls. Where hooks may ask for approvals, it has the terms
/// of these, even if no layer says anything. `more` is what the request says of the servers that it names.
pub(super) fn of_run(
    new: &NewRun,
    settings: &AgentConfig,
    generation: &Generation,
    hooks: &[PinnedHook],
    more: Option<&Arc<Layer>>,
) -> Result<Option<Arc<Policy>>, StartError> {
    let mut approval = narrow(&settings.approval, new.approval)?;
    if new.of.is_some() {
        // Nobody approves calls of a run that another one begins.
        approval.mode = ApprovalMode::Deny;
    }
    let above = generation.policies.of(new.key_name.as_deref());
    let mut layers: Vec<_> = above.chain([&settings.policy]).chain(&new.policy).chain(more).cloned().collect();
    // What it begins may call no more than the run above it may.
    for layer in new.of.iter().filter_map(|of| of.policy.as_ref()).flat_map(|policy| &policy.layers) {
        if !layers.contains(layer) {
            layers.push(layer.clone());
        }
    }
    let for_hooks = may_ask(hooks).then(|| Policy { layers: Vec::new(), approval: approval.clone() });
    Ok(Policy::of(layers, approval).or_else(|| for_hooks.map(Arc::new)))
}

/// Whether one of these hooks may ask for the approval of a call.
fn may_ask(hooks: &[PinnedHook]) -> bool {
    hooks.iter().any(|hook| hook.is_asked && hook.points.contains(&HookPoint::BeforeTool))
}

/// The agent's terms, as far as the request does not tighten them.
fn narrow(terms: &ApprovalTerms, asked: ApprovalPatch) -> Result<ApprovalTerms, StartError> {
    let refuse = |field, message: String| Err(StartError::Invalid { field: Field::Member(field), message });
    let mode = asked.mode.unwrap_or(terms.mode);
    if terms.mode == ApprovalMode::Deny && mode != ApprovalMode::Deny {
        return refuse(
            "agent.approval.mode",
            "the agent asks for no approvals: a request may not have it ask".to_owned(),
        );
    }
    let timeout_ms = asked.timeout_ms.unwrap_or(terms.timeout_ms);
    if timeout_ms > terms.timeout_ms {
        return refuse("agent.approval.timeout_ms", format!("this is above the agent's limit of {}", terms.timeout_ms));
    }
    Ok(ApprovalTerms { mode, timeout_ms, ..terms.clone() })
}

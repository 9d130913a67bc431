//! `[agents.NAME.approval]`: how calls are approved that a policy asks for.

use std::collections::BTreeMap;
use std::time::Duration;

use super::agent::AgentConfig;
use super::caller::KeyConfig;
use super::quantity::seconds;
use super::reader::Section;
use super::scope::Scope;
use super::value::Word;
use crate::types::approval::{ApprovalMode, ApprovalTerms};
use crate::types::pattern::matches;

impl ApprovalTerms {
    pub(super) fn read(section: &mut Section<'_>, parent: Option<&Self>) -> Self {
        let parent = parent.cloned().unwrap_or_default();
        let mode = section.key(
            "mode",
            "What a run does while a call needs an approval: `pause` ends the response, and the run waits without a connection; \
             `wait` lets the run wait as well, and keeps the response open until all is decided; `deny` asks no approver and \
             denies the call.",
            parent.mode,
        );
        let timeout = section.key(
            "timeout",
            "How long a call waits for an approval. What is undecided then is denied, and the run goes on. No longer than \
             [`store.wait_ttl`](#store).",
            Duration::from_millis(parent.timeout_ms).max(seconds(1)),
        );
        let needed = section.key(
            "approvals",
            "How many must approve a call before it is made, each with a key of its own. A single denial denies it.",
            parent.needed,
        );
        let approvers = section.key(
            "approvers",
            "Names of the keys that may approve, in which `*` stands for any characters; if empty, all keys that have the scope \
             `approvals`.",
            parent.approvers,
        );
        let separate = section.key(
            "separate_duties",
            "Whether the key that started a run may not approve its calls.",
            parent.separate,
        );
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Self { mode, timeout_ms, needed, approvers, separate }
    }
}

/// Refuses terms of agents that no approval could meet: their runs would wait in vain.
pub(super) fn check(root: &Section<'_>, agents: &BTreeMap<String, AgentConfig>, keys: &[KeyConfig]) {
    let mut wrong = agents.iter().filter_map(|(name, agent)| Some((name, mistake(&agent.approval, keys)?)));
    if let Some((name, what)) = wrong.next() {
        root.refuse_outside(&format!("agents.{name}.approval"), what);
    }
}

/// Why no approvals by these keys could meet the terms, if they could not.
pub(super) fn mistake(terms: &ApprovalTerms, keys: &[KeyConfig]) -> Option<String> {
    let is_default = terms.needed <= 1 && terms.approvers.is_empty() && !terms.separate;
    if is_default || terms.mode == ApprovalMode::Deny {
        return None;
    }
    let may = |key: &&KeyConfig| {
        let is_named = terms.approvers.is_empty() || terms.approvers.iter().any(|pattern| matches(pattern, &key.name));
        is_named && key.scopes.contains(Scope::Approvals)
    };
    let (able, needed) = (keys.iter().filter(may).count(), usize::try_from(terms.needed).unwrap_or(usize::MAX).max(1));
    (able < needed).then(|| format!("needs approvals by {needed} keys, and {able} keys may give them"))
}

impl Word for ApprovalMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("pause", Self::Pause), ("wait", Self::Wait), ("deny", Self::Deny)];
}

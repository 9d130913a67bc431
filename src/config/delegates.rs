//! Whether agents delegate to others that there are, or hand runs off to them, and no wider than they may.

use std::collections::BTreeMap;

use super::agent::AgentConfig;
use super::mistake::suggestion;
use super::reader::Section;
use crate::types::delegate::Delegation;
use crate::types::handoff::HandoffRules;

/// Refuses agents of the file that delegate to others which the file does not have, or hand runs off to them.
pub(super) fn check(root: &Section<'_>, agents: &BTreeMap<String, AgentConfig>) {
    let names: Vec<&str> = agents.keys().map(String::as_str).collect();
    for (name, agent) in agents {
        for (key, to) in [("delegates", &agent.rules.delegation.to), ("handoffs", &agent.rules.handoff.to)] {
            if let Some(unknown) = to.iter().find(|to| !agents.contains_key(*to)) {
                let what = format!("there is no agent `{unknown}`; {}", suggestion(unknown, &names));
                root.refuse_outside(&format!("agents.{name}.{key}"), what);
            }
        }
    }
}

/// The same of how often runs are handed off.
pub(super) fn hands_off_above<'a>(
    asked: &HandoffRules,
    of_file: impl Iterator<Item = &'a AgentConfig>,
) -> Option<String> {
    let most = of_file.map(|agent| agent.rules.handoff.most).max().unwrap_or_default();
    (asked.most > most).then(|| format!("may have a `max_handoffs` of {most} at most, as the greatest in the file"))
}

/// What an agent that is not in the file has more of than any agent of the file, if it does: what a tree of runs may grow to is the
/// operator's to say.
pub(super) fn above<'a>(asked: &Delegation, of_file: impl Iterator<Item = &'a AgentConfig>) -> Option<String> {
    let bounds = |of: &Delegation| {
        [
            ("max_depth", of.max_depth),
            ("max_concurrent", of.max_concurrent),
            ("max_iterations", of.max_iterations),
            ("max_output_chars", of.max_output_chars),
        ]
    };
    let mut most = [0; 4];
    for agent in of_file {
        for (most, (_, value)) in most.iter_mut().zip(bounds(&agent.rules.delegation)) {
            *most = value.max(*most);
        }
    }
    let above = bounds(asked).into_iter().zip(most).find(|((_, value), most)| value > most);
    above.map(|((name, _), most)| format!("may have a `{name}` of {most} at most, as the greatest in the file"))
}

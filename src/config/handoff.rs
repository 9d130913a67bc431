//! `handoffs` and `[agents.NAME.handoff]`: to whom an agent hands its runs off, and how.

use std::collections::HashSet;

use super::delegation::{AgentName, UpTo};
use super::reader::Section;
use super::value::Word;
use crate::types::handoff::{HandedHistory, HandoffRules};

/// Reads to whom an agent hands its runs off, and how, which it inherits.
pub(super) fn read(section: &mut Section<'_>, parent: &HandoffRules) -> HandoffRules {
    let to: Vec<AgentName> = section.key(
        "handoffs",
        "The agents that its model may have go on with a run in its place: with any, the model is offered [`handoff`](handoff.md). No \
         other agent inherits them.",
        Vec::new(),
    );
    let mut to: Vec<String> = to.into_iter().map(|AgentName(name)| name).collect();
    let mut known = HashSet::new();
    to.retain(|name| known.insert(name.clone()));
    section.section("handoff", |section| {
        let UpTo::<32>(most) = section.key(
            "max_handoffs",
            "How often a run may be handed off in all. An agent that goes on with a run may hand it off again, but no more often than \
             the agents before it allow.",
            UpTo(parent.most),
        );
        let history = section.key(
            "history",
            "What of the conversation the next agent is shown: `all` that this one was, or the `last_turn`, which begins with what the \
             user said last.",
            parent.history,
        );
        HandoffRules { to, most, history }
    })
}

impl Word for HandedHistory {
    const WORDS: &'static [(&'static str, Self)] = &[("all", Self::All), ("last_turn", Self::LastTurn)];
}

//! How much the model is to think.
//!
//! Models before 4.6 are given a budget of tokens, later ones an effort. What a caller writes as `thinking` is passed on.

use std::borrow::Cow;

use crate::llm::model_name::claude_version;
use crate::llm::own_member::own;
use crate::llm::{ModelRequest, message_parts};
use crate::types::conversation::Part;
use crate::types::offer::ToolChoice;
use crate::types::{Message, Role};

/// The smallest budget that the API takes.
const LEAST_BUDGET: u64 = 1_024;
/// The words of `reasoning_effort`, with the budget that stands for each; and the word of this API.
const EFFORTS: [(&str, u64, Option<&str>); 7] = [
    ("none", 0, None),
    ("minimal", 0, Some("low")),
    ("low", LEAST_BUDGET, Some("low")),
    ("medium", 4_096, Some("medium")),
    ("high", 16_384, Some("high")),
    ("xhigh", 32_768, Some("xhigh")),
    ("max", 65_536, Some("max")),
];

/// What a request says about thinking.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    /// The member `thinking`.
    pub(super) member: Option<Cow<'a, str>>,
    /// How hard the model is to try.
    pub(super) effort: Option<&'static str>,
}

/// How a model is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// It does not think.
    Never,
    /// By a budget.
    Budget,
    /// By an effort; it thinks as much as that takes.
    Adaptive,
}

/// Whether `reasoning_effort` may say this.
pub(super) fn is_effort(word: &str) -> bool {
    EFFORTS.iter().any(|(known, ..)| *known == word)
}

/// What to say about thinking in a call with so much output.
pub(super) fn of<'r>(request: &'r ModelRequest, author: &str, max_tokens: u64) -> Asked<'r> {
    let own = own(&request.sampling, "thinking").map(Cow::Borrowed);
    let word = request.sampling.reasoning_effort.as_deref();
    let Some((_, budget, effort)) = EFFORTS.iter().find(|(known, ..)| Some(*known) == word) else {
        return Asked { member: own, effort: None };
    };
    let form = form(&request.model);
    let effort = effort.filter(|_| form == Form::Adaptive);
    // The API refuses to think before a call that is forced.
    let is_forced = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Function(_));
    let member = own.or_else(|| match form {
        _ if is_forced => None,
        Form::Adaptive if *budget > 0 => Some(Cow::Borrowed("{\"type\":\"adaptive\"}")),
        Form::Budget if *budget > 0 && !goes_on_without_thinking(request, author) => {
            // Thinking and the answer share the output.
            let budget = (*budget).min(max_tokens / 2);
            (budget >= LEAST_BUDGET).then(|| format!("{{\"type\":\"enabled\",\"budget_tokens\":{budget}}}").into())
        }
        Form::Never | Form::Adaptive | Form::Budget => None,
    });
    Asked { member, effort }
}

/// How this model is told. Servers with models of other names know the budget, which is older.
fn form(model: &str) -> Form {
    if !model.contains("claude") {
        return Form::Budget;
    }
    match claude_version(model) {
        Some(version) if version >= (4, 6) => Form::Adaptive,
        Some(version) if version < (3, 7) => Form::Never,
        Some(_) | None => Form::Budget,
    }
}

/// Whether the model is in the middle of a turn that it began without thinking, as it does if another model began it: the
/// API refuses to think then, where there is a budget.
fn goes_on_without_thinking(request: &ModelRequest, author: &str) -> bool {
    let turn = request.conversation.iter().rev().take_while(|message| message.role != Role::User);
    turn.filter(|message| message.role == Role::Assistant).any(|message| !begins_with_thinking(message, author))
}

fn begins_with_thinking(message: &Message, author: &str) -> bool {
    let Ok(parts) = message_parts(message) else { return false };
    let seal = parts.list.first().and_then(Part::as_thinking).and_then(|thinking| thinking.seal.as_ref());
    seal.is_some_and(|seal| seal.author == author)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_follows_the_version() {
        for (model, expected) in [
            ("claude-3-5-haiku-20241022", Form::Never),
            ("claude-3-7-sonnet-latest", Form::Budget),
            ("claude-opus-4-20250514", Form::Budget),
            ("claude-sonnet-4-5-20250929", Form::Budget),
            ("anthropic.claude-haiku-4-5-20251001-v1:0", Form::Budget),
            ("claude-opus-4-6", Form::Adaptive),
            ("claude-sonnet-4-6@20260101", Form::Adaptive),
            ("claude-opus-5", Form::Adaptive),
            ("claude-fable-5-1", Form::Adaptive),
            ("claude-instant", Form::Budget),
            ("kimi-k2", Form::Budget),
            ("claude", Form::Budget),
        ] {
            assert_eq!(form(model), expected, "{model}");
        }
    }
}

//! A model request as the body of `POST …/messages`.

use super::blocks::blocks;
use super::{sampling, thinking, tools, turns};
use crate::llm::ModelRequest;
use crate::llm::object::Object;
use crate::llm::pricing;
use crate::llm::turns::Turns;
use crate::types::Role;

/// Most output tokens of a call that nothing bounds, even if the model can give more: what is asked for must fit into
/// the context window beside the conversation.
const MOST_UNASKED: u64 = 32_000;
/// The fewest that are asked for where the conversation leaves little room.
const LEAST_UNASKED: u64 = 1_024;

/// How an upstream is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Most output tokens of a call that nothing else bounds.
    pub(super) max_tokens: Option<u64>,
    /// Whether it is asked to cache what the next call repeats.
    pub(super) prompt_cache: bool,
}

/// The JSON body. Messages that were encoded before are copied.
pub(super) fn body(request: &ModelRequest, author: &str, manner: Manner) -> String {
    let conversation = Turns::of(&request.conversation, |message| blocks(message, author));
    let max_tokens = request.max_tokens.unwrap_or_else(|| unasked(request, manner));
    let thinking = thinking::of(request, author, max_tokens);
    // The closing call offers no tools. Its prefix is another one then, so nothing of it is worth keeping.
    let is_closing = request.tools.is_empty() && request.conversation.iter().any(|message| message.role == Role::Tool);
    let caches = manner.prompt_cache && !is_closing;
    let mut out = Vec::with_capacity(512 + conversation.bytes());
    let mut object = Object::new(&mut out);
    object.text("model", &request.model);
    object.value("max_tokens", &max_tokens);
    object.value("stream", &true);
    sampling::write(&request.sampling, &mut object);
    if let Some(thinking) = &thinking.member {
        object.json("thinking", thinking);
    }
    sampling::write_output(&request.sampling, thinking.effort, &mut object);
    if !conversation.system.is_empty() {
        object.raw("system", |out| turns::write_system(&conversation, caches, out));
    }
    if is_closing {
        tools::write_none(&mut object);
    } else {
        tools::write(request, caches, &mut object);
    }
    object.raw("messages", |out| turns::write(&conversation, caches, out));
    object.close();
    String::from_utf8(out).expect("it was written from strings")
}

/// The window and the longest answer that every model of this dialect has, about: the API refuses a bound that is above those
/// of the model.
const LEAST_LIKELY: (u64, u64) = (200_000, 8_192);

/// The bound of a call that neither its request nor a budget bounds.
fn unasked(request: &ModelRequest, manner: Manner) -> u64 {
    if let Some(most) = manner.max_tokens {
        return most;
    }
    let known = pricing::known(&request.model).map(|facts| (facts.context_window, facts.max_output_tokens));
    let (window, most) = known.unwrap_or(LEAST_LIKELY);
    // Three bytes a token is more than any text has, so that the estimate leaves room enough.
    let input = (request.conversation.weight() + request.tools.weight()) as u64 / 3;
    let room = window.saturating_sub(input).max(LEAST_UNASKED);
    most.min(MOST_UNASKED).min(room)
}

#[cfg(test)]
mod tests;

//! The members of a `GenerateContentResponse` that matter here: one event of a stream, or a whole answer.
//!
//! Text is borrowed from the bytes in which it arrived. Unknown members are skipped; a member of a wrong type is an error.

use std::borrow::Cow;

use memchr::memchr;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::llm::repeated::OnlyPiece;
use crate::llm::text::Text;
use crate::types::Usage;

/// What the dialect is called in a sentence.
pub(super) const API: &str = "the Gemini API";

/// One answer, or a piece of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow)]
    pub(super) prompt_feedback: Option<PromptFeedback<'a>>,
    pub(super) usage_metadata: Option<WireUsage>,
    /// What went wrong, in place of an answer.
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl<'a> Chunk<'a> {
    /// What it adds, if that is one piece of text or reasoning, without escapes, and all that it says but for its usage.
    pub(super) fn only_piece(&self) -> Option<OnlyPiece<'a>> {
        let ([candidate], None) = (self.candidates.as_deref()?, &self.prompt_feedback) else { return None };
        let is_first = candidate.index.is_none_or(|index| index == 0);
        if !is_first || !candidate.finish_reason.0.is_empty() {
            return None;
        }
        let [json] = candidate.content.as_ref()?.parts.as_deref()? else { return None };
        if memchr(b'\\', json.get().as_bytes()).is_some() {
            return None;
        }
        let part: WirePart<'a> = serde_json::from_str(json.get()).ok()?;
        match (part.text?.0, part.function_call, &*part.thought_signature.0) {
            (Cow::Borrowed(said), None, "") if !said.is_empty() => {
                Some(OnlyPiece { said: said.into(), is_thinking: part.thought == Some(true), place: () })
            }
            _ => None,
        }
    }
}

/// The usage of a chunk of which nothing else is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Counted {
    pub(super) usage_metadata: Option<WireUsage>,
}

/// What the upstream thinks of the request.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PromptFeedback<'a> {
    /// Why nothing is answered.
    #[serde(borrow)]
    pub(super) block_reason: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    /// Which of the alternatives it is. Only one is ever asked for: the first.
    pub(super) index: Option<i64>,
    #[serde(borrow)]
    pub(super) content: Option<Content<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) finish_message: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<&'a RawValue>>,
}

/// The members of a part.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WirePart<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Text<'a>>,
    /// Whether the text is reasoning.
    pub(super) thought: Option<bool>,
    #[serde(borrow)]
    pub(super) thought_signature: Text<'a>,
    #[serde(borrow)]
    pub(super) function_call: Option<FunctionCall<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionCall<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
}

/// Tokens, as far as a chunk tells them: each number is that of the whole turn so far.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    #[serde(rename = "promptTokenCount")]
    prompt: Option<u64>,
    /// The part of the prompt that was cached.
    #[serde(rename = "cachedContentTokenCount")]
    cached: Option<u64>,
    /// What the upstream's own tools gave the model to read.
    #[serde(rename = "toolUsePromptTokenCount")]
    tool_use: Option<u64>,
    /// The answer, as a rule without the reasoning.
    #[serde(rename = "candidatesTokenCount")]
    candidates: Option<u64>,
    #[serde(rename = "thoughtsTokenCount")]
    thoughts: Option<u64>,
    #[serde(rename = "totalTokenCount")]
    total: Option<u64>,
}

impl WireUsage {
    /// Takes over what another chunk tells: of each kind the most.
    pub(super) fn update(&mut self, other: &Self) {
        for (mine, told) in [
            (&mut self.prompt, other.prompt),
            (&mut self.cached, other.cached),
            (&mut self.tool_use, other.tool_use),
            (&mut self.candidates, other.candidates),
            (&mut self.thoughts, other.thoughts),
            (&mut self.total, other.total),
        ] {
            *mine = (*mine).max(told);
        }
    }

    /// Whether it counts tokens of the answer itself.
    pub(super) fn counts_answer(&self) -> bool {
        self.candidates.is_some_and(|tokens| tokens > 0)
    }

    /// What is charged as output, and how much of it is reasoning. Servers differ on what they count where; the total tells
    /// it, where it is there.
    fn output(&self, input: u64) -> (u64, u64) {
        let (said, thought) = (self.candidates.unwrap_or(0), self.thoughts.unwrap_or(0));
        match self.total.map(|total| total.saturating_sub(input)) {
            // The reasoning is counted among what is said.
            Some(output) if output == said && thought <= said => (said, thought),
            // Some of it is not counted: only reasoning leaves nothing to count.
            Some(output) if self.thoughts.is_none() && said > 0 && output > said => (output, output - said),
            total => (said.saturating_add(thought).max(total.unwrap_or(0)), thought),
        }
    }
}

impl From<&WireUsage> for Usage {
    fn from(wire: &WireUsage) -> Self {
        let prompt_tokens = wire.prompt.unwrap_or(0).saturating_add(wire.tool_use.unwrap_or(0));
        let (completion_tokens, reasoning_tokens) = wire.output(prompt_tokens);
        Self {
            prompt_tokens,
            completion_tokens,
            cached_tokens: wire.cached.unwrap_or(0),
            cache_write_tokens: 0,
            reasoning_tokens,
            estimated: false,
        }
    }
}

//! The members of a `chat.completion.chunk`, or of a whole `chat.completion`, that matter here.
//!
//! Text is borrowed from the bytes in which it arrived. Reading tolerates what servers are known to send: nulls for
//! anything, missing members, unknown members, arguments as an object. A member of a wrong type is an error.
//!
//! There is one chunk for each token. Members that most chunks lack are behind a pointer, because parsing moves these
//! structs, and their size is most of its cost.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::llm::repeated::OnlyPiece;
use crate::llm::text::Text;
use crate::types::Usage;

/// Which of a turn's calls a piece belongs to, where the server says it.
pub(super) type CallIndex = Option<i64>;

/// One event of a stream, or the whole answer of a server that does not stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    /// Usually one; several where a server splits text and calls among them.
    #[serde(borrow)]
    pub(super) choices: Few<Choice<'a>>,
    pub(super) usage: Option<Box<WireUsage>>,
    /// What went wrong, in place of an answer.
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    /// `error` where the chunk itself is the error.
    #[serde(borrow)]
    pub(super) object: Text<'a>,
}

impl<'a> Chunk<'a> {
    /// What it adds, if that is one piece of text or reasoning, without escapes, and all that it says.
    pub(super) fn only_piece(&self) -> Option<OnlyPiece<'a>> {
        let delta = self.only_delta().filter(|delta| delta.tool_calls.is_none())?;
        let mut pieces = delta.texts().filter(|text| !text.is_empty());
        let (Some(Cow::Borrowed(said)), None) = (pieces.next(), pieces.next()) else { return None };
        let is_refusal = !delta.refusal.0.is_empty();
        (!is_refusal).then(|| OnlyPiece { said: (*said).into(), is_thinking: delta.content.0.is_empty(), place: () })
    }

    /// What it adds, if that is one piece of a call's arguments, without escapes, and all that it says.
    pub(super) fn only_arguments(&self) -> Option<OnlyPiece<'a, CallIndex>> {
        let delta = self.only_delta().filter(|delta| delta.texts().all(|text| text.is_empty()))?;
        let [CallPiece { index, id, function: Some(function) }] = delta.tool_calls.as_deref()? else { return None };
        let is_alone = id.0.is_empty() && function.name.0.is_empty();
        let arguments = function.arguments?.get().strip_prefix('"')?.strip_suffix('"')?;
        let is_plain = is_alone && !arguments.is_empty() && !arguments.contains('\\');
        is_plain.then(|| OnlyPiece { said: arguments.into(), is_thinking: false, place: *index })
    }

    /// The piece of the message, if it is all that the chunk says.
    fn only_delta(&self) -> Option<&MessageDelta<'a>> {
        let choice = self.choices.first.as_ref().filter(|_| self.choices.more.is_empty() && self.usage.is_none())?;
        let is_first = choice.index.is_none_or(|index| index == 0);
        let says_more = choice.message.is_some() || !choice.finish_reason.0.is_empty();
        choice.delta.as_ref().filter(|delta| is_first && !says_more && !delta.audio.0)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    /// Which of the alternatives it belongs to. Only one is ever asked for: the first.
    pub(super) index: Option<i64>,
    /// What a chunk adds.
    #[serde(borrow)]
    pub(super) delta: Option<MessageDelta<'a>>,
    /// What a whole answer is.
    #[serde(borrow)]
    pub(super) message: Option<Box<MessageDelta<'a>>>,
    #[serde(borrow)]
    pub(super) finish_reason: Text<'a>,
}

/// A piece of the assistant's message, or all of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageDelta<'a> {
    #[serde(borrow)]
    pub(super) content: Text<'a>,
    /// Said instead of content by a model that declines.
    #[serde(borrow)]
    pub(super) refusal: Text<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: Text<'a>,
    /// Another name of the same; some servers write both.
    #[serde(borrow)]
    pub(super) reasoning: Text<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<CallPiece<'a>>>,
    pub(super) audio: IsGiven,
}

impl<'a> MessageDelta<'a> {
    /// All that it may say besides calls.
    fn texts(&self) -> impl Iterator<Item = &Cow<'a, str>> {
        [&self.content, &self.reasoning_content, &self.reasoning, &self.refusal].into_iter().map(|text| &text.0)
    }
}

/// Whether a member is there that is not read further; null is absent.
#[derive(Debug, Default)]
pub(super) struct IsGiven(pub(super) bool);

impl<'de> Deserialize<'de> for IsGiven {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<IgnoredAny>::deserialize(deserializer).map(|given| Self(given.is_some()))
    }
}

/// A piece of a tool call, or all of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallPiece<'a> {
    pub(super) index: CallIndex,
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) function: Option<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    /// A string that holds JSON; from some servers the object itself.
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl<'a> Function<'a> {
    /// The arguments' JSON text, or the piece of it that is here.
    pub(super) fn arguments(&self) -> Result<Cow<'a, str>, serde_json::Error> {
        match self.arguments.map(RawValue::get) {
            None => Ok(Cow::Borrowed("")),
            Some(text) if text.starts_with('"') => serde_json::from_str::<Text<'a>>(text).map(|text| text.0),
            Some(json) => Ok(Cow::Borrowed(json)),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl From<&WireUsage> for Usage {
    fn from(wire: &WireUsage) -> Self {
        let (prompt_tokens, said) = (wire.prompt_tokens.unwrap_or(0), wire.completion_tokens.unwrap_or(0));
        let reasoning_tokens = wire.completion_tokens_details.and_then(|details| details.reasoning_tokens).unwrap_or(0);
        let with_reasoning = said.saturating_add(reasoning_tokens);
        // Some servers count reasoning beside the rest of the output; only their totals say so.
        let is_beside = wire.total_tokens == Some(prompt_tokens.saturating_add(with_reasoning));
        Self {
            prompt_tokens,
            completion_tokens: if is_beside { with_reasoning } else { said },
            cached_tokens: wire.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0),
            cache_write_tokens: 0,
            reasoning_tokens,
            estimated: false,
        }
    }
}

/// A list that nearly always has one entry, which then takes no allocation; null is the empty one.
#[derive(Debug)]
pub(super) struct Few<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, more: Vec::new() }
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FewVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
            type Value = Few<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list or null")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Few::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let first = list.next_element()?;
                let mut more = Vec::new();
                while let Some(entry) = list.next_element()? {
                    more.push(entry);
                }
                Ok(Few { first, more })
            }
        }

        deserializer.deserialize_any(FewVisitor(PhantomData))
    }
}

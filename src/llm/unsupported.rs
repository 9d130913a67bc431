//! What a request asks for that its upstream does not have.

use memchr::memchr;

use crate::llm::message_parts;
use crate::llm::own_member::own;
use crate::types::conversation::{Content, PartKind};
use crate::types::sampling::Sampling;
use crate::types::{Message, Role};

/// Something that an upstream cannot do, and where the request asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// Where it stands.
    pub place: Place,
    /// One sentence for the caller.
    pub message: String,
}

/// A place in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The member of this name.
    Member(&'static str),
    /// A part of a message, both counted from 0.
    Part {
        /// The message.
        message: usize,
        /// The part of it.
        part: usize,
    },
}

/// Members of vendors and of model servers that decide about the answer, though OpenAI does not document them. Each is refused
/// by an upstream that has no such member, unless it is one of these values, which ask for nothing.
pub const OF_VENDORS: [(&str, &[&str]); 35] = [
    ("bad_words", &["[]"]),
    ("chat_template", &[]),
    ("chat_template_kwargs", &["{}"]),
    ("dry_multiplier", &["0", "0.0"]),
    ("grammar", &["\"\""]),
    ("guided_choice", &["[]"]),
    ("guided_grammar", &["\"\""]),
    ("guided_json", &[]),
    ("guided_regex", &["\"\""]),
    ("ignore_eos", &["false"]),
    ("json_schema", &["{}"]),
    ("length_penalty", &["1", "1.0"]),
    ("min_p", &["0", "0.0"]),
    ("min_tokens", &["0"]),
    ("mirostat", &["0"]),
    ("mirostat_eta", &[]),
    ("mirostat_tau", &[]),
    ("no_repeat_ngram_size", &["0"]),
    ("regex", &["\"\""]),
    ("repeat_last_n", &[]),
    ("repeat_penalty", &["1", "1.0"]),
    ("repetition_penalty", &["1", "1.0"]),
    ("safety_settings", &["[]"]),
    ("stop_token_ids", &["[]"]),
    ("structured_outputs", &["{}"]),
    ("tfs_z", &["1", "1.0"]),
    ("thinking", &["{\"type\":\"disabled\"}"]),
    ("thinking_budget", &[]),
    ("thinking_config", &["{}"]),
    ("top_a", &["0", "0.0"]),
    ("top_k", &["0", "-1"]),
    ("typical_p", &["1", "1.0"]),
    ("use_beam_search", &["false"]),
    ("xtc_probability", &["0", "0.0"]),
    ("xtc_threshold", &[]),
];

/// The first of [`OF_VENDORS`] that a request gives, but for those that an upstream has of its own.
pub fn given_of_vendors(sampling: &Sampling, own: &[&str]) -> Option<&'static str> {
    OF_VENDORS.iter().filter(|(name, _)| !own.contains(name)).find_map(|member| given_member(sampling, &[*member]))
}

/// Whether a member is refused rather than left out where an upstream does not know it.
pub fn is_of_vendors(name: &str) -> bool {
    OF_VENDORS.binary_search_by_key(&name, |(known, _)| known).is_ok()
}

/// The first of these members that a request gives, unless with one of the values beside its name, which ask for nothing.
pub fn given_member(sampling: &Sampling, members: &[(&'static str, &[&str])]) -> Option<&'static str> {
    let found = members.iter().find(|(name, harmless)| {
        own(sampling, name).is_some_and(|json| {
            let compact: String = json.split_ascii_whitespace().collect();
            !harmless.contains(&compact.as_str())
        })
    });
    found.map(|(name, _)| *name)
}

/// The first part of a user's message that is refused, counted from 0, and why.
pub fn refused_part(message: &Message, refusal: impl Fn(&PartKind) -> Option<String>) -> Option<(usize, String)> {
    if message.role != Role::User || !may_hold_media(message) {
        return None;
    }
    let parts = message_parts(message).ok()?;
    parts.list.iter().enumerate().find_map(|(index, part)| Some((index, refusal(&part.kind)?)))
}

/// Whether a message may hold more than text: only a list does. Most messages are told from those without being parsed.
fn may_hold_media(message: &Message) -> bool {
    match message.content() {
        Content::Encoded(_, json) => memchr(b'[', json.get().as_bytes()).is_some(),
        Content::Parts(_) => true,
    }
}

/// Members that decide about the answer and have no counterpart in most dialects; each is refused unless it is one of these
/// values, which ask for nothing.
pub const DECISIVE: [(&str, &[&str]); 8] = [
    ("audio", &[]),
    ("logit_bias", &["{}"]),
    ("logprobs", &["false"]),
    ("modalities", &["[]", "[\"text\"]"]),
    ("prediction", &[]),
    ("response_format", &[]),
    ("top_logprobs", &["0"]),
    ("web_search_options", &[]),
];

/// Whether it is one of [`DECISIVE`].
pub fn is_decisive(name: &str) -> bool {
    DECISIVE.iter().any(|(known, _)| *known == name)
}

/// An upstream and what its dialect does not have.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'u> {
    /// Its name.
    pub upstream: &'u str,
    /// What it speaks.
    pub api: &'static str,
    /// Why a part cannot be sent, worded to follow the API's name.
    pub refusal: fn(&PartKind) -> Option<String>,
}

impl Limits<'_> {
    /// What of a request the upstream cannot do: this member, or a part of these messages.
    pub fn unsupported(self, member: Option<(&'static str, String)>, messages: &[Message]) -> Option<Unsupported> {
        if let Some((name, what)) = member {
            return Some(Unsupported { place: Place::Member(name), message: self.sentence(&what) });
        }
        unsupported_part(messages, |message| self.unsupported_part_of(message))
    }

    /// The first part of a message that the upstream cannot take, and why.
    pub fn unsupported_part_of(self, message: &Message) -> Option<(usize, String)> {
        refused_part(message, self.refusal).map(|(part, what)| (part, self.sentence(&what)))
    }

    fn sentence(self, what: &str) -> String {
        format!("the upstream {}, which speaks {}, {what}", self.upstream, self.api)
    }
}

/// What is wrong with a part of these messages.
pub fn unsupported_part(
    messages: &[Message],
    refuses_part: impl Fn(&Message) -> Option<(usize, String)>,
) -> Option<Unsupported> {
    messages.iter().enumerate().find_map(|(index, message)| {
        let (part, message) = refuses_part(message)?;
        Some(Unsupported { place: Place::Part { message: index, part }, message })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_vendors_are_in_order() {
        assert!(OF_VENDORS.is_sorted_by_key(|(name, _)| *name));
    }
}

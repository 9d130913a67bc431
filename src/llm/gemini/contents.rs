//! The conversation as the API wants it: instructions apart, and contents of user and model by turns. The results of calls
//! are a content of their own, right after that of the calls.

use std::borrow::Cow;

use super::models::Wants;
use super::parts::Writer;
use crate::llm::turns::Turns;
use crate::types::Conversation;

/// A conversation in this dialect.
#[derive(Debug)]
pub(super) struct Contents<'c>(Turns<'c>);

impl<'c> Contents<'c> {
    /// The conversation, for the model that signs as `author` and wants this.
    pub(super) fn of(conversation: &'c Conversation, author: &str, wants: Wants) -> Self {
        let mut writer = Writer::new(author, wants);
        Self(Turns::of(conversation, |message| writer.parts(message)))
    }

    /// How long it is, about.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Whether there are instructions.
    pub(super) fn has_instructions(&self) -> bool {
        !self.0.system.is_empty()
    }

    /// The list of the parts of all instructions.
    pub(super) fn write_instructions(&self, out: &mut Vec<u8>) {
        write_parts(&self.0.system, out);
    }

    /// The list of contents.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        let begin = out.len();
        for turn in &self.0.turns {
            let role = if turn.is_user { "user" } else { "model" };
            for parts in [&turn.results, &turn.parts].into_iter().filter(|parts| !parts.is_empty()) {
                if out.len() > begin {
                    out.push(b',');
                }
                out.extend_from_slice(format!("{{\"role\":\"{role}\",\"parts\":").as_bytes());
                write_parts(parts, out);
                out.push(b'}');
            }
        }
        out.push(b']');
    }
}

/// Writes the parts of several messages as one list.
fn write_parts(messages: &[Cow<'_, str>], out: &mut Vec<u8>) {
    let mut before = b'[';
    for parts in messages {
        out.push(before);
        before = b',';
        out.extend_from_slice(parts.as_bytes());
    }
    out.push(b']');
}

//! What a request asks for that its upstream does not have.

use crate::llm::message_parts;
use crate::llm::own_member::own;
use crate::types::conversation::PartKind;
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
    /// A message, counted from 0.
    Message(usize),
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

/// The first part of the user's messages that is refused, and why.
pub fn refused_part(messages: &[Message], refusal: impl Fn(&PartKind) -> Option<String>) -> Option<(Place, String)> {
    let given = messages.iter().enumerate().filter(|(_, message)| message.role == Role::User);
    given.into_iter().find_map(|(index, message)| {
        let parts = message_parts(message).ok()?;
        let what = parts.list.iter().find_map(|part| refusal(&part.kind))?;
        Some((Place::Message(index), what))
    })
}

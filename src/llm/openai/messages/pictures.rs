//! Pictures of tools' results, which this dialect takes in no message but the user's.
//!
//! They follow the last result of the calls that were made together, because nothing may stand between these. A message of
//! pictures is made of the results alone, so that the same conversation is written alike each time and stays cached upstream.

use super::encode;
use crate::types::conversation::{Content, Part, PartKind, Parts, Source};
use crate::types::{Message, Role};

/// The types of pictures that vendors take.
const TAKEN: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Collects the pictures of results until a message comes that they must stand before.
#[derive(Debug, Default)]
pub(in crate::llm::openai) struct Pictures<'m>(Vec<(&'m str, &'m Part)>);

impl<'m> Pictures<'m> {
    /// The message that stands before `message`: one with the pictures of the results so far, if there are any and
    /// `message` is none of their neighbours.
    pub(in crate::llm::openai) fn before(&mut self, message: &'m Message) -> Option<String> {
        let before = if message.role == Role::Tool { None } else { self.rest() };
        if let (Role::Tool, Content::Parts(parts)) = (message.role, message.content()) {
            for result in parts.list.iter().filter_map(Part::as_result) {
                self.0
                    .extend(result.parts.iter().filter(|part| is_taken(part)).map(|part| (result.call.as_str(), part)));
            }
        }
        before
    }

    /// The message with the pictures of the results so far.
    pub(in crate::llm::openai) fn rest(&mut self) -> Option<String> {
        let pictures = std::mem::take(&mut self.0);
        let mut list = Vec::with_capacity(pictures.len() + 1);
        let mut last = None;
        for (call, picture) in pictures {
            if last.replace(call) != Some(call) {
                list.push(Part::text(format!("[Shown by the result of the tool call {call}:]")));
            }
            list.push(picture.clone());
        }
        (!list.is_empty()).then(|| encode::encode(Role::User, &Parts { list, ..Parts::default() }))
    }
}

fn is_taken(part: &Part) -> bool {
    let PartKind::Image { source: Source::Base64 { media_type, .. }, .. } = &part.kind else { return false };
    TAKEN.contains(&media_type.as_str())
}

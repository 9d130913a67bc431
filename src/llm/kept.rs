//! Messages in a dialect in which none arrives: each is encoded once, and kept where that is worth its memory.

use std::borrow::Cow;

use super::message_parts;
use crate::types::conversation::{Content, Dialect, Message, Parts};

/// Longest message that is kept in a dialect beside the form in which it arrived. Longer ones would take much memory
/// twice.
pub const MAX_KEPT: usize = 16 << 10;

/// The message as `encode` writes its parts. Messages that hold thinking are written each time, because only the model
/// that sealed it may see it.
pub fn encoded(message: &Message, dialect: Dialect, encode: impl FnOnce(&Parts) -> String) -> Cow<'_, str> {
    let thinks = match message.content() {
        Content::Encoded(..) => false,
        Content::Parts(parts) => parts.list.iter().any(|part| part.as_thinking().is_some()),
    };
    let is_kept = !thinks && message.bytes() <= MAX_KEPT;
    let fresh = || message_parts(message).map_or_else(|_| String::new(), |parts| encode(&parts));
    if is_kept { Cow::Borrowed(message.encoded(dialect, |_| fresh())) } else { Cow::Owned(fresh()) }
}

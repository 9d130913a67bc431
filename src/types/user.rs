//! The names of end users, as callers write them.

/// The most characters that are kept of one.
const LONGEST: usize = 128;

/// As much of a user's name as is kept.
#[must_use]
pub fn clip_user(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

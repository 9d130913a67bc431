//! What reading a call from the front of a text comes to: the call, nothing, or nothing yet.

use serde_json::value::RawValue;

/// Why no call is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Miss {
    /// There is none.
    No,
    /// The text ends in what may become one.
    Cut,
}

/// What is read, or why not.
pub(super) type Read<T> = Result<T, Miss>;

/// What is read in one way, or else in another.
pub(super) fn either<T>(read: Read<T>, other: impl FnOnce() -> Read<T>) -> Read<T> {
    read.or_else(|miss| other().map_err(|also| miss.max(also)))
}

/// What follows this in a text that begins with it.
pub(super) fn after<'t>(text: &'t str, start: &str) -> Read<&'t str> {
    let miss = if start.starts_with(text) { Miss::Cut } else { Miss::No };
    text.strip_prefix(start).ok_or(miss)
}

/// What follows this in a text that begins with it, or else the text.
pub(super) fn after_any<'t>(text: &'t str, start: &str) -> Read<&'t str> {
    either(after(text, start), || if start.starts_with(text) { Err(Miss::Cut) } else { Ok(text) })
}

/// What stands before and after this in a text.
pub(super) fn around<'t>(text: &'t str, end: &str) -> Read<(&'t str, &'t str)> {
    text.split_once(end).ok_or(Miss::Cut)
}

/// The JSON value at the front of a text, and what follows it.
pub(super) fn value(text: &str) -> Read<(&str, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    match values.next() {
        Some(Ok(_)) => {}
        Some(Err(error)) if !error.is_eof() => return Err(Miss::No),
        Some(Err(_)) | None => return Err(Miss::Cut),
    }
    let (value, rest) = text.split_at(values.byte_offset());
    Ok((value.trim_end(), rest))
}

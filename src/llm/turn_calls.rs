//! What becomes of the calls of a turn.

use serde::de::IgnoredAny;

/// What becomes of the calls of a turn that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// The model ended its turn itself: they are its calls.
    All,
    /// The upstream cut the turn short: the last one may be half a call.
    Whole,
    /// The upstream took them back.
    None,
    /// It is unknown whether the model or the upstream meant them to be made.
    Unknown,
}

/// Whether arguments are a whole JSON object.
pub fn is_whole_object(json: &str) -> bool {
    json.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(json).is_ok()
}

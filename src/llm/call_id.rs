//! Ids of calls as vendors take them.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use crate::types::CallId;

/// Longest id that every vendor takes.
const MAX_ID: usize = 64;

/// A call's id as every vendor takes it: up to 64 letters, digits, `-` and `_`. Ids that clients bring along may be others;
/// then a hash stands for them.
pub fn portable(call: &CallId) -> Cow<'_, str> {
    let id = call.as_str();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if (1..=MAX_ID).contains(&id.len()) && id.bytes().all(is_plain) {
        return Cow::Borrowed(id);
    }
    let digest = Sha256::digest(id.as_bytes());
    let hex = digest[..16].iter().map(|byte| format!("{byte:02x}"));
    Cow::Owned(format!("call_{}", hex.collect::<String>()))
}

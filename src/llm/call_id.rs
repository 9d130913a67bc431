//! Ids of calls as vendors take them.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use crate::types::CallId;

/// Longest id that most vendors take.
const MAX_ID: usize = 64;
/// What an id of letters and digits is written with.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A call's id as most vendors take it: up to 64 letters, digits, `-` and `_`. Ids that clients bring along may be others;
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

/// An id as a vendor takes it who wants so many letters and digits, at most 32. A hash stands for any other, the same one each
/// time.
pub fn of_length(id: &str, length: usize) -> Cow<'_, str> {
    if id.len() == length && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    let digest = Sha256::digest(id.as_bytes());
    let letters = digest.iter().take(length).map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]));
    Cow::Owned(letters.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_length_is_kept_where_it_is_one_and_else_the_same_each_time() {
        assert_eq!(of_length("aB3xK9mP2", 9), "aB3xK9mP2");
        let mut seen = std::collections::BTreeSet::new();
        for id in
            ["call_019b98cb9ba77ce19414ce1995670001", "call_019b98cb9ba77ce19414ce1995670002", "aB3xK9mP_", "", "ä"]
        {
            let told = of_length(id, 9).into_owned();
            assert!(told.len() == 9 && told.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}: {told}");
            assert_eq!(of_length(id, 9), told);
            assert!(seen.insert(told), "{id}");
        }
    }
}

//! Names of documents.

/// What [`is_name`] asks for, in words.
pub const NAME: &str = "1 to 100 of A-Z a-z 0-9 . _ - and not only dots";

/// Longest name.
pub(super) const MAX_NAME: usize = 100;

/// Whether a document can have this name: it is fit for keys and for paths of the API as it is.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(allowed) && !name.bytes().all(|byte| byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fit_for_keys_and_paths() {
        for name in ["a", "USER.md", "2026-11-26", "..a", &"x".repeat(100)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "ä", "a b", "a\n", "*", "{a}", &"x".repeat(101)] {
            assert!(!is_name(name), "{name}");
        }
    }
}

//! Cutting a result to a size that a model's context can bear.

use std::borrow::Cow;

/// The longest result, in bytes.
pub const MAX_RESULT_BYTES: usize = 51_200;

/// Room for the marker between head and tail.
const MARKER_BYTES: usize = 64;

/// Cuts `text` to at most `max_bytes`, never within a character, and says whether it did. Head and
/// tail stay, as beginnings explain and endings conclude; a marker between them names what is gone.
#[must_use]
pub fn truncate(text: &str, max_bytes: usize) -> (Cow<'_, str>, bool) {
    if text.len() <= max_bytes {
        return (Cow::Borrowed(text), false);
    }
    let Some(room) = max_bytes.checked_sub(MARKER_BYTES) else {
        return (Cow::Borrowed(&text[..text.floor_char_boundary(max_bytes)]), true);
    };
    let head = &text[..text.floor_char_boundary(room - room / 4)];
    let tail = &text[text.ceil_char_boundary(text.len() - room / 4)..];
    let removed = text.len() - head.len() - tail.len();
    (Cow::Owned(format!("{head}\n[… {removed} bytes removed …]\n{tail}")), true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keeps_head_and_tail() {
        assert_eq!(truncate("short", 5), (Cow::Borrowed("short"), false));
        let text = format!("{}{}", "a".repeat(500), "z".repeat(500));
        let (cut, truncated) = truncate(&text, 164);
        assert!(truncated);
        assert_eq!(cut, format!("{}\n[… 900 bytes removed …]\n{}", "a".repeat(75), "z".repeat(25)));
    }

    proptest! {
        #[test]
        fn is_bounded_and_exact(text in "[aé€🦀]{0,400}", max_bytes in 0_usize..900) {
            let (cut, truncated) = truncate(&text, max_bytes);
            prop_assert!(cut.len() <= max_bytes);
            prop_assert_eq!(truncated, text.len() > max_bytes);
            if let Some((head, rest)) = cut.split_once("\n[… ") {
                let (removed, tail) = rest.split_once(" bytes removed …]\n").unwrap();
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                prop_assert_eq!(head.len() + removed.parse::<usize>().unwrap() + tail.len(), text.len());
            }
        }
    }
}

//! Keeps a text within the tags in which it is shown. Pure.

use std::borrow::Cow;

/// Stands behind a `<` that would begin the end of a frame.
const BREAK: char = '\u{200b}';

/// A text in which nothing ends this tag, nor one whose name begins so: in whatever case, and with white space anywhere in it.
#[must_use]
pub fn within<'t>(text: &'t str, tag: &str) -> Cow<'t, str> {
    let ends: Vec<usize> = memchr::memchr_iter(b'<', text.as_bytes()).filter(|at| ends(&text[at + 1..], tag)).collect();
    if ends.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut kept, mut from) = (String::with_capacity(text.len() + 4 * ends.len()), 0);
    for at in ends {
        kept.push_str(&text[from..=at]);
        kept.push(BREAK);
        from = at + 1;
    }
    kept.push_str(&text[from..]);
    Cow::Owned(kept)
}

/// Whether what stands behind a `<` ends the tag.
fn ends(rest: &str, tag: &str) -> bool {
    let is_blank = |char: char| char.is_whitespace() || char.is_control();
    let Some(name) = rest.trim_start_matches(is_blank).strip_prefix('/') else { return false };
    let name = name.trim_start_matches(is_blank);
    name.get(..tag.len()).is_some_and(|name| name.eq_ignore_ascii_case(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_frame_however_it_is_written() {
        for text in
            ["</memory>", "</MEMORY>", "</ memory>", "< /Memory >", "<\n/\tmemory", "a </memory-x> b", "<</memory>"]
        {
            let kept = within(text, "memory");
            assert_eq!(kept.replace(BREAK, ""), text);
            assert_eq!(kept.matches(BREAK).count(), 1, "{kept:?}");
            assert_eq!(within(&kept, "memory"), kept, "it is kept once");
        }
        for text in ["", "a < b", "<memory>", "</memo>", "</é", "</"] {
            assert!(matches!(within(text, "memory"), Cow::Borrowed(kept) if kept == text), "{text}");
        }
    }
}

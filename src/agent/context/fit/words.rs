//! Texts in short.

/// The first `most` characters of a text, with a mark where some are left out.
pub(super) fn head(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A text in one line, of at most so many characters.
pub(super) fn line(text: &str, most: usize) -> String {
    head(&text.split_whitespace().collect::<Vec<_>>().join(" "), most)
}

/// The first `head` and the last `tail` characters of a text that has more than `most`, with a note between them that says how
/// long it was.
pub(super) fn ends(text: &str, most: usize, head: usize, tail: usize) -> Option<String> {
    let count = text.chars().count();
    let left_out = count.checked_sub(head + tail).filter(|left_out| count > most && *left_out > 0)?;
    let place = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(place, _)| place);
    let (first, last) = (&text[..place(head)], &text[place(count - tail)..]);
    Some(format!("{first}\n[… {left_out} of {count} characters are left out …]\n{last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!((head("äöü", 2).as_str(), head("äöü", 3).as_str()), ("äö…", "äöü"));
        assert_eq!(line(" a\n b ", 9), "a b");
        let text = "ä".repeat(10);
        assert_eq!(ends(&text, 10, 2, 2), None);
        assert_eq!(ends(&text, 9, 5, 5), None, "nothing would be left out");
        assert_eq!(ends(&text, 5, 2, 1).as_deref(), Some("ää\n[… 7 of 10 characters are left out …]\nä"));
    }
}

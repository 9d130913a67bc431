//! Cuts documents into passages that can be found and shown each for itself. Pure.

use std::ops::Range;

/// About how many bytes a passage has at most.
const MOST: usize = 800;

/// The passages of a text: paragraphs, of which short ones stand together and long ones are cut at the ends of lines or words.
pub fn passages(text: &str) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = Vec::new();
    for paragraph in paragraphs(text) {
        match all.last_mut() {
            Some(last) if paragraph.end - last.start <= MOST => last.end = paragraph.end,
            _ => cut(text, paragraph, &mut all),
        }
    }
    all
}

/// What stands between empty lines.
fn paragraphs(text: &str) -> Vec<Range<usize>> {
    let (mut all, mut from, mut at) = (Vec::new(), None, 0);
    for line in text.split_inclusive('\n') {
        let end = at + line.trim_end().len();
        if line.trim().is_empty() {
            all.extend(from.take());
        } else {
            let start: Range<usize> = from.unwrap_or(at..end);
            from = Some(start.start..end);
        }
        at += line.len();
    }
    all.extend(from);
    all
}

/// Adds a paragraph, cut where it is too long.
fn cut(text: &str, mut rest: Range<usize>, all: &mut Vec<Range<usize>>) {
    while rest.len() > MOST {
        let piece = &text[rest.start..text.floor_char_boundary(rest.start + MOST)];
        let half = piece.floor_char_boundary(MOST / 2);
        let end = piece[half..].rfind('\n').or_else(|| piece[half..].rfind(char::is_whitespace));
        let end = rest.start + end.map_or(piece.len(), |end| half + end);
        all.push(rest.start..end);
        let next = &text[end..rest.end];
        rest.start = end + (next.len() - next.trim_start().len());
    }
    if !rest.is_empty() {
        all.push(rest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        passages(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn passages_are_paragraphs_and_short_ones_stand_together() {
        assert_eq!(texts("a\nb\n\n\n c\n"), ["a\nb\n\n\n c"]);
        let long = "word ".repeat(120);
        let text = format!("first\n\n{long}\n\n{long}\n\nlast");
        let found = texts(&text);
        assert_eq!(found, [&format!("first\n\n{}", long.trim_end()), &format!("{long}\n\nlast")]);
        assert!(texts(" \n\t\n").is_empty() && texts("").is_empty());
    }

    proptest! {
        #[test]
        fn nothing_but_white_space_is_left_out(text in "(\\PC|[\n ]|[a-zé]{1,300}){0,60}") {
            let (mut at, mut kept) = (0, String::new());
            for range in passages(&text) {
                prop_assert!(text[at..range.start].trim().is_empty() && !range.is_empty() && range.len() <= MOST);
                kept.push_str(&text[range.clone()]);
                at = range.end;
            }
            prop_assert!(text[at..].trim().is_empty());
        }
    }
}

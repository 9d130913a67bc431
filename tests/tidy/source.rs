//! Rust source as words: without comments, texts and modules of tests, each word with its line.

/// A word of a file: an identifier, `::`, or one other character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
}

/// The words of a file.
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let (mut words, mut at, mut line) = (Vec::new(), 0, 1);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = if first.is_alphanumeric() || first == '_' {
            raw_text(rest).unwrap_or_else(|| {
                let length = identifier(rest);
                words.push(Word { text: &rest[..length], line });
                length
            })
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' {
            character(rest)
        } else if rest.starts_with("::") {
            words.push(Word { text: "::", line });
            2
        } else {
            if !first.is_whitespace() {
                words.push(Word { text: &rest[..first.len_utf8()], line });
            }
            first.len_utf8()
        };
        line += rest[..length].matches('\n').count();
        at += length;
    }
    words
}

fn identifier(rest: &str) -> usize {
    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
}

/// How long a text like `r#"…"#` or `b"…"` is, if one begins here.
fn raw_text(rest: &str) -> Option<usize> {
    let prefix = ["br", "r", "b", "c"].into_iter().find(|prefix| rest.starts_with(prefix))?;
    let after = &rest[prefix.len()..];
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    let body = after[hashes..].strip_prefix('"')?;
    if !prefix.ends_with('r') {
        return (hashes == 0).then(|| prefix.len() + quoted(after, '"'));
    }
    let end = format!("\"{}", "#".repeat(hashes));
    Some(prefix.len() + hashes + 1 + body.find(&end)? + end.len())
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + c.len_utf8();
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    rest.len()
}

/// How long a character is, or 1 for the mark of a lifetime.
fn character(rest: &str) -> usize {
    let mut inside = rest.chars().skip(1);
    match (inside.next(), inside.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(rest, '\''),
        _ => 1,
    }
}

/// The words without what is compiled for tests alone.
pub(super) fn without_tests<'a>(words: &[Word<'a>]) -> Vec<Word<'a>> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < words.len() {
        let is_marked = words[at..].iter().map(|word| word.text).take(MARK.len()).eq(MARK);
        if is_marked {
            at = end_of_item(words, at + MARK.len());
        } else {
            kept.push(words[at]);
            at += 1;
        }
    }
    kept
}

/// The place after the item, field or statement that begins here.
fn end_of_item(words: &[Word<'_>], begin: usize) -> usize {
    let mut nesting = 0_usize;
    for (at, word) in words.iter().enumerate().skip(begin) {
        match word.text {
            "{" | "(" | "[" => nesting += 1,
            "}" if nesting == 0 => return at,
            "}" | ")" | "]" => {
                nesting = nesting.saturating_sub(1);
                if nesting == 0 && word.text == "}" {
                    return at + 1;
                }
            }
            ";" | "," if nesting == 0 => return at + 1,
            _ => {}
        }
    }
    words.len()
}

/// The functions of a file: the name, the first line and how many lines there are.
pub(super) fn functions(words: &[Word<'_>]) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (at, pair) in words.windows(2).enumerate() {
        let is_named = pair[1].text.starts_with(|c: char| c.is_alphabetic() || c == '_');
        if pair[0].text != "fn" || !is_named {
            continue;
        }
        let (mut nesting, mut has_body) = (0_usize, false);
        for word in &words[at..] {
            match word.text {
                "(" | "[" => nesting += 1,
                ")" | "]" => nesting -= 1,
                "{" => (nesting, has_body) = (nesting + 1, has_body || nesting == 0),
                "}" => {
                    nesting -= 1;
                    if nesting == 0 && has_body {
                        found.push((pair[1].text.to_owned(), pair[0].line, word.line - pair[0].line + 1));
                        break;
                    }
                }
                ";" if nesting == 0 => break,
                _ => {}
            }
        }
    }
    found
}

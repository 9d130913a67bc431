//! Texts in which JSON may stand, as they read once the escapes of JSON are resolved, so that no way to write a text hides what
//! it says.
//!
//! Outside of its strings JSON has no escapes. So a text is read without a look at its strings, and JSON within a text, or
//! within a string of other JSON, is read as well.

use std::borrow::Cow;

/// How deep JSON is read that stands in strings of JSON.
const MOST_LEVELS: usize = 4;

/// The text itself, and how it reads with its escapes resolved: with those alone that JSON needs, with none, and with none in
/// what was escaped within that.
pub fn readings(text: &str) -> Vec<Cow<'_, str>> {
    let mut readings = vec![Cow::Borrowed(text)];
    if let Cow::Owned(plain) = plain(text) {
        readings.push(Cow::Owned(plain));
    }
    for _ in 0..MOST_LEVELS {
        let said = resolved(readings.last().map_or(text, |reading| reading), |_| false);
        let Cow::Owned(said) = said else { break };
        readings.push(Cow::Owned(said));
    }
    readings
}

/// The same JSON with no escape that it does not need; borrowed if there are none.
pub fn plain(json: &str) -> Cow<'_, str> {
    resolved(json, |said| said.is_control() || matches!(said, '"' | '\\' | char::REPLACEMENT_CHARACTER))
}

/// The text with the characters in place of the escapes that stand for them, but for those that are kept; borrowed if it has no
/// others.
fn resolved(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let (mut out, mut copied, mut from) = (String::new(), 0, 0);
    while let Some(at) = memchr::memchr(b'\\', &text.as_bytes()[from..]) {
        let at = from + at;
        let Some((said, length)) = escape(&text[at..]) else {
            from = at + 1;
            continue;
        };
        from = at + length;
        if !is_kept(said) {
            out.push_str(&text[copied..at]);
            out.push(said);
            copied = from;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The character for which the escape stands with which a text begins, and how long the escape is; `None` if it is none.
fn escape(text: &str) -> Option<(char, usize)> {
    let said = match text.as_bytes().get(1)? {
        b'u' => return unicode_escape(text),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        own @ (b'"' | b'\\' | b'/') => char::from(*own),
        _ => return None,
    };
    Some((said, 2))
}

/// The same of `\u` and four digits, or two such escapes that stand for one character. Half of two stands for no character.
fn unicode_escape(text: &str) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let digits = text.get(from..from + 6)?.strip_prefix("\\u")?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    };
    let units = [unit(0)?].into_iter().chain(unit(6));
    let said = char::decode_utf16(units).next()?.unwrap_or(char::REPLACEMENT_CHARACTER);
    Some((said, if said.len_utf16() == 2 { 12 } else { 6 }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_reads_as_it_says_however_it_is_written() {
        for (text, plainly, said) in [
            (r#"{"c":"rm\u0020-rf"}"#, r#"{"c":"rm -rf"}"#, r#"{"c":"rm -rf"}"#),
            (r#"{"\u0063":"a\/b\t\u00e9\ud83d\ude00"}"#, r#"{"c":"a/b\té😀"}"#, "{\"c\":\"a/b\té😀\"}"),
            (r#"{"c":"\"\\\u0022\ud800"}"#, r#"{"c":"\"\\\u0022\ud800"}"#, "{\"c\":\"\"\\\"\u{fffd}\"}"),
            (r"C:\dir \u12", r"C:\dir \u12", r"C:\dir \u12"),
        ] {
            assert_eq!(plain(text), plainly);
            assert!(readings(text).iter().any(|reading| reading == said), "{text}: {:?}", readings(text));
        }
    }

    #[test]
    fn json_in_strings_of_json_is_read_and_the_depth_has_an_end() {
        let mut json = r#""rm\u0020-rf""#.to_owned();
        for level in 0..8 {
            let is_read = readings(&json).iter().any(|reading| reading.contains("rm -rf"));
            assert_eq!(is_read, level < MOST_LEVELS, "{level}: {json}");
            json = serde_json::to_string(&json).unwrap();
        }
        assert_eq!(readings("no escape"), ["no escape"]);
    }

    proptest! {
        #[test]
        fn plain_json_says_the_same(text in r#"[a "\\\u{1}é😀/]{0,20}"#) {
            let escaped = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<Vec<_>>().concat();
            let json = format!("[\"{escaped}\"]");
            let read: [String; 1] = serde_json::from_str(&plain(&json)).unwrap();
            prop_assert_eq!(&read[0], &text);
            prop_assert!(plain(&json).len() <= json.len());
            let said = format!("[\"{text}\"]");
            prop_assert!(readings(&json).iter().any(|reading| *reading == said));
        }
    }
}

//! Takes out of a tool's result what no model reads: data in base64 and hexadecimal digits, and control characters.
//!
//! A note says what stood there and how long it was. A picture that models look at becomes a part of its own.

use std::borrow::Cow;
use std::fmt::Write as _;

use memchr::memmem;

use crate::types::conversation::{Part, PartKind, Source};
use crate::types::json::RawValueEq;

/// Most pictures that are taken out of the texts of one result.
const MAX_PICTURES: usize = 4;
/// A picture with less base64 than this is an icon, or none.
const LEAST_PICTURE: usize = 256;
/// Longest media type that is told, in bytes.
const MAX_MEDIA_TYPE: usize = 64;
/// The types of pictures that all models take which take pictures.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Longest title of a terminal's window, and address of a link in one, that goes, in bytes.
const MAX_TITLE: usize = 256;
/// Longest sequence that sets a terminal's colours and the like, in bytes.
const MAX_SEQUENCE: usize = 32;

const DATA: &[u8] = b"data:";
const BASE64: &str = ";base64,";
/// How long the lines are into which base64 is wrapped.
const WRAPPED: [usize; 2] = [64, 76];

/// Cleans the texts of a result. A picture in them becomes a part of its own; where the result is nothing but JSON, that becomes
/// a text before it.
pub fn sanitise(parts: &mut Vec<Part>, structured: &mut Option<RawValueEq>, hex_run: usize) -> Vec<Part> {
    let mut pictures = Vec::new();
    for part in &mut *parts {
        if let PartKind::Text(text) = &mut part.kind
            && let Cow::Owned(cleaned) = clean(text, hex_run, &mut pictures)
        {
            *text = cleaned;
        }
    }
    let Some(json) = structured else { return pictures };
    // What is told in words has its pictures there.
    let mut found = Vec::new();
    if let Cow::Owned(cleaned) = clean_json(json.get(), hex_run, &mut found)
        && let Ok(cleaned) = serde_json::value::RawValue::from_string(cleaned)
    {
        *json = RawValueEq(cleaned);
    }
    if parts.is_empty() && !found.is_empty() {
        parts.push(Part::text(json.get()));
        pictures = found;
    }
    pictures
}

/// JSON whose strings are clean, each by itself; borrowed if they were.
fn clean_json<'t>(json: &'t str, hex_run: usize, pictures: &mut Vec<Part>) -> Cow<'t, str> {
    // Escapes may hide what is to be cleaned.
    if memchr::memchr(b'\\', json.as_bytes()).is_none() && is_clean(json, hex_run) {
        return Cow::Borrowed(json);
    }
    let (mut out, mut rest) = (String::with_capacity(json.len()), json);
    while let Some(at) = memchr::memchr(b'"', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let (token, behind) = rest[at..].split_at(token_length(&rest[at..]));
        // One that is no text, as half of a surrogate is none, is left.
        let cleaned =
            serde_json::from_str::<String>(token).ok().and_then(|text| match clean(&text, hex_run, pictures) {
                Cow::Owned(cleaned) => serde_json::to_string(&cleaned).ok(),
                Cow::Borrowed(_) => None,
            });
        out.push_str(cleaned.as_deref().unwrap_or(token));
        rest = behind;
    }
    out.push_str(rest);
    if out == json { Cow::Borrowed(json) } else { Cow::Owned(out) }
}

/// How long the string of JSON is with which a text begins, with its quotes.
fn token_length(text: &str) -> usize {
    let mut from = 1;
    while let Some(at) = memchr::memchr2(b'"', b'\\', &text.as_bytes()[from..]) {
        let at = from + at;
        if text.as_bytes()[at] == b'"' {
            return at + 1;
        }
        from = (at + 2).min(text.len());
    }
    text.len()
}

/// The text without data and control characters; borrowed if there are none in it.
fn clean<'t>(text: &'t str, hex_run: usize, pictures: &mut Vec<Part>) -> Cow<'t, str> {
    if is_clean(text, hex_run) {
        return Cow::Borrowed(text);
    }
    // First, as these may stand within data.
    let cleaned = without_data(&without_controls(text), hex_run, pictures);
    if cleaned == text { Cow::Borrowed(text) } else { Cow::Owned(cleaned) }
}

/// Whether there is nothing to clean.
fn is_clean(text: &str, hex_run: usize) -> bool {
    let mut run = 0;
    for byte in text.bytes() {
        run = if byte.is_ascii_hexdigit() { run + 1 } else { 0 };
        // The last is the first byte of all control characters beyond ASCII.
        let is_control = byte < b' ' && !matches!(byte, b'\n' | b'\t' | b'\r') || matches!(byte, 0x7f | 0xc2);
        if run >= hex_run || is_control {
            return false;
        }
    }
    // Names of encodings are of any case, as names of schemes are.
    !memchr::memchr_iter(b';', text.as_bytes()).any(|at| begins_base64(&text.as_bytes()[at..]))
}

/// Whether the bytes begin with [`BASE64`], in any case.
fn begins_base64(bytes: &[u8]) -> bool {
    bytes.get(..BASE64.len()).is_some_and(|head| head.eq_ignore_ascii_case(BASE64.as_bytes()))
}

fn without_controls(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '\u{1b}' => 1 + escape_sequence(&rest[1..]),
            c if c.is_control() && !matches!(c, '\n' | '\t' | '\r') => c.len_utf8(),
            c => {
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    out
}

fn without_data(text: &str, hex_run: usize, pictures: &mut Vec<Part>) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len().min(1 << 16)), text);
    while let Some(c) = rest.chars().next() {
        let mut length = c.len_utf8();
        if let Some(uri) = DataUri::at_front_of(rest) {
            out.push_str(&uri.note());
            if pictures.len() < MAX_PICTURES {
                pictures.extend(uri.picture());
            }
            length = uri.length;
        } else if c.is_ascii_hexdigit() {
            length = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
            // Without a letter it is a number, which models read.
            if length >= hex_run && rest[..length].contains(|c: char| c.is_ascii_alphabetic()) {
                let _ = write!(out, "[{length} hexadecimal digits]");
            } else {
                // `data:` begins with such digits.
                let reach = (length + DATA.len()).min(rest.len());
                length = memmem::find(&rest.as_bytes()[1..reach], DATA).map_or(length, |at| length.min(at + 1));
                out.push_str(&rest[..length]);
            }
        } else {
            out.push(c);
        }
        rest = &rest[length..];
    }
    out
}

/// How long the rest of a terminal's escape sequence is: `[`, parameters, and a final character; `]` and a text, up to the
/// sequence or control character that ends it; or the choice of a character set.
fn escape_sequence(after: &str) -> usize {
    let bytes = after.as_bytes();
    let run = |from: usize, is_part: fn(&u8) -> bool| {
        bytes[from..].iter().take(MAX_SEQUENCE).take_while(|b| is_part(b)).count()
    };
    let between = |from| run(from, |byte| (b' '..=b'/').contains(byte));
    let final_byte = |at: usize, from| bytes.get(at).filter(|byte| (from..=b'~').contains(byte)).map_or(0, |_| at + 1);
    match bytes.first() {
        Some(b'\\') => 1,
        Some(b']') => {
            let head = &after[..after.floor_char_boundary(MAX_TITLE)];
            head.find(|c: char| c.is_control()).unwrap_or(0)
        }
        Some(b'[') => {
            let parameters = 1 + run(1, |byte| (b'0'..=b'?').contains(byte));
            let end = parameters + between(parameters);
            if end < MAX_SEQUENCE { final_byte(end, b'@') } else { 0 }
        }
        Some(b'!'..=b'/') => final_byte(between(0), b'0'),
        _ => 0,
    }
}

/// `data:TYPE;base64,…`
struct DataUri<'t> {
    media_type: &'t str,
    data: &'t str,
    length: usize,
}

impl<'t> DataUri<'t> {
    fn at_front_of(text: &'t str) -> Option<Self> {
        text.as_bytes().get(..DATA.len()).filter(|head| head.eq_ignore_ascii_case(DATA))?;
        let is_of_type =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '+' | '-' | ';' | '=' | '_' | '\\');
        let after = &text[DATA.len()..];
        let head = &after[..after.find(|c| !is_of_type(c)).unwrap_or(after.len())];
        // Up to the comma, which is no character of a type.
        let encoding = BASE64.trim_end_matches(',');
        let (media_type, own) = head.split_at_checked(head.len().checked_sub(encoding.len())?)?;
        if !own.eq_ignore_ascii_case(encoding) {
            return None;
        }
        let data = after[head.len()..].strip_prefix(',')?;
        let mut data = &data[..base64_length(data)];
        // Escapes of other characters than these end the data.
        if let Some(end) =
            memchr::memchr_iter(b'\\', data.as_bytes()).find(|at| data.as_bytes().get(at + 1) != Some(&b'/'))
        {
            data = &data[..end];
        }
        let length = DATA.len() + head.len() + 1 + data.len();
        (!data.is_empty()).then_some(Self { media_type, data, length })
    }

    /// The type without its parameters and escapes.
    fn essence(&self) -> String {
        let essence = self.media_type.split(';').next().unwrap_or_default().replace('\\', "").to_ascii_lowercase();
        if essence.is_empty() || essence.len() > MAX_MEDIA_TYPE { "data".to_owned() } else { essence }
    }

    fn note(&self) -> String {
        let padding = self.data.bytes().rev().take_while(|byte| *byte == b'=').count();
        let length = self.data.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).count();
        format!("[{}, {} bytes]", self.essence(), (length / 4 * 3).saturating_sub(padding))
    }

    /// The picture, if it is one that models look at.
    fn picture(&self) -> Option<Part> {
        let media_type = self.essence();
        let is_picture = self.data.len() >= LEAST_PICTURE && PICTURES.contains(&media_type.as_str());
        is_picture.then(|| {
            let data = self
                .data
                .replace(['\r', '\n'], "")
                .replace("\\/", "/")
                .replace("%2B", "+")
                .replace("%2F", "/")
                .replace("%3D", "=");
            PartKind::Image { source: Source::Base64 { media_type, data }, detail: None }.into()
        })
    }
}

/// How long the base64 is with which a text begins. Wrapped, all of its lines but the last are of one length.
fn base64_length(text: &str) -> usize {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '-' | '_' | '\\' | '%');
    let line = |from: usize| text[from..].find(|c| !is_base64(c)).unwrap_or(text.len() - from);
    let width = line(0);
    let mut end = width;
    while WRAPPED.contains(&width) {
        let Some(from) =
            ["\r\n", "\n"].iter().find(|end_of_line| text[end..].starts_with(**end_of_line)).map(|e| end + e.len())
        else {
            break;
        };
        let length = line(from);
        if length == 0 || length > width || length % 4 != 0 {
            break;
        }
        end = from + length;
        if length < width {
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    fn cleaned(text: &str) -> String {
        let mut parts = vec![Part::text(text)];
        let _ = sanitise(&mut parts, &mut None, 200);
        parts[0].as_text().unwrap().to_owned()
    }

    #[test]
    fn data_becomes_a_note_of_its_size() {
        let hex = |digits: usize| "0aF9".repeat(digits / 4);
        for (text, kept) in [
            (
                "see data:application/pdf;base64,QUJDREVG end".to_owned(),
                "see [application/pdf, 6 bytes] end".to_owned(),
            ),
            (
                "<img src=\"DATA:image/SVG+xml;charset=utf-8;base64,QUJD==\">".into(),
                "<img src=\"[image/svg+xml, 1 bytes]\">".into(),
            ),
            ("data:;base64,QUJD".into(), "[data, 3 bytes]".into()),
            ("data:text/plain;BASE64,QUJD a;b".into(), "[text/plain, 3 bytes] a;b".into()),
            ("a Data:;Base64,QUJD".into(), "a [data, 3 bytes]".into()),
            ("updata:text/plain;base64,QUJD".into(), "up[text/plain, 3 bytes]".into()),
            ("abdata:text/plain;base64,QUJD".into(), "ab[text/plain, 3 bytes]".into()),
            (format!("key={}.", hex(200)), "key=[200 hexadecimal digits].".into()),
            (format!("key={}.", hex(196)), format!("key={}.", hex(196))),
            ("a\u{1b}[1;31mred\u{1b}[0m\0b\u{7f}\u{85}c\td\r\n".into(), "aredbc\td\r\n".into()),
            ("\u{1b}]0;title\u{7}a\u{1b}]b".into(), "a]b".into()),
            (
                "\u{1b}(B\u{1b}]8;;https://x.y\u{1b}\\link\u{1b}]8;;\u{1b}\\ \u{1b}[?25l\u{1b}[1 q.".into(),
                "link .".into(),
            ),
            ("\u{1b}[ü \u{1b}[1;2".into(), "[ü [1;2".into()),
            (format!("\u{1b}[{}m", "1;".repeat(20)), format!("[{}m", "1;".repeat(20))),
            (format!("id {}", "7".repeat(300)), format!("id {}", "7".repeat(300))),
            (format!("data:a/b;base64,{0}\n{0}\nQUJD\nNext", "QUJD".repeat(19)), "[a/b, 117 bytes]\nNext".into()),
            ("data:a/b;base64,QUJD\nNext".into(), "[a/b, 3 bytes]\nNext".into()),
            ("data: base64, and data:text/plain,no é".into(), "data: base64, and data:text/plain,no é".into()),
        ] {
            assert_eq!(cleaned(&text), kept);
        }
    }

    #[test]
    fn json_stays_json() {
        let json =
            r#"{"a":"data:image\/png;base64,QUJD\/w==\n","b":"\u0000\u001b[31mx\b\f\u00e9\\u0000","c":"NUMBER"}"#;
        let json = json.replace("NUMBER", &"a7".repeat(150));
        let mut structured = Some(RawValueEq(RawValue::from_string(json).unwrap()));
        let _ = sanitise(&mut Vec::new(), &mut structured, 200);
        let expected = r#"{"a":"[image/png, 4 bytes]\n","b":"xé\\u0000","c":"[300 hexadecimal digits]"}"#;
        assert_eq!(structured.unwrap().get(), expected);
    }

    #[test]
    fn each_string_of_json_is_cleaned_by_itself_and_no_number() {
        let number = "7".repeat(300);
        let json = format!(r#"{{"odd":"\ud800","n":{number},"quote\"\u0007":"\u001b[1mbold","kept":"\u00e9"}}"#);
        let mut structured = Some(RawValueEq(RawValue::from_string(json).unwrap()));
        let _ = sanitise(&mut Vec::new(), &mut structured, 200);
        let expected = format!(r#"{{"odd":"\ud800","n":{number},"quote\"":"bold","kept":"\u00e9"}}"#);
        assert_eq!(structured.unwrap().get(), expected);
    }

    #[test]
    fn a_picture_in_json_becomes_a_part_where_the_json_is_all() {
        let data = "QUJD".repeat(64);
        let json = || Some(RawValueEq(RawValue::from_string(format!("\"data:image/png;base64,{data}\"")).unwrap()));
        let (mut parts, mut structured) = (Vec::new(), json());
        assert_eq!(sanitise(&mut parts, &mut structured, 200).len(), 1);
        assert_eq!(parts, [Part::text("\"[image/png, 192 bytes]\"")]);
        let (mut parts, mut structured) = (vec![Part::text(structured.unwrap().get()), Part::text("a")], json());
        assert!(sanitise(&mut parts, &mut structured, 200).is_empty(), "the text tells the same");
    }

    #[test]
    fn pictures_become_parts() {
        let data = "QUJD".repeat(64);
        let mut parts = vec![Part::text(format!("a data:image/png;base64,{data} b").repeat(MAX_PICTURES + 1))];
        let pictures = sanitise(&mut parts, &mut None, 200);
        let source = Source::Base64 { media_type: "image/png".into(), data };
        let picture = Part::from(PartKind::Image { source, detail: None });
        assert_eq!(pictures, vec![picture; MAX_PICTURES]);
        assert_eq!(parts[0].as_text(), Some("a [image/png, 192 bytes] b".repeat(MAX_PICTURES + 1).as_str()));
    }

    proptest! {
        #[test]
        fn what_is_clean_is_kept_and_cleaning_twice_changes_nothing(text in "([a-f0-9]{0,9}|data:|a/b|;base64,|[é \u{1b}\u{0}\\[\\]m]){0,30}") {
            let once = cleaned(&text);
            prop_assert_eq!(cleaned(&once), once.clone());
            prop_assert!(!once.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r')));
            if !text.contains(";base64,") && !text.contains(char::is_control) && text.len() < 200 {
                prop_assert_eq!(once, text);
            }
        }
    }
}

//! Bytes of a page as text, by the encoding that they are in. Pure.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// A page declares its encoding within so many bytes.
const DECLARED_WITHIN: usize = 1_024;

/// The text, by what the bytes begin with, what the server says in `content_type`, or what a page declares; without any of
/// them it is UTF-8, or else what most old pages are.
pub(super) fn decode(bytes: &[u8], content_type: &str, is_page: bool) -> String {
    let told = || parameter(content_type, "charset=").and_then(encoding);
    let declared = || {
        let head = &bytes[..bytes.len().min(DECLARED_WITHIN)];
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let declared = parameter(&head, "charset=").and_then(encoding);
        // It could not be read in the others as what it is.
        declared.filter(|encoding| is_page && encoding.is_ascii_compatible())
    };
    let guessed = || if looks_like_utf8(bytes) { UTF_8 } else { WINDOWS_1252 };
    let encoding = told().or_else(declared).unwrap_or_else(guessed);
    // What the bytes begin with wins over all that is said of them.
    encoding.decode(bytes).0.into_owned()
}

fn encoding(label: &str) -> Option<&'static Encoding> {
    Encoding::for_label(label.as_bytes())
}

/// What follows the name, up to its end.
fn parameter<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at = text.to_ascii_lowercase().find(name)? + name.len();
    let value = text[at..].trim_start_matches(['"', '\'', ' ']);
    let end =
        value.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.'))).unwrap_or(value.len());
    Some(&value[..end])
}

/// Whether it is UTF-8, but for a character at its end that may have been cut off after others.
fn looks_like_utf8(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none() && !bytes[..error.valid_up_to()].is_ascii(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_by_its_encoding() {
        for (bytes, content_type, text) in [
            (&b"caf\xc3\xa9"[..], "text/html", "café"),
            (b"caf\xe9", "text/html", "café"),
            (b"caf\xe9", "text/html; charset=\"ISO-8859-1\"", "café"),
            (b"\x82\xb1", "text/plain; charset=Shift_JIS", "こ"),
            (b"\xff\xfeh\0i\0", "text/html; charset=utf-8", "hi"),
            (b"\xef\xbb\xbfhi", "", "hi"),
            (b"<meta charset='windows-1251'>\xcf", "text/html", "<meta charset='windows-1251'>П"),
            (
                b"<meta http-equiv=content-type content=\"text/html; charset=koi8-r\">\xf0",
                "text/html",
                "<meta http-equiv=content-type content=\"text/html; charset=koi8-r\">П",
            ),
            (b"caf\xc3\xa9", "text/html; charset=nonsense", "café"),
            (b"caf\xc3\xa9 caf\xc3", "text/html", "café caf\u{fffd}"),
        ] {
            assert_eq!(decode(bytes, content_type, true), text, "{content_type}");
        }
        assert_eq!(decode(b"charset=koi8-r \xc3\xa9", "application/json", false), "charset=koi8-r é");
    }
}

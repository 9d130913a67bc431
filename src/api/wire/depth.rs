//! How deeply JSON is nested.
//!
//! What a request does not use of its JSON is kept as it was written: members of messages that are not known, schemas of
//! tools. The parser skips them without a bound, and its later readers may have a bound, or a stack that ends.

/// How deeply a body may be nested: as deeply as parsers usually go.
pub const MAX_DEPTH: usize = 128;

/// Whether a JSON text is nested more deeply than [`MAX_DEPTH`]. Of a text that is no JSON it says nothing.
pub fn is_too_deep(json: &str) -> bool {
    // Most bodies have fewer brackets than that.
    memchr::memchr2_iter(b'[', b'{', json.as_bytes()).nth(MAX_DEPTH).is_some() && depth(json.as_bytes()) > MAX_DEPTH
}

fn depth(mut rest: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'"' => rest = behind_string(behind),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// What follows a string that has begun.
fn behind_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        if rest[at] == b'"' {
            return &rest[at + 1..];
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_count_where_they_are_no_text() {
        let nested = |levels: usize| format!("{}{}", r#"{"a":["#.repeat(levels / 2), "]}".repeat(levels / 2));
        assert_eq!((depth(nested(6).as_bytes()), depth(b""), depth(b"]]}}[")), (6, 0, 1));
        assert_eq!(depth(br#"{"a\"[[[":"[\\","b":[1,{}],"c":"\u005b[\\\""}"#), 3);
        assert_eq!(depth(br#"["never ends [[["#), 1);
        assert!(!is_too_deep(&nested(MAX_DEPTH)) && is_too_deep(&nested(MAX_DEPTH + 2)));
        assert!(!is_too_deep(&format!("[{}]", "[],".repeat(9 * MAX_DEPTH))));
        assert!(!is_too_deep(&format!("\"{}\"", "[".repeat(9 * MAX_DEPTH))));
    }
}

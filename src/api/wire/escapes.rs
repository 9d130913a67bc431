//! Characters that JSON writes as escapes. The same text then takes up to three times as many bytes, and as many tokens
//! as before.

/// How many bytes more the `\u` escapes of a JSON text take than the characters that they stand for.
pub fn surplus(json: &str) -> usize {
    let (mut surplus, mut rest) = (0, json.as_bytes());
    while let Some(at) = memchr::memchr(b'\\', rest) {
        rest = &rest[at..];
        let hex = rest.strip_prefix(b"\\u").and_then(|after| std::str::from_utf8(after.get(..4)?).ok());
        let bytes = hex.and_then(|hex| u16::from_str_radix(hex, 16).ok()).map(|code| match code {
            0..=0x7f => 1,
            // Half of a pair stands for half of four bytes.
            0x80..=0x7ff | 0xd800..=0xdfff => 2,
            _ => 3,
        });
        surplus += bytes.map_or(0, |bytes| 6 - bytes);
        rest = rest.get(if bytes.is_some() { 6 } else { 2 }..).unwrap_or_default();
    }
    surplus
}

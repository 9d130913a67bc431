//! Leaves out of a text what looks like a secret. Pure.
//!
//! What is said to models and tools is anyone's words, so this can only know how secrets mostly look: values of members
//! and parameters that are named as secrets are, keys with the vendors' beginnings, bearer tokens, and JSON web tokens.

use std::borrow::Cow;

/// What stands for a secret.
const REDACTED: &str = "[redacted]";

/// How keys begin whose vendors mark them.
const BEGINNINGS: [&str; 12] =
    ["sk-", "sk_", "pk_", "rk_", "lg_", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "AKIA", "eyJ"];

/// A part of the name of what holds a secret.
const NAMES: [&str; 9] =
    ["password", "passwd", "secret", "api_key", "apikey", "api-key", "token", "authorization", "private_key"];

/// The shortest word that is taken for a key.
const SHORTEST: usize = 12;

/// The text without what looks like a secret.
pub(super) fn redact(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    let mut names_secret = false;
    while let Some((start, end)) = next_word(text, at) {
        let word = &text[start..end];
        if names_secret && !is_link(word) || is_key(word) {
            out.push_str(&text[copied..start]);
            out.push_str(REDACTED);
            copied = end;
            names_secret = false;
        } else {
            names_secret = is_name(word) && is_followed_by_value(text, end) || names_secret && is_link(word);
        }
        at = end;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The next run of characters that keys are made of.
fn next_word(text: &str, from: usize) -> Option<(usize, usize)> {
    let of_key = |c: char| c.is_ascii_alphanumeric() || "_-./+~".contains(c);
    let start = from + text[from..].find(of_key)?;
    let end = text[start..].find(|c| !of_key(c)).map_or(text.len(), |length| start + length);
    Some((start, end))
}

fn is_key(word: &str) -> bool {
    word.len() >= SHORTEST && BEGINNINGS.iter().any(|beginning| word.starts_with(beginning))
}

/// What stands between a name and its value, as in `Authorization: Bearer …`.
fn is_link(word: &str) -> bool {
    ["bearer", "basic"].iter().any(|link| word.eq_ignore_ascii_case(link))
}

fn is_name(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    lower == "bearer" || NAMES.iter().any(|name| lower.ends_with(name))
}

/// Whether a name is followed by a colon or an equals sign, as in JSON, in headers and in forms; a scheme by a space.
fn is_followed_by_value(text: &str, end: usize) -> bool {
    let rest = text[end..].trim_start_matches(['"', '\'', '\\']).trim_start();
    rest.starts_with([':', '=']) || text[..end].to_ascii_lowercase().ends_with("bearer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_left_out() {
        for (text, told) in [
            (r#"{"password":"hunter2","user":"ann"}"#, r#"{"password":"[redacted]","user":"ann"}"#),
            (r#"{\"api_key\": \"abc\"}"#, r#"{\"api_key\": \"[redacted]\"}"#),
            ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
            ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [redacted]"),
            ("use bearer abcdef now", "use bearer [redacted] now"),
            ("the key sk-proj-0123456789 works", "the key [redacted] works"),
            ("?token=abc&page=2", "?token=[redacted]&page=2"),
            ("my password is long", "my password is long"),
            ("the token count was 12", "the token count was 12"),
            ("grüße, sk-1", "grüße, sk-1"),
        ] {
            assert_eq!(redact(text), told);
        }
    }
}

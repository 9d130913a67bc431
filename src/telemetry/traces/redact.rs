//! Leaves out of a text what looks like a secret. Pure.
//!
//! What is said to models and tools is anyone's words, so this can only know how secrets mostly look: values of members,
//! parameters and headers that are named as secrets are, keys with the vendors' beginnings, the user of a URL, and private
//! keys. Where it is not plain how far a secret goes, more is left out rather than less. Each character is looked at a
//! fixed number of times, however long the text is.

use std::borrow::Cow;
use std::ops::Range;

/// What stands for a secret.
const REDACTED: &str = "[redacted]";

/// How keys begin whose vendors mark them.
const BEGINNINGS: [&str; 28] = [
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "lg_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "ya29.",
    "hf_",
    "gsk_",
    "xai-",
    "npm_",
    "pypi-",
    "SG.",
    "whsec_",
];

/// The shortest word that is taken for a key.
const SHORTEST: usize = 12;

/// What the name of a secret has in it, without dashes and underscores.
const NAMES: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "accountkey",
    "privatekey",
    "authkey",
    "authorization",
    "credential",
    "signature",
    "cookie",
];

/// What the last part of such a name may be.
const LAST_PARTS: [&str; 6] = ["pass", "pwd", "pw", "auth", "sig", "jwt"];

/// Names of headers whose values have several words.
const WHOLE_LINES: [&str; 2] = ["authorization", "cookie"];

/// How a secret is to be used, as said before it.
const SCHEMES: [&str; 5] = ["bearer", "basic", "token", "apikey", "digest"];

/// The longest word that can be a name. Of a longer one the end counts.
const LONGEST_NAME: usize = 64;

/// The text without what looks like a secret.
pub(super) fn redact(text: &str) -> Cow<'_, str> {
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(word) = next_word(text, at) {
        let secret = secret_at(text, &word).filter(|secret| !secret.is_empty());
        let Some(secret) = secret else {
            at = word.end;
            continue;
        };
        out.push_str(&text[copied..secret.start]);
        out.push_str(REDACTED);
        (copied, at) = (secret.end, secret.end);
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The next run of characters that names and keys are made of.
fn next_word(text: &str, from: usize) -> Option<Range<usize>> {
    let start = from + text[from..].find(is_of_word)?;
    Some(start..end_of(text, start, |c| !is_of_word(c)))
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}

/// Where the first such character is, or the end.
fn end_of(text: &str, from: usize, is_end: impl Fn(char) -> bool) -> usize {
    text[from..].find(is_end).map_or(text.len(), |length| from + length)
}

/// The secret that this word is, or names.
fn secret_at(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let said = &text[word.clone()];
    if said.starts_with("-----BEGIN") {
        return private_key(text, word.start);
    }
    if said.len() >= SHORTEST && BEGINNINGS.iter().any(|beginning| said.starts_with(beginning)) {
        return Some(word.start..end_of(text, word.end, |c| !is_of_word(c) && !"/+~=".contains(c)));
    }
    let rest = &text[word.end..];
    if let Some(authority) = rest.strip_prefix("://") {
        let start = text.len() - authority.len();
        let end = end_of(text, start, |c| c.is_whitespace() || "/?#\"'\\<>".contains(c));
        return text[start..end].rfind('@').map(|at| start..start + at);
    }
    if said.eq_ignore_ascii_case("bearer") && rest.starts_with(' ') {
        let start = word.end + 1;
        let end = end_of(text, start, |c| !is_of_word(c) && !"/+~=".contains(c));
        return (end - start >= 6).then_some(start..end);
    }
    let start = value_after(text, word.end)?;
    let name = plain_name(said);
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let last = said.rsplit(['_', '-', '.']).next().unwrap_or_default();
    if !has(&NAMES) && !LAST_PARTS.iter().any(|part| last.eq_ignore_ascii_case(part)) {
        return None;
    }
    let value = value(text, start, has(&WHOLE_LINES))?;
    let says_no_secret = is_plain(&text[value.clone()]) || name.contains("tokens") && is_number(&text[value.clone()]);
    (!says_no_secret).then_some(value)
}

/// A name without dashes, in lower case.
fn plain_name(word: &str) -> String {
    let end = &word.as_bytes()[word.len().saturating_sub(LONGEST_NAME)..];
    end.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(|byte| byte.to_ascii_lowercase() as char).collect()
}

/// Where the value begins of a name that ends here, if a colon or an equals sign follows, as in JSON, headers and forms.
fn value_after(text: &str, from: usize) -> Option<usize> {
    let rest = text[from..].trim_start_matches(['\\', '"', '\'', '`']).trim_start_matches([' ', '\t', '\n', '\r']);
    let rest = rest.strip_prefix("%3D").or_else(|| rest.strip_prefix([':', '=']))?;
    let rest = rest.trim_start_matches(['=', '>']).trim_start_matches([' ', '\t', '\n', '\r']);
    Some(text.len() - rest.len())
}

/// The value that begins here. Of a header it goes to the end of the line.
fn value(text: &str, start: usize, is_header: bool) -> Option<Range<usize>> {
    let rest = &text[start..];
    let escapes = rest.len() - rest.trim_start_matches('\\').len();
    let from = start + escapes;
    match text[from..].chars().next()? {
        quote @ ('"' | '\'' | '`') => Some(from + 1..closing_quote(text, from + 1, quote, escapes)),
        '[' | '{' if escapes == 0 => Some(start..closing_bracket(text, start)),
        _ if is_header => Some(start..end_of_line(text, start)),
        _ => Some(start..end_of_words(text, start)),
    }
}

/// Where a value without quotes ends: with its word, or with the next one if that word only says what the next one is.
fn end_of_words(text: &str, start: usize) -> usize {
    let is_end = |c: char| c.is_whitespace() || ",&\"".contains(c);
    let end = end_of_value(text, start, is_end);
    let is_scheme = SCHEMES.iter().any(|scheme| text[start..end].eq_ignore_ascii_case(scheme));
    let next = end + 1;
    if is_scheme && text[end..].starts_with(' ') { end_of_value(text, next, is_end) } else { end }
}

fn end_of_line(text: &str, start: usize) -> usize {
    end_of_value(text, start, |c| "\n\r\"'".contains(c))
}

/// Where such a character is, or the escape of a line's end or of a quote.
fn end_of_value(text: &str, start: usize, is_end: impl Fn(char) -> bool) -> usize {
    let end = end_of(text, start, is_end);
    let escape = |(at, _): (usize, &str)| text[start + at + 1..].starts_with(['n', 'r', 't', '"', '\\']);
    text[start..end].match_indices('\\').find(|found| escape(*found)).map_or(end, |(at, _)| start + at)
}

/// Where a text in quotes ends that began with so many escapes: strings within strings have more at each level.
fn closing_quote(text: &str, from: usize, quote: char, escapes: usize) -> usize {
    let mut run = 0;
    for (at, byte) in text.bytes().enumerate().skip(from) {
        if byte == b'\\' {
            run += 1;
            continue;
        }
        if byte == quote as u8 && closes(run, escapes) {
            // The escapes of the quote itself are no part of the text.
            return at - run.min(escapes);
        }
        run = 0;
    }
    text.len()
}

/// Whether a quote after so many escapes ends a string that began with a quote after `of_opening` of them.
fn closes(escapes: usize, of_opening: usize) -> bool {
    escapes.is_multiple_of(2) || (of_opening > 0 && closes((escapes - 1) / 2, (of_opening - 1) / 2))
}

/// Where the bracket is closed that is opened here.
fn closing_bracket(text: &str, start: usize) -> usize {
    let (mut depth, mut at) = (0_usize, start);
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b'"' => at = closing_quote(text, at + 1, '"', 0),
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// A private key in its armour, to the end if the armour has none.
fn private_key(text: &str, start: usize) -> Option<Range<usize>> {
    let label = text[start..].chars().take(LONGEST_NAME).map(char::len_utf8).sum::<usize>() + start;
    if !text[start..label].contains("PRIVATE KEY") {
        return None;
    }
    let label = start + "-----BEGIN".len();
    let end = text[label..].find("-----END").map_or(text.len(), |at| label + at + "-----END".len());
    Some(start..text[end..].find("-----").map_or(text.len(), |at| end + at + "-----".len()))
}

/// Whether it says only whether there is a secret.
fn is_plain(value: &str) -> bool {
    let value = value.trim_end_matches(['}', ']', ')', ';']);
    ["true", "false", "null", "none"].iter().any(|plain| value.eq_ignore_ascii_case(plain))
}

fn is_number(value: &str) -> bool {
    value.trim_end_matches(['}', ']', ')', ';']).bytes().all(|byte| byte.is_ascii_digit() || b"._".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares what is told of each text, in which a star stands for what is left out.
    fn compare(texts: &[(&str, &str)]) {
        for (text, told) in texts {
            assert_eq!(redact(text), told.replace('*', REDACTED), "{text}");
        }
    }

    /// Members of JSON, also within a string, and within a string within a string; lines, variables and parameters.
    #[test]
    fn values_whose_names_are_those_of_secrets_are_left_out() {
        compare(&[
            (r#"{"password":"S","user":"ann"}"#, r#"{"password":"*","user":"ann"}"#),
            (r#"{"password":"p@S!x{}, &%","user":"ann"}"#, r#"{"password":"*","user":"ann"}"#),
            (r#"{"password":"a\"S","user":"ann"}"#, r#"{"password":"*","user":"ann"}"#),
            (r#"{"password":"S\\","user":"ann"}"#, r#"{"password":"*","user":"ann"}"#),
            (r#"{\"api_key\": \"S\", \"user\": \"ann\"}"#, r#"{\"api_key\": \"*\", \"user\": \"ann\"}"#),
            (r#"{\"api_key\": \"a\\\"S\", \"user\": 1}"#, r#"{\"api_key\": \"*\", \"user\": 1}"#),
            (r#"{\\\"token\\\":\\\"S\\\",\\\"a\\\":1}"#, r#"{\\\"token\\\":\\\"*\\\",\\\"a\\\":1}"#),
            (r#"{"token":"","api_key":"S"}"#, r#"{"token":"","api_key":"*"}"#),
            (r#"{"password":{"secret":"S"},"a":1}"#, r#"{"password":*,"a":1}"#),
            (r#"{"password":{"value":"}S","b":[]},"a":1}"#, r#"{"password":*,"a":1}"#),
            (r#"{"token":["S","S"],"a":1}"#, r#"{"token":*,"a":1}"#),
            (r#"{"secrets": ["S", {"a": "S""#, r#"{"secrets": *"#),
            (
                r#"{"apiKey":"S","accessToken":"S","dbPassword":"S"}"#,
                r#"{"apiKey":"*","accessToken":"*","dbPassword":"*"}"#,
            ),
            (
                r#"{"secret_key":"S","tokens":"S","passwords":"S"}"#,
                r#"{"secret_key":"*","tokens":"*","passwords":"*"}"#,
            ),
            (r#"{"pin_secret":1234567}"#, r#"{"pin_secret":*"#),
            ("{'password': 'S', 'a': 1}", "{'password': '*', 'a': 1}"),
            ("AWS_SECRET_ACCESS_KEY=S/x+S=\nA=1", "AWS_SECRET_ACCESS_KEY=*\nA=1"),
            ("export DB_PASS='S S' A=1", "export DB_PASS='*' A=1"),
            ("password: S\nuser: ann", "password: *\nuser: ann"),
            (r#""password: S\nuser: ann""#, r#""password: *\nuser: ann""#),
            ("api_key => S, next", "api_key => *, next"),
            ("token: Bearer S next", "token: * next"),
            ("?token=S&page=2", "?token=*&page=2"),
            ("?X-Amz-Credential=S&X-Amz-Signature=S&a=1", "?X-Amz-Credential=*&X-Amz-Signature=*&a=1"),
            ("https://a/b?sv=1&sig=S&se=2", "https://a/b?sv=1&sig=*&se=2"),
        ]);
    }

    #[test]
    fn what_looks_like_a_secret_is_left_out() {
        compare(&[
            // Headers.
            ("Authorization: Bearer S\nA: b", "Authorization: *\nA: b"),
            ("Authorization: Token S", "Authorization: *"),
            ("authorization: ApiKey S, more S", "authorization: *"),
            (r#"curl -H "Authorization: Basic S" http://a"#, r#"curl -H "Authorization: *" http://a"#),
            (r#"{"headers":{"Authorization":"Digest S, S"},"a":1}"#, r#"{"headers":{"Authorization":"*"},"a":1}"#),
            ("Cookie: a=S; b=S\r\nA: b", "Cookie: *\r\nA: b"),
            ("set-cookie: S; path=/\nA: b", "set-cookie: *\nA: b"),
            ("X-Api-Key: S", "X-Api-Key: *"),
            ("use bearer abcdefS now", "use bearer * now"),
            // URLs.
            ("postgres://admin:S@db:5432/x", "postgres://*@db:5432/x"),
            ("redis://:S@S@cache, then", "redis://*@cache, then"),
            ("https://S@git.example/a and http://plain/", "https://*@git.example/a and http://plain/"),
            // Keys that are marked.
            ("the key sk-proj-0123456789 works", "the key * works"),
            ("AKIAIOSFODNN7EXAMPLE ASIAIOSFODNN7EXAMPLE", "* *"),
            ("key AIzaSyA-0123456789_0123456789 works", "key * works"),
            ("(eyJhbGciOi.eyJzdWIiOi.c2ln)", "(*)"),
            ("a -----BEGIN RSA PRIVATE KEY-----\nS\nS=\n-----END RSA PRIVATE KEY----- b", "a * b"),
            (r#""-----BEGIN PRIVATE KEY-----\nS\n-----END PRIVATE KEY-----\n""#, r#""*\n""#),
            ("-----BEGIN PRIVATE KEY-----\nS", "*"),
        ]);
    }

    #[test]
    fn what_does_not_is_told() {
        for text in [
            "",
            "my password is long",
            "the token count was 12",
            "grüße, sk-1 and the bearer of it",
            r#"{"max_tokens":4096,"prompt_tokens": 12, "has_password": true, "token":null}"#,
            "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
            "ann@example.com wrote to https://example.com/@ann",
            "monkey: banana, keyboard=de",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    /// A text of which each part is looked at once more for each part would take hours.
    #[test]
    fn the_time_it_takes_grows_as_the_text_does() {
        for part in ["token ", "a:\\\\\\\"", "password=\"", "token:[", "http://", "-----BEGIN ", "\\", "x: ", "bearer "]
        {
            let text = part.repeat(2_000_000 / part.len());
            let begun = tokio::time::Instant::now();
            let _ = redact(&text);
            assert!(begun.elapsed().as_secs() < 5, "{part} {:?}", begun.elapsed());
        }
    }
}

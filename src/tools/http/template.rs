//! A URL with placeholders for arguments. An argument cannot change the URL outside of its placeholder.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::value::RawValue;
use url::Url;

/// Arguments by name, their values as they were written.
pub(super) type Arguments = BTreeMap<String, Box<RawValue>>;

/// What is written as it is; everything else is percent-encoded, in the path and in the query.
pub(super) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Most bytes of an argument in the path: most servers refuse a longer request line.
const MAX_PATH_VALUE: usize = 4 << 10;
/// How often an argument in the path may be percent-encoded: more often than any chain of proxies decodes it.
const MAX_ENCODINGS: usize = 4;

/// A parsed template: literal text and parameters in turn.
pub(super) struct Template {
    parts: Vec<Part>,
    /// The URL, if there are no parameters in it.
    fixed: Option<Url>,
}

enum Part {
    Literal(String),
    Path(String),
    Query(String),
}

impl Template {
    /// Parses `https://host/path/{name}?query={name}`. The error is one sentence that quotes no more
    /// than a parameter's name.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = url;
        let mut in_query = false;
        while let Some((literal, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("the URL has a `{` without its `}`")?;
            if name.is_empty() || name.contains('{') {
                return Err("the URL has a `{` that no parameter's name follows".into());
            }
            in_query |= literal.contains('?');
            parts.push(Part::Literal(literal.to_owned()));
            parts.push(if in_query { Part::Query(name.to_owned()) } else { Part::Path(name.to_owned()) });
            rest = after;
        }
        parts.push(Part::Literal(rest.to_owned()));
        let template = Self { parts, fixed: None };
        let example = template.check()?;
        let fixed = template.parameters().next().is_none().then_some(example);
        Ok(Self { fixed, ..template })
    }

    /// The parameters' names, in the order of their places.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Path(name) | Part::Query(name) => Some(name.as_str()),
        })
    }

    /// The URL with its places filled; what was used is taken out of `arguments`. The error tells the
    /// model which argument is at fault.
    pub(super) fn fill(&self, arguments: &mut Arguments) -> Result<Url, String> {
        if let Some(url) = &self.fixed {
            return Ok(url.clone());
        }
        let mut url = String::new();
        // The path as a service sees it that decodes it more than once.
        let mut decoded = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => {
                    url.push_str(text);
                    decoded.push_str(text);
                }
                Part::Path(name) => {
                    let value = text(arguments, name)?;
                    decoded.push_str(&path_value(name, &value)?);
                    url.extend(utf8_percent_encode(&value, ENCODED));
                }
                Part::Query(name) => url.extend(utf8_percent_encode(&text(arguments, name)?, ENCODED)),
            }
        }
        if has_dot_segment(&decoded) {
            return Err("The arguments make up a path with `.` or `..` in it, which is not allowed.".into());
        }
        let url = Url::parse(&url).map_err(|_| "The arguments do not make up a URL.")?;
        for name in self.parameters() {
            arguments.remove(name);
        }
        Ok(url)
    }

    /// An example of the URL, if its scheme and host are its own.
    fn check(&self) -> Result<Url, String> {
        let literal = |part: &Part| match part {
            Part::Literal(text) => text.clone(),
            Part::Path(_) | Part::Query(_) => "x".into(),
        };
        let example: String = self.parts.iter().map(literal).collect();
        let url = Url::parse(&example).map_err(|error| format!("the URL is not valid: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("the URL does not begin with http:// or https://".into());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the URL holds a user name or a password; send them in a header".into());
        }
        if url.fragment().is_some() {
            return Err("the URL has a fragment, which is never sent".into());
        }
        if has_dot_segment(&example) {
            return Err("the URL's path holds `.` or `..`".into());
        }
        let Some(Part::Literal(first)) = self.parts.first() else {
            return Ok(url);
        };
        let after_scheme = first.split_once("://").map_or("", |(_, rest)| rest);
        if self.parts.len() > 1 && !after_scheme.contains(['/', '?']) {
            return Err("the URL has a parameter before its path".into());
        }
        Ok(url)
    }
}

/// Adds arguments to a URL's query: a list once for each item, an absent value not at all.
pub(super) fn append_query(url: &mut Url, arguments: &Arguments) {
    let pairs: Vec<(&String, String)> =
        arguments.iter().flat_map(|(name, value)| values(value).into_iter().map(move |value| (name, value))).collect();
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
}

/// A path argument, fully decoded. What could end its segment is refused, because encoding does not protect the
/// service: proxies decode a path before they resolve it, some of them twice.
pub(super) fn path_value(name: &str, value: &str) -> Result<String, String> {
    if value.is_empty() {
        return Err(format!("The argument `{name}` must not be empty."));
    }
    if value.len() > MAX_PATH_VALUE {
        return Err(format!("The argument `{name}` is longer than the {MAX_PATH_VALUE} bytes that fit in a path."));
    }
    let mut decoded = value.to_owned();
    // Bounded, as a model chooses how often the argument is encoded, and nothing interrupts this.
    for _ in 0..=MAX_ENCODINGS {
        if decoded.contains(|char: char| matches!(char, '/' | '\\') || char.is_control()) {
            return Err(format!("The argument `{name}` must not contain `/`, `\\` or control characters."));
        }
        // Each round makes it shorter, or is the last.
        let next = percent_decode_str(&decoded).decode_utf8_lossy().into_owned();
        if next.len() >= decoded.len() {
            return Ok(decoded);
        }
        decoded = next;
    }
    Err(format!("The argument `{name}` is percent-encoded too often: at most {MAX_ENCODINGS} times are allowed."))
}

/// Whether a segment of the path is one that URL parsers take for "here" or "one up". Some servers ignore what
/// follows a `;` in a segment.
pub(super) fn has_dot_segment(url: &str) -> bool {
    let path = url.split('?').next().unwrap_or(url);
    let segments = path.split(['/', '\\']).map(|segment| segment.split(';').next().unwrap_or(segment));
    segments.map(dots).any(|dots| matches!(dots, Some(1 | 2)))
}

/// Of how many dots a segment consists, each written as it is or as `%2e`; `None` if there is anything else in it.
fn dots(segment: &str) -> Option<usize> {
    let (mut rest, mut count) = (segment.as_bytes(), 0);
    while !rest.is_empty() {
        rest = match rest {
            [b'.', after @ ..] | [b'%', b'2', b'e' | b'E', after @ ..] => after,
            _ => return None,
        };
        count += 1;
    }
    Some(count)
}

fn text(arguments: &Arguments, name: &str) -> Result<String, String> {
    let value = arguments.get(name).filter(|value| value.get() != "null");
    value.map(|value| plain(value)).ok_or_else(|| format!("The argument `{name}` is missing."))
}

/// A value as text: a string's content, other JSON as it is written.
pub(super) fn plain(value: &RawValue) -> String {
    serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

/// A list as its items, another value as one; nothing, if it is null.
pub(super) fn values(value: &RawValue) -> Vec<String> {
    match serde_json::from_str::<Vec<Box<RawValue>>>(value.get()) {
        Ok(items) => items.iter().map(|item| plain(item)).collect(),
        Err(_) if value.get() == "null" => Vec::new(),
        Err(_) => vec![plain(value)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, arguments: &str) -> Result<String, String> {
        let mut arguments: Arguments = serde_json::from_str(arguments).unwrap();
        let mut url = Template::parse(template).unwrap().fill(&mut arguments)?;
        append_query(&mut url, &arguments);
        Ok(url.to_string())
    }

    #[test]
    fn arguments_stay_in_their_places() {
        for (template, arguments, url) in [
            (
                "https://a.test/w?city={city}",
                r#"{"city":"São Paulo & co"}"#,
                "https://a.test/w?city=S%C3%A3o%20Paulo%20%26%20co",
            ),
            ("https://a.test/u/{id}/x", r#"{"id":"a?b#c;d 100%"}"#, "https://a.test/u/a%3Fb%23c%3Bd%20100%25/x"),
            ("https://a.test/f/{name}", r#"{"name":"..notes.txt"}"#, "https://a.test/f/..notes.txt"),
            (
                "https://a.test/{a}{b}",
                r#"{"a":12345678901234567890,"b":true}"#,
                "https://a.test/12345678901234567890true",
            ),
            (
                "https://a.test",
                r#"{"b":[1,"x y"],"a":null,"c":{"d":1}}"#,
                "https://a.test/?b=1&b=x+y&c=%7B%22d%22%3A1%7D",
            ),
            ("https://a.test/?k=1", r#"{"q":"="}"#, "https://a.test/?k=1&q=%3D"),
            ("https://a.test?q={q}", r#"{"q":""}"#, "https://a.test/?q="),
            ("https://a.test/w?next={q}", r#"{"q":"/../x"}"#, "https://a.test/w?next=%2F..%2Fx"),
        ] {
            assert_eq!(filled(template, arguments).as_deref(), Ok(url));
        }
    }

    #[test]
    fn arguments_that_would_leave_their_places_are_refused() {
        for (template, arguments, reason) in [
            ("https://a.test/{id}", r#"{"id":".."}"#, "`.` or `..`"),
            ("https://a.test/u/{a}{b}/x", r#"{"a":".","b":"."}"#, "`.` or `..`"),
            ("https://a.test/u/.{a}/x", r#"{"a":"%2e"}"#, "`.` or `..`"),
            ("https://a.test/u/{a}/x", r#"{"a":"%252E."}"#, "`.` or `..`"),
            ("https://a.test/u/{a}/x", r#"{"a":"..;v=1"}"#, "`.` or `..`"),
            ("https://a.test/u/{a}/x", r#"{"a":"7/../../admin/keys"}"#, "`a` must not contain"),
            ("https://a.test/u/{a}/x", r#"{"a":"7\\keys"}"#, "`a` must not contain"),
            ("https://a.test/u/{a}/x", r#"{"a":"7%2Fkeys"}"#, "`a` must not contain"),
            ("https://a.test/u/{a}/x", r#"{"a":"7%25252Fkeys"}"#, "`a` must not contain"),
            ("https://a.test/u/{a}/x", r#"{"a":"7%5ckeys"}"#, "`a` must not contain"),
            ("https://a.test/u/{a}/x", r#"{"a":"7\u0000"}"#, "`a` must not contain"),
            ("https://a.test/u/{a}/x", r#"{"a":"7%0d%0aX: y"}"#, "`a` must not contain"),
            ("https://a.test/u/{a}/x", r#"{"a":{"b":"/"}}"#, "`a` must not contain"),
            ("https://a.test/u/{id}", r#"{"id":""}"#, "`id` must not be empty"),
            ("https://a.test/u/{id}", r#"{"id":null}"#, "`id` is missing"),
            ("https://a.test/u?id={id}", "{}", "`id` is missing"),
        ] {
            let error = filled(template, arguments).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn path_arguments_that_would_take_long_to_decode_are_refused() {
        let fill = |value: &str| filled("https://a.test/u/{a}/x", &format!(r#"{{"a":"{value}"}}"#));
        let encoded = |times: usize| format!("%{}41", "25".repeat(times - 1));
        assert!(fill(&encoded(MAX_ENCODINGS)).is_ok());
        assert!(fill(&"x".repeat(MAX_PATH_VALUE)).is_ok());
        for (value, reason) in [
            (encoded(MAX_ENCODINGS + 1), "`a` is percent-encoded too often"),
            (encoded(MAX_PATH_VALUE / 2 - 1), "`a` is percent-encoded too often"),
            ("x".repeat(MAX_PATH_VALUE + 1), "`a` is longer than the 4096 bytes"),
            (encoded(MAX_PATH_VALUE), "`a` is longer than the 4096 bytes"),
        ] {
            let error = fill(&value).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn templates_that_cannot_be_trusted_are_refused() {
        for (template, reason) in [
            ("ftp://a.test/", "http:// or https://"),
            ("a.test/x", "not valid"),
            ("https://{host}/x", "before its path"),
            ("https://a.{host}.test/x", "before its path"),
            ("{scheme}://a.test/x", "not begin with http"),
            ("https://user:secret@a.test/", "user name or a password"),
            ("https://a.test/#f", "fragment"),
            ("https://a.test/b/../c", "`.` or `..`"),
            ("https://a.test/{x", "without its"),
            ("https://a.test/{}", "no parameter's name"),
        ] {
            let Err(error) = Template::parse(template) else { panic!("{template}") };
            assert!(error.contains(reason) && !error.contains("secret"), "{error}");
        }
    }
}

//! Templates of requests: text and JSON in which `{name}` stands for an argument that a model gives.
//!
//! A template is parsed once, here, and says only where arguments go. What they may be in each place is decided where a request is
//! written.

use serde_json::Value;

/// Text in which arguments stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextTemplate {
    /// Its pieces, in their order.
    pub pieces: Vec<Piece>,
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it is written.
    Text(String),
    /// The argument of this name.
    Argument(String),
}

/// JSON in which arguments stand.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonTemplate {
    /// As it is written.
    Value(Value),
    /// A string: the argument itself, whatever its type, if nothing stands beside it.
    Text(TextTemplate),
    /// A list.
    List(Vec<Self>),
    /// An object.
    Object(Vec<(String, Self)>),
}

impl TextTemplate {
    /// Reads `{name}`, of letters, digits, `_`, `-` and `.`, as an argument; `{{name}}` stands for `{name}` as it is. All other braces
    /// stand for themselves.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            if let Some((name, after)) = after.strip_prefix('{').and_then(|after| name_before(after, "}}")) {
                literal.extend(["{", name, "}"]);
                rest = after;
            } else if let Some((name, after)) = name_before(after, "}") {
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Argument(name.to_owned()));
                rest = after;
            } else {
                literal.push('{');
                rest = after;
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Self { pieces }
    }

    /// The argument that is all of it.
    #[must_use]
    pub fn only(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Argument(name)] => Some(name),
            _ => None,
        }
    }

    /// The names of its arguments, in their order.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }
}

impl JsonTemplate {
    /// Reads the strings in a value as templates.
    #[must_use]
    pub fn parse(value: Value) -> Self {
        match value {
            Value::String(text) => {
                let template = TextTemplate::parse(&text);
                if template.arguments().next().is_some() {
                    return Self::Text(template);
                }
                Self::Value(
                    template
                        .pieces
                        .into_iter()
                        .map(|piece| match piece {
                            Piece::Text(text) | Piece::Argument(text) => text,
                        })
                        .collect::<String>()
                        .into(),
                )
            }
            Value::Array(items) => Self::List(items.into_iter().map(Self::parse).collect()),
            Value::Object(members) => {
                Self::Object(members.into_iter().map(|(name, value)| (name, Self::parse(value))).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Value(value),
        }
    }

    /// The names of its arguments.
    #[must_use]
    pub fn arguments(&self) -> Vec<&str> {
        match self {
            Self::Value(_) => Vec::new(),
            Self::Text(template) => template.arguments().collect(),
            Self::List(items) => items.iter().flat_map(Self::arguments).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, value)| value.arguments()).collect(),
        }
    }
}

/// The name of an argument at the beginning of a text, if `end` follows it, and what comes behind that.
fn name_before<'t>(text: &'t str, end: &str) -> Option<(&'t str, &'t str)> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.');
    let length = text.find(|char| !is_part(char)).unwrap_or(text.len());
    let (name, rest) = text.split_at(length);
    rest.strip_prefix(end).filter(|_| !name.is_empty()).map(|rest| (name, rest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pieces(text: &str) -> Vec<String> {
        let told = |piece: Piece| match piece {
            Piece::Text(text) => text,
            Piece::Argument(name) => format!("<{name}>"),
        };
        TextTemplate::parse(text).pieces.into_iter().map(told).collect()
    }

    #[test]
    fn names_in_braces_are_arguments_and_other_braces_are_not() {
        for (text, expected) in [
            ("", vec![]),
            ("plain", vec!["plain"]),
            ("{a}", vec!["<a>"]),
            ("x {a}{b.c-d_1} y", vec!["x ", "<a>", "<b.c-d_1>", " y"]),
            ("{{a}}", vec!["{a}"]),
            ("{{a} {b", vec!["{", "<a>", " {b"]),
            ("query { order(id: $id) { id } } {}", vec!["query { order(id: $id) { id } } {}"]),
            ("{\"a\":1}", vec!["{\"a\":1}"]),
        ] {
            assert_eq!(pieces(text), expected, "{text}");
        }
    }

    #[test]
    fn json_without_arguments_is_taken_as_it_is() {
        assert_eq!(JsonTemplate::parse(json!("{{a}}")), JsonTemplate::Value("{a}".into()));
        let template = JsonTemplate::parse(json!({"a": ["{x}", {"b": "n {y}", "c": 1}], "d": null}));
        assert_eq!(template.arguments(), ["x", "y"]);
    }
}

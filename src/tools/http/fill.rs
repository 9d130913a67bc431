//! Writes arguments into the templates of a tool's requests. An argument cannot change anything outside of its place.

use ::http::{HeaderName, HeaderValue};
use bytes::Bytes;
use serde_json::Value;

use super::template::{Arguments, plain, values};
use crate::config::{BodyType, JsonTemplate, Piece, QueryValue, RequestTemplates, TextTemplate};

/// Longest header: common servers refuse longer ones.
const MAX_HEADER: usize = 8 << 10;

/// What templates add to a request.
#[derive(Debug, Default)]
pub(super) struct Filled {
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) query: Vec<(String, String)>,
    /// With its media type.
    pub(super) body: Option<(&'static str, Bytes)>,
}

/// Fills templates. What names an argument that is not given is left out. The error tells the model which argument is at fault.
pub(super) fn fill(templates: &RequestTemplates, arguments: &Arguments) -> Result<Filled, String> {
    let mut filled = Filled::default();
    for (name, template) in &templates.headers {
        if let Some(value) = text(template, arguments) {
            filled.headers.push((name.clone(), header(template, &value)?));
        }
    }
    for (name, value) in &templates.query {
        match value {
            QueryValue::Secret(secret) => filled.query.push((name.clone(), secret.expose().to_owned())),
            QueryValue::Template(template) => {
                filled.query.extend(texts(template, arguments).into_iter().map(|value| (name.clone(), value)));
            }
        }
    }
    filled.body = templates.body.as_ref().and_then(|body| written(body, templates.body_type, arguments));
    Ok(filled)
}

/// Refuses arguments that would be sent under a name that the query has already: of two values with one name, services heed the one or
/// the other. Case tells nothing to some services.
pub(super) fn refuse_taken(templates: &RequestTemplates, rest: &Arguments) -> Result<(), String> {
    let is_taken = |name: &&String| templates.query.iter().any(|(taken, _)| taken.eq_ignore_ascii_case(name));
    match rest.keys().find(is_taken) {
        Some(name) => {
            Err(format!("The argument `{name}` cannot be sent, as the query has it already. Nothing was sent."))
        }
        None => Ok(()),
    }
}

/// Arguments as a form: a list once for each item, an absent value not at all.
pub(super) fn form(arguments: &Arguments) -> Bytes {
    let pairs = arguments.iter().flat_map(|(name, value)| values(value).into_iter().map(move |value| (name, value)));
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish().into()
}

fn header(template: &TextTemplate, value: &str) -> Result<HeaderValue, String> {
    let is_plain = value.len() <= MAX_HEADER && value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    let sendable = HeaderValue::from_str(value).ok().filter(|_| is_plain);
    sendable.ok_or_else(|| {
        let names: Vec<_> = template.arguments().collect();
        let names = names.join("`, `");
        format!(
            "The argument `{names}` cannot be sent in a header: these are short and have only letters, digits and signs of ASCII. \
             Nothing was sent."
        )
    })
}

/// The body with its media type; `None` if all of it is left out.
fn written(body: &JsonTemplate, kind: BodyType, arguments: &Arguments) -> Option<(&'static str, Bytes)> {
    Some(match (kind, body) {
        (BodyType::Form, JsonTemplate::Object(fields)) => {
            let mut form = url::form_urlencoded::Serializer::new(String::new());
            for (name, field) in fields {
                form.extend_pairs(field_values(field, arguments).iter().map(|value| (name, value)));
            }
            ("application/x-www-form-urlencoded", form.finish().into())
        }
        (BodyType::Text, JsonTemplate::Text(template)) => {
            ("text/plain; charset=utf-8", text(template, arguments)?.into())
        }
        (BodyType::Json | BodyType::Form | BodyType::Text, body) => ("application/json", json(body, arguments)?.into()),
    })
}

/// JSON text; `None` if all of it is left out.
fn json(template: &JsonTemplate, arguments: &Arguments) -> Option<String> {
    match template {
        JsonTemplate::Value(value) => Some(value.to_string()),
        JsonTemplate::Text(template) => match template.only() {
            // As it is written: it is JSON of the type that the schema says.
            Some(name) => arguments.get(name).map(|value| value.get().to_owned()),
            None => text(template, arguments).map(|text| quoted(&text)),
        },
        JsonTemplate::List(items) => {
            let items: Vec<_> = items.iter().filter_map(|item| json(item, arguments)).collect();
            Some(format!("[{}]", items.join(",")))
        }
        JsonTemplate::Object(members) => {
            let members = members
                .iter()
                .filter_map(|(name, value)| Some(format!("{}:{}", quoted(name), json(value, arguments)?)));
            Some(format!("{{{}}}", members.collect::<Vec<_>>().join(",")))
        }
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn field_values(field: &JsonTemplate, arguments: &Arguments) -> Vec<String> {
    match field {
        JsonTemplate::Value(Value::String(text)) => vec![text.clone()],
        JsonTemplate::Value(value) => vec![value.to_string()],
        JsonTemplate::Text(template) => texts(template, arguments),
        JsonTemplate::List(items) => items.iter().flat_map(|item| field_values(item, arguments)).collect(),
        JsonTemplate::Object(_) => Vec::new(),
    }
}

/// A list that is all of a template once for each item; other values as text.
fn texts(template: &TextTemplate, arguments: &Arguments) -> Vec<String> {
    match template.only() {
        Some(name) => arguments.get(name).map(|value| values(value)).unwrap_or_default(),
        None => text(template, arguments).into_iter().collect(),
    }
}

/// The text with its arguments; `None` if one of them is not given.
fn text(template: &TextTemplate, arguments: &Arguments) -> Option<String> {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => Some(text.clone()),
        Piece::Argument(name) => arguments.get(name).filter(|value| value.get() != "null").map(|value| plain(value)),
    };
    template.pieces.iter().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(value: &Value) -> Arguments {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    fn body(template: &Value, kind: BodyType, given: &Value) -> String {
        let body = Some(JsonTemplate::parse(template.clone()));
        let templates = RequestTemplates { body, body_type: kind, ..RequestTemplates::default() };
        let (_, body) = fill(&templates, &arguments(given)).unwrap().body.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[test]
    fn arguments_keep_their_types_and_their_places_in_json() {
        let template = json!({"order": {"id": "{id}", "note": "No. {id}: {note}", "tags": ["new", "{tag}", "{more}"]}, "all": "{all}", "v": 2});
        for (given, expected) in [
            (
                json!({"id": 7, "note": "x", "tag": "a", "more": [1, {"b": null}], "all": {"c": true}}),
                r#"{"all":{"c":true},"order":{"id":7,"note":"No. 7: x","tags":["new","a",[1,{"b":null}]]},"v":2}"#,
            ),
            // What is not given is not there; what is null is null.
            (json!({"id": null}), r#"{"order":{"id":null,"tags":["new"]},"v":2}"#),
            (json!({}), r#"{"order":{"tags":["new"]},"v":2}"#),
            (
                json!({"id": 1, "note": "\",\"admin\":true,\"x\":\"\\\n{id}{{id}}", "tag": "\"]"}),
                r#"{"order":{"id":1,"note":"No. 1: \",\"admin\":true,\"x\":\"\\\n{id}{{id}}","tags":["new","\"]"]},"v":2}"#,
            ),
        ] {
            let written = body(&template, BodyType::Json, &given);
            assert_eq!(written, expected);
            serde_json::from_str::<Value>(&written).unwrap();
        }
        // A number that no type of ours holds.
        let large: Arguments = serde_json::from_str(r#"{"n":123456789012345678901234567890.10}"#).unwrap();
        let templates =
            RequestTemplates { body: Some(JsonTemplate::parse(json!({"n": "{n}"}))), ..RequestTemplates::default() };
        assert_eq!(fill(&templates, &large).unwrap().body.unwrap().1, r#"{"n":123456789012345678901234567890.10}"#);
        assert_eq!(body(&json!("{all}"), BodyType::Json, &json!({"all": [1]})), "[1]");
        assert_eq!(body(&json!("{all}"), BodyType::Text, &json!({"all": "a\r\nb"})), "a\r\nb");
    }

    #[test]
    fn no_field_of_a_form_makes_another() {
        let template = json!({"q": "{q}", "fixed": "a b", "n": 3, "both": "{q}/{r}", "list": ["x", "{l}"]});
        let given = json!({"q": "1&admin=true", "l": ["y", "z=", null]});
        assert_eq!(
            body(&template, BodyType::Form, &given),
            "fixed=a+b&list=x&list=y&list=z%3D&list=null&n=3&q=1%26admin%3Dtrue"
        );
        assert_eq!(form(&arguments(&json!({"a": "1&b", "c": [1, 2], "d": null}))), "a=1%26b&c=1&c=2");
    }

    #[test]
    fn no_header_makes_another() {
        let name = HeaderName::from_static("x-note");
        let headers = vec![(name, TextTemplate::parse("lang={lang}; q=1"))];
        let templates = RequestTemplates { headers, ..RequestTemplates::default() };
        let filled = |value: Value| fill(&templates, &arguments(&value)).map(|filled| filled.headers);
        assert_eq!(filled(json!({"lang": "nb-NO"})).unwrap()[0].1, "lang=nb-NO; q=1");
        assert_eq!(filled(json!({})).unwrap(), []);
        assert_eq!(filled(json!({"lang": null})).unwrap(), []);
        let long = "x".repeat(MAX_HEADER);
        for bad in ["a\r\nx-admin: 1", "a\nb", "a\rb", "a\0", "\u{7f}", "blå", &long] {
            let error = filled(json!({ "lang": bad })).unwrap_err();
            assert!(
                error.contains("`lang` cannot be sent in a header") && error.contains("Nothing was sent"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_query_has_each_argument_where_it_is_named() {
        let parsed = |name: &str, text: &str| (name.to_owned(), QueryValue::Template(TextTemplate::parse(text)));
        let key = ("key".to_owned(), QueryValue::Secret(crate::config::Secret::new("{q}&s3cr3t")));
        let query = vec![parsed("q", "{q}"), key, parsed("range", "{from}..{to}"), parsed("id", "{ids}")];
        let templates = RequestTemplates { query, ..RequestTemplates::default() };
        let filled = fill(&templates, &arguments(&json!({"q": "a&b=c", "from": 1, "ids": [1, 2]}))).unwrap().query;
        let pairs: Vec<_> = filled.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("q", "a&b=c"), ("key", "{q}&s3cr3t"), ("id", "1"), ("id", "2")]);
        refuse_taken(&templates, &arguments(&json!({"other": 1}))).unwrap();
        assert!(refuse_taken(&templates, &arguments(&json!({"KEY": 1}))).unwrap_err().contains("`KEY` cannot be sent"));
    }
}

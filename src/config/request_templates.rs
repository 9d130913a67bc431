//! `query`, `headers` and `body` of a tool: where in its requests the arguments go that a model gives.

use std::collections::BTreeSet;

use http::{HeaderName, Method};
use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::headers;
use super::query;
use super::reader::Section;
use super::secret::Secret;
use super::template::{JsonTemplate, TextTemplate};
use super::to_json::to_json;
use super::value::{FromToml, Misread, Word};
use super::values::Recorded;

/// Headers that say who asks, or that the server itself writes: a model has no say in them.
const NO_ARGUMENTS: [&str; 12] = [
    "authorization",
    "content-type",
    "cookie",
    "forwarded",
    "host",
    "http2-settings",
    "idempotency-key",
    "proxy-authorization",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-request-id",
];
const NO_ARGUMENTS_BEGIN: [&str; 2] = ["x-forwarded-", "x-loopgate-"];

/// Where arguments go that the URL does not name.
#[derive(Debug, Clone, Default)]
pub struct RequestTemplates {
    /// Headers with arguments in them.
    pub headers: Vec<(HeaderName, TextTemplate)>,
    /// What is added to the query, in the order of the file.
    pub query: Vec<(String, QueryValue)>,
    /// The body; `None` if all other arguments are its members.
    pub body: Option<JsonTemplate>,
    /// What the body is written as.
    pub body_type: BodyType,
}

/// A value of a query.
#[derive(Debug, Clone)]
pub enum QueryValue {
    /// The operator's own.
    Secret(Secret),
    /// With arguments in it.
    Template(TextTemplate),
}

/// What a body is written as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BodyType {
    /// JSON.
    #[default]
    Json,
    /// As forms of web pages are sent.
    Form,
    /// Text.
    Text,
}

impl RequestTemplates {
    /// The names of the arguments that stand in them.
    #[must_use]
    pub fn arguments(&self) -> BTreeSet<&str> {
        let query = self.query.iter().filter_map(|(_, value)| match value {
            QueryValue::Template(template) => Some(template),
            QueryValue::Secret(_) => None,
        });
        let texts = self.headers.iter().map(|(_, template)| template).chain(query);
        texts.flat_map(TextTemplate::arguments).chain(self.body.iter().flat_map(JsonTemplate::arguments)).collect()
    }
}

/// Reads where arguments go, and the headers without any.
pub(super) fn read(section: &mut Section<'_>, method: &Method) -> (Vec<(HeaderName, Secret)>, RequestTemplates) {
    let mut templates = RequestTemplates::default();
    let mut headers = Vec::new();
    for (name, value, text) in headers::read_with_text(section, &[]) {
        match text.and_then(with_arguments) {
            None => headers.push((name, value.whole)),
            Some(template) => {
                let is_closed = NO_ARGUMENTS.contains(&name.as_str())
                    || NO_ARGUMENTS_BEGIN.iter().any(|begin| name.as_str().starts_with(begin));
                if is_closed {
                    let what = format!("`{name}` can have no argument: it is not for a model to say what it says");
                    section.refuse("headers", what);
                }
                templates.headers.push((name, template));
            }
        }
    }
    for (name, value, text) in query::read_with_text(section) {
        let value = text.and_then(with_arguments).map_or(QueryValue::Secret(value.whole), QueryValue::Template);
        templates.query.push((name, value));
    }
    templates.body_type = section.key(
        "body_type",
        "What a body is written as: `json`, `form` as web pages send forms, or `text`, of which `body` is one argument.",
        BodyType::Json,
    );
    let body: Option<Body> = section.optional(
        "body",
        "The body, in which the string `\"{name}\"` stands for the argument `name` with its type. A member whose argument is not given is \
         left out. If absent, the arguments that nothing else names are its members.",
    );
    templates.body = body.map(|Body(template)| template);
    if let Err(what) = check_body(&templates, method) {
        section.refuse("body", what);
    }
    (headers, templates)
}

/// Reports arguments that are named and not declared, and those that are declared and would go nowhere.
pub(super) fn check_arguments(section: &Section<'_>, templates: &RequestTemplates, in_url: &[String], schema: &Value) {
    let declared = schema["properties"].as_object();
    let is_declared = |name: &str| declared.is_some_and(|declared| declared.contains_key(name));
    let named = templates.arguments();
    for name in named.iter().filter(|name| !is_declared(name)) {
        section.refuse_here(format!("{{{name}}} is none of parameters.properties"));
    }
    for name in declared.into_iter().flat_map(|declared| declared.keys()) {
        if named.contains(name.as_str()) || in_url.contains(name) {
            continue;
        }
        let is_taken = templates.query.iter().any(|(taken, _)| taken.eq_ignore_ascii_case(name));
        if templates.body.is_some() {
            section.refuse("parameters", format!("`{name}` is named by none of url, query, headers and body"));
        } else if is_taken {
            section.refuse("parameters", format!("`{name}` is in query already, and names no argument there"));
        }
    }
}

fn with_arguments(text: &str) -> Option<TextTemplate> {
    let template = TextTemplate::parse(text);
    let has_any = template.arguments().next().is_some();
    has_any.then_some(template)
}

fn check_body(templates: &RequestTemplates, method: &Method) -> Result<(), String> {
    let is_flat = |value: &JsonTemplate| match value {
        JsonTemplate::Value(value) => !value.is_object() && !value.is_array(),
        JsonTemplate::Text(_) => true,
        JsonTemplate::List(_) | JsonTemplate::Object(_) => false,
    };
    match (templates.body_type, &templates.body) {
        (_, Some(_)) if *method == Method::GET => Err("a request with the method GET has no body".to_owned()),
        (BodyType::Text, body) => {
            let is_one = matches!(body, Some(JsonTemplate::Text(template)) if template.only().is_some());
            if is_one {
                Ok(())
            } else {
                Err("must be one argument, such as \"{text}\", where body_type is text".to_owned())
            }
        }
        (BodyType::Form, Some(JsonTemplate::Object(members))) => {
            let is_field = |value: &JsonTemplate| match value {
                JsonTemplate::List(items) => items.iter().all(is_flat),
                value @ (JsonTemplate::Value(_) | JsonTemplate::Text(_) | JsonTemplate::Object(_)) => is_flat(value),
            };
            let other = members.iter().find(|(_, value)| !is_field(value));
            other.map_or(Ok(()), |(name, _)| {
                Err(format!("`{name}` is none that a form has: text, a number or a list of these"))
            })
        }
        (BodyType::Form, Some(_)) => Err("must be a table, where body_type is form".to_owned()),
        (BodyType::Form, None) | (BodyType::Json, _) => Ok(()),
    }
}

impl Word for BodyType {
    const WORDS: &'static [(&'static str, Self)] = &[("json", Self::Json), ("form", Self::Form), ("text", Self::Text)];
}

/// JSON with arguments in it.
struct Body(JsonTemplate);

impl FromToml for Body {
    fn form() -> String {
        "value".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        Ok(Self(JsonTemplate::parse(to_json(value)?)))
    }

    fn show(&self) -> String {
        format!("{:?}", self.0)
    }

    /// It is too long to be shown.
    fn recorded(&self) -> Recorded {
        Recorded::hidden(&self.show())
    }
}

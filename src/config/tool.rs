//! `[tools.NAME]`: HTTP endpoints that models may call.

use std::time::Duration;

use http::{HeaderName, Method};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Number, Value, json};
use toml::Spanned;
use toml::de::{DeString, DeValue};
use url::Url;

use super::quantity::Size;
use super::reader::Section;
use super::secret::{self, Secret};
use super::value::{FromToml, Misread, Word, text};
use crate::types::Effect;

/// An HTTP endpoint that models may call.
#[derive(Debug, Clone)]
pub struct HttpToolConfig {
    /// 1–64 of `A-Z a-z 0-9 _ -`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// How it is asked.
    pub method: Method,
    /// http or https; `{argument}` after the host stands for an argument.
    pub url: String,
    /// What repeating a call would do.
    pub effect: Effect,
    /// Sent with each call.
    pub headers: Vec<(HeaderName, Secret)>,
    /// JSON schema of its arguments, an object.
    pub parameters: Box<RawValue>,
    /// For each call; `None` leaves it to the agent.
    pub timeout: Option<Duration>,
    /// Most bytes of an answer.
    pub max_response: u64,
}

impl HttpToolConfig {
    pub(super) fn read(name: &str, section: &mut Section<'_>) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=64).contains(&name.len()) || !name.bytes().all(allowed) {
            section.refuse_here("a tool's name is 1 to 64 of A-Z a-z 0-9 _ -");
        }
        section.key("kind", "An HTTP endpoint.", Kind::Http);
        let description = section.required("description", "What it does, for the model.");
        let method = section.key("method", "How it is asked.", Method::GET);
        let url: Option<UrlTemplate> =
            section.required("url", "Where it is; `{name}` after the host stands for the argument `name`.");
        let effect = section.key(
            "effect",
            "What repeating a call would do: nothing, nothing with the same `Idempotency-Key`, or anything.",
            Effect::Write,
        );
        let headers = read_headers(section);
        let parameters: Option<Schema> =
            section.optional("parameters", "JSON schema of its arguments; without it, there are none.");
        let is_misread = parameters.is_none() && section.is_written("parameters");
        let Schema(parameters) = parameters.unwrap_or_else(Schema::without_arguments);
        if let Some(UrlTemplate { arguments, .. }) = url.as_ref().filter(|_| !is_misread) {
            refuse_unknown_arguments(section, arguments, &parameters);
        }
        let timeout = section.optional("timeout", "For each call; without it, the agent's `tool_timeout`.");
        let Size(max_response) = section.key("max_response", "Most bytes of an answer.", Size(1 << 20));
        Some(Self {
            name: name.to_owned(),
            method,
            effect,
            headers,
            parameters: to_raw_value(&parameters).expect("a value of JSON is always JSON text"),
            timeout,
            max_response,
            description: description?,
            url: url?.template,
        })
    }
}

fn refuse_unknown_arguments(section: &Section<'_>, arguments: &[String], schema: &Value) {
    for argument in arguments {
        if schema["properties"].get(argument).is_none() {
            section.refuse("url", format!("{{{argument}}} is none of parameters.properties"));
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Http,
}

impl Word for Kind {
    const WORDS: &'static [(&'static str, Self)] = &[("http", Self::Http)];
}

impl Word for Effect {
    const WORDS: &'static [(&'static str, Self)] =
        &[("read", Self::Read), ("idempotent", Self::Idempotent), ("write", Self::Write)];
}

const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

impl FromToml for Method {
    fn form() -> String {
        METHODS.map(|method| method.show()).join(" or ")
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let form = Self::form();
        let name = text(value, &form)?;
        let found = METHODS.into_iter().find(|method| method.as_str() == name);
        found.ok_or_else(|| Misread::new(value, format!("must be {form}")))
    }

    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

/// A URL in which `{argument}` stands for an argument.
struct UrlTemplate {
    template: String,
    arguments: Vec<String>,
}

impl FromToml for UrlTemplate {
    fn form() -> String {
        "URL".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "a URL such as \"https://api.example.com/weather?city={city}\"";
        let template = text(value, FORM)?;
        let wrong = |what: &str| Misread::new(value, what);
        let (arguments, example) = fill_in(template).ok_or_else(|| wrong("each { needs its } and a name between"))?;
        let url = Url::parse(&example).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| wrong(&format!("this is not {FORM}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("must not hold a user or password; name the secret in headers"));
        }
        let after_scheme = template.split_once("://").map_or(template, |(_, rest)| rest);
        let authority = after_scheme.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('{') {
            return Err(wrong("the host must be written out: arguments come from the model"));
        }
        Ok(Self { template: template.to_owned(), arguments })
    }

    fn show(&self) -> String {
        self.template.show()
    }
}

/// The arguments of a URL template, and the URL with `x` for each of them.
fn fill_in(template: &str) -> Option<(Vec<String>, String)> {
    let (mut arguments, mut example) = (Vec::new(), String::new());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        if name.is_empty() || name.contains('{') || before.contains('}') {
            return None;
        }
        arguments.push(name.to_owned());
        example.push_str(before);
        example.push('x');
        rest = after;
    }
    example.push_str(rest);
    (!rest.contains('}')).then_some((arguments, example))
}

fn read_headers(section: &mut Section<'_>) -> Vec<(HeaderName, Secret)> {
    section.named_or_text("headers", |name, text, section| {
        let prefix = section.key("prefix", "Put before the secret.", String::new());
        let env: Option<String> = section.optional("env", "The environment variable that holds the secret.");
        let file: Option<String> = section.optional("file", "The file that holds the secret.");
        let value = match (text, env, file) {
            (Some(text), _, _) => Ok(Secret::new(text)),
            (None, Some(variable), None) => secret::from_env(section, &variable),
            (None, None, Some(path)) => secret::from_file(&path),
            _ => Err("give a string, or a table with either env or file".to_owned()),
        };
        let value = value.and_then(|value| secret::sendable(Secret::new(format!("{prefix}{}", value.expose()))));
        let value = value.map_err(|what| section.refuse_here(what)).ok();
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.map_err(|_| section.refuse_here("this is not the name of an HTTP header")).ok();
        name.zip(value)
    })
}

/// A JSON schema of an object.
struct Schema(Value);

impl Schema {
    fn without_arguments() -> Self {
        Self(json!({"type": "object", "properties": {}}))
    }
}

impl FromToml for Schema {
    fn form() -> String {
        "table".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let schema = to_json(value)?;
        if schema["type"] != "object" {
            return Err(Misread::new(value, "must be a table with type = \"object\""));
        }
        if let Err(error) = jsonschema::validator_for(&schema) {
            let what = format!("this is not a JSON schema, see {}: {error}", error.instance_path());
            return Err(Misread::new(value, what));
        }
        Ok(Self(schema))
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

fn to_json(value: &Spanned<DeValue<'_>>) -> Result<Value, Misread> {
    Ok(match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(number) => {
            let whole = i64::from_str_radix(number.as_str(), number.radix());
            Value::from(whole.map_err(|_| Misread::new(value, "must fit 64 bits"))?)
        }
        DeValue::Float(number) => {
            let number = number.as_str().parse().ok().and_then(Number::from_f64);
            Value::Number(number.ok_or_else(|| Misread::new(value, "must be finite: JSON knows no other numbers"))?)
        }
        DeValue::Datetime(_) => return Err(Misread::new(value, "JSON knows no dates; write it as a string")),
        DeValue::Array(elements) => Value::Array(elements.iter().map(to_json).collect::<Result<_, _>>()?),
        DeValue::Table(table) => {
            let member = |(key, value): (&Spanned<DeString<'_>>, &_)| Ok((key.get_ref().to_string(), to_json(value)?));
            Value::Object(table.iter().map(member).collect::<Result<Map<_, _>, _>>()?)
        }
    })
}

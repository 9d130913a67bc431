//! `[tools.NAME]`: HTTP endpoints that models may call.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, Method};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use super::answers_later::AnswersLater;
use super::identity::SentIdentity;
use super::quantity::Size;
use super::reader::Section;
use super::request_templates::{self, RequestTemplates};
use super::secret::Secret;
use super::to_json::to_json;
use super::value::{FromToml, Misread, Word, text};
use super::values::Recorded;
use crate::types::Effect;

/// An HTTP endpoint that models may call.
#[derive(Clone)]
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
    /// Where arguments go that the URL does not name.
    pub templates: RequestTemplates,
    /// What each call tells of the caller.
    pub send_identity: SentIdentity,
    /// JSON schema of its arguments, an object.
    pub parameters: Box<RawValue>,
    /// For each call; `None` leaves it to the agent.
    pub timeout: Option<Duration>,
    /// Most bytes of an answer.
    pub max_response: u64,
    /// How its service may answer later, if it may.
    pub answers_later: Option<AnswersLater>,
}

impl HttpToolConfig {
    pub(super) fn read(name: &str, section: &mut Section<'_>, public_url: Option<&Url>) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=64).contains(&name.len()) || !name.bytes().all(allowed) {
            section.refuse_here("a tool's name has 1 to 64 characters of A-Z a-z 0-9 _ -");
        }
        section.key("kind", "An HTTP endpoint.", Kind::Http);
        let description =
            section.required("description", "What the tool does; the model decides by it when to call the tool.");
        let method = section.key("method", "HTTP method of a call.", Method::GET);
        let url: Option<UrlTemplate> = section
            .required("url", "URL of the endpoint; `{name}` in its path or query is replaced by the argument `name`.");
        let effect = section.key(
            "effect",
            "What a repeated call does: `read` changes nothing, `idempotent` changes nothing if the `Idempotency-Key` is \
             the same, `write` may do it all again, so it is never repeated.",
            Effect::Write,
        );
        let (headers, templates) = request_templates::read(section, &method);
        let send_identity = section.key(
            "send_identity",
            "What each call tells the service of the caller, in headers `x-loopgate-…`: the key's tenant, the run's session, \
             `user` and `metadata` of the request. Nothing, unless the service may know it.",
            SentIdentity::default(),
        );
        let parameters: Option<Schema> =
            section.optional("parameters", "JSON schema of the arguments; if absent, there are none.");
        let is_misread = parameters.is_none() && section.is_written("parameters");
        let Schema(parameters) = parameters.unwrap_or_else(Schema::without_arguments);
        if let Some(UrlTemplate { arguments, .. }) = url.as_ref().filter(|_| !is_misread) {
            refuse_unknown_arguments(section, arguments, &parameters);
            request_templates::check_arguments(section, &templates, arguments, &parameters);
        }
        let timeout = section.optional("timeout", "Most time for one call; if absent, the agent's `tool_timeout`.");
        let Size(max_response) = section.key(
            "max_response",
            "Most bytes of a response that are read; the model is told if there are more.",
            Size(1 << 20),
        );
        let answers_later = AnswersLater::read(section, public_url);
        Some(Self {
            name: name.to_owned(),
            method,
            effect,
            headers,
            templates,
            send_identity,
            parameters: to_raw_value(&parameters).expect("a value of JSON is always JSON text"),
            timeout,
            max_response,
            answers_later,
            description: description?,
            url: url?.template,
        })
    }
}

impl fmt::Debug for HttpToolConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URL, which may hold a key in its query.
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        let Self { name, method, .. } = self;
        f.debug_struct("HttpToolConfig")
            .field("name", name)
            .field("method", method)
            .field("headers", &headers)
            .finish_non_exhaustive()
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

    /// Its query may hold a key.
    fn recorded(&self) -> Recorded {
        Recorded::hidden(&self.template)
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

    /// It is too long to be shown.
    fn recorded(&self) -> Recorded {
        Recorded::hidden(&self.show())
    }
}

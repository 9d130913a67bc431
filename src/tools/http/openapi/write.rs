//! Writes a call's arguments as a request of its operation.

use std::collections::BTreeSet;
use std::fmt::Write;

use ::http::header::{CONTENT_TYPE, COOKIE};
use ::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use percent_encoding::utf8_percent_encode;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use url::Url;

use super::input::{BodyKind, Input, Inputs, Place, QueryStyle};
use crate::config::Secret;
use crate::tools::http::template::{ENCODED, has_dot_segment, path_value};

/// Longest query of an argument: the HTTP client takes no longer URL.
const MAX_QUERY: usize = 64 << 10;
/// How many bytes of a hash tell a boundary from content.
const BOUNDARY_BYTES: usize = 24;
/// Longest form.
const MAX_FORM: usize = 4 << 20;

/// What a call adds to a request.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Writes the arguments of the call of this id. `base` is the server's address without a slash at its end, and `own_query` what the
/// operator adds to the query. The error is a sentence for the model.
pub(super) fn write(
    call: &str,
    base: &str,
    path: &str,
    inputs: &Inputs,
    own_query: &[(String, Secret)],
    arguments: &Map<String, Value>,
) -> Result<Written, String> {
    // What is absent and what is null are the same, but in a body.
    let given = |input: &Input| arguments.get(&input.argument).filter(|value| !value.is_null());
    let mut url = format!("{base}{}", fill(path, inputs, &given)?);
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let mut headers = HeaderMap::new();
    let mut cookies = Vec::new();
    for input in &inputs.list {
        let Some(value) = given(input) else { continue };
        match input.place {
            Place::Query(style) => {
                let mut pairs = Pairs::of(MAX_QUERY);
                pairs.add_to_query(&input.name, style, value)?;
                refuse_taken(input, &pairs.list, inputs, own_query)?;
                query.extend_pairs(pairs.list);
            }
            Place::JsonInQuery => {
                query.append_pair(&input.name, &value.to_string());
            }
            Place::Header { explodes } => {
                let (name, value) = header(input, &simple(value, explodes))?;
                headers.append(name, value);
            }
            Place::Cookie => cookies.push(cookie(input, value)?),
            Place::Path { .. } | Place::Member | Place::Body => {}
        }
    }
    let query = query.finish();
    if !query.is_empty() {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(&query);
    }
    if !cookies.is_empty() {
        let cookies = HeaderValue::from_str(&cookies.join("; ")).map_err(|_| "The cookies cannot be sent.")?;
        headers.insert(COOKIE, cookies);
    }
    let body = body(call, inputs, arguments)?;
    if let Some((kind, _)) = &body {
        let kind = HeaderValue::from_str(kind).map_err(|_| "The body's type cannot be sent.")?;
        headers.insert(CONTENT_TYPE, kind);
    }
    let url = Url::parse(&url).map_err(|_| "The arguments do not make up a URL.")?;
    Ok(Written { url, headers, body: body.map(|(_, body)| body).unwrap_or_default() })
}

/// Refuses members of an argument that have the name of what the operator or another argument says in the query: of two values
/// with one name, services heed the one or the other. Case tells nothing to some services.
fn refuse_taken(
    input: &Input,
    pairs: &[(String, String)],
    inputs: &Inputs,
    own_query: &[(String, Secret)],
) -> Result<(), String> {
    let is_query = |other: &Input| matches!(other.place, Place::Query(_) | Place::JsonInQuery);
    let others = inputs.list.iter().filter(|other| is_query(other) && other.name != input.name);
    let taken: BTreeSet<String> = own_query
        .iter()
        .map(|(name, _)| name)
        .chain(others.map(|other| &other.name))
        .map(|name| name.to_ascii_lowercase())
        .collect();
    let is_taken = |name: &&String| **name != input.name && taken.contains(&name.to_ascii_lowercase());
    match pairs.iter().map(|(name, _)| name).find(is_taken) {
        None => Ok(()),
        Some(name) => {
            Err(format!("The argument `{}` cannot have a member `{name}`. Nothing was sent.", input.argument))
        }
    }
}

/// The path with its arguments, none of which can leave its segment.
fn fill<'v>(path: &str, inputs: &Inputs, given: &dyn Fn(&Input) -> Option<&'v Value>) -> Result<String, String> {
    let (mut filled, mut decoded, mut rest) = (String::new(), String::new(), path);
    while let Some((before, name, after)) = rest
        .split_once('{')
        .and_then(|(before, after)| after.split_once('}').map(|(name, after)| (before, name, after)))
    {
        let input = inputs.list.iter().find(|input| matches!(input.place, Place::Path { .. }) && input.name == name);
        let input = input.ok_or_else(|| format!("The path has no argument `{name}`."))?;
        let argument = &input.argument;
        let value = given(input).ok_or_else(|| format!("The argument `{argument}` is missing."))?;
        let value = simple(value, matches!(input.place, Place::Path { explodes: true }));
        filled.push_str(before);
        decoded.push_str(before);
        decoded.push_str(&path_value(argument, &value)?);
        filled.extend(utf8_percent_encode(&value, ENCODED));
        rest = after;
    }
    filled.push_str(rest);
    decoded.push_str(rest);
    if has_dot_segment(&decoded) {
        return Err("The arguments make up a path with `.` or `..` in it, which is not allowed.".into());
    }
    Ok(filled)
}

/// A value as text: a string as it is, other JSON as it is written.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value of a path or header: lists by commas, objects by their members.
fn simple(value: &Value, explodes: bool) -> String {
    let between = if explodes { "=" } else { "," };
    match value {
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name}{between}{}", plain(value)));
            members.collect::<Vec<_>>().join(",")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => plain(value),
    }
}

/// Names and values, up to a length: names are repeated, so little can become much.
struct Pairs {
    list: Vec<(String, String)>,
    left: usize,
}

impl Pairs {
    fn of(most: usize) -> Self {
        Self { list: Vec::new(), left: most }
    }

    fn push(&mut self, name: &str, value: String) -> Result<(), String> {
        let rest = self.left.checked_sub(name.len() + value.len() + 2);
        self.left = rest.ok_or("The arguments are too long. Nothing was sent.")?;
        self.list.push((name.to_owned(), value));
        Ok(())
    }

    fn add_to_query(&mut self, name: &str, style: QueryStyle, value: &Value) -> Result<(), String> {
        match (value, style) {
            (Value::Array(items), QueryStyle::Joined(between)) => {
                self.push(name, items.iter().map(plain).collect::<Vec<_>>().join(&between.to_string()))
            }
            (Value::Array(items), QueryStyle::Exploded | QueryStyle::Deep) => {
                items.iter().try_for_each(|item| self.push(name, plain(item)))
            }
            (Value::Object(members), QueryStyle::Exploded) => {
                members.iter().try_for_each(|(member, value)| self.push(member, plain(value)))
            }
            (Value::Object(members), QueryStyle::Joined(between)) => {
                let parts = members.iter().flat_map(|(member, value)| [member.clone(), plain(value)]);
                self.push(name, parts.collect::<Vec<_>>().join(&between.to_string()))
            }
            (Value::Object(_), QueryStyle::Deep) => self.deep(&mut name.to_owned(), value),
            (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => self.push(name, plain(value)),
        }
    }

    /// Members by names such as `a[b]`, at any depth: forms of web services are written so too.
    fn deep(&mut self, name: &mut String, value: &Value) -> Result<(), String> {
        let length = name.len();
        match value {
            Value::Object(members) => {
                for (member, value) in members {
                    name.extend(["[", member, "]"]);
                    self.deep(name, value)?;
                    name.truncate(length);
                }
            }
            Value::Array(items) => {
                for item in items {
                    name.push_str("[]");
                    self.deep(name, item)?;
                    name.truncate(length);
                }
            }
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) => self.push(name, plain(value))?,
        }
        Ok(())
    }
}

fn header(input: &Input, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let unsendable = || format!("The argument `{}` cannot be sent in a header. Nothing was sent.", input.argument);
    let name = HeaderName::from_bytes(input.name.as_bytes()).map_err(|_| unsendable())?;
    Ok((name, HeaderValue::from_str(value).map_err(|_| unsendable())?))
}

fn cookie(input: &Input, value: &Value) -> Result<String, String> {
    let value = simple(value, false);
    if value.contains([';', ',', '"', '\\']) || value.contains(|char: char| char.is_whitespace() || char.is_control()) {
        return Err(format!("The argument `{}` cannot be sent in a cookie. Nothing was sent.", input.argument));
    }
    Ok(format!("{}={value}", input.name))
}

/// The body and its media type, if there is one.
fn body(call: &str, inputs: &Inputs, arguments: &Map<String, Value>) -> Result<Option<(String, Bytes)>, String> {
    let Some(kind) = &inputs.body else { return Ok(None) };
    if let Some(whole) = inputs.list.iter().find(|input| input.place == Place::Body) {
        let Some(value) = arguments.get(&whole.argument) else { return Ok(None) };
        return Ok(Some(match kind {
            BodyKind::Text(kind) => (format!("{kind}; charset=utf-8"), plain(value).into()),
            BodyKind::Json(kind) => (kind.clone(), value.to_string().into()),
            BodyKind::Form | BodyKind::Multipart => return Err("The body has no fields.".into()),
        }));
    }
    let members = inputs.list.iter().filter(|input| input.place == Place::Member);
    let members = members.filter_map(|input| Some((input.name.as_str(), arguments.get(&input.argument)?)));
    let members: Vec<(&str, &Value)> = members.collect();
    if members.is_empty() && !inputs.needs_body {
        return Ok(None);
    }
    Ok(Some(match kind {
        BodyKind::Json(kind) => {
            let object: Map<String, Value> =
                members.iter().map(|(name, value)| ((*name).to_owned(), (*value).clone())).collect();
            (kind.clone(), Value::Object(object).to_string().into())
        }
        BodyKind::Form => ("application/x-www-form-urlencoded".into(), form(&members)?),
        BodyKind::Multipart => multipart(call, &members),
        BodyKind::Text(_) => return Err("The body has no fields.".into()),
    }))
}

fn form(members: &[(&str, &Value)]) -> Result<Bytes, String> {
    let mut pairs = Pairs::of(MAX_FORM);
    for (name, value) in members {
        pairs.deep(&mut (*name).to_owned(), value)?;
    }
    Ok(url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs.list).finish().into())
}

/// Fields of a form; one that is a `data:` URL with base64 is a file.
fn multipart(call: &str, members: &[(&str, &Value)]) -> (String, Bytes) {
    let parts: Vec<(String, Vec<u8>)> = members
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| {
            let name: String = name.chars().filter(|char| !matches!(char, '"' | '\r' | '\n')).collect();
            match value.as_str().and_then(file) {
                Some((kind, bytes)) => {
                    let head = format!("form-data; name=\"{name}\"; filename=\"{name}\"\r\ncontent-type: {kind}");
                    (head, bytes)
                }
                None => (format!("form-data; name=\"{name}\""), plain(value).into_bytes()),
            }
        })
        .collect();
    let boundary = boundary(call, &parts);
    let mut body = Vec::new();
    for (head, content) in &parts {
        body.extend_from_slice(format!("--{boundary}\r\ncontent-disposition: {head}\r\n\r\n").as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body.into())
}

/// A line that no part has and that no part could have been made to have: who wrote the parts cannot know their hash with the call's id.
/// It is the same for the same call, so that a repeated call is the same request.
fn boundary(call: &str, parts: &[(String, Vec<u8>)]) -> String {
    let mut hash = Sha256::new_with_prefix(call);
    for (head, content) in parts {
        for bytes in [head.as_bytes(), content] {
            hash.update(bytes.len().to_be_bytes());
            hash.update(bytes);
        }
    }
    let digest = hash.finalize();
    digest.iter().take(BOUNDARY_BYTES).fold("loopgate-".to_owned(), |mut line, byte| {
        let _ = write!(line, "{byte:02x}");
        line
    })
}

fn file(text: &str) -> Option<(&str, Vec<u8>)> {
    let (kind, data) = text.strip_prefix("data:")?.split_once(";base64,")?;
    let is_plain = kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/+-._".contains(&byte));
    let bytes = STANDARD.decode(data).ok().filter(|_| is_plain)?;
    Some((if kind.is_empty() { "application/octet-stream" } else { kind }, bytes))
}

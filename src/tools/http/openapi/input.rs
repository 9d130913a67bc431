//! Where each argument of an operation goes: into path, query, headers, cookies or body.
//!
//! Parameters of all places and the members of the body become the properties of one schema. Names that clash are told apart by their
//! places: the first keeps its name, and the second is `query_id` or `body_id`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::document::{Document, beginning};
use super::schema::Schemas;

/// Headers that a parameter cannot have: the client, the body, the answer and the run decide about them.
const NO_HEADERS: [&str; 20] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "x-request-id",
];
const NO_HEADERS_BEGIN: [&str; 4] = ["forwarded", "proxy-", "x-forwarded-", "x-loopgate-"];

/// Most parameters of an operation.
const MAX_PARAMETERS: usize = 1_000;
/// Most schemas and members that are looked at to find the members of a body.
const MAX_MEMBERS: usize = 5_000;

/// One argument.
#[derive(Debug, Clone)]
pub(super) struct Input {
    /// What the model calls it.
    pub(super) argument: String,
    /// What the service calls it.
    pub(super) name: String,
    pub(super) place: Place,
    schema: Value,
    is_required: bool,
}

/// Where an argument goes, and how it is written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Path {
        explodes: bool,
    },
    Query(QueryStyle),
    Header {
        explodes: bool,
    },
    Cookie,
    /// A member of the body.
    Member,
    /// The whole body.
    Body,
    /// As JSON text in the query.
    JsonInQuery,
}

/// How lists and objects are written in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryStyle {
    /// `a=1&a=2`, and the members of an object by their own names.
    Exploded,
    /// `a=1,2`, or with another character between.
    Joined(char),
    /// `a[b]=1`.
    Deep,
}

/// What a body is written as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// JSON, of this media type.
    Json(String),
    /// As forms of web pages are sent.
    Form,
    /// As forms of web pages with files are sent.
    Multipart,
    /// Text, of this media type.
    Text(String),
}

/// All arguments of an operation.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    pub(super) list: Vec<Input>,
    pub(super) body: Option<BodyKind>,
    /// Whether there is a body where no argument makes one.
    pub(super) needs_body: bool,
    taken: BTreeSet<String>,
    /// How many arguments wanted a name that was taken.
    numbers: BTreeMap<String, usize>,
}

impl Inputs {
    /// Adds the parameters of several lists, of which later ones go before earlier ones.
    pub(super) fn parameters<'a>(
        &mut self,
        document: &'a Document,
        lists: impl Iterator<Item = &'a Value>,
        schemas: &mut Schemas<'_>,
        is_given: &dyn Fn(&Input) -> bool,
    ) -> Result<(), String> {
        // By place and name, with the place in the lists: later ones go before earlier ones.
        let mut found: BTreeMap<(&str, &str), (usize, &Value)> = BTreeMap::new();
        for (index, parameter) in lists.filter_map(Value::as_array).flatten().enumerate() {
            if index == MAX_PARAMETERS {
                return Err(format!("it has more than {MAX_PARAMETERS} parameters"));
            }
            schemas.count(1)?;
            let parameter = document.resolve(parameter)?;
            let word = |member: &str| parameter.get(member).and_then(Value::as_str);
            let (Some(name), Some(place)) = (word("name"), word("in")) else {
                return Err("it has a parameter without name or place".to_owned());
            };
            found.insert((place, name), (index, parameter));
        }
        // Where names clash, that in the path is the plain one.
        let rank = |place: &str| ["path", "query", "header", "cookie"].iter().position(|known| *known == place);
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_by_key(|((place, _), (index, _))| (rank(place), *index));
        for ((place, name), (_, parameter)) in found {
            if place == "header" && is_no_parameter(&name.to_ascii_lowercase()) {
                continue;
            }
            let input = parameter_input(name, place, parameter, schemas)?;
            if !is_given(&input) {
                self.add(place, input);
            }
        }
        Ok(())
    }

    /// Adds what a body takes.
    pub(super) fn body(&mut self, document: &Document, body: &Value, schemas: &mut Schemas<'_>) -> Result<(), String> {
        let is_required = body.get("required") == Some(&Value::Bool(true));
        let Some(content) = body.get("content").and_then(Value::as_object).filter(|content| !content.is_empty()) else {
            return Ok(());
        };
        let Some((kind, media)) = body_kind(content) else {
            // What need not be there is not sent.
            let kinds: Vec<_> = content.keys().map(|kind| beginning(kind)).collect();
            let reason = format!("its body is of the type {}, which is not written", kinds.join(" or "));
            return if is_required { Err(reason) } else { Ok(()) };
        };
        let schema = media.get("schema").cloned().unwrap_or_else(|| Value::Object(Map::new()));
        let is_text = matches!(kind, BodyKind::Text(_));
        let mut left = MAX_MEMBERS;
        let members = if is_text { None } else { flat_members(document, &schema, 0, &mut left)? };
        schemas.count(MAX_MEMBERS - left)?;
        self.needs_body = is_required;
        match members {
            Some(members) => {
                for (name, schema) in members.properties {
                    if document.resolve(schema)?.get("readOnly") == Some(&Value::Bool(true)) {
                        continue;
                    }
                    let input = Input {
                        argument: String::new(),
                        name: name.to_owned(),
                        place: Place::Member,
                        schema: schemas.convert(schema)?,
                        is_required: is_required && members.required.contains(name),
                    };
                    self.add("body", input);
                }
            }
            None if matches!(kind, BodyKind::Form | BodyKind::Multipart) => {
                return Err("its form has no fields that are known".to_owned());
            }
            None => {
                let schema = if is_text { serde_json::json!({"type": "string"}) } else { schemas.convert(&schema)? };
                let (argument, name) = (String::new(), "body".to_owned());
                self.add("request", Input { argument, name, place: Place::Body, schema, is_required });
            }
        }
        self.body = Some(kind);
        Ok(())
    }

    /// Adds an argument, under a name that no other has.
    fn add(&mut self, place: &str, mut input: Input) {
        let own = argument_name(&input.name);
        let mut name = own.clone();
        while name.is_empty() || self.taken.contains(&name) {
            let beside = format!("{place}_{own}");
            let number = self.numbers.entry(beside.clone()).or_default();
            *number += 1;
            name = if *number == 1 { beside } else { format!("{beside}_{number}") };
        }
        self.taken.insert(name.clone());
        input.argument = name;
        self.list.push(input);
    }

    /// The properties of the arguments.
    pub(super) fn properties(&self) -> Map<String, Value> {
        self.list.iter().map(|input| (input.argument.clone(), input.schema.clone())).collect()
    }

    /// The arguments that must be there.
    pub(super) fn required(&self) -> impl Iterator<Item = &str> {
        self.list.iter().filter(|input| input.is_required).map(|input| input.argument.as_str())
    }
}

/// Whether a header, in lower case, is none that a parameter can have.
fn is_no_parameter(header: &str) -> bool {
    NO_HEADERS.contains(&header) || NO_HEADERS_BEGIN.iter().any(|begin| header.starts_with(begin))
}

/// Checks that the places of a path are its parameters.
pub(super) fn check_path(path: &str, inputs: &Inputs) -> Result<(), String> {
    if !path.starts_with('/') || path.contains(['?', '#']) {
        return Err("its path is none that can be called".to_owned());
    }
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or("its path has a { without its }")?;
        let is_known = inputs.list.iter().any(|input| matches!(input.place, Place::Path { .. }) && input.name == name);
        if !is_known || before.contains('}') {
            return Err(format!("its path has {{{}}}, which is no parameter of it", beginning(name)));
        }
        rest = after;
    }
    Ok(())
}

fn parameter_input(name: &str, place: &str, parameter: &Value, schemas: &mut Schemas<'_>) -> Result<Input, String> {
    let explodes = parameter.get("explode").and_then(Value::as_bool);
    let style = parameter.get("style").and_then(Value::as_str);
    let in_json = parameter.get("content").and_then(Value::as_object);
    let unwritten = || Err(format!("its parameter {} is of a style that is not written", beginning(name)));
    let at = match (place, style, in_json) {
        ("query", _, Some(_)) => Place::JsonInQuery,
        (_, _, Some(_)) => return unwritten(),
        ("path", None | Some("simple"), _) => Place::Path { explodes: explodes == Some(true) },
        ("header", None | Some("simple"), _) => Place::Header { explodes: explodes == Some(true) },
        ("cookie", None | Some("form"), _) => Place::Cookie,
        ("query", None | Some("form"), _) if explodes != Some(false) => Place::Query(QueryStyle::Exploded),
        ("query", None | Some("form"), _) => Place::Query(QueryStyle::Joined(',')),
        ("query", Some("spaceDelimited"), _) => Place::Query(QueryStyle::Joined(' ')),
        ("query", Some("pipeDelimited"), _) => Place::Query(QueryStyle::Joined('|')),
        ("query", Some("deepObject"), _) => Place::Query(QueryStyle::Deep),
        _ => return unwritten(),
    };
    let schema = match in_json {
        Some(content) => content.values().next().and_then(|media| media.get("schema")),
        None => parameter.get("schema"),
    };
    let mut schema = schema.map_or_else(|| Ok(Value::Object(Map::new())), |schema| schemas.convert(schema))?;
    if let Value::Object(members) = &mut schema
        && let Some(description) = parameter.get("description").filter(|text| text.is_string())
    {
        members.insert("description".into(), description.clone());
    }
    let is_required = place == "path" || parameter.get("required") == Some(&Value::Bool(true));
    Ok(Input { argument: String::new(), name: name.to_owned(), place: at, schema, is_required })
}

/// The first kind of body that can be written, in the order of how well models fill it in.
fn body_kind(content: &Map<String, Value>) -> Option<(BodyKind, &Value)> {
    let essence = |kind: &str| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let find = |is_meant: &dyn Fn(&str) -> bool| {
        content.iter().find(|(kind, _)| is_meant(&essence(kind))).map(|(kind, media)| (essence(kind), media))
    };
    if let Some((kind, media)) = find(&|kind| kind == "application/json")
        .or_else(|| find(&|kind| kind.ends_with("+json")))
        .or_else(|| find(&|kind| kind == "*/*"))
    {
        let kind = if kind == "*/*" { "application/json".to_owned() } else { kind };
        return Some((BodyKind::Json(kind), media));
    }
    if let Some((_, media)) = find(&|kind| kind == "application/x-www-form-urlencoded") {
        return Some((BodyKind::Form, media));
    }
    if let Some((_, media)) = find(&|kind| kind == "multipart/form-data") {
        return Some((BodyKind::Multipart, media));
    }
    find(&|kind| kind.starts_with("text/")).map(|(kind, media)| (BodyKind::Text(kind), media))
}

/// The members of an object.
struct Members<'a> {
    properties: Vec<(&'a str, &'a Value)>,
    required: BTreeSet<&'a str>,
}

/// The members of a schema that is an object with these members and no others; `None` if it is anything else, such as a choice,
/// or takes more than is `left` to find out.
fn flat_members<'a>(
    document: &'a Document,
    schema: &'a Value,
    depth: usize,
    left: &mut usize,
) -> Result<Option<Members<'a>>, String> {
    const MOST: usize = 8;
    const OTHERS: [&str; 7] =
        ["anyOf", "oneOf", "not", "if", "patternProperties", "additionalProperties", "unevaluatedProperties"];
    let schema = document.resolve(schema)?;
    let is_open = |name: &str| !matches!(schema.get(name), None | Some(Value::Bool(false)));
    if depth > MOST || OTHERS.into_iter().any(is_open) {
        return Ok(None);
    }
    let count = |name: &str| match schema.get(name) {
        Some(Value::Object(members)) => members.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    };
    let Some(rest) = left.checked_sub(1 + count("properties") + count("required")) else { return Ok(None) };
    *left = rest;
    let mut members = Members { properties: Vec::new(), required: BTreeSet::new() };
    if let Some(Value::Array(all)) = schema.get("allOf") {
        for part in all {
            let Some(part) = flat_members(document, part, depth + 1, left)? else { return Ok(None) };
            let theirs: BTreeSet<&str> = part.properties.iter().map(|(name, _)| *name).collect();
            members.properties.retain(|(name, _)| !theirs.contains(name));
            members.properties.extend(part.properties);
            members.required.extend(part.required);
        }
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        members.properties.retain(|(name, _)| !properties.contains_key(*name));
        members.properties.extend(properties.iter().map(|(name, schema)| (name.as_str(), schema)));
    }
    if let Some(Value::Array(required)) = schema.get("required") {
        members.required.extend(required.iter().filter_map(Value::as_str));
    }
    Ok((!members.properties.is_empty()).then_some(members))
}

/// A name of the letters that models may use for an argument.
fn argument_name(name: &str) -> String {
    const MOST: usize = 60;
    let allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.');
    let plain: String = name.chars().map(|char| if allowed(char) { char } else { '_' }).take(MOST).collect();
    if name.contains('[') { plain.trim_end_matches('_').to_owned() } else { plain }
}

//! The operations of a document, each as what a tool needs.

use std::collections::BTreeSet;

use ::http::Method;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::document::{Document, beginning};
use super::input::{self, Input, Inputs};
use super::schema::Schemas;
use crate::tools::schema;

/// Longest description, in characters: APIs of models take no more.
const MAX_DESCRIPTION: usize = 1_024;

/// Longest address of a server.
const MAX_URL: usize = 16 << 10;

/// The methods that a path may have.
const METHODS: [(&str, Method); 8] = [
    ("get", Method::GET),
    ("put", Method::PUT),
    ("post", Method::POST),
    ("delete", Method::DELETE),
    ("patch", Method::PATCH),
    ("head", Method::HEAD),
    ("options", Method::OPTIONS),
    ("trace", Method::TRACE),
];

/// An operation that can be called.
#[derive(Debug)]
pub(super) struct Operation {
    /// Of `A-Z a-z 0-9 _ -`.
    pub(super) name: String,
    pub(super) method: Method,
    pub(super) description: String,
    /// Where it is served, if it says so itself, or why that cannot be read.
    pub(super) server: Option<Result<String, String>>,
    /// With `{name}` for each parameter in it.
    pub(super) path: String,
    /// JSON schema of its arguments.
    pub(super) parameters: Box<RawValue>,
    pub(super) inputs: Inputs,
}

/// An operation that cannot be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Which one.
    pub operation: String,
    /// Why: a clause.
    pub reason: String,
}

/// What a document offers.
#[derive(Debug)]
pub(super) struct Operations {
    pub(super) usable: Vec<Operation>,
    pub(super) skipped: Vec<Skipped>,
}

/// Reads all operations whose names `is_wanted`. Parameters of which `is_given` says that requests have them anyway, such as keys, are
/// none of a tool's.
pub(super) fn read(
    document: &Document,
    is_wanted: &dyn Fn(&str) -> bool,
    is_given: &dyn Fn(&Input) -> bool,
) -> Operations {
    let mut found = Operations { usable: Vec::new(), skipped: Vec::new() };
    let mut names = BTreeSet::new();
    let no_paths = Map::new();
    let paths = document.root.get("paths").and_then(Value::as_object).unwrap_or(&no_paths);
    for (path, item) in paths {
        let item = match document.resolve(item) {
            Ok(item) => item,
            Err(reason) => {
                found.skipped.push(Skipped { operation: beginning(path), reason });
                continue;
            }
        };
        for (word, method) in METHODS {
            let Some(operation) = item.get(word) else { continue };
            let place = Place { path, item, operation, method };
            let name = place.name(&names);
            if !is_wanted(&name) {
                continue;
            }
            match place.read(document, &name, is_given) {
                Ok(operation) => {
                    names.insert(name);
                    found.usable.push(operation);
                }
                Err(reason) => found.skipped.push(Skipped { operation: name, reason }),
            }
        }
    }
    found
}

/// Where an operation stands.
struct Place<'a> {
    path: &'a str,
    item: &'a Value,
    operation: &'a Value,
    method: Method,
}

impl Place<'_> {
    /// Its name: its id, or else method and path. Those that are taken already are told apart by these too.
    fn name(&self, taken: &BTreeSet<String>) -> String {
        let by_place = || plain(&format!("{}_{}", self.method.as_str().to_lowercase(), self.path));
        let id = self.operation.get("operationId").and_then(Value::as_str).map(plain).filter(|id| !id.is_empty());
        id.filter(|id| !taken.contains(id)).unwrap_or_else(by_place)
    }

    fn read(&self, document: &Document, name: &str, is_given: &dyn Fn(&Input) -> bool) -> Result<Operation, String> {
        if matches!(self.method, Method::OPTIONS | Method::TRACE) {
            return Err(format!("the method {} is not called", self.method));
        }
        let mut schemas = Schemas::of(document);
        let mut inputs = Inputs::default();
        let lists = [self.item, self.operation].map(|holder| holder.get("parameters"));
        inputs.parameters(document, lists.into_iter().flatten(), &mut schemas, is_given)?;
        if let Some(body) = self.operation.get("requestBody") {
            inputs.body(document, document.resolve(body)?, &mut schemas)?;
        }
        input::check_path(self.path, &inputs)?;
        let mut parameters = json!({"type": "object", "properties": inputs.properties()});
        if inputs.required().next().is_some() {
            parameters["required"] = inputs.required().collect::<Vec<_>>().into();
        }
        if let Some(definitions) = schemas.into_definitions()? {
            parameters["$defs"] = definitions;
        }
        let parameters = to_raw_value(&parameters).map_err(|error| error.to_string())?;
        schema::compile(&parameters)?;
        Ok(Operation {
            name: name.to_owned(),
            description: self.description(),
            server: self.server(),
            path: self.path.to_owned(),
            method: self.method.clone(),
            parameters,
            inputs,
        })
    }

    fn description(&self) -> String {
        let text = |member: &str| self.operation.get(member).and_then(Value::as_str).map(str::trim).unwrap_or_default();
        let both = match (text("summary"), text("description")) {
            ("", "") => format!("{} {}", self.method, self.path),
            (one, "") | ("", one) => one.to_owned(),
            (summary, description) if description.starts_with(summary) => description.to_owned(),
            (summary, description) => format!("{summary}\n\n{description}"),
        };
        both.chars().take(MAX_DESCRIPTION).collect()
    }

    fn server(&self) -> Option<Result<String, String>> {
        [self.operation, self.item].into_iter().find_map(|holder| server(holder.get("servers")?))
    }
}

/// The address of the first server of a list, its variables by their defaults, or why there is none.
pub(super) fn server(list: &Value) -> Option<Result<String, String>> {
    let server = list.get(0)?;
    let template = server.get("url")?.as_str()?;
    let default = |name: &str| {
        let variable = server.get("variables")?.get(name)?;
        Some(variable.get("default").and_then(Value::as_str).unwrap_or_default())
    };
    Some(expand(template, default).ok_or_else(|| "the address of its server is too long: give base_url".to_owned()))
}

/// A template with the values of the variables that are known. Values are not looked into for further ones: they could make an
/// address of any length. `None` if it is too long as it is.
fn expand<'a>(template: &'a str, value: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let (mut url, mut rest) = (String::new(), template);
    while !rest.is_empty() {
        let end = rest.find('{').unwrap_or(rest.len());
        let (mut piece, mut after) = rest.split_at(end);
        if piece.is_empty() {
            let end = rest.find('}').map_or(rest.len(), |end| end + 1);
            (piece, after) = rest.split_at(end);
            let name = piece.trim_start_matches('{').trim_end_matches('}');
            piece = value(name).unwrap_or(piece);
        }
        if url.len() + piece.len() > MAX_URL {
            return None;
        }
        url.push_str(piece);
        rest = after;
    }
    Some(url)
}

/// A name of the letters that names of tools have.
pub(super) fn plain(name: &str) -> String {
    let mut plain = String::new();
    for char in name.chars() {
        let char = if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' };
        if char != '_' || !plain.ends_with('_') {
            plain.push(char);
        }
    }
    plain.trim_matches('_').to_owned()
}

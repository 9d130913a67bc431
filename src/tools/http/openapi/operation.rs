//! The operations of a document, each as what a tool needs.

use std::collections::BTreeSet;

use ::http::Method;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::budget::{Budget, Taken};
use super::document::{Document, beginning};
use super::input::{self, Input, Inputs};
use super::schema::Schemas;
use super::server::address;
use crate::tools::schema;

/// Longest description, in characters: APIs of models take no more.
const MAX_DESCRIPTION: usize = 1_024;

/// Longest path.
const MAX_PATH: usize = 16 << 10;

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
    let (mut names, mut budget) = (BTreeSet::new(), Budget::default());
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
            match place.read(document, &name, is_given, &mut budget) {
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

    fn read(
        &self,
        document: &Document,
        name: &str,
        is_given: &dyn Fn(&Input) -> bool,
        budget: &mut Budget,
    ) -> Result<Operation, String> {
        budget.begin()?;
        if matches!(self.method, Method::OPTIONS | Method::TRACE) {
            return Err(format!("the method {} is not called", self.method));
        }
        if self.path.len() > MAX_PATH {
            return Err(format!("its path is longer than {MAX_PATH} bytes"));
        }
        let mut schemas = Schemas::of(document);
        let arguments = self.arguments(document, is_given, &mut schemas);
        let bytes = arguments.as_ref().map_or(0, |(parameters, _)| parameters.get().len());
        budget.count(Taken { bytes, ..schemas.taken() });
        let (parameters, inputs) = arguments?;
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

    /// The schema of its arguments, and where each of them goes.
    fn arguments(
        &self,
        document: &Document,
        is_given: &dyn Fn(&Input) -> bool,
        schemas: &mut Schemas<'_>,
    ) -> Result<(Box<RawValue>, Inputs), String> {
        let mut inputs = Inputs::default();
        let lists = [self.item, self.operation].map(|holder| holder.get("parameters"));
        inputs.parameters(document, lists.into_iter().flatten(), schemas, is_given)?;
        if let Some(body) = self.operation.get("requestBody") {
            inputs.body(document, document.resolve(body)?, schemas)?;
        }
        input::check_path(self.path, &inputs)?;
        let mut parameters = json!({"type": "object", "properties": inputs.properties()});
        if inputs.required().next().is_some() {
            parameters["required"] = inputs.required().collect::<Vec<_>>().into();
        }
        if let Some(definitions) = schemas.take_definitions()? {
            parameters["$defs"] = definitions;
        }
        let parameters = to_raw_value(&parameters).map_err(|error| error.to_string())?;
        Ok((parameters, inputs))
    }

    fn description(&self) -> String {
        // Of a text that is far too long only the beginning is looked at.
        let text = |member: &str| {
            let text = self.operation.get(member).and_then(Value::as_str).unwrap_or_default();
            text[..text.floor_char_boundary(8 * MAX_DESCRIPTION)].trim()
        };
        let both = match (text("summary"), text("description")) {
            ("", "") => format!("{} {}", self.method, self.path),
            (one, "") | ("", one) => one.to_owned(),
            (summary, description) if description.starts_with(summary) => description.to_owned(),
            (summary, description) => format!("{summary}\n\n{description}"),
        };
        both.chars().take(MAX_DESCRIPTION).collect()
    }

    fn server(&self) -> Option<Result<String, String>> {
        [self.operation, self.item].into_iter().find_map(|holder| address(holder.get("servers")?))
    }
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

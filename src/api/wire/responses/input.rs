//! `input`: a text or a list of items, and the items of others that it names.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::wire::body::{clip, located};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::responses::item::{Item, read_item};
use crate::api::wire::responses::tool_names;
use crate::types::conversation::Part;
use crate::types::{Role, ToolCall};

/// Most items of one request.
const MAX_ITEMS: usize = 10_000;

/// Most bytes of the items that a request names: each time that it names one, it is a message of its own.
const MAX_NAMED_BYTES: usize = 10 << 20;

/// Items that requests may name, by their ids, as their responses show them.
pub type Known = HashMap<String, Box<RawValue>>;

/// Reads `input`; `known` are the items that it may name, and `place` says which server a label means.
pub fn read_input(
    raw: Option<&RawValue>,
    known: &Known,
    place: &dyn Fn(&str) -> String,
) -> Result<Vec<Item>, WireError> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(Vec::new()) };
    match raw.get().as_bytes().first() {
        Some(b'"') => {
            let text: String = located(raw.get()).map_err(|error| error.within("input"))?;
            Ok(vec![Item::Message(Role::User, vec![Part::text(text)])])
        }
        Some(b'[') => {
            let items = list(raw)?;
            let mut left = MAX_NAMED_BYTES;
            let read = |(index, json): (usize, &RawValue)| {
                let item = read_item(json.get()).map_err(|error| error.within(&format!("input[{index}]")))?;
                let item = if let Item::Reference(id) = item { resolve(&id, known, &mut left)? } else { item };
                Ok(if let Item::Made(call, result) = item { Item::Made(renamed(call, place), result) } else { item })
            };
            items.into_iter().enumerate().map(read).collect()
        }
        _ => Err(WireError::invalid("input", "must be a string or a list of items")),
    }
}

/// The items of a list, which are not too many.
fn list(raw: &RawValue) -> Result<Vec<&RawValue>, WireError> {
    let items: Vec<&RawValue> = located(raw.get()).map_err(|error| error.within("input"))?;
    if items.len() > MAX_ITEMS {
        return Err(WireError::invalid("input", format!("there may be at most {MAX_ITEMS} items")));
    }
    Ok(items)
}

/// The ids of the items that `input` names without having them.
pub fn references(raw: Option<&RawValue>) -> Result<HashSet<String>, WireError> {
    #[derive(Deserialize)]
    struct Named {
        r#type: Option<String>,
        role: Option<String>,
        id: Option<String>,
    }
    let Some(raw) = raw.filter(|raw| raw.get().starts_with('[')) else { return Ok(HashSet::new()) };
    let named = list(raw)?.into_iter().filter_map(|json| serde_json::from_str::<Named>(json.get()).ok());
    let is_reference = |item: &Named| item.r#type.as_ref().map_or(item.role.is_none(), |kind| kind == "item_reference");
    Ok(named.filter(is_reference).filter_map(|item| item.id).collect())
}

/// A call of the server's under the name by which the model knows its tool.
fn renamed(call: ToolCall, place: &dyn Fn(&str) -> String) -> ToolCall {
    let (label, own) = tool_names::split(&call.name);
    ToolCall { name: tool_names::joined(&place(label), own), ..call }
}

fn resolve(id: &str, known: &Known, left: &mut usize) -> Result<Item, WireError> {
    let missing = || WireError::new(ErrorCode::ItemNotFound, format!("Item with id '{}' not found.", clip(id)));
    let json = known.get(id).ok_or_else(missing).map_err(|error| error.at("input"))?;
    *left = left.checked_sub(json.get().len()).ok_or_else(|| {
        let message = format!("the items that it names must not have more than {MAX_NAMED_BYTES} bytes together");
        WireError::invalid("input", message)
    })?;
    read_item(json.get()).map_err(|error| error.within("input"))
}

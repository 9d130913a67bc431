//! `input`: a text or a list of items, and the items of others that it names.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::api::wire::body::{clip, located};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::responses::item::{Item, read_item};
use crate::types::Role;
use crate::types::conversation::Part;

/// Most items of one request.
const MAX_ITEMS: usize = 10_000;

/// Items that requests may name, by their ids, as their responses show them.
pub type Known = HashMap<String, Box<RawValue>>;

/// Reads `input`; `known` are the items that it may name.
pub fn read_input(raw: Option<&RawValue>, known: &Known) -> Result<Vec<Item>, WireError> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(Vec::new()) };
    match raw.get().as_bytes().first() {
        Some(b'"') => {
            let text: String = located(raw.get()).map_err(|error| error.within("input"))?;
            Ok(vec![Item::Message(Role::User, vec![Part::text(text)])])
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = located(raw.get()).map_err(|error| error.within("input"))?;
            if items.len() > MAX_ITEMS {
                return Err(WireError::invalid("input", format!("there may be at most {MAX_ITEMS} items")));
            }
            let read = |(index, json): (usize, &RawValue)| {
                let item = read_item(json.get()).map_err(|error| error.within(&format!("input[{index}]")))?;
                if let Item::Reference(id) = item { resolve(&id, known) } else { Ok(item) }
            };
            items.into_iter().enumerate().map(read).collect()
        }
        _ => Err(WireError::invalid("input", "must be a string or a list of items")),
    }
}

/// The ids of the items that `input` names without having them.
pub fn references(raw: Option<&RawValue>) -> Vec<String> {
    let Some(raw) = raw.filter(|raw| raw.get().starts_with('[')) else { return Vec::new() };
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    let named = items.into_iter().filter_map(|json| read_item(json.get()).ok());
    let ids = named.filter_map(|item| if let Item::Reference(id) = item { Some(id) } else { None });
    ids.collect()
}

fn resolve(id: &str, known: &Known) -> Result<Item, WireError> {
    let missing = || WireError::new(ErrorCode::ItemNotFound, format!("Item with id '{}' not found.", clip(id)));
    let json = known.get(id).ok_or_else(missing).map_err(|error| error.at("input"))?;
    read_item(json.get()).map_err(|error| error.within("input"))
}

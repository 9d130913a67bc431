//! Layers of prompts, as sessions have them and requests bring them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::wire::body::{clip, parse};
use crate::api::wire::error::WireError;
use crate::api::wire::vocabulary::MergeText;
use crate::config::{MOST_PRIORITY, is_plain_name};
use crate::types::prompt::{Lasts, MOST_LAYER, Merge, OF_DOCUMENTS, PRIORITY_LAYER, PromptLayer, TAG_SYSTEM};
use crate::types::session::SessionLayer;

/// Most tags of a layer.
const MOST_TAGS: usize = 8;

/// What a layer is to say. An unknown field is an error.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutLayer {
    /// What the model is told; a layer without text takes an earlier one away, where that may be.
    #[schema(max_length = 16384, example = "Answer in Norwegian.")]
    text: String,
    /// Where it stands, lower numbers first; 50 without it.
    #[schema(minimum = 0, maximum = 1000)]
    priority: Option<u32>,
    /// What it is about; `system` without it. A prompt has the layers with one of its agent's tags.
    #[schema(max_items = 8)]
    tags: Option<Vec<String>>,
    /// What becomes of an earlier layer of the same name; `replace` without it.
    #[schema(value_type = Option<MergeText>)]
    merge: Option<Merge>,
    /// Whether it stays as it is from run to run, and so stands before the conversation; true without it.
    stable: Option<bool>,
}

/// A layer with its name. An unknown field is an error.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedLayer {
    /// Its name.
    #[schema(example = "tone", pattern = "^[A-Za-z0-9._-]{1,64}$")]
    name: String,
    /// What the model is told.
    #[schema(max_length = 16384, example = "Answer in Norwegian.")]
    text: String,
    /// Where it stands, lower numbers first; 50 without it.
    #[schema(minimum = 0, maximum = 1000)]
    priority: Option<u32>,
    /// What it is about; `system` without it.
    #[schema(max_items = 8)]
    tags: Option<Vec<String>>,
    /// What becomes of an earlier layer of the same name; `replace` without it.
    #[schema(value_type = Option<MergeText>)]
    merge: Option<Merge>,
    /// Whether it stays as it is from run to run, and so stands before the conversation; true without it.
    stable: Option<bool>,
}

/// A layer of a session.
#[derive(Debug, Serialize, ToSchema)]
pub struct LayerObject {
    /// Its name.
    pub name: String,
    /// `session.layer`.
    object: &'static str,
    /// Grows with every change of it; what `if-match` names.
    pub version: u64,
    /// When it was changed, Unix milliseconds.
    updated_ms: u64,
    /// What the model is told.
    text: String,
    /// Where it stands, lower numbers first.
    priority: u32,
    /// What it is about.
    tags: Vec<String>,
    /// What becomes of an earlier layer of the same name.
    #[schema(value_type = MergeText)]
    merge: Merge,
    /// Whether it stays as it is from run to run.
    stable: bool,
}

impl From<SessionLayer> for LayerObject {
    fn from(SessionLayer { layer, version, updated_ms }: SessionLayer) -> Self {
        let PromptLayer { name, text, priority, tags, merge, lasts } = layer;
        let stable = lasts == Lasts::Stable;
        Self { name, object: "session.layer", version, updated_ms, text, priority, tags, merge, stable }
    }
}

impl From<&PromptLayer> for NamedLayer {
    fn from(layer: &PromptLayer) -> Self {
        let PromptLayer { name, text, priority, tags, merge, lasts } = layer.clone();
        let (priority, tags, merge) = (Some(priority), Some(tags), Some(merge));
        Self { name, text, priority, tags, merge, stable: Some(lasts == Lasts::Stable) }
    }
}

/// Reads the body of `PUT /v1/sessions/{id}/layers/{name}`.
pub fn read_layer(name: &str, body: &str) -> Result<PromptLayer, WireError> {
    let PutLayer { text, priority, tags, merge, stable } = parse(body)?;
    NamedLayer { name: name.to_owned(), text, priority, tags, merge, stable }.check()
}

impl NamedLayer {
    /// The layer, if it is one.
    pub fn check(self) -> Result<PromptLayer, WireError> {
        let Self { name, text, priority, tags, merge, stable } = self;
        if !is_plain_name(&name) {
            let message = format!("{:?} is no name of a layer: it has 1 to 64 of A-Z a-z 0-9 . _ -", clip(&name));
            return Err(WireError::invalid("name", message));
        }
        if OF_DOCUMENTS.contains(&&*name) {
            let message =
                format!("{name:?} is the name of a section that the server writes of documents; take another");
            return Err(WireError::invalid("name", message));
        }
        if text.len() > MOST_LAYER {
            return Err(WireError::invalid("text", format!("must have at most {MOST_LAYER} bytes")));
        }
        let priority = priority.unwrap_or(PRIORITY_LAYER);
        if priority > MOST_PRIORITY {
            return Err(WireError::invalid("priority", format!("must be at most {MOST_PRIORITY}")));
        }
        let tags = tags.unwrap_or_else(|| vec![TAG_SYSTEM.to_owned()]);
        if tags.len() > MOST_TAGS || !tags.iter().all(|tag| is_plain_name(tag)) {
            return Err(WireError::invalid(
                "tags",
                format!("must be up to {MOST_TAGS}, each 1 to 64 of A-Z a-z 0-9 . _ -"),
            ));
        }
        let lasts = if stable.unwrap_or(true) { Lasts::Stable } else { Lasts::Run };
        Ok(PromptLayer { name, text, priority, tags, merge: merge.unwrap_or_default(), lasts })
    }
}

/// Reads layers that stand in a list.
pub fn checked(layers: Vec<NamedLayer>, most: usize) -> Result<Vec<PromptLayer>, WireError> {
    if layers.len() > most {
        return Err(WireError::invalid("layers", format!("may have at most {most} entries")));
    }
    let mut checked: Vec<PromptLayer> = Vec::with_capacity(layers.len());
    for (place, layer) in layers.into_iter().enumerate() {
        let layer = layer.check().map_err(|error| error.within(&format!("layers[{place}]")))?;
        if checked.iter().any(|known| known.name == layer.name) {
            let message = format!("the layer {:?} is there twice", layer.name);
            return Err(WireError::invalid(format!("layers[{place}].name"), message));
        }
        checked.push(layer);
    }
    Ok(checked)
}

//! What a request says of its prompt.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::agent::AskedPrompt;
use crate::api::wire::error::WireError;
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::layer::{NamedLayer, checked};
use crate::api::wire::vocabulary::{ChannelText, PromptModeText};
use crate::types::prompt::{Channel, PromptMode};

/// Most layers of a request.
const MOST_LAYERS: usize = 16;

/// What a run's prompt has beside its agent's. The run keeps it.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptOptions {
    /// Which sections the server writes: `minimal` where the agent has it write all of them, or what the agent has.
    #[schema(value_type = Option<PromptModeText>)]
    pub mode: Option<PromptMode>,
    /// How answers are written, so that they can be shown where they go: `plain`, `markdown` or `html`.
    #[schema(value_type = Option<ChannelText>)]
    pub channel: Option<Channel>,
    /// IANA name of the time zone of what the model is told of the time.
    #[schema(example = "Europe/Oslo")]
    pub time_zone: Option<String>,
    /// What the task at hand is about, if the agent takes that.
    pub extra_context: Option<String>,
    /// Layers on top of all others.
    #[serde(default)]
    #[schema(max_items = 16)]
    pub layers: Vec<NamedLayer>,
}

/// Checks what can be checked without the agent; `None` if nothing is asked for.
pub fn read(options: Option<JsonObject<PromptOptions>>) -> Result<Option<Box<AskedPrompt>>, WireError> {
    let Some(JsonObject(PromptOptions { mode, channel, time_zone, extra_context, layers })) = options else {
        return Ok(None);
    };
    let layers = checked(layers, MOST_LAYERS).map_err(|error| error.within("agent.prompt"))?;
    let asked = AskedPrompt { mode, channel, time_zone, extra_context, layers };
    Ok((asked != AskedPrompt::default()).then(|| Box::new(asked)))
}

//! What the definitions of the built-in tools share.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::tools::{Source, ToolError, ToolSpec};
use crate::types::Effect;

/// The specification of a tool that changes nothing.
pub(in crate::tools) fn spec(name: &str, description: &str, parameters: &'static str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: description.into(),
        parameters: serde_json::from_str(parameters).expect("the schema is written here and tested"),
        effect: Effect::Read,
        timeout: None,
        source: Source::Builtin,
    }
}

/// What a tool was called with.
pub(in crate::tools) fn decode<'a, T: Deserialize<'a>>(arguments: &'a RawValue) -> Result<T, ToolError> {
    serde_json::from_str(arguments.get())
        .map_err(|error| ToolError::Failed(format!("The arguments cannot be read: {error}.")))
}

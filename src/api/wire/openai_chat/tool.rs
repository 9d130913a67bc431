//! The client's tools in a request, and which of all tools must be called.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::wire::body::{clip, malformed, missing};
use crate::api::wire::error::WireError;
use crate::llm::openai::tools;
use crate::types::offer::{ToolChoice, ToolDefinition};

/// Most tools of one request.
const MAX_TOOLS: usize = 128;

/// Which tools the model may choose, and the client's own that it is offered.
pub fn read_offer(
    choice: Option<&RawValue>,
    tools: Option<&[&RawValue]>,
) -> Result<(ToolChoice, Vec<Arc<ToolDefinition>>), WireError> {
    let tools = read_tools(tools.unwrap_or_default())?;
    let choice = read_tool_choice(choice)?;
    let tools = if choice == ToolChoice::None { Vec::new() } else { tools };
    Ok((choice, tools))
}

/// Reads `tools`: function tools that the client executes.
pub fn read_tools(raw: &[&RawValue]) -> Result<Vec<Arc<ToolDefinition>>, WireError> {
    #[derive(Deserialize)]
    struct View {
        r#type: String,
        function: Option<Function>,
    }
    #[derive(Deserialize)]
    struct Function {
        name: String,
    }
    if raw.len() > MAX_TOOLS {
        return Err(WireError::invalid("tools", format!("there may be at most {MAX_TOOLS} tools")));
    }
    let mut offered: Vec<Arc<ToolDefinition>> = Vec::with_capacity(raw.len());
    for (index, json) in raw.iter().enumerate() {
        let path = format!("tools[{index}]");
        let view: View = serde_json::from_str(json.get()).map_err(|error| malformed(&error).within(&path))?;
        if view.r#type != "function" {
            let message = format!("the tool type {:?} is not supported; use \"function\"", clip(&view.r#type));
            return Err(WireError::invalid(format!("{path}.type"), message));
        }
        let Some(Function { name }) = view.function else { return Err(missing("function").within(&path)) };
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=64).contains(&name.len()) || !name.bytes().all(allowed) {
            let message = "a tool's name has 1 to 64 characters of A-Z a-z 0-9 _ -";
            return Err(WireError::invalid(format!("{path}.function.name"), message));
        }
        if offered.iter().any(|tool| tool.name == name) {
            let message = format!("there are two tools named {name:?}");
            return Err(WireError::invalid(format!("{path}.function.name"), message));
        }
        let tool = tools::decode(json).ok_or_else(|| WireError::invalid(path, "must be a function tool"))?;
        offered.push(Arc::new(tool));
    }
    Ok(offered)
}

/// Reads `tool_choice`.
pub fn read_tool_choice(raw: Option<&RawValue>) -> Result<ToolChoice, WireError> {
    #[derive(Deserialize)]
    struct View {
        function: Function,
    }
    #[derive(Deserialize)]
    struct Function {
        name: String,
    }
    match raw.map(RawValue::get) {
        None | Some("null" | "\"auto\"") => Ok(ToolChoice::Auto),
        Some("\"none\"") => Ok(ToolChoice::None),
        Some("\"required\"") => Ok(ToolChoice::Required),
        Some(json) => match serde_json::from_str::<View>(json) {
            Ok(view) => Ok(ToolChoice::Function(view.function.name)),
            Err(_) => Err(WireError::invalid("tool_choice", "must be none, auto, required or a function")),
        },
    }
}

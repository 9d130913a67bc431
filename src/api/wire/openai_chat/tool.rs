//! The client's tools in a request, and which of all tools must be called.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::wire::body::{clip, malformed, missing};
use crate::api::wire::error::WireError;
use crate::types::run::{ClientTool, RawValueEq, ToolChoice};

/// Most tools of one request.
const MAX_TOOLS: usize = 128;

/// Reads `tools`: function tools that the client executes.
pub fn read_tools(raw: &[&RawValue]) -> Result<Vec<ClientTool>, WireError> {
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
    let mut tools: Vec<ClientTool> = Vec::with_capacity(raw.len());
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
            let message = "a tool's name is 1 to 64 of A-Z a-z 0-9 _ -";
            return Err(WireError::invalid(format!("{path}.function.name"), message));
        }
        if tools.iter().any(|tool| tool.name == name) {
            let message = format!("there are two tools named {name:?}");
            return Err(WireError::invalid(format!("{path}.function.name"), message));
        }
        tools.push(ClientTool { name, definition: RawValueEq((*json).to_owned()) });
    }
    Ok(tools)
}

/// What `tool_choice` says.
#[derive(Debug, PartialEq)]
pub enum Choice {
    /// The model decides.
    Auto,
    /// No tools are offered.
    NoTools,
    /// The first call must use one.
    Forced(ToolChoice),
}

/// Reads `tool_choice`.
pub fn read_tool_choice(raw: Option<&RawValue>) -> Result<Choice, WireError> {
    #[derive(Deserialize)]
    struct View {
        function: Function,
    }
    #[derive(Deserialize)]
    struct Function {
        name: String,
    }
    match raw.map(RawValue::get) {
        None | Some("null" | "\"auto\"") => Ok(Choice::Auto),
        Some("\"none\"") => Ok(Choice::NoTools),
        Some("\"required\"") => Ok(Choice::Forced(ToolChoice::Required)),
        Some(json) => match serde_json::from_str::<View>(json) {
            Ok(view) => Ok(Choice::Forced(ToolChoice::Function(view.function.name))),
            Err(_) => Err(WireError::invalid("tool_choice", "must be none, auto, required or a function")),
        },
    }
}

//! The client's tools in a request, and which of all tools must be called.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::agent::AskedServers;
use crate::api::wire::body::{clip, malformed, missing};
use crate::api::wire::error::WireError;
use crate::api::wire::openai_chat::mcp_tool::read_server;
use crate::llm::openai::tools;
use crate::types::named_server::AskedServer;
use crate::types::offer::{ToolChoice, ToolDefinition};

/// Most tools of one request.
const MAX_TOOLS: usize = 128;

/// What a request offers its model.
#[derive(Debug)]
pub struct AskedTools {
    /// Which tools the model may choose.
    pub tool_choice: ToolChoice,
    /// The client's own.
    pub client_tools: Vec<Arc<ToolDefinition>>,
    /// The servers of tools that are named.
    pub servers: Option<Arc<AskedServers>>,
}

/// Which tools the model may choose, the client's own that it is offered, and the servers of others.
pub fn read_offer(choice: Option<&RawValue>, tools: Option<&[&RawValue]>) -> Result<AskedTools, WireError> {
    let (client_tools, servers) = read_tools(tools.unwrap_or_default())?;
    let tool_choice = read_tool_choice(choice)?;
    if tool_choice == ToolChoice::None {
        return Ok(AskedTools { tool_choice, client_tools: Vec::new(), servers: None });
    }
    let servers = (!servers.is_empty()).then(|| Arc::new(AskedServers::new(servers)));
    Ok(AskedTools { tool_choice, client_tools, servers })
}

/// Reads `tools`: function tools that the client executes, and servers of tools that this server asks.
pub fn read_tools(raw: &[&RawValue]) -> Result<(Vec<Arc<ToolDefinition>>, Vec<AskedServer>), WireError> {
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
    let mut servers = Vec::new();
    for (index, json) in raw.iter().enumerate() {
        let path = format!("tools[{index}]");
        let view: View = serde_json::from_str(json.get()).map_err(|error| malformed(&error).within(&path))?;
        if view.r#type == "mcp" {
            servers.push(read_server(json, index, &servers)?);
            continue;
        }
        if view.r#type != "function" {
            let message =
                format!("the tool type {:?} is not supported; use \"function\" or \"mcp\"", clip(&view.r#type));
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
    Ok((offered, servers))
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

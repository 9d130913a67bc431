//! Takes up the tools that a server lists.

use std::sync::{Arc, Weak};

use crate::tools::mcp::definition::Definition;
use crate::tools::mcp::shared::Shared;
use crate::tools::mcp::tool::McpTool;
use crate::tools::registry::RegisteredTool;

/// Takes up what a server says of its tools.
pub(super) fn take_up(server: &Arc<Shared>, definitions: Vec<Definition>) {
    let is_new = {
        let state = server.state.borrow();
        state.tools.is_none() || *state.definitions != *definitions
    };
    if !is_new {
        return;
    }
    let registered: Vec<Arc<RegisteredTool>> =
        definitions.iter().filter_map(|definition| register(definition, server)).collect();
    tracing::info!(server = server.config.name, tools = registered.len(), "an MCP server listed its tools");
    server.state.send_modify(|state| {
        state.definitions = definitions.into();
        state.tools = Some(registered.into());
    });
    server.changes.send_modify(|count| *count += 1);
}

fn register(definition: &Definition, server: &Arc<Shared>) -> Option<Arc<RegisteredTool>> {
    let tool: Weak<Shared> = Arc::downgrade(server);
    let tool = McpTool::new(definition, &server.config, tool);
    match RegisteredTool::new(Arc::new(tool)) {
        Ok(tool) => Some(Arc::new(tool)),
        Err(error) => {
            tracing::warn!(server = server.config.name, %error, "a tool of an MCP server cannot be offered");
            None
        }
    }
}

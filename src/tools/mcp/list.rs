//! Takes up the tools that a server lists.

use std::sync::{Arc, Weak};

use crate::tools::mcp::definition::{self, Definition, Offered};
use crate::tools::mcp::pages::Pages;
use crate::tools::mcp::shared::Shared;
use crate::tools::mcp::tool::McpTool;
use crate::tools::registry::RegisteredTool;

/// Most tools of a list of which the log says why they cannot be offered.
const MOST_TOLD: usize = 20;

/// Takes up what a server says of its tools.
pub(super) fn take_up(server: &Arc<Shared>, listed: &Pages) {
    let Offered { definitions, mut left_out } = definition::read(&server.config, &listed.tools);
    left_out.extend(listed.cut.clone().map(|why| (String::new(), why)));
    let is_new = {
        let state = server.state.borrow();
        state.tools.is_none() || *state.definitions != *definitions || *state.left_out != *left_out
    };
    if !is_new {
        return;
    }
    tell(server, &left_out);
    let registered: Vec<Arc<RegisteredTool>> =
        definitions.iter().filter_map(|definition| register(definition, server)).collect();
    tracing::info!(server = server.config.name, tools = registered.len(), "an MCP server listed its tools");
    server.state.send_modify(|state| {
        state.definitions = definitions.into();
        state.left_out = left_out.into();
        state.tools = Some(registered.into());
    });
    server.changes.send_modify(|count| *count += 1);
}

/// Tells the log what is not taken of a list.
fn tell(server: &Shared, left_out: &[(String, String)]) {
    let server = &server.config.name;
    for (tool, why) in left_out.iter().take(MOST_TOLD) {
        tracing::warn!(server, tool, why, "a tool of an MCP server cannot be offered");
    }
    if let Some(more) = left_out.len().checked_sub(MOST_TOLD + 1) {
        tracing::warn!(server, more = more + 1, "more tools of an MCP server cannot be offered");
    }
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

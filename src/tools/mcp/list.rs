//! Takes up the tools that a server lists.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::tools::mcp::definition::{self, Definition, Known, Offered};
use crate::tools::mcp::fault::Fault;
use crate::tools::mcp::pages::Pages;
use crate::tools::mcp::shared::Shared;
use crate::tools::mcp::tool::McpTool;
use crate::tools::registry::RegisteredTool;
use crate::tools::schema::Schema;
use crate::types::offer::OfferHash;

/// Most tools of a list of which the log says why they cannot be offered.
const MOST_TOLD: usize = 20;

/// Reads what a server says of its tools, beside the tasks of the runtime: it may be much to compile.
pub(super) async fn read(server: &Arc<Shared>, listed: Pages) -> Result<Offered, Fault> {
    let known: Known = {
        let state = server.state.borrow();
        let hashes: HashMap<&str, &OfferHash> =
            state.definitions.iter().map(|definition| (definition.name.as_str(), &definition.hash)).collect();
        let tools = state.tools.iter().flat_map(|tools| tools.iter());
        tools
            .filter_map(|tool| Some(((*hashes.get(tool.spec().name.as_str())?).clone(), tool.schema().clone())))
            .collect()
    };
    let server = server.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let mut offered = definition::read(&server.config, &listed.tools, &known);
        offered.left_out.extend(listed.cut.map(|why| (String::new(), why)));
        offered
    });
    reading.await.map_err(|_| Fault::Failed("its list of tools cannot be worked with".to_owned()))
}

/// Takes up what a server says of its tools.
pub(super) fn take_up(server: &Arc<Shared>, offered: Offered) {
    let Offered { tools, left_out } = offered;
    let is_new = {
        let state = server.state.borrow();
        let is_same = tools.iter().map(|(definition, _)| definition).eq(state.definitions.iter());
        state.tools.is_none() || !is_same || *state.left_out != *left_out
    };
    if !is_new {
        return;
    }
    tell(server, &left_out);
    let registered: Vec<Arc<RegisteredTool>> =
        tools.iter().filter_map(|(definition, schema)| register(definition, schema, server)).collect();
    tracing::info!(server = server.config.name, tools = registered.len(), "an MCP server listed its tools");
    server.state.send_modify(|state| {
        state.definitions = tools.into_iter().map(|(definition, _)| definition).collect();
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

fn register(definition: &Definition, schema: &Arc<Schema>, server: &Arc<Shared>) -> Option<Arc<RegisteredTool>> {
    let tool: Weak<Shared> = Arc::downgrade(server);
    let tool = McpTool::new(definition, &server.config, tool);
    match RegisteredTool::compiled(Arc::new(tool), schema.clone()) {
        Ok(tool) => Some(Arc::new(tool)),
        Err(error) => {
            tracing::warn!(server = server.config.name, %error, "a tool of an MCP server cannot be offered");
            None
        }
    }
}

//! The servers of one run, and their tools. A tool opens its server when it is called, unless the server is open.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::value::RawValue;

use super::NamedServers;
use crate::tools::definitions::own_name;
use crate::tools::schema::Schema;
use crate::tools::{CallContext, RegisteredTool, Source, Tool, ToolAnswer, ToolError, ToolSource, ToolSpec};
use crate::types::named_server::NamedServer;
use crate::types::offer::ToolDefinition;
use crate::types::{Effect, RunId};

/// The servers that the request of a run named. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RunServers(Arc<OfRun>);

#[derive(Debug)]
struct OfRun {
    run: RunId,
    owner: Arc<str>,
    named: Arc<[NamedServer]>,
    /// What opens them; `None` where the configuration allows none any more.
    servers: Option<NamedServers>,
}

impl RunServers {
    /// These servers of a run, whose places are `owner`'s.
    #[must_use]
    pub fn new(run: RunId, owner: Arc<str>, named: Arc<[NamedServer]>, servers: Option<NamedServers>) -> Self {
        Self(Arc::new(OfRun { run, owner, named, servers }))
    }

    /// Whether a tool of this name is one of theirs.
    #[must_use]
    pub fn have(&self, tool: &str) -> bool {
        self.0.server_of(tool).is_some()
    }

    /// The tool that the run was offered so, if it is one of theirs.
    #[must_use]
    pub fn tool(&self, offered: &ToolDefinition, effect: Effect, schema: Arc<Schema>) -> Option<Arc<RegisteredTool>> {
        self.0.server_of(&offered.name)?;
        let spec = ToolSpec {
            name: offered.name.clone(),
            description: offered.description.clone().unwrap_or_default(),
            parameters: offered.parameters.as_ref()?.0.clone(),
            effect,
            timeout: None,
            source: Source::Mcp,
        };
        let tool = NamedTool { spec, offered: offered.clone(), of: self.0.clone() };
        RegisteredTool::compiled(Arc::new(tool), schema).ok().map(Arc::new)
    }

    /// Ends them.
    pub fn end(&self) {
        if let Some(servers) = &self.0.servers {
            servers.end(&self.0.run);
        }
    }
}

impl OfRun {
    fn server_of(&self, tool: &str) -> Option<&NamedServer> {
        self.named.iter().find(|server| own_name(&server.label, tool).is_some())
    }
}

/// A tool of such a server.
struct NamedTool {
    spec: ToolSpec,
    offered: ToolDefinition,
    of: Arc<OfRun>,
}

#[async_trait]
impl Tool for NamedTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        let of = &*self.of;
        let unusable = |label: &str, why: &str| {
            ToolError::Failed(format!("The MCP server `{label}` cannot be used: {why}. Nothing was sent."))
        };
        let Some(named) = of.server_of(&self.spec.name) else { return Err(unusable("", "it is not the run's")) };
        let Some(servers) = &of.servers else {
            return Err(unusable(&named.label, "servers that requests name are not reached any more"));
        };
        // It is held until the call has ended, so that it is not taken for one that is unused.
        let server = servers
            .open(&of.run, &of.owner, named)
            .map_err(|not_opened| unusable(&named.label, &not_opened.to_string()))?;
        let tool = server.pending(&self.offered, self.spec.effect);
        let tool = tool.ok_or_else(|| unusable(&named.label, "its tool takes no arguments that could be checked"))?;
        let answer = tool.call(arguments, context).await;
        drop(server);
        answer
    }
}

impl fmt::Debug for NamedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedTool").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

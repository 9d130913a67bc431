//! One tool of a server.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::config::{Hints, McpServerConfig};
use crate::tools::mcp::connection::ToolRequest;
use crate::tools::mcp::definition::Definition;
use crate::tools::mcp::elicitation::CallQuestions;
use crate::tools::mcp::shared::Shared;
use crate::tools::registry;
use crate::tools::{CallContext, Source, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::offer::ToolDefinition;
use crate::types::{Effect, TraceContext};

/// What the effect key, the run and the fence are called that a server is told with each call.
const KEY: &str = "loopgate/idempotency-key";
const RUN: &str = "loopgate/run-id";
const FENCE: &str = "loopgate/fence";

/// A tool of a server. It keeps the server as long as a registry or a call has it.
pub(super) struct McpTool {
    spec: ToolSpec,
    server: Weak<Shared>,
    /// What the server says of its effect.
    hints: Hints,
    /// How long the questions of a call to the user may wait together.
    elicitation: Option<Duration>,
    /// The hash of its definition: the server may have another one by now.
    offered: String,
}

impl McpTool {
    /// A tool that was offered so, of a server that has not listed its tools.
    pub(super) fn pending(
        offered: &ToolDefinition,
        effect: Effect,
        config: &McpServerConfig,
        server: Weak<Shared>,
    ) -> Option<Self> {
        let spec = ToolSpec {
            name: offered.name.clone(),
            description: offered.description.clone().unwrap_or_default(),
            parameters: offered.parameters.as_ref()?.0.clone(),
            effect,
            timeout: config.timeout,
            source: Source::Mcp,
        };
        let (hints, elicitation) = (Hints::default(), config.elicitation);
        Some(Self { spec, server, hints, elicitation, offered: offered.hash() })
    }

    pub(super) fn new(definition: &Definition, config: &McpServerConfig, server: Weak<Shared>) -> Self {
        let spec = ToolSpec {
            name: definition.name.clone(),
            description: definition.description.clone(),
            parameters: definition.parameters.0.clone(),
            effect: definition.effect,
            timeout: config.timeout,
            source: Source::Mcp,
        };
        let offered = registry::definition(&spec).hash();
        Self { spec, server, hints: definition.hints, elicitation: config.elicitation, offered }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> Hints {
        self.hints
    }

    fn asks_within(&self) -> Option<Duration> {
        self.elicitation
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        let Some(server) = self.server.upgrade() else {
            return Err(ToolError::Failed(format!("The server of `{}` is no longer configured.", self.spec.name)));
        };
        let arguments: Map<String, Value> = serde_json::from_str(arguments.get())
            .map_err(|error| ToolError::Failed(format!("The arguments cannot be read: {error}. Nothing was sent.")))?;
        let request = ToolRequest {
            tool: String::new(),
            arguments,
            meta: meta(context),
            progress: context.progress.clone(),
            questions: CallQuestions::of(&server.config.name, context),
        };
        server.call(&self.spec, &self.offered, request, context).await
    }
}

/// What a server is told of a call beside its arguments.
fn meta(context: &CallContext) -> Map<String, Value> {
    let mut meta = Map::new();
    meta.insert(KEY.to_owned(), context.call.as_str().into());
    meta.insert(RUN.to_owned(), context.run.as_str().into());
    meta.insert(FENCE.to_owned(), context.fence.into());
    if let Some(trace) = &context.trace {
        meta.insert("traceparent".to_owned(), TraceContext::parent(trace).as_str().into());
        if let Some(state) = trace.state.as_deref() {
            meta.insert("tracestate".to_owned(), state.into());
        }
    }
    meta
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTool").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

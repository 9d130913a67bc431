//! Tools that need the run or the store.
//!
//! The driver answers their calls as steps of the run. All other tools know nothing of runs.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::agent::machine::Run;
use crate::store::Store;
use crate::types::offer::ToolDefinition;
use crate::types::{Effect, ToolCall, ToolOutcome};

/// What such a tool may look at.
#[derive(Debug, Clone, Copy)]
pub struct OwnContext<'a> {
    /// The run that calls, as it stands.
    pub run: &'a Run,
    /// The store.
    pub store: &'a dyn Store,
}

/// A tool that needs the run or the store.
#[async_trait]
pub trait OwnTool: fmt::Debug + Send + Sync {
    /// What offers it to a model.
    fn definition(&self) -> &Arc<ToolDefinition>;

    /// What repeating a call would do.
    fn effect(&self) -> Effect;

    /// Answers a call. Dropping the future stops it.
    async fn answer(&self, call: &ToolCall, context: OwnContext<'_>) -> ToolOutcome;
}

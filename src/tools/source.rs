//! Where tools come from that appear and change while the server runs.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::config::PinPolicy;
use crate::tools::{RegisteredTool, Tool};
use crate::types::offer::ToolDefinition;
use crate::types::{Effect, RunId};

/// Something that offers tools, of which there may be others a moment later: a server of tools.
///
/// A source asks its server in a task of its own and keeps what it heard, so its methods do not wait. While the server is gone
/// its tools stay, and calls of them fail: agents are told that a service does not answer, and not that it never was.
pub trait ToolSource: Send + Sync + fmt::Debug + 'static {
    /// Its name, which no other source has. The names of all of its tools begin with it and `__`.
    fn name(&self) -> &str;

    /// The tools that it has now; `None` until it has heard of them.
    fn tools(&self) -> Option<Arc<[Arc<RegisteredTool>]>>;

    /// Tells of every change of [`Self::tools`].
    fn changes(&self) -> watch::Receiver<u64>;

    /// The tool that was offered so, for a call before the source has heard of its tools: the call waits for them within its
    /// time, and fails if the tool is defined otherwise.
    fn pending(&self, _offered: &ToolDefinition, _effect: Effect) -> Option<Arc<dyn Tool>> {
        None
    }

    /// Lets go of what is kept for a run that has ended.
    fn run_ended(&self, _run: &RunId) {}

    /// What becomes of definitions that are new or changed.
    fn pins(&self) -> &PinPolicy;
}

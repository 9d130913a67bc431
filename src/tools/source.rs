//! Where tools come from that appear and change while the server runs.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::config::PinPolicy;
use crate::tools::RegisteredTool;

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

    /// What becomes of definitions that are new or changed.
    fn pins(&self) -> &PinPolicy;
}

//! What is known of a server at a moment.

use std::sync::Arc;

use crate::tools::mcp::connection::Connection;
use crate::tools::mcp::definition::Definition;
use crate::tools::registry::RegisteredTool;

/// What is known of a server.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The connection that calls go through.
    pub(super) connection: Option<Arc<Connection>>,
    /// Its tools as it listed them last; `None` if it never has.
    pub(super) tools: Option<Arc<[Arc<RegisteredTool>]>>,
    /// What it said of them.
    pub(super) definitions: Arc<[Definition]>,
    /// What it listed that cannot be offered, by the server's own names, each with the reason; what was cut off has no name.
    pub(super) left_out: Arc<[(String, String)]>,
    /// Why it is left alone for a while.
    pub(super) trouble: Option<Trouble>,
}

/// Why a server is left alone.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    /// As the end of a sentence about the server.
    pub(super) why: String,
    /// Whether it crashed so often that it is left alone for long.
    pub(super) is_disabled: bool,
}

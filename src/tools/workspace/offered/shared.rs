//! What the tools on workspaces share: what is looked up and what is told in each of them.

use crate::config::WorkspaceConfig;
use crate::tools::workspace::{FilePath, Used, Workspace, Workspaces};
use crate::tools::{CallContext, ToolError};

/// The workspace of a call.
pub(super) fn workspace(workspaces: &Workspaces, context: &CallContext) -> Result<Workspace, ToolError> {
    let none = || ToolError::Failed("There are files for users only, and this conversation names no user.".to_owned());
    workspaces.of(context).ok_or_else(none)
}

/// The file that a model names.
pub(super) fn file(path: &str) -> Result<FilePath, ToolError> {
    FilePath::parse(path).map_err(ToolError::Failed)
}

/// What a workspace holds, for a model.
pub(super) fn told(used: Used, bounds: &WorkspaceConfig) -> String {
    format!("The workspace has {} files of {} bytes, and may have {}.", used.files, used.bytes, bounds.quota)
}

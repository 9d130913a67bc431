//! The tools that work on workspaces.
//!
//! Reading has no effect. Writing and deleting are idempotent: after a crash a call is made again, with what the first one had.

mod delete_file;
mod list_files;
mod read_file;
mod write_file;

use std::sync::Arc;

use super::{FilePath, Used, Workspace, Workspaces};
use crate::config::WorkspaceConfig;
use crate::tools::{CallContext, Tool, ToolError};

/// One of each.
#[must_use]
pub fn all(workspaces: &Arc<Workspaces>) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(delete_file::DeleteFile::new(workspaces.clone())),
        Arc::new(list_files::ListFiles::new(workspaces.clone())),
        Arc::new(read_file::ReadFile::new(workspaces.clone())),
        Arc::new(write_file::WriteFile::new(workspaces.clone())),
    ]
}

/// The workspace of a call.
fn workspace(workspaces: &Workspaces, context: &CallContext) -> Result<Workspace, ToolError> {
    let none = || ToolError::Failed("There are files for users only, and this conversation names no user.".to_owned());
    workspaces.of(context).ok_or_else(none)
}

/// The file that a model names.
fn file(path: &str) -> Result<FilePath, ToolError> {
    FilePath::parse(path).map_err(ToolError::Failed)
}

/// What a workspace holds, for a model.
fn told(used: Used, bounds: &WorkspaceConfig) -> String {
    format!("The workspace has {} files of {} bytes, and may have {}.", used.files, used.bytes, bounds.quota)
}

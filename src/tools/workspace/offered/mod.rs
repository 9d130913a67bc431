//! The tools that work on workspaces.
//!
//! Reading has no effect. Writing and deleting are idempotent: after a crash a call is made again, with what the first one had.

mod delete_file;
mod list_files;
mod read_file;
mod shared;
mod write_file;

use std::sync::Arc;

use super::Workspaces;
use crate::tools::Tool;

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

//! The files of a call that is made by hand: in a directory that the caller names, or in one that is empty and gone after the call. So a
//! call that is tried out reaches no files of sessions or users.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::super::process::Failure;
use crate::config::{Settings, WorkspaceConfig};

/// A directory that is removed when this is dropped.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Has the tools of these settings keep files there, if they keep any or `directory` is named.
    pub(super) fn replace_workspace(
        settings: &mut Settings,
        directory: Option<&Path>,
    ) -> Result<Option<Self>, Failure> {
        if let Some(directory) = directory {
            let config = settings.workspace.take().unwrap_or_else(|| WorkspaceConfig::of(PathBuf::new()));
            settings.workspace = Some(WorkspaceConfig { directory: directory.to_owned(), ..config });
            return Ok(None);
        }
        let Some(config) = &mut settings.workspace else { return Ok(None) };
        let path = std::env::temp_dir().join(format!("loopgate-call-{}", Uuid::now_v7().simple()));
        std::fs::create_dir(&path)
            .map_err(|error| Failure::new(format_args!("{} cannot be made: {error}", path.display())))?;
        config.directory.clone_from(&path);
        Ok(Some(Self(path)))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is a directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

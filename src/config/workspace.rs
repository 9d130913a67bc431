//! `[workspace]`: the files that tools keep for sessions or users.

use std::path::PathBuf;

use super::quantity::Size;
use super::reader::Section;
use super::value::Word;

/// The tools that are there where files are kept.
pub const WORKSPACE_TOOLS: [&str; 4] = ["delete_file", "list_files", "read_file", "write_file"];

/// Where files are kept, for whom, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceConfig {
    /// The directory that has all workspaces.
    pub directory: PathBuf,
    /// What has a workspace of its own.
    pub scope: WorkspaceScope,
    /// Most bytes of a workspace.
    pub quota: u64,
    /// Most files of a workspace.
    pub max_files: u32,
    /// Most bytes of a file.
    pub max_file: u64,
}

/// What has a workspace of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceScope {
    /// Each session, and each run without one.
    Session,
    /// Each user of a tenant.
    User,
}

impl Word for WorkspaceScope {
    const WORDS: &'static [(&'static str, Self)] = &[("session", Self::Session), ("user", Self::User)];
}

impl WorkspaceConfig {
    /// What holds where only the directory is known.
    #[must_use]
    pub fn of(directory: PathBuf) -> Self {
        Self { directory, scope: WorkspaceScope::Session, quota: 16 << 20, max_files: 1_000, max_file: 4 << 20 }
    }

    pub(super) fn read(section: &mut Section<'_>) -> Option<Self> {
        let usual = Self::of(PathBuf::new());
        let directory: Option<String> = section.required(
            "directory",
            "Directory that has all workspaces; it must be there. Replicas share one, on a volume that all of them mount, and no servers \
             with another store may use it.",
        );
        let scope = section.key(
            "scope",
            "What has a workspace of its own: each `\"session\"`, and each run without one until it ends, or each `\"user\"` of a \
             tenant, as requests name them.",
            usual.scope,
        );
        let Size(quota) =
            section.key("quota", "Most bytes that the files of a workspace have together.", Size(usual.quota));
        let max_files = section.key("max_files", "Most files of a workspace.", usual.max_files);
        let Size(max_file) = section.key(
            "max_file",
            "Most bytes of a file that is written, and of one that is read as a whole.",
            Size(usual.max_file),
        );
        let directory = directory?;
        if directory.is_empty() {
            section.refuse("directory", "must name a directory");
            return None;
        }
        Some(Self { directory: directory.into(), scope, quota, max_files, max_file })
    }
}

//! Where files are kept.

use std::path::Path;

use insta::assert_snapshot;

use super::{load, mistakes};
use crate::config::{WorkspaceConfig, WorkspaceScope};

#[test]
fn files_are_kept_only_where_the_file_says() {
    assert_eq!(load("").workspace, None);
    let usual = load("[workspace]\ndirectory = 'files'\n[agents.default]\ntools = ['read_file', '*_file']\n");
    assert_eq!(usual.workspace, Some(WorkspaceConfig::of(Path::new("files").to_owned())));
    let text = "[workspace]\ndirectory = 'files'\nscope = 'user'\nquota = '1GiB'\nmax_files = 7\nmax_file = 9\n";
    let whole = load(text).workspace.unwrap();
    assert_eq!((whole.scope, whole.quota, whole.max_files, whole.max_file), (WorkspaceScope::User, 1 << 30, 7, 9));
}

#[test]
fn mistakes_are_told() {
    assert_snapshot!(mistakes("[workspace]\nscope = 'tenant'\nquota = 0\n"), @r#"
    loopgate.toml:1: workspace: `directory` is missing: directory that has all workspaces; it must be there. Replicas share one, on a volume that all of them mount, and no servers with another store may use it
    loopgate.toml:2: workspace.scope: must be "session" or "user"
    loopgate.toml:3: workspace.quota: must be an integer from 1 to 9223372036854775807
    "#);
    assert_snapshot!(mistakes("[workspace]\ndirectory = ''\n"), @"loopgate.toml:2: workspace.directory: must name a directory");
    assert_snapshot!(mistakes("[agents.default]\ntools = ['write_file']\n"), @"loopgate.toml:2: agents.default.tools: declare [workspace] to have the tool `write_file`");
}

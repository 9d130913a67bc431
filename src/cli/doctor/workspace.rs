//! The directory of workspaces: that it is there, and that files can be written, renamed and locked in it.

use super::finding::Finding;
use crate::config::Settings;
use crate::tools::workspace::probe;

/// Where the findings are.
const AREA: &str = "workspace";

/// Tries the directory, if there is to be one.
pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    let Some(config) = &settings.workspace else { return Vec::new() };
    let directory = config.directory.clone();
    let shown = directory.display().to_string();
    let tried = tokio::task::spawn_blocking(move || probe(&directory)).await;
    let finding = match tried.unwrap_or_else(|_| Err("it was not looked at".to_owned())) {
        Ok(()) => Finding::ok(AREA, format!("files can be kept in {shown}")),
        Err(why) => Finding::fail(AREA, why)
            .advice("Make the directory or mount its volume, and give this user the right to write and lock there."),
    };
    vec![finding]
}

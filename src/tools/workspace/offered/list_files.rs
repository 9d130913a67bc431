//! `list_files`: which files there are.

use std::fmt::Write;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::shared::{told, workspace};
use crate::tools::builtin::define;
use crate::tools::workspace::Workspaces;
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};

/// Most bytes of names in an answer.
const MAX_LISTED: usize = 24 << 10;

/// The tool.
#[derive(Debug)]
pub(super) struct ListFiles {
    spec: ToolSpec,
    workspaces: Arc<Workspaces>,
}

impl ListFiles {
    pub(super) fn new(workspaces: Arc<Workspaces>) -> Self {
        let description = "Lists the files of the workspace with their sizes: all of them, or those below a directory.";
        let parameters = r#"{"type":"object","properties":{"directory":{"type":"string","description":"A relative path; all of the workspace without it"}},"additionalProperties":false}"#;
        Self { spec: define::spec("list_files", description, parameters), workspaces }
    }
}

#[async_trait]
impl Tool for ListFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        #[derive(Deserialize)]
        struct Arguments {
            #[serde(default)]
            directory: String,
        }
        let Arguments { directory } = define::decode(arguments)?;
        let workspace = workspace(&self.workspaces, context)?;
        let (files, used) = workspace.list(&directory).await?;
        let (mut text, mut listed) = (String::new(), 0);
        for (path, bytes) in &files {
            if text.len() + path.len() > MAX_LISTED {
                break;
            }
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{path} ({bytes} bytes)");
            listed += 1;
        }
        match files.len() - listed {
            0 if files.is_empty() && used.files > 0 => text.push_str("There are no files below this directory.\n"),
            0 => {}
            more => {
                let _ = writeln!(text, "[… and {more} more: list a directory]");
            }
        }
        Ok(ToolAnswer::text(text + &told(used, workspace.config())))
    }
}

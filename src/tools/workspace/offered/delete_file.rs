//! `delete_file`: takes a file out of the workspace.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::shared::{file, told, workspace};
use crate::tools::builtin::define;
use crate::tools::workspace::{Changes, Workspaces};
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::Effect;

/// The tool.
#[derive(Debug)]
pub(super) struct DeleteFile {
    spec: ToolSpec,
    workspaces: Arc<Workspaces>,
}

impl DeleteFile {
    pub(super) fn new(workspaces: Arc<Workspaces>) -> Self {
        let description = "Deletes a file of the workspace, and the directories that are empty then.";
        let parameters = r#"{"type":"object","properties":{"path":{"type":"string","description":"The path of the file"}},"required":["path"],"additionalProperties":false}"#;
        let spec = ToolSpec { effect: Effect::Idempotent, ..define::spec("delete_file", description, parameters) };
        Self { spec, workspaces }
    }
}

#[async_trait]
impl Tool for DeleteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// A file that is not there is no error: a call that is made again after a crash would answer so.
    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        #[derive(Deserialize)]
        struct Arguments {
            path: String,
        }
        let Arguments { path } = define::decode(arguments)?;
        let (workspace, path) = (workspace(&self.workspaces, context)?, file(&path)?);
        let name = path.to_string();
        let used = workspace.change(Changes { deletes: [path].into(), ..Changes::default() }).await?;
        let what = if used.deleted > 0 { "was deleted" } else { "is not there, so nothing was to be deleted" };
        Ok(ToolAnswer::text(format!("{name:?} {what}. {}", told(used, workspace.config()))))
    }
}

//! `write_file`: gives a file a content.

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
pub(super) struct WriteFile {
    spec: ToolSpec,
    workspaces: Arc<Workspaces>,
}

impl WriteFile {
    pub(super) fn new(workspaces: Arc<Workspaces>) -> Self {
        let description = "Writes a text file to the workspace, in the place of the file of this path if there is one. Files stay for \
                           later.";
        let parameters = r#"{"type":"object","properties":{"path":{"type":"string","description":"A relative path such as notes/today.md; its directories are made"},"content":{"type":"string","description":"All that the file is to have"}},"required":["path","content"],"additionalProperties":false}"#;
        let spec = ToolSpec { effect: Effect::Idempotent, ..define::spec("write_file", description, parameters) };
        Self { spec, workspaces }
    }
}

#[async_trait]
impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        #[derive(Deserialize)]
        struct Arguments {
            path: String,
            content: String,
        }
        let Arguments { path, content } = define::decode(arguments)?;
        let (workspace, path) = (workspace(&self.workspaces, context)?, file(&path)?);
        let (name, length) = (path.to_string(), content.len());
        let changes = Changes { writes: [(path, content.into_bytes())].into(), ..Changes::default() };
        let used = workspace.change(changes).await?;
        Ok(ToolAnswer::text(format!("{name:?} was written: {length} bytes. {}", told(used, workspace.config()))))
    }
}

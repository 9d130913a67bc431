//! A tool that answers with its arguments.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use crate::tools::{CallContext, Source, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::Effect;

/// Answers with its arguments, and keeps a journal.
#[derive(Debug)]
pub(crate) struct Echo {
    spec: ToolSpec,
    pub(crate) journal: Arc<Mutex<Vec<String>>>,
    pub(crate) fences: Arc<Mutex<Vec<u64>>>,
    /// A call needs a permit to end; `hang` has none.
    permits: Arc<Semaphore>,
}

impl Echo {
    pub(crate) fn new(name: &str, effect: Effect, permits: usize) -> Self {
        let parameters = r#"{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}"#;
        let spec = ToolSpec {
            name: name.into(),
            description: "Says its arguments.".into(),
            parameters: RawValue::from_string(parameters.into()).unwrap(),
            effect,
            timeout: None,
            source: Source::Builtin,
        };
        Self { spec, journal: Arc::default(), fences: Arc::default(), permits: Arc::new(Semaphore::new(permits)) }
    }
}

impl Echo {
    /// The same tool, described and to be called otherwise.
    pub(crate) fn defined(mut self, description: &str, parameters: &str) -> Self {
        self.spec.description = description.into();
        self.spec.parameters = RawValue::from_string(parameters.into()).unwrap();
        self
    }
}

#[async_trait]
impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        self.fences.lock().push(context.fence);
        self.journal.lock().push(arguments.get().to_owned());
        let _permit = self.permits.acquire().await.unwrap();
        Ok(ToolAnswer::text(arguments.get()))
    }
}

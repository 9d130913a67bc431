//! Tools for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::tools::{CallContext, ProgressSink, QuestionSink, Source, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::{Effect, RunId, Tenant};

/// What a [`StubTool`] does when it is called.
#[derive(Debug)]
pub(crate) enum Behaviour {
    /// Says something after a while.
    Answer { text: String, after: Duration },
    /// Fails with these words.
    Fail(String),
    /// Panics.
    Panic,
    /// Never answers, and holds the sender for as long as its task lives.
    Hang(Mutex<Option<oneshot::Sender<()>>>),
}

impl Behaviour {
    /// To hang, and what resolves to an error once the task is gone.
    pub(crate) fn hang() -> (Self, oneshot::Receiver<()>) {
        let (alive, gone) = oneshot::channel();
        (Self::Hang(Mutex::new(Some(alive))), gone)
    }
}

/// A tool that does as it is told.
#[derive(Debug)]
pub(crate) struct StubTool {
    spec: ToolSpec,
    behaviour: Behaviour,
}

impl StubTool {
    /// A tool that takes anything and says nothing.
    pub(crate) fn named(name: &str) -> Self {
        let spec = ToolSpec {
            name: name.into(),
            description: "A stub.".into(),
            parameters: RawValue::from_string("{}".into()).unwrap(),
            effect: Effect::Read,
            timeout: None,
            source: Source::Builtin,
        };
        Self { spec, behaviour: Behaviour::Answer { text: String::new(), after: Duration::ZERO } }
    }

    pub(crate) fn parameters(mut self, schema: &str) -> Self {
        self.spec.parameters = RawValue::from_string(schema.into()).unwrap();
        self
    }

    pub(crate) fn behaving(mut self, behaviour: Behaviour) -> Self {
        self.behaviour = behaviour;
        self
    }

    pub(crate) fn shared(self) -> Arc<dyn Tool> {
        Arc::new(self)
    }
}

#[async_trait]
impl Tool for StubTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: &RawValue, _: &CallContext) -> Result<ToolAnswer, ToolError> {
        match &self.behaviour {
            Behaviour::Answer { text, after } => {
                tokio::time::sleep(*after).await;
                Ok(ToolAnswer::text(text.as_str()))
            }
            Behaviour::Fail(reason) => Err(ToolError::Failed(reason.clone())),
            Behaviour::Panic => panic!("as told"),
            Behaviour::Hang(alive) => {
                let _alive = alive.lock().take();
                std::future::pending().await
            }
        }
    }
}

/// The surroundings of some call.
pub(crate) fn context(timeout: Duration) -> CallContext {
    let run = RunId::mint();
    CallContext {
        tenant: Tenant::default_tenant(),
        session: None,
        user: None,
        metadata: BTreeMap::new(),
        agent: "default".into(),
        call: run.call(1),
        run,
        step: 1,
        attempt: 1,
        trace: None,
        request_id: None,
        timeout,
        fence: 7,
        progress: ProgressSink::default(),
        questions: QuestionSink::default(),
        callback_token: None,
    }
}

//! What this server answers to a server of tools, and what it hears from it.
//!
//! A server of tools gets nothing of a run: no answers of models, no directories. A question to the user is declined, unless the
//! operator lets this server ask, and it is known which call asks: the one that is under way, as such a server is called once at a
//! time over a connection.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    FormElicitationCapability, Implementation, NumberOrString, ProgressNotificationParam, ProgressToken,
    ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use rmcp::{ClientHandler, ErrorData};
use tokio::sync::Notify;

use crate::tools::ProgressSink;
use crate::tools::mcp::elicitation::CallQuestions;
use crate::tools::mcp::secrets::Secrets;
use crate::types::ToolProgress;

/// Hears a server. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Handler {
    /// Where the progress of each call under way is reported.
    progress: Arc<Mutex<HashMap<String, ProgressSink>>>,
    /// Told when the server says that it has other tools.
    pub(super) changed: Arc<Notify>,
    /// What it must not tell.
    secrets: Secrets,
    /// Whether its calls may ask the user something.
    elicits: bool,
    /// The questions of the call that is under way.
    asking: Arc<Mutex<Option<CallQuestions>>>,
}

/// A call that may ask until this is dropped.
#[derive(Debug)]
pub(super) struct Asking(Handler);

impl Drop for Asking {
    fn drop(&mut self) {
        *self.0.asking.lock() = None;
    }
}

/// A call whose progress is reported until this is dropped.
#[derive(Debug)]
pub(super) struct Reporting {
    handler: Handler,
    token: String,
}

impl Drop for Reporting {
    fn drop(&mut self) {
        self.handler.progress.lock().remove(&self.token);
    }
}

impl Handler {
    /// Hears a server that was given these secrets, and whose calls may ask the user something if it `elicits`.
    pub(super) fn new(secrets: Secrets, elicits: bool) -> Self {
        Self { secrets, elicits, ..Self::default() }
    }

    /// Whether calls may ask the user something.
    pub(super) fn elicits(&self) -> bool {
        self.elicits
    }

    /// What is asked is asked by this call, which is the only one under way.
    pub(super) fn ask_for(&self, questions: CallQuestions) -> Asking {
        *self.asking.lock() = Some(questions);
        Asking(self.clone())
    }

    /// Reports the progress of the call of this token there.
    pub(super) fn report(&self, token: &ProgressToken, sink: ProgressSink) -> Reporting {
        let token = key(token);
        self.progress.lock().insert(token.clone(), sink);
        Reporting { handler: self.clone(), token }
    }
}

fn key(ProgressToken(token): &ProgressToken) -> String {
    match token {
        NumberOrString::Number(number) => number.to_string(),
        NumberOrString::String(text) => text.to_string(),
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("loopgate", env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        if self.elicits {
            let form = FormElicitationCapability::new().with_schema_validation(true);
            capabilities.elicitation = Some(ElicitationCapability::new().with_form(form));
        }
        ClientConfig::new(capabilities, name).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let questions = self.asking.lock().clone();
        Ok(match questions {
            Some(questions) => questions.ask(&asked, &self.secrets).await,
            None => ElicitResult::new(ElicitationAction::Decline),
        })
    }

    async fn on_progress(&self, told: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        let sink = self.progress.lock().get(&key(&told.progress_token)).cloned();
        if let Some(sink) = sink {
            let message = told.message.map(|message| self.secrets.hide(&message).into_owned());
            sink.report(ToolProgress { done: Some(told.progress), total: told.total, message });
        }
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

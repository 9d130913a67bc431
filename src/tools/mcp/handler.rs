//! What this server answers to a server of tools, and what it hears from it.
//!
//! A server of tools gets nothing of a run: no answers of models, no directories. A question to the user is declined.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, NumberOrString, ProgressNotificationParam, ProgressToken,
    ProtocolVersion,
};
use rmcp::service::{NotificationContext, RoleClient};
use tokio::sync::Notify;

use crate::tools::ProgressSink;
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
    /// Hears a server that was given these secrets.
    pub(super) fn new(secrets: Secrets) -> Self {
        Self { secrets, ..Self::default() }
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
        ClientConfig::new(ClientCapabilities::default(), name)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
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

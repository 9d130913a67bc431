//! A transport that a server cannot flood with requests of its own.
//!
//! The SDK answers each request in a task of its own, which waits until the server reads the answer. A server that asks and does
//! not read would fill the memory, so the connection to it is closed.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerNotification};
use rmcp::transport::Transport;

/// Most requests of a server that wait for their answers.
const MOST_UNANSWERED: usize = 256;
/// Longest id of such a request.
const MAX_ID: usize = 256;

/// A transport whose server may ask for so much at once and no more.
#[derive(Debug)]
pub(super) struct Guarded<T> {
    inner: T,
    server: String,
    unanswered: Arc<Mutex<Unanswered>>,
}

/// How many requests of each id wait for their answers: a server may use an id more than once.
#[derive(Debug, Default)]
struct Unanswered {
    by_id: HashMap<RequestId, usize>,
    count: usize,
}

impl Unanswered {
    /// Counts a request. Returns whether there are too many, or its id is too long to be kept.
    fn add(&mut self, id: RequestId) -> bool {
        if matches!(&id, RequestId::String(id) if id.len() > MAX_ID) {
            return true;
        }
        *self.by_id.entry(id).or_default() += 1;
        self.count += 1;
        self.count > MOST_UNANSWERED
    }

    /// Whether a request of this id waits for its answer.
    fn has(&self, id: &RequestId) -> bool {
        self.by_id.contains_key(id)
    }

    /// A request of this id was answered.
    fn remove(&mut self, id: &RequestId) {
        let Some(waiting) = self.by_id.get_mut(id) else { return };
        *waiting -= 1;
        self.count -= 1;
        if *waiting == 0 {
            self.by_id.remove(id);
        }
    }
}

impl<T> Guarded<T> {
    /// Bounds what this server asks for.
    pub(super) fn new(server: &str, inner: T) -> Self {
        Self { inner, server: server.to_owned(), unanswered: Arc::default() }
    }

    /// Whether the server wants no answer any more to a request that waits for it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK adds kinds of these")]
    fn cancels_request(&self, told: &ServerNotification) -> bool {
        match told {
            ServerNotification::CancelledNotification(cancelled) => {
                cancelled.params.request_id.as_ref().is_some_and(|id| self.unanswered.lock().has(id))
            }
            _ => false,
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Guarded<T> {
    type Error = T::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let answered = match &message {
            ClientJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ClientJsonRpcMessage::Error(error) => error.id.clone(),
            ClientJsonRpcMessage::Request(_) | ClientJsonRpcMessage::Notification(_) => None,
        };
        let (sending, unanswered) = (self.inner.send(message), self.unanswered.clone());
        async move {
            let sent = sending.await;
            if let Some(id) = answered {
                unanswered.lock().remove(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let message = self.inner.receive().await?;
            match &message {
                ServerJsonRpcMessage::Request(request) if self.unanswered.lock().add(request.id.clone()) => {
                    let (most, server) = (MOST_UNANSWERED, &self.server);
                    tracing::warn!(server, most, "an MCP server asks and takes no answers");
                    return None;
                }
                // A request is answered at once, so nothing can be stopped: the answer waits until the server reads it, or is
                // read already. Were it to count no more, a server could ask without end.
                ServerJsonRpcMessage::Notification(told) if self.cancels_request(&told.notification) => {}
                ServerJsonRpcMessage::Notification(_)
                | ServerJsonRpcMessage::Request(_)
                | ServerJsonRpcMessage::Response(_)
                | ServerJsonRpcMessage::Error(_) => return Some(message),
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_until_they_are_answered_also_where_an_id_is_used_twice() {
        let (mut unanswered, id) = (Unanswered::default(), RequestId::Number(7));
        for _ in 0..MOST_UNANSWERED {
            assert!(!unanswered.add(id.clone()));
        }
        unanswered.remove(&RequestId::Number(8));
        assert!(unanswered.add(id.clone()), "what was never asked frees no place");
        unanswered.remove(&id);
        unanswered.remove(&id);
        assert!(!unanswered.add(id));
        let long = |length: usize| Unanswered::default().add(RequestId::String("x".repeat(length).into()));
        assert!(!long(256) && long(257), "ids are kept, so they are short");
    }
}

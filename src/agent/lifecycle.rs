//! Work that does not stop half way when whoever waits for it goes away.
//!
//! A request's future is dropped with its connection, at any point where it waits. What it had begun in
//! the store would then be nobody's until a lease runs out, or longer. So everything of several steps is
//! done in a task of the agent's, which the request only waits for: it comes to its end, and the drain
//! waits for that.

use std::panic::resume_unwind;

use tracing::Instrument;

use crate::agent::Inner;

impl Inner {
    /// Does `work`, to its end whoever waits for it. A panic in it is one of who waits.
    pub(in crate::agent) async fn run_detached<F>(&self, work: F) -> F::Output
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match self.tasks.spawn(work.in_current_span()).await {
            Ok(output) => output,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // Only a runtime that ends drops a task, and nothing in it is waited for any more.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

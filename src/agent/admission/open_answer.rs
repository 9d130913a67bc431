//! What becomes of the answer to a request that says nothing of whether it is repeated: kept in its claim, for the equal
//! request that its client sends if the connection is cut.
//!
//! Knows nothing of connections: those that write the answer say what became of it. If the replica that writes it is
//! killed, nobody does; so the claim names the replica, and one that is gone has cut all of its connections
//! (`connection.rs`).

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::agent::admission::Admission;
use crate::agent::admission::claims::HeldClaim;
use crate::agent::ledger::claim::Answer;

/// How long it is waited before it is tried again to store what became of an answer, while the store does not answer.
const NOTED_AFTER: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// An answer that is being written. If this is dropped before it is told that the answer reached its client, the
/// connection was cut.
#[derive(Debug)]
pub struct OpenAnswer(Arc<Noted>);

/// What is noted of an answer, for those that write it to a connection: cheap to clone.
#[derive(Debug, Clone)]
pub struct AnswerFate(Arc<Noted>);

#[derive(Debug)]
struct Noted {
    admission: Arc<Admission>,
    /// What became of it.
    answer: parking_lot::Mutex<Option<Answer>>,
    /// The claim as it was stored last.
    held: Mutex<HeldClaim>,
}

impl OpenAnswer {
    pub(super) fn new(admission: &Arc<Admission>, held: HeldClaim) -> Self {
        let answer = parking_lot::Mutex::default();
        Self(Arc::new(Noted { admission: admission.clone(), answer, held: Mutex::new(held) }))
    }

    /// The answer was given to the connection, to its end.
    pub fn reached(self) {
        self.0.note(Answer::Reached);
    }

    /// The client was told that there is none, though there may be.
    pub(super) fn cut(self) {
        self.0.note(Answer::Cut);
    }

    /// For those that find out later that the connection did not take all of it.
    pub fn fate(&self) -> AnswerFate {
        AnswerFate(self.0.clone())
    }
}

impl Drop for OpenAnswer {
    fn drop(&mut self) {
        if self.0.answer.lock().is_none() {
            self.0.note(Answer::Cut);
        }
    }
}

impl AnswerFate {
    /// The connection was cut before it took the whole answer.
    pub fn cut(&self) {
        self.0.note(Answer::Cut);
    }
}

impl Noted {
    /// Notes in the background what became of the answer. Best effort: what is not noted is asked of the model again.
    fn note(self: &Arc<Self>, answer: Answer) {
        if self.answer.lock().replace(answer.clone()) == Some(answer) || Handle::try_current().is_err() {
            return;
        }
        let noted = self.clone();
        self.admission.lifecycle.spawn(async move {
            let mut held = noted.held.lock().await;
            held.claim.answer.clone_from(&noted.answer.lock());
            if held.claim.answer == Some(Answer::Reached) {
                // It is asked for no more, but for a connection that turns out to be cut.
                held.longest = Duration::ZERO;
            }
            for pause in NOTED_AFTER {
                match noted.admission.put(&mut held).await {
                    // Another equal request has the claim by now.
                    Ok(true | false) => return,
                    Err(error) => tracing::debug!(%error, "could not store yet whether an answer reached its client"),
                }
                tokio::time::sleep(pause).await;
            }
            tracing::warn!("could not store whether an answer reached its client");
        });
    }
}

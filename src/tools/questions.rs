//! How a tool asks the user something in the middle of a call.
//!
//! The tool says what it asks, and is told what the user says to it, or that no user says anything. Who shows the question to
//! the user is not known here.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::types::CallId;
use crate::types::json::RawValueEq;
use crate::types::tool_question::{UserAction, UserAnswer};

/// What a tool asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserQuestion {
    /// The server of tools whose words these are.
    pub server: String,
    /// What the user is asked.
    pub message: String,
    /// The JSON schema of the answer.
    pub schema: RawValueEq,
}

/// A question on its way to the user.
#[derive(Debug)]
pub struct AskedQuestion {
    /// The call that asks.
    pub call: CallId,
    /// What it asks.
    pub question: UserQuestion,
    /// How long it may wait.
    pub within: Duration,
    /// Where the answer goes. Dropped without one, no user says anything.
    pub reply: oneshot::Sender<UserAnswer>,
}

/// Where a tool asks the user something.
#[derive(Debug, Clone, Default)]
pub struct QuestionSink(Option<Sink>);

#[derive(Debug, Clone)]
struct Sink {
    asked: mpsc::Sender<AskedQuestion>,
    within: Duration,
}

impl QuestionSink {
    /// A sink for a call, whose questions may wait for so long together.
    #[must_use]
    pub fn new(asked: mpsc::Sender<AskedQuestion>, within: Duration) -> Self {
        Self(Some(Sink { asked, within }))
    }

    /// How long all questions of the call may wait together, beside the time that the call has for its work; nothing where no
    /// user can be asked.
    #[must_use]
    pub fn within(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |sink| sink.within)
    }

    /// Asks, and returns what the user says within this time.
    pub async fn ask(&self, call: &CallId, question: UserQuestion, within: Duration) -> UserAnswer {
        let Some(sink) = &self.0 else { return UserAnswer::wordless(UserAction::Decline) };
        let (reply, answer) = oneshot::channel();
        let asked = AskedQuestion { call: call.clone(), question, within, reply };
        if sink.asked.send(asked).await.is_err() {
            return UserAnswer::wordless(UserAction::Cancel);
        }
        answer.await.unwrap_or_else(|_| UserAnswer::wordless(UserAction::Cancel))
    }
}

//! Words of the user that answer what a waiting run asks.

use crate::agent::admission::Admission;
use crate::agent::admission::answer::answered_run;
use crate::agent::ledger::session::Versioned;
use crate::agent::machine::Run;
use crate::agent::request::NewRun;
use crate::llm::message_parts;
use crate::store::Unavailable;
use crate::types::conversation::{Part, ToolResult};
use crate::types::run::OnConflict;
use crate::types::{CallId, Message, Role, RunId, StopReason};

impl Admission {
    /// The waiting run that a request continues, if it does: that of the calls which it answers, or the one that asks the user
    /// in its session.
    pub(super) async fn run_to_continue(
        &self,
        new: &NewRun,
        session: Option<&Versioned>,
    ) -> Result<Option<RunId>, Unavailable> {
        match (answered_run(new, session), session) {
            (None, Some(found)) if may_answer(new, found) => Box::pin(self.asking_run(new, found)).await,
            (answered, _) => Ok(answered),
        }
    }

    /// The run that asks the user in the session of this request, if one does.
    async fn asking_run(&self, new: &NewRun, found: &Versioned) -> Result<Option<RunId>, Unavailable> {
        let waiting = self.ledger.waiting_holder(&new.tenant, &found.session).await?;
        Ok(waiting.filter(|head| head.reason == Some(StopReason::AskUser)).map(|head| head.id))
    }
}

/// Whether a run may wait in a session for what a request brings: words of the user, and neither other answers nor the wish to
/// interrupt what waits.
fn may_answer(new: &NewRun, found: &Versioned) -> bool {
    let yields = match new.on_conflict {
        OnConflict::Reject | OnConflict::Enqueue => true,
        OnConflict::Interrupt | OnConflict::Concurrent => false,
    };
    yields
        && found.session.active_run.is_some()
        && new.answered.is_empty()
        && new.approvals.is_empty()
        && new.messages.last().is_some_and(|message| message.role == Role::User)
}

/// The same request with its words as results of the calls by which the run asks; `None` if the run asks nothing, or the
/// request answers by calls already.
pub(super) fn answered_in_words(new: &NewRun, run: &Run) -> Option<NewRun> {
    let asked = run.questions();
    if asked.is_empty() || !new.answered.is_empty() {
        return None;
    }
    let (before, said) = new.messages.split_at(new.answers_from);
    let (words, rest): (Vec<&Message>, Vec<&Message>) = said.iter().partition(|message| message.role == Role::User);
    let parts: Vec<Part> = words
        .into_iter()
        .filter_map(|message| message_parts(message).ok())
        .flat_map(|parts| parts.list.clone())
        .collect();
    if parts.is_empty() {
        return None;
    }
    let answer = |call: &CallId| {
        let (call, parts) = (call.clone(), parts.clone());
        Message::result(ToolResult { call, parts, structured: None, is_error: false })
    };
    let answers = asked.iter().map(answer);
    let messages = before.iter().cloned().chain(answers).chain(rest.into_iter().cloned()).collect();
    Some(NewRun { messages, answered: asked, ..new.clone() })
}

//! Which waiting run a request continues.

use crate::agent::admission::Admission;
use crate::agent::ledger::session::Versioned;
use crate::agent::request::NewRun;
use crate::store::Unavailable;
use crate::types::run::OnConflict;
use crate::types::{CallId, Role, RunId, StopReason};

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
        && !new.unattended
        && found.session.active_run.is_some()
        && new.answered.is_empty()
        && new.approvals.is_empty()
        && new.messages.last().is_some_and(|message| message.role == Role::User)
}

/// The run that the request's tool messages answer, if it waits for them.
fn answered_run(new: &NewRun, session: Option<&Versioned>) -> Option<RunId> {
    let sessions = session.and_then(|session| session.session.active_run.as_ref());
    let minted = new.answered.first().and_then(CallId::run);
    new.run.as_ref().or(sessions.filter(|_| !new.answered.is_empty())).or(minted.as_ref()).cloned()
}

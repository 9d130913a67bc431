//! Shortens what models are shown of a session after a run, in the background: by a run of its own, which asks nothing, adds nothing
//! to the session and goes on beside other runs.
//!
//! The session's document names the run that does it, so there is one at most, whichever replicas ask. The run replaces only messages
//! that it has read: what is said meanwhile stays as it is. A wish that is lost with its replica is uttered again after the session's
//! next run, if there is still a reason for it.

use std::sync::Arc;

use crate::agent::admission::Admission;
use crate::agent::error::StartError;
use crate::agent::request::NewRun;
use crate::types::RunSpec;

impl Admission {
    /// Starts what runs wished for that ended here, one after the other.
    pub(in crate::agent) async fn compact_after_runs(self: Arc<Self>) {
        let mut ended = self.launcher.compactions.ended.lock().await;
        while let Some(spec) = ended.recv().await {
            Box::pin(self.compact_after(&spec)).await;
        }
    }

    async fn compact_after(self: &Arc<Self>, spec: &RunSpec) {
        let Some(session) = spec.session.clone() else { return };
        let new = NewRun {
            key_name: spec.key_name.clone(),
            model: Some(spec.model.clone()),
            ..NewRun::compacting(spec.tenant.clone(), session)
        };
        // What is written down before goes where the run itself would have written it.
        let new = new.of_user(spec.options.sampling.user.clone());
        let (run, session) = (&spec.id, &spec.session);
        match self.start(new, None).await {
            Ok(started) => {
                tracing::debug!(after = %run, ?session, run = %started.head.id, "a conversation is shortened in the background");
            }
            // It is done already.
            Err(StartError::Compacting { .. } | StartError::SessionNotFound(_)) => {}
            Err(error) => {
                tracing::info!(after = %run, ?session, %error, "a conversation is not shortened in the background");
            }
        }
    }
}

//! One call of a model: whether it is made, and what came of it.

use std::sync::Arc;

use super::breaker::{Admission, CallOutcome, Opening, Ticket};
use super::shared::Claim;
use super::{ModelHealth, UpstreamHealth};
use crate::llm::ModelError;
use crate::llm::refusal::Refusal;

/// A call that is made. One that is dropped before its outcome is known says nothing of the model.
#[derive(Debug)]
pub struct Call {
    upstream: Arc<UpstreamHealth>,
    /// What is known of the model; `None` if nothing is, as it is well.
    known: Option<(Arc<ModelHealth>, Ticket)>,
}

impl UpstreamHealth {
    /// Whether a call of this model is made now. `alone` says that there is no other model to ask.
    pub async fn admit(self: &Arc<Self>, model: &str, alone: bool) -> Result<Call, Refusal> {
        let Some(known) = self.known(model) else { return Ok(Call { upstream: self.clone(), known: None }) };
        let admission = known.breaker.lock().admit(self.process.now_ms(), alone);
        match admission {
            Admission::Pass(ticket) => Ok(Call { upstream: self.clone(), known: Some((known, ticket)) }),
            Admission::Refuse(opening) => Err(self.refused(opening)),
            // Boxed, as few calls are probes.
            Admission::Probe(ticket) => {
                let call = Call { upstream: self.clone(), known: Some((known, ticket)) };
                Box::pin(call.claimed(model)).await
            }
        }
    }
}

impl Call {
    /// The call, if the probe is this process's to make.
    async fn claimed(mut self, model: &str) -> Result<Self, Refusal> {
        let upstream = self.upstream.clone();
        let (Some(shared), Some((known, ticket))) = (upstream.process.shared.get(), self.known.clone()) else {
            return Ok(self);
        };
        let Some(opening) = known.breaker.lock().opening() else { return Ok(self) };
        match shared.claim(&known.target, opening, upstream.policy.probe_ms).await {
            Claim::Granted => Ok(self),
            Claim::Denied(for_ms) => {
                self.known = None;
                let until_ms = upstream.process.now_ms().saturating_add(for_ms.max(1));
                known.breaker.lock().forgo(ticket, until_ms);
                let refused = upstream.refusal(model);
                Err(refused.unwrap_or_else(|| upstream.refused(Opening { until_ms, ..opening })))
            }
        }
    }

    /// The model spoke.
    pub fn note_answer(&mut self) {
        self.settle(CallOutcome::Answered);
    }

    /// The call of this model failed.
    pub fn note_failure(&mut self, model: &str, error: &ModelError) {
        let wait = error.retry_after.and_then(|wait| u64::try_from(wait.as_millis()).ok());
        if self.known.is_none() {
            self.known = self.upstream.tracked(model).and_then(|tracked| {
                let ticket = tracked.breaker.lock().admit_late()?;
                Some((tracked, ticket))
            });
        }
        self.settle(CallOutcome::Failed(error.class(), wait));
    }

    fn settle(&mut self, outcome: CallOutcome) {
        let Some((known, ticket)) = self.known.take() else { return };
        let change = known.breaker.lock().settle(self.upstream.process.now_ms(), ticket, outcome);
        if let Some(change) = change {
            self.upstream.tell(&known, change);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.settle(CallOutcome::Dropped);
    }
}

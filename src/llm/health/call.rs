//! One call of a model: whether it is made, and what came of it.

use std::sync::Arc;

use super::breaker::{Admission, Failure, Heard, Opening, Ticket};
use super::model::ModelHealth;
use super::shared::Claim;
use super::upstream::UpstreamHealth;
use crate::llm::ModelError;
use crate::llm::refusal::Refusal;

/// A call that is made. One that is dropped before its outcome is known says nothing of the model.
#[derive(Debug)]
pub struct Call {
    upstream: Arc<UpstreamHealth>,
    /// `None` once the outcome is known, or if none is of interest.
    open: Option<(Arc<ModelHealth>, Ticket)>,
    /// Whether the model has spoken.
    has_spoken: bool,
}

impl UpstreamHealth {
    /// Whether a call of this model is made now. `alone` says that there is no other model to ask.
    pub async fn admit(self: &Arc<Self>, model: &str, alone: bool) -> Result<Call, Refusal> {
        if self.policy.failures == 0 {
            return Ok(Call { upstream: self.clone(), open: None, has_spoken: false });
        }
        let model = self.tracked(model);
        match model.admit(self.process.now_ms(), alone) {
            Admission::Refuse(opening) => Err(self.refused(opening)),
            Admission::Pass(ticket) => Ok(Call::new(self, model, ticket)),
            // Boxed, as few calls are probes.
            Admission::Probe(ticket) => Box::pin(Call::new(self, model, ticket).claimed()).await,
        }
    }
}

impl Call {
    fn new(upstream: &Arc<UpstreamHealth>, model: Arc<ModelHealth>, ticket: Ticket) -> Self {
        Self { upstream: upstream.clone(), open: Some((model, ticket)), has_spoken: false }
    }

    /// The call, if the probe is this process's to make.
    async fn claimed(mut self) -> Result<Self, Refusal> {
        let upstream = self.upstream.clone();
        let (Some(shared), Some((model, ticket))) = (upstream.process.shared.get(), self.open.clone()) else {
            return Ok(self);
        };
        let Some(opening) = model.opening() else { return Ok(self) };
        let unsaved = model.unsaved(upstream.process.now_ms()).map(|unsaved| unsaved.change);
        match shared.claim(&model.target, unsaved).await {
            Claim::Granted => Ok(self),
            Claim::Closed => {
                model.close(upstream.process.now_ms(), upstream.process.tick());
                Ok(self)
            }
            Claim::Denied(for_ms) => {
                self.open = None;
                let until_ms = upstream.process.now_ms().saturating_add(for_ms.max(1));
                model.forgo(ticket, until_ms);
                let refused = model.refusal(upstream.process.now_ms()).unwrap_or(Opening { until_ms, ..opening });
                Err(upstream.refused(refused))
            }
        }
    }

    /// The upstream took the call.
    pub fn note_begin(&mut self) {
        self.hear(Heard::Begun);
    }

    /// The model spoke.
    pub fn note_word(&mut self) {
        if !std::mem::replace(&mut self.has_spoken, true) {
            self.hear(Heard::Word);
        }
    }

    /// The answer is whole. One to a call that took a retry gives it back.
    pub fn note_end(&mut self, took_retry: bool) {
        if took_retry {
            self.upstream.give_retry_back();
        }
        self.hear(Heard::End);
        self.open = None;
    }

    /// The call failed.
    pub fn note_failure(&mut self, error: &ModelError) {
        let retry_after_ms = error.retry_after.and_then(|wait| u64::try_from(wait.as_millis()).ok());
        self.hear(Heard::Failed(Failure { class: error.class(), retry_after_ms }));
        self.open = None;
    }

    fn hear(&mut self, heard: Heard) {
        let Some((model, ticket)) = &mut self.open else { return };
        let process = &self.upstream.process;
        let is_shared = process.shared.get().is_some();
        if let Some(change) = model.hear(process.now_ms(), ticket, heard, process.tick(), is_shared) {
            self.upstream.tell(&model.target, change);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.hear(Heard::Dropped);
    }
}

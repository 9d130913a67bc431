//! Model calls beside that of a step: a second one of the step, those by which guardrails judge, and those that summarise. Pure.

use super::SpanFold;
use crate::telemetry::traces::describe;
use crate::telemetry::traces::names;
use crate::types::SpanKey;
use crate::types::context::{Compacted, CompactionFailed, ContextEvent, FlushAnswered, FlushEnded, SummaryCall};
use crate::types::guard::{Guarded, Judged, Verdict};
use crate::types::hedge::HedgeEnded;
use crate::types::price::StepModel;

impl SpanFold {
    /// The span of the step's call is of the call that the step goes on with.
    pub(super) fn drop_one_of_two(&mut self, ended: &HedgeEnded) {
        if let Some(to) = &ended.to {
            self.model = StepModel::clone(to);
        }
        // After a crash the call is over, and this record says what the other one took.
        let cut = self.cut_model_call.as_mut();
        let at_ms = cut.as_ref().map_or(self.now_ms, |call| call.end_ms);
        let Some(call) = cut.or(self.model_call.as_mut()) else { return };
        call.add(describe::hedge_ended(ended, at_ms));
        if ended.to.is_some() {
            describe::called(call, (&self.model, self.providers.of(&self.model.upstream)));
        }
    }

    /// What a model is shown of the conversation was shortened. A model call that summarised is a span of its own, and so is one by
    /// which what matters was written down.
    pub(super) fn shorten(&mut self, event: &ContextEvent) {
        match event {
            ContextEvent::Compacted(Compacted { step, latency_ms, call: Some(call), .. }) => {
                self.called_beside(SpanKey::Summary(*step, call.messages), (*step, *latency_ms, call), None);
            }
            ContextEvent::CompactionFailed(CompactionFailed {
                step,
                latency_ms,
                call: Some(call),
                interrupted: false,
                ..
            }) => {
                let key = SpanKey::Summary(*step, call.messages);
                self.called_beside(key, (*step, *latency_ms, call), Some("compaction_failed"));
            }
            ContextEvent::FlushAnswered(FlushAnswered { step, round, latency_ms, call, lost: false, .. }) => {
                let key = SpanKey::Flush(*step, *round);
                self.called_beside(key, (*step, *latency_ms, call), None);
            }
            ContextEvent::FlushEnded(FlushEnded { step, round, latency_ms, call: Some(call), .. }) => {
                let key = SpanKey::Flush(*step, *round);
                self.called_beside(key, (*step, *latency_ms, call), Some("flush_failed"));
            }
            ContextEvent::Pruned(_)
            | ContextEvent::CompactionStarted(_)
            | ContextEvent::Compacted(_)
            | ContextEvent::CompactionFailed(_)
            | ContextEvent::WindowLearned(_)
            | ContextEvent::FlushAsked(_)
            | ContextEvent::FlushAnswered(_)
            | ContextEvent::FlushCalled(_)
            | ContextEvent::FlushEnded(_) => {}
        }
        if let Some(moment) = describe::shortened(event, self.now_ms) {
            self.root.add(moment);
        }
    }

    fn called_beside(
        &mut self,
        key: SpanKey<'_>,
        (step, latency_ms, call): (u32, u64, &SummaryCall),
        failed: Option<&'static str>,
    ) {
        let earliest = self.root.start_ms;
        let mut span = self.begin(key, "").within(self.stage());
        span.start_ms = self.now_ms.saturating_sub(latency_ms).max(earliest);
        span.end_ms = self.now_ms;
        let provider = self.providers.of(&call.model.upstream);
        let describe = if let SpanKey::Flush(..) = key { describe::flushing } else { describe::summarising };
        describe(&mut span, &self.subject, (call, provider), step);
        if let Some(why) = failed {
            span.fail(why, "");
        }
        self.push(span);
    }

    /// What a guard found or did. A model call that judged is a span of its own, within the step in whose name it judged if that is
    /// under way.
    pub(super) fn guard(&mut self, guarded: &Guarded) {
        if let Guarded::Judged(Judged { asked, verdict, latency_ms, call: Some(call), .. }) = guarded
            && *verdict != Verdict::Dropped
        {
            let parent = self.step.as_ref().map_or_else(|| self.stage(), |step| step.id);
            let earliest = self.step.as_ref().map_or(self.root.start_ms, |step| step.start_ms);
            let mut span = self.begin(SpanKey::Judge(asked.step, asked.digest, &asked.name), "").within(parent);
            span.start_ms = self.now_ms.saturating_sub(*latency_ms).max(earliest);
            span.end_ms = self.now_ms;
            let provider = self.providers.of(&call.model.upstream);
            describe::judging(&mut span, &self.subject, (call, provider), asked);
            span.set(names::GUARDRAIL_VERDICT, verdict.as_str());
            if *verdict == Verdict::NoAnswer {
                span.fail(verdict.as_str(), "");
            }
            return self.push(span);
        }
        if let Some(moment) = describe::guarded(guarded, self.now_ms) {
            self.root.add(moment);
        }
    }
}

//! What models and services were asked about texts of a run, so that a run that is resumed asks none of them twice, and what
//! their calls took of its budgets. Pure.

use super::Run;
use super::budget::{self, Purpose};
use crate::types::event::Reservation;
use crate::types::fallback::CallTerms;
use crate::types::guard::{Asked, GuardPoint, Judged, Judging, Verdict};
use crate::types::price::StepModel;
use crate::types::report::JudgeReport;
use crate::types::run::OnLimit;
use crate::types::{StopReason, Usage, Used};

/// Most entries of the report; the events have all.
const MOST_REPORTED: usize = 256;

impl Run {
    /// The call of a guardrail's model that is under way.
    #[must_use]
    pub fn open_judging(&self) -> Option<&Judging> {
        self.found.judges().and_then(|judges| judges.open.as_ref())
    }

    /// What is set aside for calls that judge, and is not settled.
    pub(super) fn reserved_for_judges(&self) -> Reservation {
        self.found.judges().map_or_else(Reservation::default, |judges| judges.reserved)
    }

    /// What calls that judge took and may have taken, as far as that is not settled.
    pub(super) fn used_by_judges(&self) -> (Used, Used) {
        self.found.judges().map_or_else(Default::default, |judges| (judges.used, judges.unconfirmed))
    }

    /// What was said of this text, if that is recorded.
    #[must_use]
    pub fn verdict(&self, asked: &Asked) -> Option<&Judged> {
        self.found.judges()?.verdicts.iter().find(|known| known.asked.is_about(asked))
    }

    /// Up to which of its messages, that one included, this guardrail was asked about what users say.
    #[must_use]
    pub fn judged_up_to(&self, name: &str) -> Option<u32> {
        let of_input = |known: &&Judged| known.asked.on == GuardPoint::Input && known.asked.name == name;
        self.found.judges()?.verdicts.iter().filter(of_input).filter_map(|known| known.asked.message).max()
    }

    /// What a call of another model on these terms may take that judges a text of so many tokens, where the step's own call
    /// took this much; or which budget of the run has no room for it.
    pub fn plan_judging(&self, terms: &CallTerms, tokens: u64, taken: Used) -> Result<Reservation, StopReason> {
        let keep_reserve = self.spec.on_limit == OnLimit::Synthesize && self.limit.is_none() && self.iterations > 0;
        budget::plan(&self.spec.limits, terms, self.used + taken, tokens, Purpose::Step { keep_reserve })
    }

    /// What is to be set aside for such a call beyond what the step's own call, which took this much, has left of what was
    /// reserved for it.
    #[must_use]
    pub fn beyond_step(&self, planned: Reservation, taken: Used) -> Reservation {
        let left = self.reserved.whole().saturating_sub(taken);
        if planned.tokens() <= left.tokens && planned.cost <= left.cost { Reservation::default() } else { planned }
    }

    /// Keeps what was said of a text, and charges what that took.
    pub(super) fn take_verdict(&mut self, judged: &Judged) {
        if let Some(call) = &judged.call {
            self.unconfirmed += call.unconfirmed;
            self.report.llm_time_ms += judged.latency_ms;
            let used = self.charge_judge(&call.model, call.usage);
            let judges = self.found.judges_mut();
            judges.open = None;
            if call.in_step {
                judges.used += used;
                judges.unconfirmed += call.unconfirmed;
            } else {
                judges.reserved = Reservation::default();
            }
        }
        self.report_verdict(judged);
        // An answer that was judged is recorded together with its verdict.
        if judged.verdict == Verdict::Dropped || judged.asked.on == GuardPoint::Output {
            return;
        }
        self.resumes = 0;
        let verdicts = &mut self.found.judges_mut().verdicts;
        if judged.asked.on == GuardPoint::Input {
            verdicts.retain(|known| known.asked.on != GuardPoint::Input || known.asked.name != judged.asked.name);
        }
        verdicts.push(judged.clone());
    }

    /// The step is settled, and with it the calls that judged in it.
    pub(super) fn settle_judges(&mut self) {
        if let Some(judges) = self.found.known_judges() {
            (judges.reserved, judges.used, judges.unconfirmed) = Default::default();
        }
    }

    /// The calls of the step have their results: no verdict about them is asked for again.
    pub(super) fn forget_verdicts_of_calls(&mut self) {
        if let Some(judges) = self.found.known_judges() {
            judges.verdicts.retain(|known| known.asked.call_id.is_none());
        }
    }

    /// Charges a call of a model that is none of those that answer, unless it is the run's own.
    fn charge_judge(&mut self, model: &std::sync::Arc<StepModel>, usage: Usage) -> Used {
        let is_own = model.upstream == self.spec.upstream && model.model == self.spec.upstream_model;
        self.charge(model, usize::from(!is_own), usage)
    }

    fn report_verdict(&mut self, judged: &Judged) {
        let reported = &mut self.report.guardrails.get_or_insert_default().0;
        if reported.len() >= MOST_REPORTED {
            return;
        }
        let Judged { asked, verdict, latency_ms, call, .. } = judged;
        reported.push(JudgeReport {
            name: asked.name.clone(),
            on: asked.on,
            step: asked.step,
            verdict: *verdict,
            latency_ms: *latency_ms,
            model: call.as_ref().map(|call| call.model.full_name()),
            usage: call.as_ref().map(|call| call.usage).unwrap_or_default(),
            cost: call.as_ref().map(|call| call.model.price.cost(&call.usage)).unwrap_or_default(),
        });
    }
}

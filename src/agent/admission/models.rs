//! Which models a run may call: those that take what its request asks for, at a price that its budgets can count.

use crate::agent::admission::{price, unsupported};
use crate::agent::catalog::{Called, Resolved};
use crate::agent::error::StartError;
use crate::agent::generation::Generation;
use crate::agent::quotas::Quotas;
use crate::agent::request::NewRun;
use crate::types::fallback::Fallback;
use crate::types::run::RunOptions;
use crate::types::session::Session;
use crate::types::{History, RunSpec};

/// Leaves the models that take what the request asks for. If the first does not, the run begins with the next that does;
/// an error if none does. Returns what the caller should know of it.
pub(super) fn leave_able(
    resolved: &mut Resolved,
    new: &NewRun,
    history: &History,
    generation: &Generation,
) -> Result<Vec<String>, StartError> {
    let refusal = |called: &Called| {
        let model = generation.catalog.model(&called.upstream);
        unsupported::find(&*model, &new.options.sampling, &new.messages, history)
    };
    let refused = refusal(&resolved.called);
    resolved.fallbacks.retain(|fallback| refusal(fallback).is_none());
    let Some((field, message)) = refused else { return Ok(Vec::new()) };
    if resolved.fallbacks.is_empty() {
        return Err(StartError::Invalid { field, message });
    }
    resolved.called = resolved.fallbacks.remove(0);
    let Called { upstream, model_name, .. } = &resolved.called;
    Ok(vec![format!("{upstream}/{model_name} is asked instead of the model that was named: {message}")])
}

/// The fallbacks at the price of the tier that these options ask for, and what the caller should know of those that have none
/// that is known.
pub(super) fn in_tier(fallbacks: Vec<Called>, options: &RunOptions) -> (Vec<Called>, Vec<String>) {
    let (mut counted, mut warnings) = (Vec::with_capacity(fallbacks.len()), Vec::new());
    for mut fallback in fallbacks {
        if price::count_fallback(options, &mut fallback) {
            counted.push(fallback);
        } else {
            let Called { upstream, model_name, .. } = &fallback;
            warnings.push(format!(
                "the fallback {upstream}/{model_name} is left out: it is not known what the service_tier that was asked for \
                 costs there"
            ));
        }
    }
    (counted, warnings)
}

/// The fallbacks of a run as it pins them, whose request asks for so much output of one call at most.
pub(super) fn pinned(fallbacks: Vec<Called>, most_output: u64) -> Vec<Fallback> {
    let pinned = fallbacks.into_iter().map(|called| Fallback {
        context_window: called.facts.context_window,
        max_output_tokens: most_output.min(called.facts.max_output_tokens),
        model: called.into_step_model().into(),
    });
    pinned.collect()
}

/// Leaves the fallbacks whose cost the budgets of the run can count, and tells its caller of the others.
pub(super) fn leave_countable(spec: &mut RunSpec, generation: &Generation, session: Option<&Session>, quotas: &Quotas) {
    for fallback in std::mem::take(&mut spec.fallbacks) {
        let upstream = generation.catalog.upstream(&fallback.model.upstream);
        let terms = upstream.map(|upstream| upstream.terms().clone()).unwrap_or_default();
        match price::check(spec, &fallback.model, &terms, session, quotas) {
            Ok(()) => spec.fallbacks.push(fallback),
            Err(error) => {
                let (upstream, model) = (&fallback.model.upstream, &fallback.model.model);
                spec.warnings.push(format!("the fallback {upstream}/{model} is left out: {error}"));
            }
        }
    }
}

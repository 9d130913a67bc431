//! The rules of a run's loop: those of its agent, as far as the request asks for stricter or other ones.

use std::sync::Arc;

use crate::agent::error::{Field, StartError};
use crate::agent::request::{ContextPatch, LoopGuardPatch, PromptPatch, RulesPatch, TriggersPatch};
use crate::types::context::{ContextRules, TriggerRules};
use crate::types::rules::{LoopGuardRules, LoopRules, PLAN, REFLECT, REFLECT_EVERY, Reflection};

/// The rules of a run whose agent has these. A plan is made only where a conversation begins.
pub(super) fn of_run(
    rules: &Arc<LoopRules>,
    asked: &RulesPatch,
    begins_conversation: bool,
) -> Result<Arc<LoopRules>, StartError> {
    let mut own = tightened(rules, asked)?;
    let reflection = reflection(rules, asked);
    let planning = prompt(&asked.planning, rules.planning.as_deref(), PLAN).filter(|_| begins_conversation);
    if own.reflection != reflection {
        Arc::make_mut(&mut own).reflection = reflection;
    }
    if own.planning != planning {
        Arc::make_mut(&mut own).planning = planning;
    }
    Ok(own)
}

/// Whether a run with these rules is subject to everything that a request asks for. A plan is made where a conversation begins, and
/// a request that continues a run begins none: of a plan only the words must be those of the run, if it has any.
pub(super) fn hold(rules: &Arc<LoopRules>, asked: &RulesPatch) -> bool {
    let plan = rules.planning.as_deref();
    let has_words = asked.planning.prompt.is_none() || plan.is_none() || asked.planning.prompt.as_deref() == plan;
    has_words
        && reflection(rules, asked) == rules.reflection
        && tightened(rules, asked).is_ok_and(|stricter| stricter == *rules)
}

/// How the model of a run is asked how far it has come, whose agent has these rules.
fn reflection(rules: &LoopRules, asked: &RulesPatch) -> Option<Reflection> {
    let has = rules.reflection.as_ref();
    let every = asked.reflect_every.or(has.map(|reflection| reflection.every)).unwrap_or(REFLECT_EVERY);
    let reflection = prompt(&asked.reflection, has.map(|reflection| reflection.prompt.as_str()), REFLECT);
    let reflection = reflection.or_else(|| {
        let asks = asked.reflect_every.is_some() && asked.reflection.enabled != Some(false);
        asks.then(|| asked.reflection.prompt.clone().unwrap_or_else(|| REFLECT.to_owned()))
    });
    reflection.map(|prompt| Reflection { every, prompt })
}

/// The agent's rules and the stricter ones of the request.
fn tightened(rules: &Arc<LoopRules>, asked: &RulesPatch) -> Result<Arc<LoopRules>, StartError> {
    let mut own = rules.clone();
    for pattern in asked.ends_run.iter().filter(|pattern| !rules.tool_errors.ends_run.contains(pattern)) {
        Arc::make_mut(&mut own).tool_errors.ends_run.push(pattern.clone());
    }
    if asked.loop_guard != LoopGuardPatch::default() {
        let stricter = guarded(&rules.loop_guard, asked.loop_guard)?;
        Arc::make_mut(&mut own).loop_guard = stricter;
    }
    if asked.context != ContextPatch::default() {
        let context = shortened(&rules.context, asked.context)?;
        if context != rules.context {
            Arc::make_mut(&mut own).context = context;
        }
    }
    Ok(own)
}

/// The agent's rules for a long conversation, as far as the request asks for others: it may not spend what the agent does not, nor
/// show a model more.
fn shortened(rules: &ContextRules, asked: ContextPatch) -> Result<ContextRules, StartError> {
    let invalid =
        |name: &'static str, message: String| Err(StartError::Invalid { field: Field::Member(name), message });
    if asked.compaction.is_some_and(|compaction| !rules.compaction.allows(compaction)) {
        return invalid("agent.context.compaction", "the agent asks no model for summaries".to_owned());
    }
    if asked.threshold.is_some_and(|threshold| threshold > rules.threshold) {
        return invalid("agent.context.threshold", format!("this is above the agent's limit of {}", rules.threshold));
    }
    if let (Some(asked), Some(most)) = (asked.turn_limit, rules.turn_limit)
        && asked > most
    {
        return invalid("agent.context.turn_limit", format!("this is above the agent's limit of {most}"));
    }
    let triggers = triggered(&rules.triggers, asked.triggers)?;
    Ok(ContextRules {
        triggers,
        compaction: asked.compaction.unwrap_or(rules.compaction),
        threshold: asked.threshold.unwrap_or(rules.threshold),
        keep_last: asked.keep_last.unwrap_or(rules.keep_last),
        turn_limit: asked.turn_limit.or(rules.turn_limit),
        ..rules.clone()
    })
}

/// What makes a conversation too long by the agent's rules and the stricter ones of the request. A run begins no other one after it
/// unless the agent's do.
fn triggered(rules: &TriggerRules, asked: TriggersPatch) -> Result<TriggerRules, StartError> {
    let lower = |name: &'static str, has: Option<u64>, asked: Option<u64>| match (has, asked) {
        (Some(has), Some(asked)) if asked > has => {
            let message = format!("this is above the agent's limit of {has}");
            Err(StartError::Invalid { field: Field::Member(name), message })
        }
        (has, asked) => Ok(asked.or(has)),
    };
    let (has, messages) = (rules.messages.map(u64::from), asked.messages.map(u64::from));
    let messages = lower("agent.context.triggers.messages", has, messages)?;
    if asked.after_run == Some(true) && !rules.after_run {
        let message = "the agent shortens no conversations after its runs".to_owned();
        return Err(StartError::Invalid { field: Field::Member("agent.context.triggers.after_run"), message });
    }
    Ok(TriggerRules {
        messages: messages.and_then(|most| u32::try_from(most).ok()),
        input_tokens: lower("agent.context.triggers.input_tokens", rules.input_tokens, asked.input_tokens)?,
        after_run: asked.after_run.unwrap_or(rules.after_run),
    })
}

fn guarded(rules: &LoopGuardRules, asked: LoopGuardPatch) -> Result<LoopGuardRules, StartError> {
    let lower = |name: &'static str, has: Option<u32>, asked: Option<u32>| match (has, asked) {
        (Some(has), Some(asked)) if asked > has => {
            let message = format!("this is above the agent's limit of {has}");
            Err(StartError::Invalid { field: Field::Member(name), message })
        }
        (has, asked) => Ok(asked.or(has)),
    };
    Ok(LoopGuardRules {
        warn_after: lower("agent.loop_guard.warn_after", rules.warn_after, asked.warn_after)?,
        stop_after: lower("agent.loop_guard.stop_after", rules.stop_after, asked.stop_after)?,
        same_result_warn_after: lower(
            "agent.loop_guard.same_result_warn_after",
            rules.same_result_warn_after,
            asked.same_result_warn_after,
        )?,
        same_result_stop_after: lower(
            "agent.loop_guard.same_result_stop_after",
            rules.same_result_stop_after,
            asked.same_result_stop_after,
        )?,
        ignored: rules.ignored.clone(),
    })
}

/// In which words the model is asked something; `None` if it is not asked.
fn prompt(asked: &PromptPatch, agents: Option<&str>, default: &str) -> Option<String> {
    let is_on = asked.enabled.unwrap_or(agents.is_some() || asked.prompt.is_some());
    is_on.then(|| asked.prompt.as_deref().or(agents).unwrap_or(default).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_goes_on_has_the_reflection_that_is_asked_for_or_the_request_is_refused() {
        let says = |enabled, prompt: Option<&str>| PromptPatch { enabled, prompt: prompt.map(str::to_owned) };
        let reflecting = |every, prompt: PromptPatch| RulesPatch {
            reflection: prompt,
            reflect_every: every,
            ..RulesPatch::default()
        };
        let agents = Arc::new(LoopRules::default());
        let own = of_run(&agents, &reflecting(Some(5), says(None, Some("Far?"))), true).unwrap();
        for (rules, asked, holds) in [
            (&own, RulesPatch::default(), true),
            (&own, reflecting(Some(5), says(Some(true), Some("Far?"))), true),
            (&own, reflecting(Some(6), says(None, None)), false),
            (&own, reflecting(None, says(None, Some("How far?"))), false),
            (&own, reflecting(None, says(Some(false), None)), false),
            (&agents, RulesPatch::default(), true),
            (&agents, reflecting(None, says(Some(false), None)), true),
            (&agents, reflecting(None, says(Some(true), None)), false),
            (&agents, reflecting(Some(5), says(None, None)), false),
        ] {
            assert_eq!(hold(rules, &asked), holds, "{asked:?}");
        }
        let planning = |enabled, prompt| RulesPatch { planning: says(enabled, prompt), ..RulesPatch::default() };
        let planned = of_run(&agents, &planning(Some(true), Some("Plan.")), true).unwrap();
        for (rules, asked, holds) in [
            (&planned, planning(Some(true), Some("Plan.")), true),
            (&planned, planning(None, Some("Scheme.")), false),
            (&agents, planning(Some(true), Some("Plan.")), true),
        ] {
            assert_eq!(hold(rules, &asked), holds, "{asked:?}");
        }
    }
}

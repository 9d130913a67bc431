//! The rules of a run's loop: those of its agent, as far as the request asks for stricter or other ones.

use std::sync::Arc;

use crate::agent::error::{Field, StartError};
use crate::agent::request::{LoopGuardPatch, PromptPatch, RulesPatch};
use crate::types::rules::{LoopGuardRules, LoopRules, PLAN, REFLECT, REFLECT_EVERY, Reflection};

/// The rules of a run whose agent has these. A plan is made only where a conversation begins.
pub(super) fn of_run(
    rules: &Arc<LoopRules>,
    asked: &RulesPatch,
    begins_conversation: bool,
) -> Result<Arc<LoopRules>, StartError> {
    let mut own = tightened(rules, asked)?;
    let has = rules.reflection.as_ref();
    let every = asked.reflect_every.or(has.map(|reflection| reflection.every)).unwrap_or(REFLECT_EVERY);
    let reflection = prompt(&asked.reflection, has.map(|reflection| reflection.prompt.as_str()), REFLECT);
    let reflection = reflection.or_else(|| {
        let asks = asked.reflect_every.is_some() && asked.reflection.enabled != Some(false);
        asks.then(|| asked.reflection.prompt.clone().unwrap_or_else(|| REFLECT.to_owned()))
    });
    let reflection = reflection.map(|prompt| Reflection { every, prompt });
    let planning = prompt(&asked.planning, rules.planning.as_deref(), PLAN).filter(|_| begins_conversation);
    if own.reflection != reflection {
        Arc::make_mut(&mut own).reflection = reflection;
    }
    if own.planning != planning {
        Arc::make_mut(&mut own).planning = planning;
    }
    Ok(own)
}

/// Whether a run with these rules is subject to everything that a request asks for.
pub(super) fn hold(rules: &Arc<LoopRules>, asked: &RulesPatch) -> bool {
    tightened(rules, asked).is_ok_and(|stricter| stricter == *rules)
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
    Ok(own)
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

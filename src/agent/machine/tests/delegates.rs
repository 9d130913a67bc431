//! Budgets that a run shares with those below it.

use super::*;
use crate::agent::machine::fallback::Lack;
use crate::types::delegate::{CompletedChild, DELEGATE, Delegated, StartedChild};
use crate::types::fallback::Fallback;
use crate::types::price::StepModel;
use crate::types::taken::Taken;
use crate::types::{BudgetOwner, StopReason};

/// A run that took so much, and so did those below it that have ended.
fn delegated(mut spec: RunSpec, below: u64) -> Story {
    spec.own_tools = vec![client_tool(DELEGATE)];
    let mut story = Story::begin(spec);
    let call = call(1, DELEGATE);
    story.says("", vec![call.clone()], usage(100, 20));
    ends_below(&mut story, &call, below);
    story.answers(&call, Effect::Read);
    story.completes_step();
    story
}

/// A call begins a run, which takes so many tokens and ends.
fn ends_below(story: &mut Story, call: &ToolCall, tokens: u64) {
    let (step, call_id, run) = (story.run.step(), call.id.clone(), RunId::mint());
    let child = StartedChild { step, call_id: call_id.clone(), run: run.clone(), agent: "worker".into(), depth: 1 };
    story.happens(Event::Delegated(Box::new(Delegated::Started(child))));
    let (own, reason) = (Taken::of_one(usage(tokens, 0), Micros(0)), Some(StopReason::Done));
    let end = CompletedChild { step, call_id, run, status: RunStatus::Completed, reason, own, tree: own };
    story.happens(Event::Delegated(Box::new(Delegated::Completed(end))));
}

/// It is told of its budget, if that is due.
fn warned(story: &mut Story) {
    if let Step::WarnBudget { kind, used, limit } = story.run.next_step() {
        story.happens(Event::BudgetWarning { owner: BudgetOwner::Run, kind, used, limit });
    }
}

/// The next step of a run that is to close is planned by all that was taken, and so is that of the model which it falls back to.
#[test]
fn a_model_is_passed_over_that_finds_no_room_beside_what_runs_below_took() {
    for (on_limit, below, has_room) in [
        (OnLimit::Synthesize, 5_000, true),
        (OnLimit::Synthesize, 8_700, false),
        // What others take is refused where it is counted.
        (OnLimit::Stop, 8_700, true),
    ] {
        let mut spec = spec();
        (spec.on_limit, spec.limits.token_budget) = (on_limit, Some(10_000));
        let model = StepModel { upstream: "spare".into(), model: "s".into(), ..spec.step_model() };
        let spare = Fallback { model: Arc::new(model), context_window: 128_000, max_output_tokens: 2_000 };
        spec.fallbacks = vec![spare];
        let mut story = delegated(spec, below);
        warned(&mut story);
        let next = story.run.next_model(Lack::Answer, |_| None);
        let room = (next.model.is_some(), next.skipped);
        let told = "spare/s: the run's token budget has no room for it".to_owned();
        assert_eq!(room, (has_room, Vec::from_iter((!has_room).then_some(told))), "{on_limit:?}, {below}");
        assert_eq!(
            matches!(story.run.next_step(), Step::CallModel { closing: None, .. }),
            has_room,
            "as the step itself"
        );
    }
}

/// What runs below may answer is counted as text of which each character has three bytes.
#[test]
fn what_is_kept_from_runs_below_is_enough_for_a_closing_answer_to_what_they_say_in_chinese() {
    let mut spec = spec();
    (spec.on_limit, spec.limits.token_budget) = (OnLimit::Synthesize, Some(400_000));
    spec.own_tools = vec![client_tool(DELEGATE)];
    let most = spec.rules.delegation.max_output_chars;
    let mut story = Story::begin(spec);
    let calls = [call(1, DELEGATE), call(2, DELEGATE)];
    story.says("", calls.to_vec(), usage(100, 20));
    let kept = story.run.kept_for_closing().tokens;
    assert!(kept < 399_880 / 4, "{kept}: a part of what is left bounds it");
    // All else is taken.
    for (call, taken) in calls.iter().zip([1_000, 400_000 - 120 - 1_000 - kept]) {
        ends_below(&mut story, call, taken);
        story.happens(Event::ToolStarted { step: 1, call: call.clone(), effect: Effect::Read });
        story.finishes(call, &"答".repeat(most as usize));
    }
    story.completes_step();
    warned(&mut story);
    let Step::CallModel { reserve, closing: Some(StopReason::TokenBudget), .. } = story.run.next_step() else {
        panic!("expected the closing answer, not {:?}", story.run.next_step())
    };
    assert!(reserve.output_tokens >= 1_000, "{reserve:?}");
}

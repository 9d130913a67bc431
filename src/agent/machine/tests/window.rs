//! Conversations that grow beyond what the model takes.

use super::*;
use crate::types::context::ContextRules;

/// A run whose model takes few tokens, after a tool call with a result of so many bytes.
fn with_result_of(bytes: usize, change: impl FnOnce(&mut RunSpec)) -> Story {
    let mut spec = spec();
    spec.context_window = 1_000;
    Arc::make_mut(&mut spec.rules).context = ContextRules::off();
    change(&mut spec);
    let mut story = Story::begin(spec);
    let call = call(1, "echo");
    story.says("", vec![call.clone()], usage(100, 10));
    let step = story.run.step();
    story.happens(Event::ToolStarted { step, call: call.clone(), effect: Effect::Read });
    story.finishes(&call, &"x".repeat(bytes));
    story.completes_step();
    story
}

#[test]
fn a_tool_result_that_outgrows_the_window_ends_the_run_before_the_model_is_asked() {
    let fits = with_result_of(3_000, |_| {});
    assert!(matches!(fits.run.next_step(), Step::CallModel { .. }));
    for on_limit in [OnLimit::Stop, OnLimit::Synthesize, OnLimit::Error] {
        let outcome = with_result_of(5_000, |spec| spec.on_limit = on_limit).ends();
        assert_eq!((outcome.reason, outcome.status()), (StopReason::ContextLimit, RunStatus::Failed));
        let error = outcome.error.unwrap();
        assert_eq!(error.kind, ErrorKind::ContextLength);
        assert!(error.message.contains("the model m takes 1000"), "{}", error.message);
    }
}

#[test]
fn a_limit_that_was_reached_first_is_the_one_that_ends_the_run() {
    let outcome = with_result_of(5_000, |spec| {
        (spec.limits.max_iterations, spec.on_limit) = (1, OnLimit::Synthesize);
    });
    let outcome = { outcome }.ends();
    assert_eq!((outcome.reason, outcome.error), (StopReason::MaxIterations, None), "a closing answer would not fit");
}

#[test]
fn thinking_that_is_not_sent_back_takes_no_place() {
    let mut spec = spec();
    spec.context_window = 1_000;
    let mut story = Story::begin(spec);
    let call = call(1, "echo");
    let taken = Usage { reasoning_tokens: 1_900, ..usage(100, 2_000) };
    story.says("", vec![call.clone()], taken);
    story.answers(&call, Effect::Read);
    story.completes_step();
    assert!(matches!(story.run.next_step(), Step::CallModel { step: 2, .. }));
}

//! Limits, budgets and costs.

use super::*;
use crate::types::BudgetOwner;
use crate::types::guard::{Guards, OutputRules};

#[test]
fn the_last_allowed_step_still_runs_its_tools() {
    let mut spec = spec();
    spec.limits.max_iterations = 1;
    let mut story = Story::begin(spec);
    let call = call(1, "echo");
    story.says("", vec![call.clone()], usage(1, 1));
    story.answers(&call, Effect::Read);
    story.completes_step();
    let outcome = story.ends();
    assert_eq!((outcome.reason, outcome.status()), (StopReason::MaxIterations, RunStatus::Incomplete));
    assert_eq!(outcome.output_text, "", "the text is what the model said, and it said nothing");
    assert!(outcome.reason.limit_sentence().is_some_and(|sentence| sentence.contains("limit of model calls")));
    assert_eq!(outcome.tool_calls, 1);
}

#[test]
fn a_limit_can_be_an_error_or_a_closing_answer() {
    let mut limited = spec();
    limited.limits.max_iterations = 1;
    limited.on_limit = OnLimit::Error;
    let call = call(1, "echo");
    let until_limit = |spec: RunSpec| {
        let mut story = Story::begin(spec);
        story.says("", vec![call.clone()], usage(1, 1));
        story.answers(&call, Effect::Read);
        story.completes_step();
        story
    };
    let outcome = until_limit(limited.clone()).ends();
    assert_eq!((outcome.status(), outcome.error.unwrap().kind), (RunStatus::Failed, ErrorKind::IterationLimit));

    limited.on_limit = OnLimit::Synthesize;
    let mut story = until_limit(limited);
    let closing = Some(StopReason::MaxIterations);
    assert!(matches!(story.run.next_step(), Step::CallModel { closing: found, .. } if found == closing));
    story.says("so far: result", vec![], usage(1, 1));
    story.completes_step();
    let outcome = story.ends();
    assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::MaxIterations, "so far: result"));
}

/// What judges the first answer finds the room that its call has found.
#[test]
fn a_guardrails_model_leaves_room_for_a_closing_answer_once_there_was_a_step() {
    let mut spec = spec();
    (spec.on_limit, spec.max_output_tokens, spec.limits.token_budget) = (OnLimit::Synthesize, 300, Some(1_000));
    let terms = spec.terms();
    let mut story = Story::begin(spec);
    let taken = Used { tokens: 120, ..Used::default() };
    assert!(story.run.plan_judging(&terms, 20, taken).is_ok());
    let call = call(1, "echo");
    story.says("", vec![call.clone()], usage(100, 20));
    story.answers(&call, Effect::Read);
    story.completes_step();
    assert_eq!(story.run.plan_judging(&terms, 20, Used::default()), Err(StopReason::TokenBudget));
}

/// A small budget is no reason not to let the model do what it was asked for.
#[test]
fn the_first_call_takes_the_room_of_the_closing_answer_if_there_is_no_other() {
    let mut spec = spec();
    spec.on_limit = OnLimit::Synthesize;
    spec.max_output_tokens = 300;
    for (budget, first, second) in [(1_000, true, false), (5_000, true, true)] {
        spec.limits.token_budget = Some(budget);
        let mut story = Story::begin(spec.clone());
        assert_eq!(matches!(story.run.next_step(), Step::CallModel { closing: None, .. }), first, "{budget}");
        let call = call(1, "echo");
        story.says("", vec![call.clone()], usage(100, 20));
        story.answers(&call, Effect::Read);
        story.completes_step();
        let Step::CallModel { closing, .. } = story.run.next_step() else { panic!("{budget}: no call") };
        assert_eq!(closing.is_none(), second, "{budget}");
        if let Some(limit) = closing {
            story.says("in short", vec![], usage(150, 20));
            story.completes_step();
            let outcome = story.ends();
            let short = outcome.short.expect("a budget lacked room");
            assert_eq!((outcome.reason, limit), (StopReason::TokenBudget, StopReason::TokenBudget));
            assert!(short.missing() > 0 && short.retry_after_s().is_none(), "{short:?}");
        }
    }
    // Without room for any call there is none.
    spec.limits.token_budget = Some(50);
    let story = Story::begin(spec);
    assert!(matches!(story.run.next_step(), Step::Finish(StopReason::TokenBudget)));
}

#[test]
fn budgets_are_reserved_warned_about_and_never_exceeded() {
    let mut spec = spec();
    spec.limits.token_budget = Some(2_000);
    spec.max_output_tokens = 300;
    let mut story = Story::begin(spec);
    let call = call(1, "echo");
    story.says("", vec![call.clone()], usage(1_400, 200));
    story.answers(&call, Effect::Read);
    story.completes_step();
    let Step::WarnBudget { kind, used, limit } = story.run.next_step() else { panic!("no warning") };
    assert_eq!((kind, used, limit), (BudgetKind::Tokens, 1_600, 2_000));
    story.happens(Event::BudgetWarning { owner: BudgetOwner::Run, kind, used, limit });
    let outcome = story.ends();
    assert_eq!(outcome.reason, StopReason::TokenBudget, "the history alone would take more than is left");
}

#[test]
fn cost_is_a_budget_like_tokens() {
    let mut spec = spec();
    spec.price = Price::from_usd(1.0, 1.0, 1.0);
    spec.limits.cost_budget = Some(Micros(1_000));
    let mut story = Story::begin(spec);
    let Step::CallModel { reserve, .. } = story.run.next_step() else { panic!() };
    assert!(reserve.cost <= Micros(1_000) && reserve.output_tokens < 1_000);
    let call = call(1, "echo");
    story.says("", vec![call.clone()], usage(500, 490));
    story.answers(&call, Effect::Read);
    story.completes_step();
    let Step::WarnBudget { kind: BudgetKind::Cost, used: 990, limit: 1_000 } = story.run.next_step() else {
        panic!("no warning")
    };
    story.happens(Event::BudgetWarning { owner: BudgetOwner::Run, kind: BudgetKind::Cost, used: 990, limit: 1_000 });
    assert_eq!(story.ends().reason, StopReason::CostBudget);
}

#[test]
fn a_step_costs_what_the_model_costs_that_it_called() {
    let mut story = Story::begin(spec());
    let begins = {
        let price = Price::from_usd(2.0, 2.0, 2.0);
        let model =
            StepModel { upstream: "other".into(), model: "spare".into(), price, price_origin: PriceOrigin::Guessed };
        Event::StepStarted { step: 1, reserved: Reservation::default(), model: Some(Arc::new(model)), closing: None }
    };
    let turn = Turn { parts: vec![Part::text("hi")], usage: usage(10, 5), ..Turn::default() };
    story.happens(begins);
    story.happens(Event::TurnFinished { step: 1, turn: Box::new(turn) });
    story.completes_step();
    let outcome = story.ends();
    let step = &outcome.report.steps[0];
    assert_eq!((outcome.cost, step.cost), (Micros(30), Micros(30)));
    assert_eq!(outcome.warnings, ["the cost is estimated: no price is known for the model spare"]);
}

#[test]
fn nothing_shows_the_word_of_a_model_that_has_nothing_to_say() {
    let silent = |end: TurnEnd| {
        let output = OutputRules { allow_no_reply: true, ..OutputRules::default() };
        let guards = Arc::new(Guards { output, ..Guards::default() });
        let mut story = Story::begin(RunSpec { guards, ..spec() });
        story.calls_model();
        let turn = Turn { parts: vec![Part::text("**NO_REPLY**")], usage: usage(1, 1), end, ..Turn::default() };
        story.happens(Event::TurnFinished { step: story.run.step(), turn: Box::new(turn) });
        story
    };
    for (end, reason) in [
        (TurnEnd::Stop, StopReason::NoReply),
        (TurnEnd::Other("eos".into()), StopReason::NoReply),
        (TurnEnd::Other("end_turn".into()), StopReason::NoReply),
        (TurnEnd::Length, StopReason::Length),
    ] {
        let mut story = silent(end);
        story.completes_step();
        let outcome = story.ends();
        assert_eq!((outcome.reason, outcome.output_text.as_str()), (reason, ""));
    }
    let story = silent(TurnEnd::Stop);
    assert_eq!(story.run.outcome(StopReason::MaxIterations, 1).output_text, "", "a closing answer");
    let waiting = story.run.outcome(StopReason::Approval, 1).output_text;
    assert!(waiting.starts_with("The run waits for an approval"), "{waiting}");
}

//! What ends a run before its model has answered: its limit of tool calls, a failed call, a cancellation after the step.

use super::*;
use crate::types::approval::ApprovalRequest;
use crate::types::rules::ToolErrors;

fn limited(max_tool_calls: u32) -> RunSpec {
    let mut spec = spec();
    spec.limits.max_tool_calls = Some(max_tool_calls);
    spec
}

fn skips(story: &mut Story, calls: &[ToolCall]) {
    for call in calls {
        let (step, effect) = (story.run.step(), Effect::Read);
        story.happens(Event::ToolStarted { step, call: call.clone(), effect });
        let (name, outcome) = (call.name.clone(), ToolOutcome::skipped("no"));
        story.happens(Event::ToolFinished { step, call_id: call.id.clone(), name, outcome });
    }
}

fn fails(story: &mut Story, call: &ToolCall, outcome: ToolOutcome) {
    let (step, name) = (story.run.step(), call.name.clone());
    story.happens(Event::ToolFinished { step, call_id: call.id.clone(), name, outcome });
}

#[test]
fn calls_beyond_the_limit_are_answered_and_never_made() {
    let mut spec = limited(3);
    spec.client_tools = vec![client_tool("ask")];
    let mut story = Story::begin(spec);
    let calls: Vec<_> = (1..=6).map(|number| call(number, if number == 2 { "ask" } else { "echo" })).collect();
    story.says("", calls[..2].to_vec(), usage(1, 1));
    story.answers(&calls[0], Effect::Read);
    story.completes_step();
    story.ends();
    let answer = Message::tool(&calls[1].id, "yes");
    story.happens(Event::RunResumed { leg: Some(leg(vec![answer], Vec::new())) });
    story.says("", calls[2..].to_vec(), usage(1, 1));
    assert_eq!(story.run.next_step(), Step::CutCalls(calls[4..].to_vec()), "the client's call is its own");
    skips(&mut story, &calls[4..]);
    assert_eq!(story.run.next_step(), Step::RunTools(calls[2..4].to_vec()));
    calls[2..4].iter().for_each(|call| story.answers(call, Effect::Read));
    story.completes_step();
    let outcome = story.ends();
    assert_eq!((outcome.reason, outcome.status()), (StopReason::MaxToolCalls, RunStatus::Incomplete));
    assert!(outcome.message().unwrap().contains("limit of tool calls"));
    let skipped = |step: &crate::types::report::StepReport| step.tool_calls.iter().filter(|call| call.skipped).count();
    assert_eq!(outcome.report.steps.iter().map(skipped).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn a_run_that_makes_just_as_many_calls_as_it_may_goes_on() {
    let mut story = Story::begin(limited(1));
    let call = call(1, "echo");
    story.says("", vec![call.clone()], usage(1, 1));
    story.answers(&call, Effect::Read);
    story.completes_step();
    story.says("done", vec![], usage(1, 1));
    story.completes_step();
    assert_eq!(story.ends().reason, StopReason::Done);
}

#[test]
fn the_limit_of_tool_calls_can_be_an_error_or_a_closing_answer() {
    for on_limit in [OnLimit::Error, OnLimit::Synthesize] {
        let mut story = Story::begin(RunSpec { on_limit, ..limited(1) });
        let calls = [call(1, "echo"), call(2, "echo")];
        story.says("", calls.to_vec(), usage(1, 1));
        skips(&mut story, &calls[1..]);
        story.answers(&calls[0], Effect::Read);
        story.completes_step();
        if on_limit == OnLimit::Error {
            let error = story.ends().error.unwrap();
            assert_eq!(error.kind, ErrorKind::ToolCallLimit);
            continue;
        }
        let closing = Some(StopReason::MaxToolCalls);
        assert!(matches!(story.run.next_step(), Step::CallModel { closing: found, .. } if found == closing));
        story.says("so far", vec![], usage(1, 1));
        story.completes_step();
        let outcome = story.ends();
        assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::MaxToolCalls, "so far"));
    }
}

#[test]
fn a_failed_call_ends_the_run_where_that_is_the_rule() {
    let tool_errors = ToolErrors { ends_run: vec!["pay".into()], ..ToolErrors::default() };
    let rules = LoopRules { tool_errors, ..LoopRules::default() };
    for (name, ends) in [("pay", true), ("echo", false)] {
        let mut story = Story::begin(RunSpec { rules: Arc::new(rules.clone()), ..spec() });
        let calls = [call(1, name), call(2, "echo")];
        story.says("", calls.to_vec(), usage(1, 1));
        let (step, effect) = (story.run.step(), Effect::Write);
        story.happens(Event::ToolStarted { step, call: calls[0].clone(), effect });
        fails(&mut story, &calls[0], ToolOutcome::failed("no money"));
        if !ends {
            assert_eq!(story.run.next_step(), Step::RunTools(calls[1..].to_vec()));
            continue;
        }
        assert_eq!(story.run.next_step(), Step::SkipTools(calls[1..].to_vec()));
        skips(&mut story, &calls[1..]);
        story.completes_step();
        let outcome = story.ends();
        assert_eq!((outcome.reason, outcome.status()), (StopReason::ToolError, RunStatus::Failed));
        let error = outcome.error.unwrap();
        assert_eq!(error.kind, ErrorKind::ToolFailed);
        assert!(!error.message.contains("no money"), "what the tool says may quote anything");
        assert_eq!(roles(story.run.messages()), [Role::User, Role::Assistant, Role::Tool, Role::Tool]);
    }
}

#[test]
fn an_unknown_outcome_is_no_mere_failure() {
    let tool_errors = ToolErrors { ends_run: vec!["*".into()], ..ToolErrors::default() };
    let rules = LoopRules { tool_errors, ..LoopRules::default() };
    let ends = [
        (OnUnknownOutcome::Fail, StopReason::OutcomeUnknown),
        (OnUnknownOutcome::Ask, StopReason::OutcomeAsked),
        (OnUnknownOutcome::TellModel, StopReason::ToolError),
    ];
    for (on_unknown_outcome, reason) in ends {
        let options = RunOptions { on_unknown_outcome, ..options() };
        let mut story = Story::begin(RunSpec { rules: Arc::new(rules.clone()), options, ..spec() });
        let call = call(1, "pay");
        story.says("", vec![call.clone()], usage(1, 1));
        fails(&mut story, &call, ToolOutcome::lost("?"));
        story.completes_step();
        assert_eq!(story.ends().reason, reason);
    }
}

#[test]
fn a_run_that_stops_after_its_step_makes_the_calls_of_that_step_and_no_other() {
    let mut spec = spec();
    spec.client_tools = vec![client_tool("ask")];
    for (name, told_while) in [("echo", "speaking"), ("echo", "calling"), ("ask", "speaking")] {
        let mut story = Story::begin(spec.clone());
        story.calls_model();
        if told_while == "speaking" {
            story.happens(Event::StopAfterStep);
        }
        let call = call(1, name);
        let parts = vec![Part::text("let me see"), PartKind::ToolCall(call.clone()).into()];
        let turn = Turn { parts, end: TurnEnd::ToolCalls, ..Turn::default() };
        story.happens(Event::TurnFinished { step: 1, turn: Box::new(turn) });
        if told_while == "calling" {
            story.happens(Event::StopAfterStep);
        }
        if name == "echo" {
            assert_eq!(story.run.next_step(), Step::RunTools(vec![call.clone()]));
            story.answers(&call, Effect::Write);
        }
        story.completes_step();
        assert!(story.run.is_stopping());
        let outcome = story.ends();
        assert_eq!((outcome.reason, outcome.status()), (StopReason::Cancelled, RunStatus::Cancelled));
        assert_eq!(outcome.output_text, "let me see");
        assert_eq!(roles(story.run.messages()), [Role::User, Role::Assistant, Role::Tool], "{name}");
    }
}

#[test]
fn a_run_that_stops_after_its_step_keeps_an_answer_and_begins_no_other_step() {
    // Its model answers: the run is as complete as it would have been.
    let mut story = Story::begin(spec());
    story.calls_model();
    story.happens(Event::StopAfterStep);
    let said = Event::CommandsApplied { upto: 2, messages: vec![Message::text(Role::User, "and this?")] };
    story.happens(said);
    let turn = Turn { parts: vec![Part::text("done")], ..Turn::default() };
    story.happens(Event::TurnFinished { step: 1, turn: Box::new(turn) });
    story.completes_step();
    assert_eq!(story.ends().reason, StopReason::Done, "what its caller said meanwhile does not prolong it");
    let roles = roles(&story.run.final_messages());
    assert_eq!(roles, [Role::User, Role::Assistant, Role::User], "but it is kept");

    // No step is under way.
    let mut story = Story::begin(spec());
    story.happens(Event::StopAfterStep);
    assert_eq!(story.run.next_step(), Step::Finish(StopReason::Cancelled));

    // Its step is void: it is not begun again.
    let mut story = Story::begin(spec());
    story.calls_model();
    story.happens(Event::StopAfterStep);
    story.happens(Event::RunResumed { leg: None });
    let (reason, usage) = (DiscardReason::Interrupted, Usage::default());
    story.happens(Event::StepDiscarded { step: 1, reason, usage, unconfirmed: Used::default() });
    assert_eq!(story.run.next_step(), Step::Finish(StopReason::Cancelled));
}

#[test]
fn a_run_that_stops_after_its_step_waits_for_no_approval() {
    let judged = RunSpec { policy: Some(Arc::default()), ..spec() };
    for is_told_first in [true, false] {
        let mut story = Story::begin(judged.clone());
        let calls = [call(1, "echo"), call(2, "pay")];
        story.says("", calls.to_vec(), usage(1, 1));
        assert_eq!(story.run.next_step(), Step::JudgeCalls(calls.to_vec()));
        if is_told_first {
            story.happens(Event::StopAfterStep);
        }
        story.happens(Event::CallAllowed { call_id: calls[0].id.clone(), arguments: None });
        assert_eq!(
            story.run.next_step(),
            Step::JudgeCalls(calls[1..].to_vec()),
            "it is not known yet what is to be asked"
        );
        let (step, call, reason) = (story.run.step(), calls[1].clone(), "The policy asks.".to_owned());
        story.happens(Event::ApprovalRequired(Box::new(ApprovalRequest { step, call, reason, expires_ms: 0 })));
        if !is_told_first {
            assert_eq!(story.run.next_step(), Step::Finish(StopReason::Approval));
            story.happens(Event::StopAfterStep);
        }
        assert_eq!(story.run.next_step(), Step::SkipTools(calls[..1].to_vec()), "nothing of that turn is called");
        skips(&mut story, &calls[..1]);
        story.completes_step();
        assert_eq!(story.ends().reason, StopReason::Cancelled);
        assert_eq!(roles(story.run.messages()), [Role::User, Role::Assistant, Role::Tool, Role::Tool]);
    }
}

#[test]
fn no_approval_is_asked_for_a_call_beyond_the_limit() {
    let mut story = Story::begin(RunSpec { policy: Some(Arc::default()), ..limited(1) });
    let calls = [call(1, "echo"), call(2, "pay")];
    story.says("", calls.to_vec(), usage(1, 1));
    assert_eq!(story.run.next_step(), Step::CutCalls(calls[1..].to_vec()));
    skips(&mut story, &calls[1..]);
    assert_eq!(story.run.next_step(), Step::JudgeCalls(calls[..1].to_vec()));
}

#[test]
fn a_cancellation_at_once_overtakes_one_after_the_step() {
    let mut story = Story::begin(spec());
    let calls = [call(1, "echo")];
    story.says("", calls.to_vec(), usage(1, 1));
    story.happens(Event::StopAfterStep);
    story.happens(Event::stop(StopReason::Cancelled));
    assert_eq!(story.run.next_step(), Step::SkipTools(calls.to_vec()));
}

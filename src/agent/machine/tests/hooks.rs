//! What hooks said of calls, and answers that hooks still look at.

use super::*;
use crate::types::hook::{HookPoint, HookRan, HookReply, PinnedHook, Sends};

fn said(story: &mut Story, call: &ToolCall, point: HookPoint) {
    let reply = HookReply { arguments: Some(r#"{"n":7}"#.to_owned()), ..HookReply::default() };
    let ran = HookRan {
        step: story.run.step(),
        hook: "audit".into(),
        point,
        call_id: Some(call.id.clone()),
        reply: if point == HookPoint::BeforeTool { reply } else { HookReply::default() },
        failed: false,
        latency_ms: 1,
    };
    story.happens(Event::HookRan(Box::new(ran)));
}

fn points(story: &Story, call: &ToolCall) -> Vec<HookPoint> {
    story.run.hooks_of(&call.id).iter().map(|ran| ran.point).collect()
}

#[test]
fn a_call_that_is_made_once_more_is_another_call_to_the_hooks_after_it() {
    let mut spec = spec();
    spec.options.on_unknown_outcome = OnUnknownOutcome::Ask;
    let mut story = Story::begin(spec);
    let pay = call(1, "pay");
    story.says("", vec![pay.clone()], usage(1, 1));
    said(&mut story, &pay, HookPoint::BeforeTool);
    assert!(story.run.is_changed(&pay.id) && story.run.arguments(&pay.id) == Some(r#"{"n":7}"#));
    story.happens(Event::ToolStarted { step: 1, call: pay.clone(), effect: Effect::Write });
    said(&mut story, &pay, HookPoint::AfterTool);
    let (step, name) = (1, pay.name.clone());
    story.happens(Event::ToolFinished { step, call_id: pay.id.clone(), name, outcome: ToolOutcome::lost("?") });
    story.completes_step();
    story.ends();
    assert_eq!(story.run.dispatched_before(&pay.id), 0);
    story.happens(Event::RunResumed { leg: Some(leg(Vec::new(), vec![(pay.id.clone(), Decision::Retry)])) });
    assert_eq!(points(&story, &pay), [HookPoint::BeforeTool], "it was judged, and has no answer yet");
    assert_eq!(story.run.dispatched_before(&pay.id), 1);
}

#[test]
fn an_answer_that_was_stored_is_looked_at_after_a_crash_and_by_a_run_that_stops() {
    for stops in [false, true] {
        let mut story = Story::begin(spec());
        let pay = call(1, "pay");
        story.says("", vec![pay.clone()], usage(1, 1));
        story.happens(Event::ToolStarted { step: 1, call: pay.clone(), effect: Effect::Write });
        let outcome = ToolOutcome::failed("no money");
        story.happens(Event::ToolAnswered { call_id: pay.id.clone(), outcome: Box::new(outcome.clone()) });
        story.happens(Event::RunResumed { leg: None });
        if stops {
            story.happens(Event::StopRequested { reason: StopReason::Cancelled, error: None, short: None });
        }
        assert_eq!(story.run.next_step(), Step::SettleAnswer(pay.clone(), Box::new(outcome)), "its outcome is known");
        story.finishes(&pay, "no money");
        assert_eq!(story.run.next_step(), Step::CompleteStep);
    }
}

#[test]
fn a_run_whose_time_is_up_calls_no_model_before_the_hooks_at_its_start() {
    let mut spec = spec();
    spec.on_limit = OnLimit::Synthesize;
    spec.hooks = vec![PinnedHook {
        name: "gate".into(),
        points: vec![HookPoint::RunStart],
        tools: vec!["*".to_owned()],
        is_asked: true,
        fails_open: false,
        sends: Sends::Nothing,
    }];
    for is_hooked in [false, true] {
        let mut story = Story::begin(spec.clone());
        assert_eq!(story.run.next_step(), Step::AskStartHooks);
        if is_hooked {
            story.happens(Event::StartHooked);
        }
        story.happens(Event::StopRequested { reason: StopReason::Timeout, error: None, short: None });
        let closes = matches!(story.run.next_step(), Step::CallModel { closing: Some(StopReason::Timeout), .. });
        assert_eq!(closes, is_hooked, "{:?}", story.run.next_step());
    }
}

#[test]
fn what_hooks_said_of_an_answer_that_a_crash_lost_is_not_said_of_the_next_one() {
    let mut story = Story::begin(spec());
    let look = call(1, "look");
    story.says("", vec![look.clone()], usage(1, 1));
    said(&mut story, &look, HookPoint::BeforeTool);
    story.happens(Event::ToolStarted { step: 1, call: look.clone(), effect: Effect::Read });
    said(&mut story, &look, HookPoint::AfterTool);
    said(&mut story, &look, HookPoint::OnError);
    story.happens(Event::RunResumed { leg: None });
    let Step::RunTools(calls) = story.run.next_step() else { panic!("{:?}", story.run.next_step()) };
    assert_eq!(calls[0].id, look.id, "it is made once more");
    assert_eq!(points(&story, &look), [HookPoint::BeforeTool]);
}

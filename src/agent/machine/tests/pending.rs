//! Calls that services accept, and answer later.

use super::*;
use crate::telemetry::traces::{Content, Providers, SpanFold, Subject};
use crate::types::pending::PendingCall;

/// A run whose calls of `render` were accepted, beside a call of `echo` that is still to be made.
fn accepted() -> (Story, ToolCall, ToolCall) {
    let mut story = Story::begin(spec());
    let (render, echo) = (call(1, "render"), call(2, "echo"));
    story.says("", vec![render.clone(), echo.clone()], usage(1, 1));
    let step = story.run.step();
    story.happens(Event::ToolStarted { step, call: render.clone(), effect: Effect::Write });
    let (call_id, name, began_ms) = (render.id.clone(), render.name.clone(), now_ms());
    let pending = PendingCall { step, call_id, name, began_ms, expires_ms: began_ms + 60_000 };
    story.happens(Event::ToolPending(Box::new(pending)));
    (story, render, echo)
}

impl Story {
    fn waits_for_services(&mut self) {
        assert_eq!(self.run.next_step(), Step::AwaitServices);
        let outcome = self.run.outcome(StopReason::ToolPending, now_ms());
        self.happens(Event::RunFinished(Box::new(outcome)));
        assert_eq!((self.run.status(), self.run.next_step()), (RunStatus::RequiresAction, Step::Done));
    }
}

#[test]
fn a_run_waits_once_nothing_is_left_but_calls_that_services_answer() {
    let (mut story, render, echo) = accepted();
    assert_eq!(story.run.next_step(), Step::RunTools(vec![echo.clone()]), "the other calls are made");
    story.answers(&echo, Effect::Read);
    story.waits_for_services();
    assert!(story.run.needs_no_reader());
    assert_eq!(story.run.outcome(StopReason::ToolPending, 0).required_calls[0].call, render);
    story.happens(Event::RunResumed { leg: None });
    story.waits_for_services();
    story.happens(Event::RunResumed { leg: None });
    let outcome = ToolOutcome { parts: vec![Part::text("7")], ..ToolOutcome::default() };
    story.happens(Event::ToolAnswered { call_id: render.id.clone(), outcome: Box::new(outcome.clone()) });
    assert_eq!(story.run.next_step(), Step::SettleAnswer(render.clone(), Box::new(outcome)));
    story.finishes(&render, "7");
    story.completes_step();
    assert!(matches!(story.run.next_step(), Step::CallModel { step: 2, .. }));
    let results: Vec<_> = story.run.messages().iter().filter(|message| message.role == Role::Tool).collect();
    assert!(json(results[0]).contains('7') && json(results[1]).contains("result"), "in call order");

    let mut fold = SpanFold::new(Subject::new(story.run.spec(), Content::Off), Providers::default());
    story.records.iter().for_each(|record| fold.apply(record));
    let spans = fold.into_spans();
    let made: Vec<_> = spans.iter().filter(|span| span.name == "execute_tool render").collect();
    assert_eq!((made.len(), made[0].parent), (1, Some(spans[0].id)), "it goes on beyond its step: {made:#?}");
}

/// The log of a run that waits in each step grows by as much with each.
#[test]
fn a_run_that_waits_tells_of_its_last_step_and_one_that_ends_of_all() {
    let mut story = Story::begin(spec());
    for number in 1..=3 {
        let render = call(number, "render");
        story.says("", vec![render.clone()], usage(1, 1));
        let step = story.run.step();
        story.happens(Event::ToolStarted { step, call: render.clone(), effect: Effect::Read });
        let (call_id, name, began_ms) = (render.id.clone(), render.name.clone(), now_ms());
        let pending = PendingCall { step, call_id, name, began_ms, expires_ms: began_ms + 60_000 };
        story.happens(Event::ToolPending(Box::new(pending)));
        let told = |reason| story.run.outcome(reason, now_ms()).report.steps.iter().map(|step| step.index).collect();
        let (waits, ends): (Vec<u32>, Vec<u32>) = (told(StopReason::ToolPending), told(StopReason::Cancelled));
        assert_eq!((waits, ends), (vec![step], (1..=step).collect()));
        story.waits_for_services();
        story.happens(Event::RunResumed { leg: None });
        let outcome = ToolOutcome { parts: vec![Part::text("7")], ..ToolOutcome::default() };
        story.happens(Event::ToolAnswered { call_id: render.id.clone(), outcome: Box::new(outcome) });
        story.finishes(&render, "7");
        story.completes_step();
    }
}

#[test]
fn a_crash_leaves_a_call_to_its_service() {
    let (mut story, render, echo) = accepted();
    story.happens(Event::RunResumed { leg: None });
    assert_eq!(story.run.next_step(), Step::RunTools(vec![echo.clone()]));
    story.answers(&echo, Effect::Read);
    assert_eq!((story.run.next_step(), story.run.attempt(&render.id)), (Step::AwaitServices, 1));
}

#[test]
fn a_run_that_stops_gives_its_services_up_and_says_so_of_each_call() {
    for waits in [false, true] {
        for event in [Event::stop(StopReason::Cancelled), Event::StopAfterStep] {
            let is_after_step = event == Event::StopAfterStep;
            let (mut story, render, echo) = accepted();
            story.answers(&echo, Effect::Read);
            if waits {
                story.waits_for_services();
            }
            if waits && is_after_step {
                // A run that waits is stopped at once in both modes.
                continue;
            }
            story.happens(event);
            assert_eq!(story.run.next_step(), Step::SkipTools(vec![render.clone()]), "waits: {waits}");
            story.finishes(&render, "stopped");
            if !waits {
                story.completes_step();
            }
            assert_eq!(story.ends().reason, StopReason::Cancelled);
            assert_eq!(story.run.last_step().unwrap().tool_calls.len(), 2);
        }
    }
}

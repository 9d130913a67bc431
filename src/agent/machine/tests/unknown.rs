//! Calls whose outcome is unknown.

use super::*;
use crate::telemetry::traces::{Content, Providers, SpanFold, Subject};
use crate::types::SpanKey;
use crate::types::trace::SpanId;

/// A run with this policy whose call of `pay` lost its answer, beside a call of `echo` that is still open.
fn lost(policy: OnUnknownOutcome) -> (Story, ToolCall, ToolCall) {
    let mut spec = spec();
    spec.options.on_unknown_outcome = policy;
    let mut story = Story::begin(spec);
    let (pay, echo) = (call(1, "pay"), call(2, "echo"));
    story.says("", vec![pay.clone(), echo.clone()], usage(1, 1));
    story.dispatches(&pay, Effect::Write);
    story.loses(&pay);
    (story, pay, echo)
}

impl Story {
    fn dispatches(&mut self, call: &ToolCall, effect: Effect) {
        let step = self.run.step();
        self.happens(Event::ToolStarted { step, call: call.clone(), effect });
    }

    fn loses(&mut self, call: &ToolCall) {
        let (step, name, outcome) = (self.run.step(), call.name.clone(), ToolOutcome::lost("It is not known."));
        self.happens(Event::ToolFinished { step, call_id: call.id.clone(), name, outcome });
    }

    fn continues(&mut self, answers: Vec<Message>, decisions: Vec<(CallId, Decision)>) {
        self.happens(Event::RunResumed { leg: Some(leg(answers, decisions)) });
    }
}

/// A run that asks its caller what came of `pay`.
fn asked() -> (Story, ToolCall) {
    let (mut story, pay, echo) = lost(OnUnknownOutcome::Ask);
    assert_eq!(story.run.next_step(), Step::RunTools(vec![echo.clone()]), "the other calls are made");
    story.answers(&echo, Effect::Read);
    story.completes_step();
    let outcome = story.ends();
    assert_eq!((outcome.reason, outcome.status()), (StopReason::OutcomeAsked, RunStatus::RequiresAction));
    assert_eq!(outcome.required_calls[0].call, pay);
    assert_eq!(outcome.required_calls[0].reason.as_deref(), Some("It is not known."));
    assert_eq!(story.run.next_step(), Step::Done);
    (story, pay)
}

/// The texts of the results that the model is told.
fn results(story: &Story) -> Vec<String> {
    let messages = story.run.messages().iter().filter(|message| message.role == Role::Tool);
    messages.map(|message| json(message).to_owned()).collect()
}

#[test]
fn a_run_whose_call_has_an_unknown_outcome_fails_and_names_the_call() {
    let (mut story, pay, echo) = lost(OnUnknownOutcome::Fail);
    assert_eq!(story.run.next_step(), Step::SkipTools(vec![echo.clone()]));
    story.dispatches(&echo, Effect::Read);
    story.finishes(&echo, "skipped");
    story.completes_step();
    let outcome = story.ends();
    assert_eq!((outcome.reason, outcome.status()), (StopReason::OutcomeUnknown, RunStatus::Failed));
    let error = outcome.error.unwrap();
    assert!(error.kind == ErrorKind::OutcomeUnknown && error.message.contains("`pay`"), "{error:?}");
    let report = &outcome.report.steps[0].tool_calls[0];
    assert_eq!((&report.call_id, report.outcome_unknown, report.skipped), (&pay.id, true, false));
}

#[test]
fn a_model_that_is_told_goes_on() {
    let (mut story, _, echo) = lost(OnUnknownOutcome::TellModel);
    story.answers(&echo, Effect::Read);
    story.completes_step();
    assert!(matches!(story.run.next_step(), Step::CallModel { step: 2, .. }));
    assert!(results(&story)[0].contains("It is not known."));
}

#[test]
fn a_callers_result_is_the_calls() {
    let (mut story, pay) = asked();
    story.continues(vec![Message::tool(&pay.id, "It was paid.")], Vec::new());
    assert!(matches!(story.run.next_step(), Step::CallModel { step: 2, .. }));
    let results = results(&story);
    assert!(results.len() == 2 && results[0].contains("result") && results[1].contains("It was paid."), "{results:?}");
}

#[test]
fn a_call_that_the_caller_skips_stays_unknown_to_the_model() {
    let (mut story, pay) = asked();
    let question = Message::text(Role::User, "And now?");
    story.continues(vec![question.clone()], vec![(pay.id, Decision::Skip)]);
    assert!(matches!(story.run.next_step(), Step::CallModel { step: 2, .. }));
    assert!(results(&story)[0].contains("It is not known."), "in call order");
    assert_eq!(roles(story.run.messages())[2..], [Role::Tool, Role::Tool, Role::User]);
}

#[test]
fn a_call_that_the_caller_retries_is_made_again_before_the_model_goes_on() {
    let (mut story, pay) = asked();
    let question = Message::text(Role::User, "And now?");
    story.continues(vec![question], vec![(pay.id.clone(), Decision::Retry)]);
    assert_eq!(story.run.next_step(), Step::RunTools(vec![pay.clone()]));
    assert_eq!((story.run.attempt(&pay.id), story.run.started(&pay.id)), (2, None), "its intent is recorded again");
    story.answers(&pay, Effect::Write);
    assert!(matches!(story.run.next_step(), Step::CallModel { step: 2, .. }), "its step was complete before");
    assert_eq!(roles(story.run.messages())[2..], [Role::Tool, Role::Tool, Role::User]);
    let report = &story.run.last_step().unwrap().tool_calls;
    assert_eq!(report.iter().filter(|report| report.call_id == pay.id).count(), 1, "{report:?}");
    let reported = report.iter().find(|report| report.call_id == pay.id);
    assert!(!reported.unwrap().outcome_unknown, "{report:?}");
}

#[test]
fn a_retried_call_whose_answer_is_lost_again_is_asked_about_again() {
    for is_crash in [false, true] {
        let (mut story, pay) = asked();
        story.continues(Vec::new(), vec![(pay.id.clone(), Decision::Retry)]);
        story.dispatches(&pay, Effect::Write);
        if is_crash {
            story.happens(Event::RunResumed { leg: None });
            assert_eq!(story.run.next_step(), Step::SettleUnknown(vec![pay.clone()]));
        }
        story.loses(&pay);
        assert_eq!(story.run.next_step(), Step::Finish(StopReason::OutcomeAsked));
        let outcome = story.ends();
        assert_eq!((outcome.required_calls.len(), outcome.tool_calls), (1, 2), "a call counts once");
    }
}

#[test]
fn a_run_that_is_cancelled_while_it_asks_keeps_what_is_known() {
    let (mut story, _) = asked();
    story.happens(Event::stop(StopReason::Cancelled));
    let outcome = story.ends();
    assert_eq!((outcome.status(), outcome.required_calls.len()), (RunStatus::Cancelled, 0));
    let messages = story.run.final_messages();
    assert!(json(&messages[2]).contains("It is not known."), "every call has a result");
}

#[test]
fn an_interrupted_write_is_never_run_again() {
    for policy in [OnUnknownOutcome::Fail, OnUnknownOutcome::Ask, OnUnknownOutcome::TellModel] {
        let mut spec = spec();
        spec.options.on_unknown_outcome = policy;
        let mut story = Story::begin(spec);
        let (write, read) = (call(1, "echo"), call(2, "echo"));
        story.says("", vec![write.clone(), read.clone()], usage(1, 1));
        story.dispatches(&write, Effect::Write);
        story.dispatches(&read, Effect::Read);
        story.happens(Event::RunResumed { leg: None });
        assert_eq!(story.run.next_step(), Step::SettleUnknown(vec![write.clone()]));
        story.loses(&write);
        let next = match policy {
            OnUnknownOutcome::Fail => Step::SkipTools(vec![read]),
            OnUnknownOutcome::Ask | OnUnknownOutcome::TellModel => Step::RunTools(vec![read]),
        };
        assert_eq!(story.run.next_step(), next, "a read may be repeated");
    }
}

/// A tool is told the span of its attempt before that is written.
#[test]
fn spans_count_attempts_as_the_run_does() {
    let mut spec = spec();
    spec.options.on_unknown_outcome = OnUnknownOutcome::Ask;
    let (mut story, pay) = (Story::begin(spec), call(1, "pay"));
    story.says("", vec![pay.clone()], usage(1, 1));
    story.dispatches(&pay, Effect::Write);
    story.happens(Event::RunResumed { leg: None });
    story.loses(&pay);
    story.completes_step();
    story.ends();
    story.continues(Vec::new(), vec![(pay.id.clone(), Decision::Retry)]);
    let told = SpanId::of(&story.run.spec().id, SpanKey::ToolCall(&pay.id, story.run.attempt(&pay.id)));
    story.answers(&pay, Effect::Write);
    let mut fold = SpanFold::new(Subject::new(story.run.spec(), Content::Off), Providers::default());
    story.records.iter().for_each(|record| fold.apply(record));
    let spans = fold.into_spans();
    let made: Vec<_> = spans.iter().filter(|span| span.name == "execute_tool pay").collect();
    assert_eq!((made.len(), made[1].id), (2, told), "{made:#?}");
}

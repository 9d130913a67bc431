//! What a model writes down before messages are replaced: it goes on until it is done, and no longer.

use super::*;
use crate::agent::machine::flushed::Next;
use crate::types::context::{
    ContextEvent, FlushAnswered, FlushAsked, FlushCalled, FlushEnded, FlushRules, SummaryCall,
};
use crate::types::conversation::{Part, PartKind};
use crate::types::event::Reservation;
use crate::types::run::OnLimit;

/// A run that is asked to write down four messages, with two calls of its model and a second for them.
fn flushing() -> Story {
    let mut spec = spec();
    spec.on_limit = OnLimit::Synthesize;
    let rules = FlushRules { enabled: true, max_iterations: 2, timeout_ms: 1_000, ..FlushRules::default() };
    Arc::make_mut(&mut spec.rules).context.flush = rules;
    let mut story = Story::begin(spec);
    asks(&mut story, 1);
    story
}

fn happens(story: &mut Story, event: ContextEvent) {
    story.happens(Event::Context(Box::new(event)));
}

fn asks(story: &mut Story, round: u32) {
    let (model, reserved) = (story.run.model().clone(), Reservation { output_tokens: 10, ..Reservation::default() });
    let asked = FlushAsked { step: 1, round, from: 0, upto: 4, messages: 4, model, reserved };
    happens(story, ContextEvent::FlushAsked(asked));
}

/// The model says this, or is not heard.
fn says(story: &mut Story, parts: Option<Vec<Part>>, latency_ms: u64) {
    let call =
        SummaryCall { model: story.run.model().clone(), messages: 4, usage: usage(5, 5), unconfirmed: Used::default() };
    let (lost, parts, call) = (parts.is_none(), parts.unwrap_or_default(), Box::new(call));
    happens(story, ContextEvent::FlushAnswered(FlushAnswered { step: 1, round: 1, parts, lost, latency_ms, call }));
}

fn writes(story: &mut Story) {
    says(story, Some(vec![PartKind::ToolCall(call(1, "memory_write")).into()]), 10);
}

fn is_made(story: &mut Story) {
    let called =
        FlushCalled { call_id: call(1, "").id, text: "ok".into(), is_error: false, wrote: true, latency_ms: 5 };
    happens(story, ContextEvent::FlushCalled(called));
}

fn next(story: &Story) -> Option<Next> {
    assert!(story.run.flush().is_none() || story.run.next_step() == Step::Flush);
    story.run.next_of_flush()
}

fn stopped(story: &mut Story) {
    story.happens(Event::StopRequested { reason: StopReason::Timeout, error: None, short: None });
}

#[test]
fn it_goes_on_until_the_model_has_nothing_more_to_write() {
    let mut story = flushing();
    assert!(story.run.flush().is_some_and(|flush| flush.open.is_some()), "a call that was lost is charged first");
    writes(&mut story);
    assert_eq!(next(&story), Some(Next::Call(call(1, "memory_write"))));
    is_made(&mut story);
    assert_eq!(next(&story), Some(Next::Ask { round: 2, within_ms: 985 }));
    let said: Vec<Role> = story.run.flush().unwrap().said().map(|message| message.role).collect();
    assert_eq!(said, [Role::Assistant, Role::Tool]);
    asks(&mut story, 2);
    says(&mut story, Some(vec![Part::text("NO_REPLY")]), 10);
    assert_eq!(next(&story), Some(Next::End(None)));
    let ended =
        FlushEnded { step: 1, round: 2, upto: 4, messages: 4, writes: 1, error: None, latency_ms: 0, call: None };
    happens(&mut story, ContextEvent::FlushEnded(ended));
    assert_eq!((next(&story), story.run.usage.total()), (None, 20));
    let report = story.run.outcome(StopReason::Done, 0).report.compactions.clone().unwrap().1;
    assert_eq!((report[0].iterations, report[0].latency_ms, report[0].usage.total()), (2, 25, 20));
}

#[test]
fn it_is_over_when_its_calls_or_its_time_are_used_up_or_the_run_is_to_stop() {
    let mut story = flushing();
    says(&mut story, None, 0);
    assert_eq!(next(&story), Some(Next::Ask { round: 2, within_ms: 1_000 }), "what was lost is asked again");
    asks(&mut story, 2);
    says(&mut story, None, 0);
    assert!(matches!(next(&story), Some(Next::End(Some(_)))), "but not for ever");
    let mut story = flushing();
    says(&mut story, Some(vec![PartKind::ToolCall(call(1, "memory_write")).into()]), 995);
    is_made(&mut story);
    assert!(matches!(next(&story), Some(Next::End(Some(why))) if why.contains("1000 ms")));
    let mut story = flushing();
    writes(&mut story);
    // Also where a closing answer is still to be asked for.
    stopped(&mut story);
    assert!(matches!(next(&story), Some(Next::End(Some(why))) if why.contains("stop")));
}

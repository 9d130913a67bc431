//! How often a call was dispatched.

use super::{Effect, Event, Story, ToolOutcome, call, spec, usage};

#[test]
fn attempts_count_every_resumption_whatever_else_was_answered() {
    let mut story = Story::begin(spec());
    let (slow, quick) = (call(1, "echo"), call(2, "echo"));
    story.says("", vec![slow.clone(), quick.clone()], usage(1, 1));
    for call in [&slow, &quick] {
        assert_eq!(story.run.attempt(&call.id), 1);
        story.happens(Event::ToolStarted { step: 1, call: call.clone(), effect: Effect::Read });
    }
    story.happens(Event::RunResumed { leg: None });
    assert_eq!((story.run.attempt(&slow.id), story.run.attempt(&quick.id)), (2, 2));
    story.finishes(&quick, "result");
    story.happens(Event::RunResumed { leg: None });
    assert_eq!(story.run.attempt(&slow.id), 3);
}

#[test]
fn a_call_whose_answer_was_lost_is_not_one_that_was_never_made() {
    let (lost, skipped) = (ToolOutcome::lost("?"), ToolOutcome::skipped("!"));
    assert_eq!(serde_json::to_value(&lost).unwrap()["ending"], "lost");
    assert_eq!(serde_json::to_value(&skipped).unwrap()["ending"], "skipped");
    let mut story = Story::begin(spec());
    let call = call(1, "echo");
    story.says("", vec![call.clone()], usage(1, 1));
    story.happens(Event::ToolStarted { step: 1, call: call.clone(), effect: Effect::Read });
    let name = call.name.clone();
    story.happens(Event::ToolFinished { step: 1, call_id: call.id, name, outcome: lost });
    let report = &story.run.last_step().unwrap().tool_calls[0];
    assert!(report.outcome_unknown && !report.skipped);
}

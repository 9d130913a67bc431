//! Calls of tools that need the run.

use super::*;

#[test]
fn calls_that_need_the_run_are_answered_in_their_place_one_by_one() {
    let mut spec = spec();
    spec.own_tools = vec![client_tool("recall")];
    let mut story = Story::begin(spec);
    let (first, second, third, last) = (call(1, "recall"), call(2, "add"), call(3, "recall"), call(4, "add"));
    story.says("", vec![first.clone(), second.clone(), third.clone(), last.clone()], usage(1, 1));
    assert_eq!(story.run.next_step(), Step::AnswerCall(first.clone()));
    story.answers(&first, Effect::Write);
    assert_eq!(story.run.next_step(), Step::RunTools(vec![second.clone()]), "what comes after waits");
    story.answers(&second, Effect::Read);
    assert_eq!(story.run.next_step(), Step::AnswerCall(third.clone()));
    let mut stopped = story.run.clone();
    stopped.apply(&encode(&mut 90, now_ms(), Event::stop(StopReason::Cancelled)).0);
    assert_eq!(stopped.next_step(), Step::SkipTools(vec![third.clone(), last]));
    story.happens(Event::ToolStarted { step: 1, call: third.clone(), effect: Effect::Write });
    story.happens(Event::RunResumed { leg: None });
    assert_eq!(story.run.next_step(), Step::SettleUnknown(vec![third]));
}

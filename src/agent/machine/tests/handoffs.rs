//! A run that is handed off, as its records tell.

use super::*;
use crate::types::fallback::FallbackUsage;
use crate::types::handoff::HANDOFF;
use crate::types::succession::Handoff;

/// A run that may be handed off.
fn front() -> RunSpec {
    let tool = ToolDefinition { name: HANDOFF.into(), ..ToolDefinition::default() };
    let limits = Limits { max_iterations: 4, token_budget: Some(10_000), ..spec().limits };
    RunSpec { agent: "front".into(), own_tools: vec![Arc::new(tool)], limits, ..spec() }
}

/// What it is as another agent, of another model with a smaller window.
fn billing(run: &Run) -> RunSpec {
    let agents = Limits { max_iterations: 20, token_budget: Some(5_000), max_tool_calls: Some(1), ..spec().limits };
    RunSpec {
        agent: "billing".into(),
        upstream_model: "small".into(),
        context_window: 2_000,
        limits: run.limits_under(&agents),
        warnings: vec!["be careful".into()],
        ..spec()
    }
}

fn handoff(run: &Run, call: &ToolCall, heavier: i64) -> Event {
    Event::Handoff(Box::new(Handoff {
        step: run.step(),
        call_id: call.id.clone(),
        from: "front".into(),
        to: "billing".into(),
        reason: "money".into(),
        spec: Arc::new(billing(run).without_kept()),
        heavier,
        shown_from: None,
    }))
}

#[test]
fn a_run_becomes_what_was_recorded_once_the_calls_of_the_turn_are_answered() {
    let front = front();
    let mut story = Story::begin(front.clone());
    let (hands, other) = (call(1, HANDOFF), call(2, "echo"));
    story.says("", vec![hands.clone(), other.clone()], usage(90, 10));
    assert_eq!(story.run.next_step(), Step::AnswerCall(hands.clone()));
    let step = story.run.step();
    story.happens(Event::ToolStarted { step, call: hands.clone(), effect: Effect::Read });
    story.happens(handoff(&story.run, &hands, 1_000));
    // A second one of the turn changes nothing.
    story.happens(handoff(&story.run, &other, 0));
    story.finishes(&hands, "result");
    let (tokens, pending) = (story.run.context_tokens(), story.run.pending_handoff().unwrap());
    assert_eq!((&pending.call_id, &*story.run.spec().agent), (&hands.id, "front"), "others are answered as before");
    story.answers(&other, Effect::Read);
    story.completes_step();

    let (run, first) = (&story.run, story.run.first_spec());
    assert_eq!((&*run.spec().agent, &*first.agent, run.spec().handoff.before), ("billing", "front", 1));
    assert_eq!((&run.spec().id, &run.spec().input), (&first.id, &first.input), "it is the same run");
    assert_eq!((&*run.model().model, run.terms().context_window), ("small", 2_000));
    assert!(run.context_tokens() >= tokens + 1_000 && run.pending_handoff().is_none());
    let Limits { max_iterations, token_budget, max_tool_calls, .. } = run.spec().limits;
    assert_eq!((max_iterations, token_budget, max_tool_calls), (4, Some(5_100), Some(3)), "they count from here on");
    assert_eq!(run.unnamed_model().map(|model| &*model.model), Some("small"));

    story.says("done", vec![], usage(190, 10));
    assert!(story.run.unnamed_model().is_none(), "the log names it by now");
    story.completes_step();
    let end = story.ends();
    assert_eq!((end.usage.total(), end.warnings), (300, vec!["be careful".to_owned()]));
    let of_front = FallbackUsage { model: "scripted/m".into(), usage: usage(90, 10), cost: Micros(0) };
    assert_eq!(end.of_fallbacks, [of_front], "what each model took is told apart");

    let replayed = Run::new(Arc::new(front)).replayed(story.records.iter().map(Arc::as_ref));
    let of = |run: &Run| (run.spec().agent.clone(), run.spec().limits, run.context_tokens(), run.messages().to_vec());
    assert_eq!(of(&replayed), of(&story.run), "it is what its records tell");
}

#[test]
fn a_run_that_waits_for_its_client_becomes_another_agents_with_the_answer() {
    let mut story = Story::begin(RunSpec { client_tools: vec![client_tool("ask")], ..front() });
    let (hands, theirs) = (call(1, HANDOFF), call(2, "ask"));
    story.says("", vec![hands.clone(), theirs.clone()], usage(1, 1));
    let step = story.run.step();
    story.happens(Event::ToolStarted { step, call: hands.clone(), effect: Effect::Read });
    story.happens(handoff(&story.run, &hands, 0));
    story.finishes(&hands, "result");
    story.completes_step();
    assert_eq!(story.ends().reason, StopReason::ClientTools);
    assert_eq!(story.run.spec().agent, "front");
    story.happens(Event::RunResumed { leg: Some(leg(vec![Message::tool(&theirs.id, "yes")], Vec::new())) });
    assert_eq!(story.run.spec().agent, "billing");
    assert_eq!(story.run.spec().client_tools.len(), 1, "its client has the same tools");
    assert!(matches!(story.run.next_step(), Step::CallModel { step: 2, .. }));
}

#[test]
fn an_agent_that_allows_more_widens_nothing() {
    let mut own = front();
    own.limits = Limits { max_tool_calls: Some(2), cost_budget: Some(Micros(900)), ..own.limits };
    let run = Run::new(Arc::new(own.clone()));
    let wide = Limits {
        max_iterations: 100,
        max_tool_calls: Some(50),
        timeout_ms: u64::MAX,
        tool_timeout_ms: u64::MAX,
        token_budget: Some(1_000_000),
        cost_budget: Some(Micros(1_000_000)),
    };
    let endless = Limits { max_tool_calls: None, token_budget: None, cost_budget: None, ..wide };
    assert_eq!([wide, endless].map(|agents| run.limits_under(&agents)), [own.limits; 2]);
}

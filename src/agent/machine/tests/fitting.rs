//! Whether the next call fits, and what follows.

use super::*;
use crate::types::context::{
    Compacted, Compaction, CompactionFailed, ContextEvent, ContextRules, Method, Pruned, Summary, TriggerRules,
    WindowLearned,
};

/// A run whose conversation has so many tokens, of a model that takes a thousand.
fn with_tokens(tokens: u64, compaction: Compaction) -> Story {
    let mut spec = RunSpec { context_window: 1_000, context_tokens: tokens, ..spec() };
    Arc::make_mut(&mut spec.rules).context = ContextRules { compaction, ..ContextRules::default() };
    Story::begin(spec)
}

fn context(event: ContextEvent) -> Event {
    Event::Context(Box::new(event))
}

fn pruned(after_tokens: u64) -> Event {
    context(ContextEvent::Pruned(Pruned { step: 1, soft: 1, hard: 0, results: 1, before_tokens: 0, after_tokens }))
}

fn compacted(method: Method, after_tokens: u64) -> Event {
    let summary = Arc::new(Summary { version: 1, method, text: "so far".into() });
    let (covers, kept, call) = (1, Vec::new(), None);
    let (before_tokens, latency_ms) = (0, 0);
    let compacted = Compacted { step: 1, covers, kept, summary, before_tokens, after_tokens, latency_ms, call };
    context(ContextEvent::Compacted(compacted))
}

fn failed(method: Method) -> Event {
    let (reason, interrupted, latency_ms, call) = ("it broke".to_owned(), false, 0, None);
    context(ContextEvent::CompactionFailed(CompactionFailed { step: 1, method, reason, interrupted, latency_ms, call }))
}

fn calls_model(story: &Story) -> bool {
    matches!(story.run.next_step(), Step::CallModel { .. })
}

#[test]
fn a_conversation_that_fits_is_left_as_it_is() {
    let story = with_tokens(562, Compaction::Auto);
    assert!(calls_model(&story) && story.run.view().is_none());
    assert_eq!(with_tokens(563, Compaction::Auto).run.next_step(), Step::Fit(Some(Method::Llm)));
    assert!(calls_model(&with_tokens(999, Compaction::Off)));
}

#[test]
fn one_that_was_shortened_is_left_alone_until_it_has_grown() {
    let mut story = with_tokens(900, Compaction::Local);
    story.happens(compacted(Method::Local, 300));
    assert!(calls_model(&story));
    assert_eq!(story.run.view().map(|view| view.covers), Some(1));
    let mut story = with_tokens(900, Compaction::Local);
    story.happens(pruned(600));
    assert!(calls_model(&story), "it is too long by the threshold, and it was just shortened");
    story.says("", vec![call(1, "echo")], usage(670, 10));
    story.answers(&call(1, "echo"), Effect::Read);
    story.completes_step();
    assert_eq!(story.run.next_step(), Step::Fit(Some(Method::Local)), "it has grown by an eighth");
}

#[test]
fn each_method_is_tried_and_then_the_run_ends() {
    let mut story = with_tokens(2_000, Compaction::Auto);
    for method in [Method::Llm, Method::Local, Method::Truncate] {
        assert_eq!(story.run.next_step(), Step::Fit(Some(method)));
        story.happens(failed(method));
    }
    assert_eq!(story.run.next_step(), Step::Fit(None), "the last way that is left");
    story.happens(failed(Method::Truncate));
    let outcome = story.ends();
    assert_eq!((outcome.reason, outcome.status()), (StopReason::ContextLimit, RunStatus::Failed));
    assert_eq!(outcome.error.unwrap().kind, ErrorKind::ContextLength);
}

#[test]
fn rounds_that_bring_too_little_are_few() {
    let mut story = with_tokens(9_000, Compaction::Auto);
    let mut rounds = 0;
    while let Step::Fit(method) = story.run.next_step() {
        rounds += 1;
        let after = 9_000 - rounds * 900;
        story.happens(method.map_or_else(|| pruned(after), |method| compacted(method, after)));
    }
    assert_eq!(rounds, 4);
    assert_eq!(story.ends().reason, StopReason::ContextLimit);
}

#[test]
fn one_that_fits_the_window_is_sent_though_it_could_not_be_shortened() {
    let mut story = with_tokens(700, Compaction::Truncate);
    story.happens(failed(Method::Truncate));
    story.happens(failed(Method::Truncate));
    assert!(calls_model(&story));
    story.says("done", Vec::new(), usage(700, 10));
}

#[test]
fn a_window_that_is_smaller_than_believed_is_learned_and_the_call_is_made_once_more() {
    let mut story = with_tokens(400, Compaction::Local);
    assert!(story.run.may_shorten());
    story.calls_model();
    let (step, reason) = (1, DiscardReason::NoAnswer);
    let (usage, unconfirmed) = (Usage::default(), Used::default());
    story.happens(Event::StepDiscarded { step, reason, usage, unconfirmed });
    let learned = WindowLearned { step, model: "scripted/m".into(), window: 500, tokens: 600 };
    story.happens(context(ContextEvent::WindowLearned(learned)));
    assert_eq!(story.run.terms().context_window, 500);
    assert_eq!(story.run.next_step(), Step::Fit(Some(Method::Local)));
    assert!(!story.run.may_shorten(), "once");
    story.happens(compacted(Method::Local, 200));
    assert!(calls_model(&story));
}

#[test]
fn what_a_session_keeps_begins_its_next_run() {
    let mut story = with_tokens(900, Compaction::Local);
    story.happens(compacted(Method::Local, 500));
    let kept = story.run.session_context(7).unwrap();
    assert_eq!((kept.view.covers, kept.anchor.map(|anchor| (anchor.messages, anchor.tokens))), (1, Some((7, 500))));
    let next = Run::new(Arc::new(RunSpec { view: Some(Arc::new(kept.view.clone())), ..spec() }));
    assert_eq!(next.view(), Some(&kept.view));
    assert_eq!(with_tokens(10, Compaction::Local).run.session_context(7), None, "a short one keeps nothing");
}

/// A run that shortens its conversation and nothing else.
fn compaction(tokens: u64, compaction: Compaction) -> Story {
    let mut spec = RunSpec { compacts: true, input: Vec::new(), history_len: 40, context_tokens: tokens, ..spec() };
    Arc::make_mut(&mut spec.rules).context = ContextRules { compaction, ..ContextRules::default() };
    Story::begin(spec)
}

#[test]
fn a_run_that_only_shortens_ends_once_a_method_did() {
    let mut story = compaction(100, Compaction::Auto);
    assert!(story.run.shortens_early());
    assert_eq!(story.run.next_step(), Step::Fit(Some(Method::Llm)));
    story.happens(failed(Method::Llm));
    assert_eq!(story.run.next_step(), Step::Fit(Some(Method::Local)));
    story.happens(compacted(Method::Local, 50));
    assert_eq!(story.run.next_step(), Step::Finish(StopReason::Done));
    let outcome = story.ends();
    let reported = outcome.report.compactions.clone().unwrap();
    assert_eq!((reported.0.len(), reported.0[0].method, reported.0[0].removed_messages), (1, Method::Local, 1));
    assert!(outcome.warnings.is_empty() && outcome.iterations == 0, "{:?}", outcome.warnings);
}

#[test]
fn a_run_that_could_not_shorten_ends_all_the_same() {
    let mut story = compaction(100, Compaction::Local);
    for method in [Method::Local, Method::Truncate] {
        assert_eq!(story.run.next_step(), Step::Fit(Some(method)));
        story.happens(failed(method));
    }
    let outcome = story.ends();
    assert_eq!((outcome.reason, outcome.report.compactions.clone()), (StopReason::Done, None));
    assert_eq!(outcome.warnings.len(), 1);
}

fn triggered(triggers: TriggerRules, input_since: u64) -> Story {
    let mut spec = RunSpec { input_since, context_tokens: 100, history_len: 40, ..spec() };
    Arc::make_mut(&mut spec.rules).context = ContextRules { triggers, ..ContextRules::default() };
    Story::begin(spec)
}

#[test]
fn many_messages_make_a_conversation_too_long_until_it_was_shortened_or_could_not_be() {
    let triggers = TriggerRules { messages: Some(40), ..TriggerRules::default() };
    let mut story = triggered(triggers.clone(), 0);
    assert_eq!(story.run.next_step(), Step::Fit(Some(Method::Llm)), "the forty-first is the question");
    story.happens(compacted(Method::Llm, 90));
    assert!(calls_model(&story));
    let mut story = triggered(triggers, 0);
    for method in [Method::Llm, Method::Local, Method::Truncate] {
        assert_eq!(story.run.next_step(), Step::Fit(Some(method)));
        story.happens(failed(method));
    }
    assert_eq!(story.run.next_step(), Step::Fit(None));
    story.happens(failed(Method::Truncate));
    story.says("", vec![call(1, "echo")], usage(100, 10));
    story.answers(&call(1, "echo"), Effect::Read);
    story.completes_step();
    assert!(calls_model(&story), "it has grown by two messages, and not by an eighth");
}

#[test]
fn input_tokens_are_counted_until_the_conversation_is_shortened() {
    let triggers = TriggerRules { input_tokens: Some(1_000), ..TriggerRules::default() };
    let mut story = triggered(triggers.clone(), 800);
    story.says("", vec![call(1, "echo")], usage(150, 10));
    story.answers(&call(1, "echo"), Effect::Read);
    story.completes_step();
    story.says("", vec![call(2, "echo")], usage(160, 10));
    story.answers(&call(2, "echo"), Effect::Read);
    story.completes_step();
    assert_eq!(story.run.session_context(50).unwrap().input_tokens, 1_110);
    assert_eq!(story.run.next_step(), Step::Fit(Some(Method::Llm)));
    story.happens(compacted(Method::Llm, 90));
    assert!(calls_model(&story));
    assert_eq!(story.run.session_context(20).unwrap().input_tokens, 0);
    let later = TriggerRules { after_run: true, ..triggers };
    let story = triggered(later, 1_000);
    assert!(calls_model(&story), "it is shortened once the run has ended");
    let mut spec = RunSpec::clone(story.run.spec());
    assert!(!story.run.is_to_be_compacted(), "there is no session");
    spec.session = crate::types::SessionId::parse("s");
    assert!(Run::new(Arc::new(spec.clone())).is_to_be_compacted());
    spec.input_since = 0;
    assert!(!Run::new(Arc::new(spec.clone())).is_to_be_compacted());
    spec.context_tokens = 100_000;
    assert!(Run::new(Arc::new(spec)).is_to_be_compacted(), "it nearly fills what it may");
}

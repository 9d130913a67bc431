//! Whether the next call fits, and what follows.

use super::*;
use crate::types::context::{
    Compacted, Compaction, CompactionFailed, ContextEvent, ContextRules, Method, Pruned, Summary, WindowLearned,
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

//! Conversations that are shortened although they fit: as they have many messages, or as these took many tokens; before the next
//! call, or after a run.

use super::requested::{known, tenant};
use super::*;

const LARGE: u64 = 100_000;

fn triggered(triggers: TriggerRules) -> LoopRules {
    let mut rules = rules(Compaction::Auto);
    rules.context.triggers = triggers;
    rules
}

/// Says something so often, and returns the records of each run.
async fn talk(agent: &TestAgent, turns: std::ops::Range<usize>) -> Vec<Vec<Record>> {
    let mut all = Vec::new();
    for turn in turns {
        let records = watch(agent.start(says(&format!("turn {turn} {}", "x".repeat(300))), None).await.unwrap()).await;
        assert_eq!(outcome(&records).reason, StopReason::Done, "turn {turn}");
        all.push(records);
    }
    all
}

fn all_methods(runs: &[Vec<Record>]) -> Vec<Method> {
    runs.iter().flat_map(|records| methods(records)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_conversation_of_many_messages_is_shortened_before_the_next_call() {
    let model = Windowed::new(LARGE, true, 1, Summaries::Written);
    let rules = triggered(TriggerRules { messages: Some(20), ..TriggerRules::default() });
    let agent = TestAgent::builder().windowed(&model, LARGE).rules(rules).begin();
    let runs = talk(&agent, 0..40).await;
    let found = all_methods(&runs);
    assert!((5..20).contains(&found.len()) && found.iter().all(|method| *method == Method::Llm), "{found:?}");
    let most = model.requests.lock().iter().map(crate::types::Conversation::count).max().unwrap();
    assert!(most <= 20 + 4, "{most} messages");
    assert_eq!(stored(&agent).await.len(), 40 * 4);
    let report = runs.iter().find_map(|records| outcome(records).report.compactions.clone()).unwrap();
    assert!(report.0[0].removed_messages > 8 && report.0[0].after_tokens < report.0[0].before_tokens);
}

#[tokio::test(start_paused = true)]
async fn a_request_may_have_its_conversation_shortened_sooner_than_its_agent() {
    let model = Windowed::new(LARGE, true, 1, Summaries::Written);
    let agent = TestAgent::builder().windowed(&model, LARGE).rules(triggered(TriggerRules::default())).begin();
    let runs = talk(&agent, 0..10).await;
    assert!(all_methods(&runs).is_empty());
    let triggers = TriggersPatch { messages: Some(20), ..TriggersPatch::default() };
    let context = ContextPatch { triggers, ..ContextPatch::default() };
    let new = NewRun { rules: RulesPatch { context, ..RulesPatch::default() }, ..says("And now?") };
    let records = watch(agent.start(new, None).await.unwrap()).await;
    assert_eq!(methods(&records), [Method::Llm]);
}

#[tokio::test(start_paused = true)]
async fn what_calls_took_is_counted_over_runs_and_from_each_time_anew() {
    let model = Windowed::new(LARGE, true, 1, Summaries::Written);
    let rules = triggered(TriggerRules { input_tokens: Some(20_000), ..TriggerRules::default() });
    let agent = TestAgent::builder().windowed(&model, LARGE).rules(rules).begin();
    let (mut since, mut times) = (0, 0);
    for records in talk(&agent, 0..60).await {
        let steps = &outcome(&records).report.steps;
        let spent: u64 = steps.iter().map(|step| step.usage.prompt_tokens).sum();
        if methods(&records).is_empty() {
            since += spent;
        } else {
            times += 1;
            assert!(since + spent >= 20_000, "after {since} tokens");
            since = steps.last().unwrap().usage.prompt_tokens;
        }
    }
    assert!((3..20).contains(&times), "{times}");
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_shortened_is_not_tried_at_every_call() {
    let model = Windowed::new(LARGE, true, 1, Summaries::Written);
    let rules = triggered(TriggerRules { messages: Some(2), ..TriggerRules::default() });
    let agent = TestAgent::builder().windowed(&model, LARGE).rules(rules).begin();
    let runs = talk(&agent, 0..12).await;
    let tried = runs.iter().flat_map(|records| shortened(records)).count();
    assert!(tried < 30, "{tried} events in 24 calls");
    assert!(runs.iter().all(|records| outcome(records).reason == StopReason::Done));
}

/// Waits until no run shortens the session, and it was shortened so often.
async fn settled(agent: &TestAgent, version: u32) {
    for _ in 0..10_000 {
        let session = known(agent).await;
        let done = session.context.and_then(|context| context.view.summary.clone()).map_or(0, |done| done.version);
        if session.compacting.is_none() && done >= version {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was not shortened");
}

#[tokio::test(start_paused = true)]
async fn after_a_run_it_is_shortened_in_the_background_and_no_run_waits_for_that() {
    let model = Windowed::new(LARGE, true, 1, Summaries::Slow);
    let rules = triggered(TriggerRules { messages: Some(20), after_run: true, ..TriggerRules::default() });
    let agent = TestAgent::builder().windowed(&model, LARGE).rules(rules).begin();
    let first = talk(&agent, 0..6).await;
    assert!(all_methods(&first).is_empty());
    // These come while the summary is written, and stay as they are.
    let meanwhile = talk(&agent, 6..8).await;
    assert!(all_methods(&meanwhile).is_empty());
    settled(&agent, 1).await;
    let view = known(&agent).await.context.unwrap().view;
    assert_eq!(view.covers, 6 * 4 - 8, "what the run had read, but for the newest");
    assert_eq!(model.summarised.lock().len(), 1, "one was asked for, though three runs ended");
    talk(&agent, 8..9).await;
    let sent = joined(model.requests.lock().last().unwrap());
    assert!(sent.contains("SUMMARY 0") && sent.contains("turn 6 x") && sent.contains("turn 7 x"), "{sent}");
    let session = known(&agent).await;
    assert_eq!((session.message_count, session.runs), (9 * 4, 10));
    assert_eq!(stored(&agent).await.len(), 9 * 4);
    assert!(session.usage.total() > 0 && session.id == super::session() && tenant() == Tenant::default_tenant());
}

#[tokio::test(start_paused = true)]
async fn one_that_nearly_fills_its_room_is_shortened_after_the_run() {
    let model = Windowed::new(WINDOW, true, 1, Summaries::Written);
    let rules = triggered(TriggerRules { after_run: true, ..TriggerRules::default() });
    let agent = TestAgent::builder().windowed(&model, WINDOW).rules(rules).begin();
    let (mut in_runs, mut before) = (0, 0);
    for turn in 0..60 {
        let runs = talk(&agent, turn..turn + 1).await;
        in_runs += all_methods(&runs).len();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let summaries = model.summarised.lock().len();
        before = before.max(summaries);
    }
    assert!(before >= 4, "{before}");
    assert!(in_runs <= 1, "it is done between runs: {in_runs}");
    assert_eq!(model.refused.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_trigger_nothing_happens() {
    let model = Windowed::new(LARGE, true, 1, Summaries::Written);
    let agent = TestAgent::builder().windowed(&model, LARGE).rules(rules(Compaction::Auto)).begin();
    let runs = talk(&agent, 0..40).await;
    assert!(runs.iter().all(|records| shortened(records).is_empty()));
    assert_eq!(known(&agent).await.context, None);
}

//! What runs and keys are charged for model calls that end badly, or do not say what they took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::quota::{count, counter, keyed, memory, partition, quotas, standing, tokens};
use super::support::{Say, TestAgent, client_tool, outcome, request, request_with, shown, watch};
use crate::agent::{LimitsPatch, NewRun, Started};
use crate::llm::{ModelErrorKind, Spent};
use crate::store::faulty::{Fate, Faulty};
use crate::store::{Store, Write};
use crate::types::event::DiscardReason;
use crate::types::run::OnLimit;
use crate::types::shortfall::BudgetKind;
use crate::types::{Event, Message, Record, StopReason, Used};

/// Why steps were voided, in order.
fn voided(records: &[Record]) -> Vec<DiscardReason> {
    let reasons = records.iter().filter_map(|record| match &record.event {
        Event::StepDiscarded { reason, .. } => Some(*reason),
        _ => None,
    });
    reasons.collect()
}

/// Reads until a step has begun, and lets its model call begin too.
async fn until_the_model_is_asked(started: &mut Started) {
    let begins = |record: &Arc<Record>| matches!(record.event, Event::StepStarted { .. });
    while !started.follower.next().await.unwrap().unwrap().iter().any(begins) {}
    tokio::time::sleep(Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_without_usage_is_charged_for_its_thinking_too() {
    const THINKING: &str = "forty characters of thinking, every time";
    let agent = TestAgent::builder().turns(vec![Say::Unmetered(THINKING, "ok")]).begin();
    let outcome = outcome(&watch(agent.start(request(), None).await.unwrap()).await);
    assert_eq!((outcome.usage.completion_tokens, outcome.usage.estimated), (11, true), "42 bytes");
    assert!(outcome.warnings.iter().any(|warning| warning.contains("estimated")), "{:?}", outcome.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_while_it_is_silent_is_charged_all_that_it_was_allowed() {
    let store = memory();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Silent]).quotas(quotas(tokens(10_000)));
    let agent = agent.begin();
    let mut started = agent.start(keyed(), None).await.unwrap();
    let (tenant, run) = (keyed().tenant, started.head.id.clone());
    until_the_model_is_asked(&mut started).await;
    agent.runs().cancel(&tenant, &run).await.unwrap();
    let outcome = outcome(&watch(started).await);
    assert_eq!((outcome.reason, outcome.usage.completion_tokens), (StopReason::Cancelled, 300));
    assert!(outcome.usage.estimated && outcome.usage.prompt_tokens > 0);
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, outcome.usage.total());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_before_its_answer_begins_is_charged_its_input() {
    let agent = TestAgent::builder().turns(vec![Say::Stall(&[])]).begin();
    let mut started = agent.start(request(), None).await.unwrap();
    let (tenant, run) = (request().tenant, started.head.id.clone());
    until_the_model_is_asked(&mut started).await;
    agent.runs().cancel(&tenant, &run).await.unwrap();
    let outcome = outcome(&watch(started).await);
    assert_eq!((outcome.reason, outcome.usage.completion_tokens), (StopReason::Cancelled, 0));
    assert!(outcome.usage.estimated && outcome.usage.prompt_tokens > 0, "{:?}", outcome.usage);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_between_attempts_that_cost_nothing_is_charged_nothing() {
    for (seconds, is_charged) in [(1, false), (11, true)] {
        let agent = TestAgent::builder().turns(vec![Say::Pauses]).begin();
        let mut started = agent.start(request(), None).await.unwrap();
        let (tenant, run) = (request().tenant, started.head.id.clone());
        until_the_model_is_asked(&mut started).await;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        agent.runs().cancel(&tenant, &run).await.unwrap();
        let outcome = outcome(&watch(started).await);
        assert_eq!(outcome.reason, StopReason::Cancelled);
        let charged = (outcome.usage.prompt_tokens > 0, outcome.usage.estimated);
        assert_eq!(charged, (is_charged, is_charged), "after {seconds} s the next attempt has begun: {is_charged}");
    }
}

/// Where an answer is asked for in one piece, what the upstream has made of it is not known before its end.
#[tokio::test(start_paused = true)]
async fn a_call_whose_answer_nobody_reads_as_it_is_said_is_charged_all_that_it_was_allowed() {
    for (turn, output) in [(Say::Stall(&[]), 300), (Say::Pauses, 0)] {
        let agent = TestAgent::builder().turns(vec![turn]).begin();
        let new = NewRun { waits_for_the_end: true, max_output_tokens: Some(300), ..request() };
        let (tenant, run) = (new.tenant.clone(), new.id.clone());
        let started = agent.start(new, None).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        agent.runs().cancel(&tenant, &run).await.unwrap();
        let outcome = outcome(&watch(started).await);
        assert_eq!((outcome.reason, outcome.usage.completion_tokens), (StopReason::Cancelled, output));
        assert_eq!(outcome.usage.prompt_tokens > 0, output > 0, "{:?}", outcome.usage);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_handed_over_between_attempts_that_cost_nothing_is_charged_nothing_for_them() {
    for (seconds, is_free) in [(1, true), (11, false)] {
        let store = memory();
        let first = TestAgent::builder().store(store.clone()).turns(vec![Say::Pauses]).begin();
        let mut started = first.start(request(), None).await.unwrap();
        let (tenant, run) = (request().tenant, started.head.id.clone());
        until_the_model_is_asked(&mut started).await;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        drop(started);
        // The store is not closed with it: another replica uses it.
        first.rooms.lifecycle.leave().await;
        first.replica().retire().await.unwrap();
        let second = TestAgent::builder().store(store).turns(vec![Say::Text(&["hi"])]).begin();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let outcome = second.runs().get(&tenant, &run).await.unwrap().outcome.unwrap();
        assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Done, "hi"));
        let usage = (outcome.usage.total() == 15, outcome.usage.estimated);
        assert_eq!(usage, (is_free, !is_free), "after {seconds} s: {:?}", outcome.usage);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_costs_nothing_also_when_the_runs_time_is_up() {
    for (turn, is_free) in [(Say::Refused, true), (Say::Deadline(&[]), false)] {
        let agent = TestAgent::builder().turns(vec![turn]).begin();
        let limits = LimitsPatch { timeout_ms: Some(2_000), ..LimitsPatch::default() };
        let outcome = outcome(&watch(agent.start(request_with(limits), None).await.unwrap()).await);
        assert_eq!((outcome.reason, outcome.usage.total() == 0), (StopReason::Timeout, is_free));
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_that_may_have_cost_something_are_charged_and_made_again_within_the_budget() {
    let ways = &[
        (ModelErrorKind::Transient, Spent::Input),
        (ModelErrorKind::Transient, Spent::Unknown),
        (ModelErrorKind::Transient, Spent::Input),
    ];
    let store = memory();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Fails(ways)]).quotas(quotas(tokens(10_000)));
    let agent = agent.begin();
    let records = watch(agent.start(keyed(), None).await.unwrap()).await;
    let outcome = outcome(&records);
    assert_eq!((outcome.output_text.as_str(), voided(&records)), ("at last", vec![DiscardReason::NoAnswer; 3]));
    let input = outcome.usage.prompt_tokens - 10;
    assert!(input > 0 && input.is_multiple_of(3), "three attempts are charged their input: {input}");
    assert_eq!((outcome.usage.completion_tokens, outcome.usage.estimated), (5, true));
    let Used { tokens, .. } = outcome.budget.unconfirmed;
    assert_eq!(tokens, 300, "what the second one said is not known");
    assert!(outcome.warnings.iter().any(|warning| warning.contains("300 more tokens")), "{:?}", outcome.warnings);
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, outcome.usage.total() + 300);
    assert_eq!(standing(&store).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn attempts_that_may_have_cost_something_are_made_four_times_at_most() {
    let agent = TestAgent::builder().turns(vec![Say::Fails(&[(ModelErrorKind::Transient, Spent::Unknown); 9])]).begin();
    let request = NewRun { max_output_tokens: Some(300), ..request() };
    let records = watch(agent.start(request, None).await.unwrap()).await;
    let outcome = outcome(&records);
    assert_eq!((outcome.reason, agent.model.requests.lock().len()), (StopReason::ProviderError, 4));
    assert_eq!(outcome.budget.unconfirmed.tokens, 900, "of the last attempt the run is charged the whole");
    assert_eq!(outcome.usage.completion_tokens, 300);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_sent_and_not_answered_in_time_is_charged_and_not_repeated() {
    let agent = TestAgent::builder().turns(vec![Say::Fails(&[(ModelErrorKind::Timeout, Spent::Input); 9])]).begin();
    let outcome = outcome(&watch(agent.start(request(), None).await.unwrap()).await);
    assert_eq!((outcome.reason, agent.model.requests.lock().len()), (StopReason::ProviderError, 1));
    assert!(outcome.usage.prompt_tokens > 0 && outcome.usage.completion_tokens == 0 && outcome.usage.estimated);
}

/// Nor is it asked for again: the model itself has repeated what cost nothing.
#[tokio::test(start_paused = true)]
async fn a_refusal_costs_nothing() {
    let refusals: [&'static [(ModelErrorKind, Spent)]; 2] =
        [&[(ModelErrorKind::Rejected, Spent::Nothing); 9], &[(ModelErrorKind::Transient, Spent::Nothing); 9]];
    for ways in refusals {
        let agent = TestAgent::builder().turns(vec![Say::Fails(ways)]).begin();
        let outcome = outcome(&watch(agent.start(request(), None).await.unwrap()).await);
        assert_eq!((outcome.reason, outcome.usage.total()), (StopReason::ProviderError, 0));
        assert_eq!(agent.model.requests.lock().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_does_not_end_a_run_that_has_a_token_budget() {
    let store = memory();
    let mortal = Faulty::new(store.clone(), |_| Fate::Happens);
    let (mortal_store, quota): (Arc<dyn Store>, _) = (mortal.clone(), tokens(10_000));
    let first = TestAgent::builder().store(mortal_store).turns(vec![Say::Stall(&["so far"])]).quotas(quotas(quota));
    let first = first.build();
    let limits = LimitsPatch { token_budget: Some(2_000), ..LimitsPatch::default() };
    let new = NewRun { key_name: keyed().key_name, on_limit: Some(OnLimit::Error), ..request_with(limits) };
    let (tenant, run) = (new.tenant.clone(), new.id.clone());
    let mut started = first.start(new, None).await.unwrap();
    let mut records = Vec::new();
    while shown(&records).is_empty() {
        let page = started.follower.next().await.unwrap().unwrap();
        records.extend(page.iter().map(|record| (**record).clone()));
    }
    mortal.die();
    let second =
        TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["hi"])]).quotas(quotas(quota)).begin();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let outcome = second.runs().get(&tenant, &run).await.unwrap().outcome.unwrap();
    assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Done, "hi"));
    assert_eq!(outcome.usage.completion_tokens, 5 + 2, "six bytes of the interrupted answer are two tokens");
    let unconfirmed = outcome.budget.unconfirmed.tokens;
    assert!(unconfirmed > 1_000, "the rest of what was reserved");
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, outcome.usage.total() + unconfirmed);
}

#[tokio::test(start_paused = true)]
async fn a_response_counts_what_it_took_and_the_run_counts_all() {
    let agent = TestAgent::builder().turns(vec![Say::Calls("", vec![("theirs", "{}")]), Say::Text(&["thanks"])]);
    let agent = agent.begin();
    let new = NewRun { client_tools: vec![client_tool("theirs")], ..request() };
    let first = outcome(&watch(agent.start(new, None).await.unwrap()).await);
    assert_eq!((*first.leg_usage(), first.usage.total()), (first.usage, 15));
    let call = first.required_calls[0].call.id.clone();
    let answer = NewRun { messages: vec![Message::tool(&call, "yes")], answered: vec![call], ..request() };
    let second = outcome(&watch(agent.start(answer, None).await.unwrap()).await);
    assert_eq!((second.reason, second.leg_usage().total(), second.usage.total()), (StopReason::Done, 15, 30));
}

#[tokio::test(start_paused = true)]
async fn the_output_is_bounded_upstream_only_where_somebody_asked_for_it_or_a_budget_holds() {
    let (free, asked) = (request(), NewRun { max_output_tokens: Some(300), ..request() });
    let budget = LimitsPatch { token_budget: Some(50_000), ..LimitsPatch::default() };
    let agent = TestAgent::builder().turns(vec![Say::Text(&["hi"])]).quotas(quotas(tokens(50_000))).begin();
    let keyed = NewRun { max_output_tokens: None, ..keyed() };
    for (new, bound) in [(free, None), (asked, Some(300)), (request_with(budget), Some(8_192)), (keyed, Some(8_192))] {
        watch(agent.start(new, None).await.unwrap()).await;
        assert_eq!(agent.model.requests.lock().last().unwrap().max_tokens, bound);
    }
}

#[tokio::test(start_paused = true)]
async fn usage_beyond_what_the_model_takes_is_not_believed() {
    let agent = TestAgent::builder().turns(vec![Say::Boasts("hi", u64::MAX)]).begin();
    let outcome = outcome(&watch(agent.start(request(), None).await.unwrap()).await);
    assert_eq!((outcome.usage.completion_tokens, outcome.usage.estimated), (1, true));
    assert!(outcome.usage.prompt_tokens < 1_000, "{:?}", outcome.usage);
}

/// As servers report that do not count.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_said_to_have_taken_nothing_is_charged_by_estimate() {
    let store = memory();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Boasts("eight ch", 0)]);
    let agent = agent.quotas(quotas(tokens(10_000))).begin();
    let outcome = outcome(&watch(agent.start(keyed(), None).await.unwrap()).await);
    assert_eq!((outcome.usage.completion_tokens, outcome.usage.estimated), (2, true));
    assert!(outcome.usage.prompt_tokens > 0, "{:?}", outcome.usage);
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, outcome.usage.total());
}

/// The panic comes after the key's budget is reserved, and before the step is recorded.
#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_before_its_step_begins_leaves_nothing_reserved() {
    let store = memory();
    let (has_reserved, has_panicked) = (AtomicBool::new(false), AtomicBool::new(false));
    let faulty = Faulty::new(store.clone(), move |tx| {
        let is_of_key = tx.partition == partition();
        let is_of_run = tx.writes.iter().any(|write| matches!(write, Write::Append { .. }));
        let panics = is_of_run && has_reserved.load(Ordering::SeqCst) && !has_panicked.swap(true, Ordering::SeqCst);
        assert!(!panics, "as told");
        has_reserved.fetch_or(is_of_key, Ordering::SeqCst);
        Fate::Happens
    });
    let agent = TestAgent::builder().store(faulty).quotas(quotas(tokens(10_000))).begin();
    let outcome = outcome(&watch(agent.start(keyed(), None).await.unwrap()).await);
    assert_eq!((outcome.reason, outcome.usage.total()), (StopReason::InternalError, 0));
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, 0);
    assert_eq!(standing(&store).await, Vec::<String>::new());
}

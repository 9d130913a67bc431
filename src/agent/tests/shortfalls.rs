//! What a run is told that ends because a budget, or the model's window, has no room for it.

use std::time::Duration;

use super::quota::{keyed, memory, quotas, tokens};
use super::support::{Say, TestAgent, outcome, request, request_with, watch};
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::limits::holds::Hold;
use crate::agent::session::NewSession;
use crate::agent::{LimitsPatch, NewRun, Started};
use crate::config::{Allotment, Period, QuotaConfig};
use crate::store::{Tx, Write};
use crate::types::run::OnLimit;
use crate::types::shortfall::BudgetKind;
use crate::types::{BudgetOwner, ErrorKind, Event, Message, Role, RunId, RunStatus, SessionId, StopReason, Tenant};

fn loops() -> Vec<Say> {
    vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)])]
}

/// Reads until a tool is called.
async fn until_a_tool_is_called(started: &mut Started) {
    let mut calls = 0;
    while calls == 0 {
        let page = started.follower.next().await.unwrap().unwrap();
        calls += page.iter().filter(|record| matches!(record.event, Event::ToolStarted { .. })).count();
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_its_own_budget_ends_says_what_it_lacked() {
    let agent = TestAgent::builder().turns(loops()).begin();
    let limits = LimitsPatch { token_budget: Some(500), ..LimitsPatch::default() };
    let outcome = outcome(&watch(agent.start(request_with(limits), None).await.unwrap()).await);
    let short = outcome.short.unwrap();
    assert_eq!((outcome.reason, short.owner, short.limit), (StopReason::TokenBudget, BudgetOwner::Run, 500));
    assert_eq!(short.taken, outcome.usage.total());
    assert!(short.missing() > 0 && short.retry_after_s().is_none(), "{short:?}");
    let message = outcome.message().unwrap();
    let said = format!(
        "The run stopped because the token budget of the run has no room for another model call: {} of 500 tokens used, {} \
         needed, {} missing.",
        short.taken,
        short.needed,
        short.missing()
    );
    assert_eq!(message, said);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_its_keys_budget_ends_says_so_and_when_the_budget_begins_anew() {
    let daily =
        QuotaConfig { token_budget: Some(Allotment { limit: 500, per: Some(Period::Day) }), ..QuotaConfig::default() };
    for (quota, renews) in [(tokens(500), false), (daily, true)] {
        let agent = TestAgent::builder().turns(loops()).quotas(quotas(quota)).begin();
        let new = NewRun { on_limit: Some(OnLimit::Error), ..keyed() };
        let outcome = outcome(&watch(agent.start(new, None).await.unwrap()).await);
        let short = outcome.short.unwrap();
        assert_eq!((outcome.reason, short.owner), (StopReason::TokenBudget, BudgetOwner::Key));
        let error = outcome.error.unwrap();
        assert_eq!((error.kind, error.retry_after_ms.is_some()), (ErrorKind::BudgetExceeded, renews));
        assert!(error.message.contains("the token budget of the key has no room"), "{}", error.message);
        assert_eq!(error.message.contains("it begins anew in"), renews, "{}", error.message);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_time_is_up_while_others_hold_a_budget_says_so() {
    let turns = vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["done"])];
    let store = memory();
    let agent = TestAgent::builder().store(store.clone()).turns(turns).begin();
    let (tenant, id) = (Tenant::default_tenant(), SessionId::parse("s").unwrap());
    let new = NewSession { id: Some(id.clone()), token_budget: Some(2_000), ..NewSession::default() };
    agent.sessions().create(&tenant, new).await.unwrap();
    let limits = LimitsPatch { timeout_ms: Some(20_000), ..LimitsPatch::default() };
    let new = NewRun { session: Some(id.clone()), limits, on_limit: Some(OnLimit::Error), ..keyed() };
    let mut started = agent.start(new, None).await.unwrap();
    until_a_tool_is_called(&mut started).await;
    let (place, other) = (keys::session_partition(&tenant, &id), RunId::mint());
    let hold = Hold { kind: BudgetKind::Tokens, counter: keys::session_tokens(), amount: 1_980 };
    let add = Write::Add { counter: keys::session_tokens(), delta: 1_980, ceiling: None };
    let put = Write::Put { key: keys::session_hold(&other), value: encode(&vec![hold]), ttl: None };
    store.commit(Tx::new(place).write(add).write(put)).await.unwrap();
    let outcome = outcome(&watch(started).await);
    let error = outcome.error.clone().unwrap();
    assert_eq!(
        (outcome.reason, error.kind, error.retry_after_ms),
        (StopReason::Timeout, ErrorKind::TimeLimit, Some(5_000))
    );
    let said = "The run stopped at its time limit, while it waited for room in the token budget of the session: 15 of 2000 \
                tokens used, 1980 set aside by live runs";
    assert!(error.message.starts_with(said), "{}", error.message);
    assert_eq!(outcome.short.map(|short| short.owner), Some(BudgetOwner::Session));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_outgrows_the_models_window_ends_the_run_before_the_model_is_asked() {
    let turns = vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["done"])];
    let agent = TestAgent::builder().turns(turns).begin();
    let mut started = agent.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    until_a_tool_is_called(&mut started).await;
    let long = Message::text(Role::User, &"x".repeat(900_000));
    agent.runs().steer(&Tenant::default_tenant(), &run, vec![long], None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let outcome = outcome(&watch(started).await);
    assert_eq!((outcome.reason, outcome.status()), (StopReason::ContextLimit, RunStatus::Failed));
    let error = outcome.error.unwrap();
    assert_eq!(error.kind, ErrorKind::ContextLength);
    assert!(error.message.contains("takes 200000"), "{}", error.message);
    assert_eq!(agent.model.requests.lock().len(), 1);
}

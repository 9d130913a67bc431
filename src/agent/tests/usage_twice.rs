//! A run that several tasks of one process count at a time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;

use super::support::{Say, TestAgent, outcome, request, watch};
use crate::agent::Requester;
use crate::agent::ledger::head::Head;
use crate::agent::usage::CountedRun;
use crate::agent::usage::report::UsageQuery;
use crate::agent::usage::row::{Day, Totals};
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::types::clock::now_ms;
use crate::types::{Outcome, RunId, Tenant, Usage};

/// What is counted of the tenant.
async fn all(agent: &TestAgent) -> Totals {
    let (tenant, today) = (Tenant::default_tenant(), Day::of(now_ms()));
    let query =
        UsageQuery { from: today.before(1), to: today, group_by: Vec::new(), only: Vec::new(), after: None, limit: 1 };
    let page = agent.usage().report(Requester::from(&tenant), &query).await.unwrap();
    page.groups.first().map(|(_, totals)| *totals).unwrap_or_default()
}

/// The head and the end of a run, which its agent has counted.
async fn ended(agent: &TestAgent) -> (Head, Outcome) {
    let tenant = Tenant::default_tenant();
    let started = agent.start(request(), None).await.unwrap();
    let id = started.head.id.clone();
    let ended = outcome(&watch(started).await);
    agent.idle(Duration::from_secs(5)).await;
    (agent.runs().get(&tenant, &id).await.unwrap().head, ended)
}

fn agent() -> TestAgent {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    TestAgent::builder().store(store).turns(vec![Say::Text(&["hello"])]).build()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_counted_twice_with_one_commit_is_counted_once() {
    let (agent, tenant) = (agent(), Tenant::default_tenant());
    let (head, ended) = ended(&agent).await;
    let one = Totals::of_run(&ended.usage, ended.cost);
    let run = CountedRun::found(&Head { id: RunId::mint(), ..head.clone() }, Some(&ended), 0);
    agent.usage().count_all(&tenant, [run.clone(), run.clone()]).await.unwrap();
    let mut expected = one;
    expected += one;
    assert_eq!(all(&agent).await, expected);
    // What another task saw earlier is less than what this one saw.
    let more = Usage { prompt_tokens: ended.usage.prompt_tokens + 7, ..ended.usage };
    let further = CountedRun::found(&head, Some(&Outcome { usage: more, ..ended.clone() }), 0);
    let earlier = CountedRun::found(&head, Some(&ended), 0);
    agent.usage().count_all(&tenant, [further.clone(), earlier, further]).await.unwrap();
    expected.prompt_tokens += 7;
    assert_eq!(all(&agent).await, expected);
}

/// The runs that each of some tasks counts, which begin in this order.
fn tasks() -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop::collection::vec(prop::collection::vec(0..4_usize, 1..4), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whichever_tasks_count_runs_together_each_run_is_counted_once(tasks in tasks()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (agent, tenant) = (agent(), Tenant::default_tenant());
            let (head, ended) = ended(&agent).await;
            let heads: Vec<_> = (0..4).map(|_| Head { id: RunId::mint(), ..head.clone() }).collect();
            let counting = tasks.iter().map(|runs| {
                let runs: Vec<_> = runs.iter().map(|run| CountedRun::found(&heads[*run], Some(&ended), 0)).collect();
                agent.usage().count_all(&tenant, runs)
            });
            for counted in join_all(counting).await {
                counted.unwrap();
            }
            let different: std::collections::HashSet<_> = tasks.iter().flatten().collect();
            let (one, mut expected) = (Totals::of_run(&ended.usage, ended.cost), Totals::default());
            for _ in 0..=different.len() {
                expected += one;
            }
            assert_eq!(all(&agent).await, expected);
        });
    }
}

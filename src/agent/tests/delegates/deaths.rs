//! Replicas that die while runs of theirs wait for others: nothing is lost, and nothing is begun twice.

use std::collections::BTreeMap;

use super::*;
use crate::agent::ledger::keys;
use crate::agent::tests::link::Link;
use crate::store::faulty::{Fate, Faulty};
use crate::types::shortfall::BudgetKind;

const TOKENS: u64 = 50_000;

fn model() -> Arc<Team> {
    Team::new(|name, messages| match name {
        "boss" => boss(messages, vec![hands("middle", "a"), hands("middle", "b")]),
        "middle" => boss(messages, vec![hands("worker", &task(messages))]),
        _ => Does::Says(format!("{} is done", task(messages))),
    })
}

fn members() -> Vec<Member> {
    let boss = delegating("boss", &["middle"], |_| {});
    let boss = Member::new("boss", move |config| {
        (boss.change)(config);
        config.limits.token_budget = Some(TOKENS);
    });
    vec![boss, delegating("middle", &["worker"], |_| {}), plain("worker")]
}

/// Runs a tree at a replica that dies at this commit, beside one that lives. Returns whether it died.
async fn dies_at(commit: usize, after: bool) -> bool {
    let (store, model) = (memory(), model());
    let mut seen = 0;
    let dying = Faulty::new(Link::to(&store), move |_| {
        seen += 1;
        match (seen == commit, after) {
            (true, true) => Fate::DiesAfter,
            (true, false) => Fate::DiesBefore,
            (false, _) => Fate::Happens,
        }
    });
    let first = team(&(dying.clone() as Arc<dyn Store>), &model, members(), Quotas::default());
    let new = asks("boss");
    let root = new.id.clone();
    let started = tokio::time::timeout(Duration::from_secs(5), first.admission().start(new, None)).await;
    let second = team(&store, &model, members(), Quotas::default());
    if !matches!(started, Ok(Ok(_))) && second.runs().get(&tenant(), &root).await.is_err() {
        tokio::time::sleep(Duration::from_secs(90)).await;
        if second.runs().get(&tenant(), &root).await.is_err() {
            return dying.is_dead();
        }
    }
    let mut waited = 0;
    while !status(&second, &root).await.is_final() {
        waited += 1;
        assert!(waited < 3_000, "at {commit}, {after}: the root does not end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let end = second.runs().get(&tenant(), &root).await.unwrap().outcome.unwrap();
    assert_eq!(end.output_text, "a is done; b is done", "at {commit}, {after}: {end:?}");
    assert_eq!(end.delegated.as_ref().map(|below| below.runs), Some(4), "at {commit}, {after}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut agents = BTreeMap::<String, usize>::new();
    for head in runs(&second).await {
        assert_eq!(head.status, RunStatus::Completed, "at {commit}, {after}: {}", head.agent);
        *agents.entry(head.agent).or_default() += 1;
    }
    let expected = BTreeMap::from([("boss".to_owned(), 1), ("middle".to_owned(), 2), ("worker".to_owned(), 2)]);
    assert_eq!(agents, expected, "at {commit}, {after}");
    let counter = keys::budget_counter(BudgetKind::Tokens, "ever");
    let counted = store.counter(&keys::tree_partition(&tenant(), &root), &counter).await.unwrap();
    // A call that was interrupted is charged as it is reserved; all others are charged once.
    assert!((8 * 110..8 * 110 + 2_000).contains(&counted), "at {commit}, {after}: {counted}");
    dying.is_dead()
}

#[tokio::test(start_paused = true)]
async fn a_tree_ends_the_same_wherever_its_replica_dies() {
    // Not each commit: all of them take minutes.
    for (after, step) in [(true, 3), (false, 8)] {
        let mut commit = 1;
        while dies_at(commit, after).await {
            commit += step;
        }
        assert!(commit > 60, "the tree takes more commits than {commit}");
    }
}

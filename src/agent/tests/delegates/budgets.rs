//! One budget for the tree.

use tokio::task::JoinSet;

use super::*;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::limits::holds::Hold;
use crate::agent::tests::contention::Distant;
use crate::store::{Order, Scan};
use crate::types::Micros;
use crate::types::shortfall::BudgetKind;

/// A boss that has two in the middle have two workers each do something.
fn tree() -> Arc<Team> {
    Team::new(|name, messages| match name {
        "boss" => boss(messages, vec![hands("middle", "a"), hands("middle", "b")]),
        "middle" => boss(messages, vec![hands("worker", "c"), hands("worker", "d")]),
        _ => Does::SaysAfter(Duration::from_millis(700), "done".to_owned()),
    })
}

fn members(tokens: Option<u64>, cost: Option<Micros>, calls: Option<u32>) -> Vec<Member> {
    let boss = delegating("boss", &["middle"], |_| {});
    let boss = Member::new("boss", move |config| {
        (boss.change)(config);
        (config.limits.token_budget, config.limits.cost_budget) = (tokens, cost);
        config.limits.max_tool_calls = calls;
    });
    vec![boss, delegating("middle", &["worker"], |_| {}), plain("worker")]
}

/// What a tree's counter stands at, and what is reserved.
async fn standing(store: &Arc<dyn Store>, root: &RunId, kind: BudgetKind) -> (u64, u64) {
    let partition = keys::tree_partition(&tenant(), root);
    let counter = keys::budget_counter(kind, "ever");
    let scan = Scan { prefix: keys::RESERVED.to_owned(), after: None, limit: 1_000, order: Order::Ascending };
    let holds = store.scan(&partition, scan).await.unwrap();
    let holds = holds.iter().flat_map(|(_, document)| decode::<Vec<Hold>>(&document.value).unwrap());
    let reserved = holds.filter(|hold| hold.counter == counter).map(|hold| hold.amount).sum();
    (u64::try_from(store.counter(&partition, &counter).await.unwrap()).unwrap(), reserved)
}

/// Tokens that the runs used by their own heads.
async fn used(agent: &Agent) -> u64 {
    let mut sum = 0;
    for head in runs(agent).await {
        sum += agent.runs().get(&tenant(), &head.id).await.unwrap().outcome.unwrap().usage.total();
    }
    sum
}

#[tokio::test(start_paused = true)]
async fn all_runs_of_a_tree_take_from_the_budget_of_its_root() {
    for limit in [100_000, 3_000, 1_200] {
        let (store, model) = (memory(), tree());
        let replicas = [(); 3].map(|()| -> Arc<dyn Store> { Arc::new(Distant(store.clone())) });
        let replicas = replicas.map(|store| team(&store, &model, members(Some(limit), None, None), Quotas::default()));
        let started = replicas[0].admission().start(asks("boss"), None).await.unwrap();
        let (root, mut watching, mut most) = (started.head.id.clone(), JoinSet::new(), 0);
        watching.spawn(watch(started));
        let records = loop {
            if let Some(records) = watching.try_join_next() {
                break records.unwrap();
            }
            let (counted, reserved) = standing(&store, &root, BudgetKind::Tokens).await;
            assert!(counted <= limit, "{counted} of {limit}, {reserved} reserved");
            most = most.max(counted);
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let end = outcome(&records);
        tokio::time::sleep(Duration::from_secs(20)).await;
        let (counted, reserved) = standing(&store, &root, BudgetKind::Tokens).await;
        assert_eq!((counted, reserved), (used(&replicas[0]).await, 0), "{limit}: settled once, and all of it");
        assert!(runs(&replicas[0]).await.iter().all(|head| head.status.is_final()));
        if limit > 50_000 {
            assert_eq!((end.output_text.as_str(), counted), ("done; done; done; done", 10 * 110));
            assert!(most > counted, "it was reserved before it was used");
        } else if limit < 2_000 {
            assert_ne!(end.output_text, "done; done; done; done", "it fits a part of the tree");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_money_holds_for_all_below_and_a_run_may_have_a_smaller_one() {
    let (store, model) = (memory(), tree());
    let mut all = members(None, Some(Micros(1_500)), None);
    let middle = delegating("middle", &["worker"], |_| {});
    all[1] = Member::new("middle", move |config| {
        (middle.change)(config);
        config.limits.cost_budget = Some(Micros(700));
    });
    let agent = team(&store, &model, all, Quotas::default());
    let (end, records) = run(&agent, "boss").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let root = records.iter().find_map(|_| begun(&records).first().map(|child| child.call_id.run().unwrap())).unwrap();
    let (counted, reserved) = standing(&store, &root, BudgetKind::Cost).await;
    assert!(counted <= 1_500 && reserved == 0, "{counted}, {reserved}");
    for child in begun(&records) {
        let (counted, reserved) = standing(&store, &child.run, BudgetKind::Cost).await;
        assert!(counted > 0 && counted <= 700 && reserved == 0, "{counted}, {reserved}: {end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_counted_for_the_tree() {
    let (store, model) = (memory(), tree());
    let agent = team(&store, &model, members(None, None, Some(4)), Quotas::default());
    let (end, records) = run(&agent, "boss").await;
    // Two of the root's, and two of one in the middle: none is left for the other.
    let statuses: Vec<_> = ended(&records).iter().map(|end| end.reason.unwrap()).collect();
    assert!(statuses.contains(&StopReason::Done) && statuses.contains(&StopReason::MaxToolCalls), "{statuses:?}");
    assert!(end.output_text.contains("done; done"), "{}", end.output_text);
    let root = begun(&records)[0].call_id.run().unwrap();
    let counted = store.counter(&keys::tree_partition(&tenant(), &root), &keys::tree_calls()).await.unwrap();
    assert_eq!(counted, 4);
}

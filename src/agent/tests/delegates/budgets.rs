//! One budget for the tree.

use tokio::task::JoinSet;

use super::*;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::limits::holds::Hold;
use crate::agent::tests::contention::Distant;
use crate::store::{Order, Scan};
use crate::types::run::OnLimit;
use crate::types::shortfall::BudgetKind;
use crate::types::{BudgetOwner, Micros};

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

/// Calls `echo` so often, then is done. Each call of the model takes 110 tokens.
fn busy(messages: &[Message], steps: usize) -> Does {
    let made = messages.iter().filter(|message| message.role == Role::Tool).count();
    if made < steps {
        Does::Calls(vec![("echo".to_owned(), serde_json::json!({"n": made}).to_string())])
    } else {
        Does::Says("done".to_owned())
    }
}

/// A boss with a budget of so many tokens that has two workers do something, which takes so many calls of the model.
fn busy_team(tokens: u64, steps: usize, on_limit: OnLimit) -> (Arc<Team>, Vec<Member>) {
    let model = Team::new(move |name, messages| match name {
        // A closing answer is asked for in a message behind the results.
        "boss" if messages.iter().any(|message| message.role == Role::Tool) => {
            let told: Vec<_> = messages.iter().filter(|message| message.role == Role::Tool).map(said).collect();
            Does::Says(told.join("; "))
        }
        "boss" => Does::Calls(vec![hands("worker", "a"), hands("worker", "b")]),
        _ => busy(messages, steps),
    });
    let boss = delegating("boss", &["worker"], |_| {});
    let boss = Member::new("boss", move |config| {
        (boss.change)(config);
        (config.limits.token_budget, config.on_limit) = (Some(tokens), on_limit);
    });
    (model, vec![boss, plain("worker")])
}

#[tokio::test(start_paused = true)]
async fn what_runs_below_take_brings_a_budget_to_its_warning() {
    for (tokens, warned) in [(2_800, Some(2_310)), (5_000, None)] {
        let (model, members) = busy_team(tokens, 9, OnLimit::Stop);
        let agent = team(&memory(), &model, members, Quotas::default());
        let (end, records) = run(&agent, "boss").await;
        assert_eq!((end.output_text.as_str(), end.usage.total()), ("done; done", 220));
        let warnings = records.iter().filter_map(|record| match record.event {
            Event::BudgetWarning { owner, kind, used, limit } => Some((owner, kind, used, limit)),
            _ => None,
        });
        let expected = warned.map(|used| (BudgetOwner::Run, BudgetKind::Tokens, used, tokens));
        assert_eq!(warnings.collect::<Vec<_>>(), Vec::from_iter(expected), "{tokens}");
    }
}

#[tokio::test(start_paused = true)]
async fn runs_below_leave_a_run_the_room_for_its_closing_answer() {
    for on_limit in [OnLimit::Synthesize, OnLimit::Stop] {
        let (model, members) = busy_team(3_000, 100, on_limit);
        let agent = team(&memory(), &model, members, Quotas::default());
        let (end, records) = run(&agent, "boss").await;
        assert_eq!((end.reason, end.reason.status()), (StopReason::TokenBudget, RunStatus::Incomplete));
        assert!(ended(&records).iter().all(|end| end.reason == Some(StopReason::TokenBudget)), "{records:?}");
        let closes = |record: &Record| matches!(record.event, Event::StepStarted { closing: Some(_), .. });
        let (has_closed, closing) = (records.iter().any(closes), on_limit == OnLimit::Synthesize);
        assert_eq!((has_closed, end.output_text.contains("did not get to the end")), (closing, closing), "{end:?}");
        let taken = end.delegated.unwrap().usage.total() + end.usage.total();
        assert!(taken <= 3_000, "{taken}");
    }
}

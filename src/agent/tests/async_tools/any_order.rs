//! Wherever a replica dies: a call with side effects is made once at most, each call has one result, an answer that was
//! acknowledged is the result, and the run goes on to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::agent::ledger::{keys, log};
use crate::agent::tests::link::Link;
use crate::store::faulty::{Fate, Faulty};

/// How long a process that does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(90);

/// More than a process makes that starts the run, and drives it until it waits.
const MOST_COMMITS: usize = 14;

/// A process over the same store as others, one of whose commits has this fate.
fn process(
    store: &Arc<dyn Store>,
    effect: Effect,
    death: Option<(usize, Fate)>,
) -> (TestAgent, Arc<Mutex<Vec<Asked>>>) {
    let count = AtomicUsize::new(0);
    let store = Faulty::new(Link::to(store), move |_| {
        let nth = count.fetch_add(1, Ordering::Relaxed) + 1;
        death.filter(|(at, _)| *at == nth).map_or(Fate::Happens, |(_, fate)| fate)
    });
    let turns = vec![Say::Calls("", vec![("render", "{}"), ("render", r#"{"n":2}"#)]), Say::Text(&["done"])];
    replica_with(&(store as Arc<dyn Store>), Accepts::new(effect), turns)
}

/// Starts a run at a process that dies, and has each call answered by that process or another one.
async fn plays(effect: Effect, death: (usize, Fate), dead_answers: bool) {
    let store = memory();
    let (survivor, asked_later) = process(&store, effect, None);
    let (dying, asked_first) = process(&store, effect, Some(death));
    let mut new = request();
    new.options.on_unknown_outcome = OnUnknownOutcome::TellModel;
    new.options.on_disconnect = OnDisconnect::Continue;
    let run = new.id.clone();
    let _ = tokio::time::timeout(PATIENCE, dying.start(new, None)).await;
    let mut acknowledged = BTreeSet::new();
    for second in 0..2_000 {
        match survivor.runs().get(&Tenant::default_tenant(), &run).await {
            Err(_) => return assert!(asked_first.lock().is_empty(), "a run that was not created calls nothing"),
            Ok(view) if view.head.status.is_final() => break,
            Ok(_) => assert!(second < 1_900, "the run does not end"),
        }
        let asked: Vec<_> = [&asked_first, &asked_later].into_iter().flat_map(|asked| asked.lock().clone()).collect();
        for (call, token, _) in asked {
            if acknowledged.contains(&call) {
                continue;
            }
            let by = if dead_answers && second < 5 { &dying } else { &survivor };
            let answering = answer(by, &call, &token, call.as_str());
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(1), answering).await {
                acknowledged.insert(call);
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        // What an answer left in the index is due, and no call's time is up.
        survivor.rooms.recovery.do_what_is_due(clock::now_ms() + 60_000).await.unwrap();
    }
    let asked: Vec<_> = [&asked_first, &asked_later].into_iter().flat_map(|asked| asked.lock().clone()).collect();
    check(&store, &run, effect, &asked, &acknowledged).await;
}

async fn check(store: &Arc<dyn Store>, run: &RunId, effect: Effect, asked: &[Asked], acknowledged: &BTreeSet<CallId>) {
    let partition = keys::run_partition(&Tenant::default_tenant(), None, run);
    let page = store.read_log(&partition, &keys::events(run), 0, 10_000).await.unwrap();
    let mut finished = BTreeMap::<CallId, Vec<String>>::new();
    for entry in &page.entries {
        if let Event::ToolFinished { call_id, outcome, .. } = log::decode(entry).unwrap().event {
            finished.entry(call_id).or_default().push(outcome.text().into_owned());
        }
    }
    for call in [run.call(1), run.call(2)] {
        let made: Vec<_> = asked.iter().filter(|(made, ..)| *made == call).collect();
        assert!(made.windows(2).all(|two| two[0].1 == two[1].1), "each attempt has the same token");
        if effect == Effect::Write {
            assert!(made.len() <= 1, "a call with side effects was made {} times", made.len());
        }
        let results = finished.get(&call).cloned().unwrap_or_default();
        assert_eq!(results.len(), 1, "{call}: {results:?}");
        if acknowledged.contains(&call) && effect != Effect::Write {
            assert_eq!(results[0], call.as_str(), "what was acknowledged is the result");
        }
    }
}

#[test]
fn a_call_that_is_answered_later_survives_a_crash_at_any_commit() {
    for effect in [Effect::Read, Effect::Idempotent, Effect::Write] {
        for fate in [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsAfterwards] {
            for at in 1..MOST_COMMITS {
                // One for each, as its processes go on for as long as it lasts.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
                runtime.unwrap().block_on(plays(effect, (at, fate), at % 2 == 0));
            }
        }
    }
}

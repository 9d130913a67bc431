//! Replicas that die while a run is handed off: it goes on as one agent or the other, and is handed off once.

use super::*;
use crate::agent::tests::link::Link;
use crate::store::faulty::{Fate, Faulty};

fn members() -> Vec<Member> {
    let billing = with(plain("billing"), |config| config.tools = vec!["save".to_owned()]);
    vec![handing("front", &["billing"], |_| {}), billing]
}

/// Drives a run at a replica that dies at this commit, beside one that lives. Returns whether it died.
async fn dies_at(commit: usize, after: bool) -> bool {
    let store = memory();
    let model = Team::new(|name, messages| match (name, results(messages)) {
        ("front", told) if told.is_empty() => Does::Calls(vec![hands("billing"), echoes()]),
        ("billing", told) if told[0].contains("goes on") => Does::Calls(vec![("save".to_owned(), "{}".to_owned())]),
        (name, told) => Does::Says(format!("{name}: {}", told.join("; "))),
    });
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
    let session = SessionId::parse("s-1").unwrap();
    let new = NewRun { session: Some(session.clone()), ..asks("front") };
    let id = new.id.clone();
    let _ = tokio::time::timeout(Duration::from_secs(5), first.admission().start(new, None)).await;
    let second = team(&store, &model, members(), Quotas::default());
    let mut waited = 0;
    let end = loop {
        match second.runs().get(&tenant(), &id).await {
            Ok(found) if found.head.status.is_final() => break found,
            Err(_) if waited > 900 => return dying.is_dead(),
            _ => {}
        }
        waited += 1;
        assert!(waited < 3_000, "at {commit}, {after}: the run does not end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let (head, end) = (end.head, end.outcome.unwrap());
    if end.reason == StopReason::OutcomeUnknown {
        // It died while `save` was called, which is not repeated.
        return dying.is_dead();
    }
    assert_eq!((end.output_text.as_str(), &*head.agent), ("billing: {}", "billing"), "at {commit}, {after}: {end:?}");
    let mut follower = second.runs().follow(&tenant(), &id, 0).await.unwrap().follower.unwrap();
    let mut told = Vec::new();
    while let Some(page) = follower.next().await.unwrap() {
        told.extend(page.into_iter().map(|record| (*record).clone()));
    }
    assert_eq!(handoffs(&told).len(), 1, "at {commit}, {after}");
    let session = second.sessions().get(&tenant(), &session).await.unwrap().session;
    assert_eq!(session.agent.as_deref(), Some("billing"), "at {commit}, {after}");
    dying.is_dead()
}

#[tokio::test(start_paused = true)]
async fn a_run_is_handed_off_once_wherever_its_replica_dies() {
    for after in [true, false] {
        let mut commit = 1;
        while dies_at(commit, after).await {
            commit += 1;
        }
        assert!(commit > 8, "a run takes more commits than {commit}");
    }
}

//! Requests of client libraries that count their attempts.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_retried_attempt_joins_its_own_run() {
    let store = memory();
    let agent = replica(&store);
    let start = async |kind| watch(agent.start(request(), Some(&once(kind))).await.unwrap()).await;
    let (first, records, _) = start(RequestKeyKind::FirstAttempt).await;
    assert_eq!(start(RequestKeyKind::Repeated).await, (first.clone(), records, true));
    let (second, _, replayed) = start(RequestKeyKind::FirstAttempt).await;
    assert!(second != first && !replayed, "a first attempt always begins anew");
    assert_eq!(start(RequestKeyKind::Repeated).await.0, second);
    assert_eq!(calls(&agent), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_attempt_is_not_answered_by_an_earlier_request() {
    let store = memory();
    let (agent, draining) = (replica(&store), replica(&store));
    let start = async |kind| watch(agent.start(request(), Some(&once(kind))).await.unwrap()).await;
    let (earlier, _, _) = start(RequestKeyKind::FirstAttempt).await;
    draining.refuse();
    let refused = draining.start(request(), Some(&once(RequestKeyKind::FirstAttempt))).await;
    assert!(matches!(refused, Err(StartError::Draining)));
    assert_ne!(start(RequestKeyKind::Repeated).await.0, earlier);
}

#[tokio::test(start_paused = true)]
async fn a_retried_attempt_joins_a_live_run_or_begins_one() {
    let store = memory();
    let turns = vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["ok"])];
    let agent = TestAgent::builder().store(store.clone()).turns(turns).build();
    let lost = agent.start(request(), Some(&once(RequestKeyKind::Repeated))).await.unwrap();
    let run = lost.head.id.clone();
    drop(lost);
    let (joined, records, replayed) =
        watch(agent.start(request(), Some(&once(RequestKeyKind::Repeated))).await.unwrap()).await;
    assert_eq!((joined, records[0].seq, replayed), (run, 1, false));
    assert_eq!(runs_named(&store).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_came_to_nothing_may_be_tried_again_but_not_under_a_key() {
    let store = memory();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Break(&[])]).begin();
    let start = async |kind| {
        let new = with_options(|options| options.max_discards = 0);
        watch(agent.start(new, Some(&RequestKey { name: format!("{kind:?}"), ..once(kind) })).await.unwrap()).await
    };
    let (failed, records, _) = start(RequestKeyKind::Key).await;
    assert_eq!(outcome(&records).status(), RunStatus::Failed);
    assert_eq!(start(RequestKeyKind::Key).await, (failed, records, true));
    let (failed, records, _) = start(RequestKeyKind::Repeated).await;
    assert!(outcome(&records).may_be_repeated());
    assert_ne!(start(RequestKeyKind::Repeated).await.0, failed);
}

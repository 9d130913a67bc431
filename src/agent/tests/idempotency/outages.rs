//! Equal requests of clients whose first request met a store that was away.

use super::*;
use crate::agent::ledger::claim::{Claim, Target};
use crate::agent::ledger::document::decode;
use crate::agent::tests::link::Link;
use crate::agent::tests::replicas::shared;

/// The run that the claim of the request leads to.
async fn claimed(store: &Arc<dyn Store>) -> RunId {
    let document = store.get(&keys::claim_partition(&tenant(), "name"), &keys::claim()).await.unwrap().unwrap();
    let claim: Claim = decode(&document.value).unwrap();
    let Target::Run { id, .. } = claim.target else { panic!("it is of a run: {claim:?}") };
    id
}

/// The store is away from when the run is about to be created until a while after the client was told, or for that moment alone.
/// The client asks again, and gets that run.
#[tokio::test(start_paused = true)]
async fn an_equal_request_after_an_outage_gets_the_run_that_the_first_one_claimed() {
    for (fate, counted, away) in [
        (Fate::Fails, false, None),
        (Fate::Fails, true, None),
        (Fate::Hangs, false, Some(Duration::from_millis(100))),
        (Fate::Hangs, false, Some(Duration::from_secs(5))),
        (Fate::Hangs, true, Some(Duration::from_secs(5))),
    ] {
        let store = shared();
        let link = Link::to(&store);
        let faulty = Faulty::new(link.clone(), |_| Fate::Happens);
        let agent = TestAgent::builder().store(faulty.clone()).turns(turns()).begin();
        let key = once(RequestKeyKind::Equal { counted });
        faulty.next(creates_a_run, fate);
        let (starter, first, mut starting) = (agent.clone(), key.clone(), JoinSet::new());
        starting.spawn(async move { starter.start(request(), Some(&first)).await });
        faulty.reached().await;
        if let Some(away) = away {
            link.cut(true);
            faulty.go_on();
            tokio::time::sleep(away).await;
            link.cut(false);
        }
        let first = starting.join_next().await.unwrap().unwrap();
        assert!(matches!(first, Err(StartError::Store(_))), "{first:?}");
        // What became of the answer is noted by then.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let run = claimed(&store).await;
        let (again, records, _) = watch(agent.start(request(), Some(&key)).await.unwrap()).await;
        let case = format!("{fate:?}, counted: {counted}, {away:?}");
        assert_eq!((again, outcome(&records).output_text.as_str()), (run, "hello"), "{case}");
    }
}

/// A request that took the claim over and is refused leaves it to the next one, at whichever replica.
#[tokio::test(start_paused = true)]
async fn what_a_refused_request_took_over_is_left_to_the_next_equal_one() {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    let [one, two] = [(); 2].map(|()| TestAgent::builder().store(store.clone()).turns(turns()).begin());
    let key = once(RequestKeyKind::Equal { counted: false });
    faulty.next(creates_a_run, Fate::Fails);
    let failed = one.start(request(), Some(&key)).await;
    assert!(matches!(failed, Err(StartError::Store(_))), "{failed:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let run = claimed(&store).await;
    one.refuse();
    let refused = one.start(request(), Some(&key)).await;
    assert!(matches!(refused, Err(StartError::Draining)), "{refused:?}");
    let (again, ..) = watch(two.start(request(), Some(&key)).await.unwrap()).await;
    assert_eq!(again, run);
}

/// A client that counts its attempts asks again, and reads the answer: an equal request of another is one of its own.
#[tokio::test(start_paused = true)]
async fn what_a_counted_attempt_took_over_and_read_is_given_to_nobody_else() {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    let agent = TestAgent::builder().store(store.clone()).turns(turns()).begin();
    faulty.next(creates_a_run, Fate::Fails);
    let failed = agent.start(request(), Some(&once(RequestKeyKind::Equal { counted: false }))).await;
    assert!(matches!(failed, Err(StartError::Store(_))), "{failed:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut repeated = agent.start(request(), Some(&once(RequestKeyKind::Repeated))).await.unwrap();
    let answer = repeated.answer.take().expect("the next equal request is told of it");
    let (run, ..) = watch(repeated).await;
    answer.reached();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (other, ..) =
        watch(agent.start(request(), Some(&once(RequestKeyKind::Equal { counted: false }))).await.unwrap()).await;
    assert_ne!(run, other);
}

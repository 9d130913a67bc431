use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::quota::{count, counter, keyed, memory, quotas, tokens};
use super::support::{Say, TestAgent};
use crate::agent::error::StartError;
use crate::agent::{LimitsPatch, NewRun, RequestMemory};
use crate::types::shortfall::BudgetKind;

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_budget_leave_memory_to_others_and_are_counted_though_their_clients_hang_up() {
    let store = memory();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Silent]).quotas(quotas(tokens(700))).begin();
    let mut first = agent.start(keyed(), None).await.unwrap();
    while count(&store, &counter(BudgetKind::Tokens)).await == 0 {
        first.follower.next().await.unwrap();
    }
    let [body, work, waiting] = [20, 10, 10].map(|units| Arc::new(Semaphore::new(units)));
    let free = || [&body, &work, &waiting].map(|pool| pool.available_permits());
    let large = || {
        let take = |pool: &Arc<Semaphore>| pool.clone().try_acquire_many_owned(5).expect("there is room for another");
        let memory = RequestMemory::new(vec![take(&body)], Some(take(&work)), (vec![waiting.clone()], 5));
        let limits = LimitsPatch { timeout_ms: Some(60_000), ..LimitsPatch::default() };
        NewRun { limits, memory: Arc::new(memory), ..keyed() }
    };
    // Both clients hang up while their requests wait.
    for _ in 0..2 {
        let (waits, new) = (Duration::from_secs(5), large());
        assert!(tokio::time::timeout(waits, agent.start(new, None)).await.is_err(), "it waits");
    }
    assert_eq!(free(), [20, 10, 0]);
    let began = Instant::now();
    let refused = agent.start(large(), None).await.err().unwrap();
    assert!(matches!(refused, StartError::BudgetExceeded { short, .. } if short.may_pass()));
    assert_eq!((began.elapsed().as_secs(), free()), (0, [20, 10, 0]), "there are enough that wait");
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(free(), [20, 10, 10]);
}

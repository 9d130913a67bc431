//! Servers and connections that fail.

use futures_util::future::join_all;
use tokio::time::Instant;

use super::servers::eventually;
use super::*;

/// How long an operation may take whatever happens, and a little for a busy machine.
const BOUND: Duration = Duration::from_millis(1900);

#[tokio::test]
async fn nothing_happens_twice_when_answers_are_lost() {
    let server = RedisServer::start().await;
    let proxy = proxy_of(&server).await;
    let store = open(&url_of(&proxy)).await;
    let partition = partition("p");
    for number in 0..60 {
        proxy.swallow_replies(1);
        assert_eq!(append(&store, &partition, number).await, Ok(()));
    }
    assert_eq!(appended_once(&store, &partition).await, 60);

    for number in 0..20 {
        proxy.swallow_replies(1);
        let lease = key(&format!("lease/{number}"));
        let fence = store.acquire(&partition, &lease, Duration::from_secs(60)).await.unwrap().expect("it is nobody's");
        proxy.swallow_replies(1);
        assert_eq!(store.renew(&partition, &lease, fence, Duration::from_secs(60), &key("log")).await, Ok(Some(60)));
        proxy.swallow_replies(1);
        store.release(&partition, &lease, fence).await.unwrap();
    }
    proxy.swallow_replies(0);
    let rate = Rate { burst: 10, every: Duration::from_secs(3600) };
    for remaining in (0..10).rev() {
        proxy.swallow_replies(1);
        let taken = store.take(&partition, &key("bucket"), rate).await.unwrap();
        assert_eq!((taken.allowed, taken.remaining), (true, remaining));
    }
}

#[tokio::test]
async fn attempt_that_arrives_late_changes_nothing() {
    let server = RedisServer::start().await;
    let proxy = proxy_of(&server).await;
    let store = open(&url_of(&proxy)).await;
    let partition = partition("p");
    let add = Write::Add { counter: key("count"), delta: 1, ceiling: None };
    store.commit(Tx::new(partition.clone()).write(add.clone())).await.unwrap();
    proxy.hold_scripts(1);
    store.commit(Tx::new(partition.clone()).write(add)).await.unwrap();
    let before = calls(&server, "evalsha").await;
    assert_eq!(store.counter(&partition, &key("count")).await, Ok(2));
    proxy.pass_on();
    eventually("the first attempt arrives", async || calls(&server, "evalsha").await == before + 1).await;
    assert_eq!(store.counter(&partition, &key("count")).await, Ok(2));
}

#[tokio::test]
async fn a_rate_limit_request_that_arrives_late_takes_nothing() {
    let server = RedisServer::start().await;
    let proxy = proxy_of(&server).await;
    let store = open(&url_of(&proxy)).await;
    let rate = Rate { burst: 10, every: Duration::from_secs(3600) };
    let take = async || store.take(&partition("p"), &key("bucket"), rate).await.unwrap().remaining;
    assert_eq!(take().await, 9);
    proxy.hold_scripts(1);
    assert_eq!(take().await, 8);
    let before = calls(&server, "evalsha").await;
    proxy.pass_on();
    eventually("the first attempt arrives", async || calls(&server, "evalsha").await == before + 1).await;
    assert_eq!(take().await, 7);
}

#[tokio::test]
async fn refusal_is_the_same_when_its_answer_is_lost() {
    let server = RedisServer::start().await;
    let proxy = proxy_of(&server).await;
    let store = open(&url_of(&proxy)).await;
    let partition = partition("p");
    append(&store, &partition, 0).await.unwrap();
    for _ in 0..10 {
        proxy.swallow_replies(1);
        let conflict = CommitError::SequenceConflict { log: key("log"), actual: 1 };
        assert_eq!(append(&store, &partition, 0).await, Err(conflict));
    }
    assert_eq!(appended_once(&store, &partition).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_when_the_server_dies_and_comes_back() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let store = Arc::new(open(&server.url()).await);
    let partition = partition("p");
    let mut writers = JoinSet::new();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let writer = store.clone();
    writers.spawn({
        let partition = partition.clone();
        async move {
            let mut done = 0;
            let mut may_come_late = false;
            while !*stopped.borrow() {
                match append(&writer, &partition, done).await {
                    Ok(()) => {
                        done += 1;
                        may_come_late = false;
                    }
                    Err(CommitError::Unavailable(_)) => {
                        // Nobody can say whether it happened, but the log can, unless the server has yet to read it.
                        while let Err(Unavailable(_)) = head(&writer, &partition).await.map(|head| {
                            assert!(head == done || head == done + 1, "{done} were done, {head} are there");
                            may_come_late = head == done;
                            done = head;
                        }) {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                    }
                    Err(CommitError::SequenceConflict { actual, .. }) if may_come_late && actual == done + 1 => {
                        done = actual;
                        may_come_late = false;
                    }
                    Err(other) => panic!("{other} after {done}"),
                }
            }
            done
        }
    });
    for _ in 0..3 {
        let before = head(&store, &partition).await.unwrap();
        eventually("it goes on", async || head(&store, &partition).await.is_ok_and(|head| head > before + 20)).await;
        server.restart().await;
    }
    let before = appended_once_at_least(&store, &partition).await;
    eventually("it goes on", async || head(&store, &partition).await.is_ok_and(|head| head > before)).await;
    stop.send_replace(true);
    let done = writers.join_next().await.unwrap().unwrap();
    assert_eq!(appended_once(&store, &partition).await, done);
}

async fn head(store: &RedisStore, partition: &Partition) -> Result<u64, Unavailable> {
    store.read_log(partition, &key("log"), 0, 0).await.map(|page| page.head)
}

/// How many there are as soon as the server answers.
async fn appended_once_at_least(store: &RedisStore, partition: &Partition) -> u64 {
    eventually("the server answers", async || head(store, partition).await.is_ok()).await;
    head(store, partition).await.unwrap()
}

#[tokio::test]
async fn server_that_forgot_the_scripts_is_told_them() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let partition = partition("p");
    for number in 0..3 {
        assert_eq!(append(&store, &partition, number).await, Ok(()));
        server.cli(&["SCRIPT", "FLUSH"]).await;
    }
    assert_eq!(appended_once(&store, &partition).await, 3);
}

#[tokio::test]
async fn server_that_hangs_makes_every_operation_fail_in_time() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let partition = partition("p");
    append(&store, &partition, 0).await.unwrap();
    server.stop();
    let began = Instant::now();
    let commits = join_all((0..20).map(|_| append(&store, &partition, 1)));
    let (log, lease) = (key("log"), key("lease"));
    let (commits, page, lease, health) = tokio::join!(
        commits,
        store.read_log(&partition, &log, 0, 1),
        store.acquire(&partition, &lease, Duration::from_secs(10)),
        store.health(),
    );
    assert!(began.elapsed() < BOUND, "it took {:?}", began.elapsed());
    assert!(commits.iter().all(|commit| matches!(commit, Err(CommitError::Unavailable(_)))));
    assert!(page.is_err() && lease.is_err() && health.is_err());
    // By now it is known to be down, so nobody waits for it.
    let began = Instant::now();
    assert!(append(&store, &partition, 1).await.is_err());
    assert!(began.elapsed() < Duration::from_millis(500), "it took {:?}", began.elapsed());
    server.go_on();
    eventually("it answers again", async || store.health().await.is_ok()).await;
    // What was sent before may have happened, once.
    assert!(appended_once(&store, &partition).await <= 2);
}

#[tokio::test]
async fn connection_that_leads_nowhere_is_replaced() {
    let server = RedisServer::start().await;
    let proxy = proxy_of(&server).await;
    let store = open(&url_of(&proxy)).await;
    let partition = partition("p");
    append(&store, &partition, 0).await.unwrap();
    proxy.swallow();
    let began = Instant::now();
    assert!(append(&store, &partition, 1).await.is_err());
    assert!(began.elapsed() < BOUND, "it took {:?}", began.elapsed());
    proxy.heal();
    eventually("another connection is made", async || store.health().await.is_ok()).await;
    let head = appended_once(&store, &partition).await;
    assert_eq!(append(&store, &partition, head).await, Ok(()));
}

#[tokio::test]
async fn connections_that_close_are_not_noticed() {
    let server = RedisServer::start().await;
    let proxy = proxy_of(&server).await;
    let store = open(&url_of(&proxy)).await;
    for number in 0..20 {
        assert_eq!(append(&store, &partition("p"), number).await, Ok(()));
        proxy.cut();
    }
    assert_eq!(appended_once(&store, &partition("p")).await, 20);
}

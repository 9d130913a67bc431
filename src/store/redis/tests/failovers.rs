//! Replicas that confirm, and replicas that take over.

use tokio::time::Instant;

use super::super::dial::{Dialer, Mode};
use super::super::find::Finder;
use super::servers::eventually;
use super::*;
use crate::config::RedisUrl;

const TTL: Duration = Duration::from_secs(60);

#[tokio::test]
async fn writes_that_no_replica_confirms_are_refused() {
    let server = RedisServer::start().await;
    let replica = server.replica().await;
    let store = open(&server.url()).await;
    let partition = partition("p");
    assert_eq!(append(&store, &partition, 0).await, Ok(()));
    replica.stop();
    let began = Instant::now();
    let name = key("lease");
    let (commit, lease) = tokio::join!(append(&store, &partition, 1), store.acquire(&partition, &name, TTL));
    assert!(began.elapsed() < Duration::from_millis(1900), "it took {:?}", began.elapsed());
    let unconfirmed = Unavailable("no replica confirmed it in time".to_owned());
    assert_eq!(commit, Err(CommitError::Unavailable(unconfirmed.clone())));
    assert_eq!(lease, Err(unconfirmed));
    // It happened though, once; and what need not last goes on.
    let head = appended_once(&store, &partition).await;
    assert_eq!(head, 2);
    let mut written = appending(&partition, head);
    written.durability = Durability::Written;
    assert_eq!(store.commit(written).await, Ok(()));
    replica.go_on();
    eventually("it is confirmed again", async || {
        let head = appended_once(&store, &partition).await;
        append(&store, &partition, head).await.is_ok()
    })
    .await;
    // The lease that was not granted was given back.
    let granted = store.acquire(&partition, &key("lease"), TTL).await;
    assert!(granted.unwrap().is_some());
}

#[tokio::test]
async fn confirmed_writes_are_on_the_replica() {
    let mut server = RedisServer::start().await;
    let replica = server.replica().await;
    let store = open(&server.url()).await;
    for number in 0..200 {
        append(&store, &partition("p"), number).await.unwrap();
    }
    server.kill().await;
    replica.promote().await;
    assert_eq!(appended_once(&open(&replica.url()).await, &partition("p")).await, 200);
}

#[tokio::test]
async fn refusal_is_written_so_that_waiting_covers_what_it_saw() {
    let server = RedisServer::start().await;
    let _replica = server.replica().await;
    let store = open(&server.url()).await;
    let partition = partition("p");
    append(&store, &partition, 0).await.unwrap();
    let offset = async || {
        let info = server.cli(&["INFO", "replication"]).await;
        let line = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    let before = (offset().await, calls(&server, "append").await);
    let conflict = CommitError::SequenceConflict { log: key("log"), actual: 1 };
    assert_eq!(append(&store, &partition, 0).await, Err(conflict.clone()));
    assert!(offset().await > before.0);
    assert_eq!(calls(&server, "append").await, before.1 + 1);
    // Where nothing must last, refusals cost nothing.
    let mut written = appending(&partition, 0);
    written.durability = Durability::Written;
    assert_eq!(store.commit(written).await, Err(conflict));
    assert_eq!(calls(&server, "append").await, before.1 + 1);
}

#[tokio::test]
async fn first_change_through_a_new_connection_is_confirmed() {
    let server = RedisServer::start().await;
    let _replica = server.replica().await;
    let url: RedisUrl = server.url().parse().unwrap();
    let dialer = Dialer::new(&url.login, 0, None, Mode::Standalone).unwrap();
    let (events, _heard) = mpsc::unbounded_channel();
    let topology = Topology::new(Finder::Fixed(url.hosts[0].clone()), dialer, events);
    let key_space = KeySpace::of(&partition("p"));
    let change = Call { confirmed: true, ..release_call(&key_space, key_space.lease(&key("lease")), 1) };
    call(&topology, &change).await.unwrap();
    assert!(calls(&server, "wait").await > 0);
}

#[tokio::test]
async fn replica_that_comes_is_seen_whatever_else_happens() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let topology = store.topology.clone();
    let mut faults = JoinSet::new();
    faults.spawn(async move {
        loop {
            topology.refresh();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let _replica = server.replica().await;
    let mut number = 0;
    eventually("changes are confirmed", async || {
        append(&store, &partition("p"), number).await.unwrap();
        number += 1;
        calls(&server, "wait").await > 0
    })
    .await;
}

#[tokio::test]
async fn fences_do_not_go_back_when_grants_are_lost() {
    let (before, after) = (RedisServer::start().await, RedisServer::start().await);
    let store = open(&before.url()).await;
    let mut last = None;
    for _ in 0..5 {
        let fence = store.acquire(&partition("p"), &key("lease"), Duration::ZERO).await.unwrap();
        assert!(fence > last);
        last = fence;
    }
    // The one that takes over never heard of the lease.
    let taken_over = open(&after.url()).await.acquire(&partition("p"), &key("lease"), TTL).await.unwrap();
    assert!(taken_over > last);
    let check = Check::Fence { lease: key("lease"), fence: last.unwrap() };
    let zombie = appending(&partition("p"), 0).check(check);
    let fenced = CommitError::Fenced { lease: key("lease") };
    assert_eq!(open(&after.url()).await.commit(zombie).await, Err(fenced));
}

#[tokio::test]
async fn demoted_server_is_left_until_it_is_a_primary_again() {
    let (server, other) = (RedisServer::start().await, RedisServer::start().await);
    let store = open(&server.url()).await;
    let partition = partition("p");
    append(&store, &partition, 0).await.unwrap();
    server.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]).await;
    let began = Instant::now();
    assert!(append(&store, &partition, 1).await.is_err());
    assert!(began.elapsed() < Duration::from_millis(1900), "it took {:?}", began.elapsed());
    eventually("it is known", async || store.health().await.is_err()).await;
    server.promote().await;
    eventually("it is used again", async || store.health().await.is_ok()).await;
    let head = appended_once(&store, &partition).await;
    assert_eq!(append(&store, &partition, head).await, Ok(()));
}

/// Appends until told to stop; what was acknowledged must be there at the end.
pub(super) async fn append_through(store: &RedisStore, partition: &Partition, until: impl Future<Output = ()>) -> u64 {
    let mut until = std::pin::pin!(until);
    let (mut done, mut over) = (0, false);
    while !over {
        tokio::select! {
            () = &mut until => over = true,
            appended = append(store, partition, done) => match appended {
                Ok(()) => done += 1,
                Err(CommitError::Unavailable(_)) => {
                    eventually("it can be read", async || {
                        let Ok(page) = store.read_log(partition, &key("log"), 0, 0).await else { return false };
                        assert!(page.head >= done, "{done} were confirmed and {} are there", page.head);
                        done = page.head;
                        true
                    })
                    .await;
                }
                Err(other) => panic!("{other} after {done}"),
            },
        }
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_lead_to_the_new_primary() {
    let mut watched = Watched::start().await;
    let store = open(&watched.url()).await;
    let partition = partition("p");
    let failover = async {
        let head = async || store.read_log(&partition, &key("log"), 0, 0).await.map_or(0, |page| page.head);
        eventually("it begins", async || head().await > 50).await;
        watched.primary.kill().await;
        let before = head().await;
        let role = async || watched.replica.cli(&["ROLE"]).await;
        eventually("the replica takes over", async || role().await.starts_with("master")).await;
        eventually("it goes on", async || head().await > before + 50).await;
    };
    let done = append_through(&store, &partition, failover).await;
    assert!(appended_once(&store, &partition).await >= done);
    assert_eq!(store.health().await, Ok(()));
    // A replica is looked for more often than once a second while there is none.
    let (looks, began) = (calls(&watched.replica, "role").await, Instant::now());
    eventually("it looks", async || calls(&watched.replica, "role").await > looks + 9).await;
    assert!(began.elapsed() < Duration::from_secs(6), "it took {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_goes_on_after_failovers() {
    let mut cluster = Cluster::start(true).await;
    let store = open(&cluster.url()).await;
    // A partition on each of the first two primaries.
    let on = |first: u16| {
        let mut names = (0..).map(|number| partition(&format!("p/{number}")));
        names.find(|partition| (first..first + 5461).contains(&KeySpace::of(partition).slot)).unwrap()
    };
    let partitions = [on(0), on(5461)];
    let head =
        async |partition: &Partition| store.read_log(partition, &key("log"), 0, 0).await.map_or(0, |page| page.head);
    let grows = async |partition: &Partition| {
        let before = head(partition).await;
        eventually("it goes on", async || head(partition).await > before + 50).await;
    };
    let failovers = async {
        grows(&partitions[0]).await;
        grows(&partitions[1]).await;
        assert_eq!(cluster.replicas[0].cli(&["CLUSTER", "FAILOVER"]).await, "OK");
        cluster.primaries[1].kill().await;
        for replica in &cluster.replicas[..2] {
            eventually("the replica takes over", async || replica.cli(&["ROLE"]).await.starts_with("master")).await;
        }
        grows(&partitions[0]).await;
        grows(&partitions[1]).await;
    };
    let (stop, stopped) = tokio::sync::watch::channel(());
    let until = || {
        let mut stopped = stopped.clone();
        async move { drop(stopped.changed().await) }
    };
    let ((), first, second) = tokio::join!(
        async {
            failovers.await;
            stop.send_replace(());
        },
        append_through(&store, &partitions[0], until()),
        append_through(&store, &partitions[1], until()),
    );
    assert!(appended_once(&store, &partitions[0]).await >= first);
    assert!(appended_once(&store, &partitions[1]).await >= second);
    eventually("all of it is healthy", async || store.health().await.is_ok()).await;
}

//! What this backend promises beside what every store does.

mod checkups;
mod failovers;
mod faults;
mod limits;
mod moves;
mod nudges;
#[path = "../../../tests/support/proxy.rs"]
#[expect(dead_code, reason = "the integration tests use the rest")]
mod proxy;
#[path = "../../../tests/support/seed.rs"]
#[expect(dead_code, reason = "the integration tests use the rest")]
mod seed;
#[path = "../../../tests/support/redis_servers.rs"]
pub(crate) mod servers;
mod starts;

use self::proxy::Proxy;
use self::servers::{Cluster, RedisServer, Watched};
use super::*;
use crate::store::{Check, Write, conformance};
use crate::types::clock::now_ms;

mod alone {
    use super::*;

    conformance::suite!(async {
        let server = RedisServer::start().await;
        (Arc::new(open(&server.url()).await), server)
    });
}

/// One test, since a cluster takes longer to start than all cases take to run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_keeps_all_promises() {
    let cluster = Cluster::start(false).await;
    conformance::all(&open(&cluster.url()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_pair_keeps_all_promises() {
    let watched = Watched::start().await;
    conformance::all(&open(&watched.url()).await).await;
    // Commits that must last were confirmed by the replica.
    assert!(calls(&watched.primary, "wait").await > 0);
}

#[tokio::test]
async fn server_without_replicas_is_not_asked_for_confirmation() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    for number in 0..10 {
        assert_eq!(append(&store, &partition("p"), number).await, Ok(()));
    }
    assert_eq!(calls(&server, "wait").await, 0);
    assert_eq!((calls(&server, "evalsha").await, calls(&server, "eval").await), (10, 1));
}

#[tokio::test]
async fn clock_is_learnt_from_the_time_of_a_grant_and_not_from_its_token() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    // The clock stood in the year 2096 when the lease was granted last.
    let lease = KeySpace::of(&partition("p")).lease(&key("l"));
    server.cli(&["SET", &lease, "4000000000000000::0:"]).await;
    let fence = store.acquire(&partition("p"), &key("l"), Duration::from_secs(60)).await.unwrap().unwrap();
    assert_eq!(fence.token, 4_000_000_000_000_001);
    assert!(store.now_ms().abs_diff(now_ms()) < 60_000, "{}", store.now_ms());
}

/// Something between the store and this server that fails as networks do.
async fn proxy_of(server: &RedisServer) -> Proxy {
    Proxy::start(([127, 0, 0, 1], server.port()).into()).await
}

/// The server behind the proxy, by its URL.
fn url_of(proxy: &Proxy) -> String {
    format!("redis://{}", proxy.address())
}

async fn open(url: &str) -> RedisStore {
    RedisStore::open(&url.parse().unwrap()).await.unwrap()
}

fn partition(name: &str) -> Partition {
    Partition::new(name)
}

fn key(name: &str) -> Key {
    Key::from(name)
}

/// Appends the next number to `log` and counts it, synced.
async fn append(store: &RedisStore, partition: &Partition, after: u64) -> Result<(), CommitError> {
    store.commit(appending(partition, after)).await
}

fn appending(partition: &Partition, after: u64) -> Tx {
    let entry = Bytes::from(after.to_string());
    Tx::new(partition.clone())
        .write(Write::Append { log: key("log"), after, entries: vec![entry] })
        .write(Write::Add { counter: key("count"), delta: 1, ceiling: None })
        .write(Write::Put { key: key("last"), value: Bytes::new(), ttl: None })
}

/// Asserts that everything was appended once, in order, and counted once; answers how many there are.
async fn appended_once(store: &RedisStore, partition: &Partition) -> u64 {
    let page = store.read_log(partition, &key("log"), 0, usize::MAX).await.unwrap();
    let numbers: Vec<_> = page.entries.iter().map(|entry| String::from_utf8(entry.to_vec()).unwrap()).collect();
    assert_eq!(numbers, (0..page.head).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(store.counter(partition, &key("count")).await, Ok(i64::try_from(page.head).unwrap()));
    let last = store.get(partition, &key("last")).await.unwrap();
    assert_eq!(last.map_or(0, |document| document.version), page.head);
    page.head
}

/// How often a server was asked for a command.
async fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]).await;
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

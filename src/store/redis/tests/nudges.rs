//! Nudges from other processes.

use super::servers::eventually;
use super::*;

/// Whether a nudge comes in time.
async fn nudged(watch: &mut Watch) -> bool {
    tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.is_ok()
}

/// Waits until nothing more comes of what happened before.
async fn quiet(watch: &mut Watch) {
    while tokio::time::timeout(Duration::from_millis(200), watch.changed()).await.is_ok() {}
}

fn topic(name: &str) -> Topic {
    Topic::new(partition("p"), name)
}

async fn nudge(store: &RedisStore, topic: &Topic) {
    let mut tx = Tx::new(topic.partition.clone());
    tx.notify = Some(topic.clone());
    store.commit(tx).await.unwrap();
}

async fn subscribed(server: &RedisServer) -> usize {
    server.cli(&["PUBSUB", "SHARDCHANNELS"]).await.lines().filter(|line| !line.is_empty()).count()
}

#[tokio::test]
async fn nudges_cross_processes_and_survive_their_connection() {
    let server = RedisServer::start().await;
    let (here, there) = (open(&server.url()).await, open(&server.url()).await);
    let (mut watch, mut other) = (here.watch(&topic("run")), here.watch(&topic("other")));
    eventually("the channels are subscribed to", async || subscribed(&server).await == 2).await;
    for lost in [false, true] {
        if lost {
            server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            // Who watches looks, since something may have been lost.
            assert!(nudged(&mut watch).await && nudged(&mut other).await);
            eventually("the channels are subscribed to again", async || subscribed(&server).await == 2).await;
        }
        quiet(&mut watch).await;
        quiet(&mut other).await;
        nudge(&there, &topic("run")).await;
        assert!(nudged(&mut watch).await);
        assert!(tokio::time::timeout(Duration::from_millis(100), other.changed()).await.is_err());
    }
}

#[tokio::test]
async fn channels_are_left_when_nobody_watches() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let kept = store.watch(&topic("kept"));
    let watches: Vec<_> = (0..2000).map(|number| store.watch(&topic(&number.to_string()))).collect();
    eventually("the channels are subscribed to", async || subscribed(&server).await == 2001).await;
    drop(watches);
    eventually("they are left", async || subscribed(&server).await == 1).await;
    drop(kept);
}

#[tokio::test]
async fn nudges_cross_a_cluster() {
    let cluster = Cluster::start(false).await;
    let (here, there) = (open(&cluster.url()).await, open(&cluster.url()).await);
    let topics: Vec<_> = (0..30).map(|number| Topic::new(partition(&format!("p/{number}")), "run")).collect();
    let mut watches: Vec<_> = topics.iter().map(|topic| here.watch(topic)).collect();
    eventually("the channels are subscribed to", async || {
        let mut all = 0;
        for node in &cluster.primaries {
            all += subscribed(node).await;
        }
        all == topics.len()
    })
    .await;
    for (topic, watch) in topics.iter().zip(&mut watches) {
        quiet(watch).await;
        nudge(&there, topic).await;
        assert!(nudged(watch).await);
    }
}

#[tokio::test]
async fn subscriptions_that_are_refused_leave_the_connection_alone() {
    let server = RedisServer::start().await;
    server.cli(&["ACL", "SETUSER", "eve", "on", ">pw", "~*", "+@all", "resetchannels"]).await;
    let store = open(&server.url().replace("127.0.0.1", "eve:pw@127.0.0.1")).await;
    let mut watch = store.watch(&topic("run"));
    let count = async |section: &str, name: &str| {
        let info = server.cli(&["INFO", section]).await;
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    let refusals = async || count("errorstats", "errorstat_NOPERM:count=").await;
    eventually("it is refused", async || refusals().await > 0).await;
    eventually("it is tried again", async || refusals().await > 1).await;
    server.cli(&["ACL", "SETUSER", "eve", "allchannels"]).await;
    eventually("the channel is subscribed to", async || subscribed(&server).await == 1).await;
    assert!(nudged(&mut watch).await);
    assert!(refusals().await < 20);
}

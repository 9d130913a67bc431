//! Real Redis servers: those that the store's own tests use, and what happens to them in the course of a
//! longer test.

#[path = "redis_servers.rs"]
#[expect(dead_code, reason = "the store's own tests use the rest")]
mod servers;

use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use servers::{Cluster, RedisServer, Signal, Watched, eventually, free_port, send_signal};

/// How many tests one server has room for.
pub(crate) const DATABASES: usize = 2048;

/// A server that keeps what it acknowledged when it is killed, and has room for many tests side by side.
pub(crate) async fn durable() -> RedisServer {
    RedisServer::start_with(&["--appendonly", "yes", "--databases", &DATABASES.to_string()]).await
}

/// Where it listens.
pub(crate) fn address(server: &RedisServer) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

/// Kills whichever is the primary, waits until its replica is the primary, and `later` starts the killed one
/// again. It takes itself for the primary, and has forgotten everything, until the Sentinels tell it.
pub(crate) async fn fail_over(watched: &mut Watched, later: Duration) {
    let before = primary(watched).await;
    let dead = [&mut watched.primary, &mut watched.replica].into_iter().find(|server| server.port() == before);
    let dead = dead.expect("the Sentinels name one of ours");
    dead.kill().await;
    let sentinel = &watched.sentinels[0];
    eventually("another primary", async || primary_by(sentinel).await != before).await;
    tokio::time::sleep(later).await;
    dead.restart().await;
    settle(watched).await;
}

/// Asks the Sentinels to let the two servers change their roles; both stay alive.
pub(crate) async fn switch(watched: &Watched) {
    let before = primary(watched).await;
    let sentinel = &watched.sentinels[0];
    // They refuse while they are still busy with the last change.
    let asked = async || sentinel.cli(&["SENTINEL", "FAILOVER", "mymaster"]).await == "OK";
    eventually("a change of roles to begin", asked).await;
    eventually("another primary", async || primary_by(sentinel).await != before).await;
    settle(watched).await;
}

/// Waits until the primary has its replica again, and this has what was written after it came. It is called online, and
/// names an offset, before it takes anything.
async fn settle(watched: &Watched) {
    eventually("the replica to come back", async || replication(watched).await.is_some()).await;
    let (written, _) = replication(watched).await.unwrap_or_default();
    let is_in_step = async || replication(watched).await.is_some_and(|(_, taken)| taken > written);
    eventually("the replica to be in step", is_in_step).await;
}

/// How far the primary has written, and how far its replica says that it has taken it; `None` without a replica.
async fn replication(watched: &Watched) -> Option<(u64, u64)> {
    let port = primary(watched).await;
    let both = [&watched.primary, &watched.replica];
    let primary = both.into_iter().find(|server| server.port() == port)?;
    let told = primary.cli(&["INFO", "replication"]).await;
    let number = |text: &str| text.split(',').next()?.trim().parse::<u64>().ok();
    let written = told.lines().find_map(|line| number(line.strip_prefix("master_repl_offset:")?))?;
    let taken = told.lines().find_map(|line| number(line.split_once("state=online,offset=")?.1))?;
    told.contains("role:master").then_some((written, taken))
}

async fn primary(watched: &Watched) -> u16 {
    primary_by(&watched.sentinels[0]).await
}

async fn primary_by(sentinel: &RedisServer) -> u16 {
    let reply = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]).await;
    reply.lines().last().and_then(|port| port.parse().ok()).unwrap_or(0)
}

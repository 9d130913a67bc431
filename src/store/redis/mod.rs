//! A store in Redis or Valkey, shared by all replicas of this server.
//!
//! | thing | in Redis, below `lg:{PARTITION}:` |
//! | --- | --- |
//! | document | `d:KEY`, a string: version, space, value; `i`, a sorted set of all keys, for scans |
//! | log | `l:KEY`, a list |
//! | counter | `c:KEY`, a string |
//! | lease | `h:KEY`, a string: token, nonce, end |
//! | bucket | `r:KEY`, a string: when it is whole again |
//! | topic | `n:NAME`, a sharded channel |
//!
//! A partition lies in one slot, and one script makes each commit: it decides everything before its first write.
//! Every operation is one exchange with the server. A request that was sent and not answered is sent again under the same name
//! until its deadline. Redis remembers for a few seconds which operations it carried out (`o:`) and which were
//! repeated (`q:`), so no operation happens twice.
//!
//! **What is promised.** A `Written` commit has reached the primary. A `Synced` commit and a granted lease have
//! also reached a replica, if the primary has replicas or had one within the last minute; if no replica confirms,
//! the operation fails as unavailable although it may have happened. A confirmed commit survives the loss of the
//! primary if the replica that confirmed it takes over, which Sentinel and Cluster prefer and do not guarantee.
//! A commit that was only written may be lost with the primary. Fences never go back, since they are taken from
//! the clock. A server without replicas keeps what its own persistence keeps.

mod call;
mod checkup;
mod clock;
mod connection;
mod connection_context;
mod dial;
mod error;
mod event;
mod find;
mod keys;
mod node;
mod nudges;
mod numbered;
mod open;
mod open_connection;
mod operations;
mod plan;
mod read;
mod replicas;
mod scripts;
mod topology;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use self::call::{Call, Work, call};
pub use self::checkup::{Checkup, checkup};
use self::clock::ServerClock;
use self::event::Event;
use self::keys::KeySpace;
use self::node::Purpose;
pub use self::open::Refusal;
use self::operations::Operations;
use self::plan::{Plan, TOKEN_KEPT, fence_text, millis};
use self::read::{malformed, number, text};
use self::scripts::{ACQUIRE, COMMIT, Lua, PAGE, RELEASE, RENEW, SCAN, TAKE};
use self::topology::Topology;
use super::watch::Topics;
use super::{
    CommitError, Document, Durability, Fence, Key, LogPage, Order, Partition, Rate, RateDecision, Scan, Store, Topic,
    Tx, Unavailable, Watch,
};

/// How long an expired lease is kept, so that its holder can still renew it.
const EXPIRED_LEASE_KEPT: Duration = Duration::from_hours(24);

/// The pace of a store that is a network away.
const PACE: Duration = Duration::from_millis(50);

/// The backend in Redis.
pub struct RedisStore {
    /// Its URL without the password, for the log.
    name: String,
    topology: Arc<Topology>,
    operations: Operations,
    clock: Arc<ServerClock>,
    topics: Arc<Topics>,
    events: mpsc::UnboundedSender<Event>,
    /// Releases of leases whose acquisition was not answered.
    background: TaskTracker,
    _tasks: JoinSet<()>,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn commit(&self, tx: Tx) -> Result<(), CommitError> {
        let space = KeySpace::of(&tx.partition);
        let mut plan = Plan::of(&tx, &space);
        let nudged = tx.notify.as_ref().filter(|_| plan.may_happen());
        if plan.is_empty() && nudged.is_none() {
            return plan.outcome();
        }
        let operation = self.operations.next(&space);
        let mut keys = vec![operation.done, operation.repeated, space.index(), space.kept()];
        let mut arguments = vec![operation.name, Operations::remembered(), space.document("").into()];
        plan.encode(&mut keys, &mut arguments);
        arguments.push(nudged.map_or_else(Bytes::new, |topic| keys::channel(topic).0.into()));
        arguments.push(self.operations.whose());
        let confirmed = tx.durability == Durability::Synced && plan.writes();
        let answer = self.run(&space, Purpose::Work, confirmed, &COMMIT, keys, arguments).await?;
        if let Value::Array(refusal) = &answer {
            let [condition, actual] = &refusal[..] else { return Err(malformed(&answer).into()) };
            let refusal = plan.refusal(number(condition)?, &text(actual)?);
            return Err(refusal.unwrap_or_else(|| malformed(&answer).into()));
        }
        if let Some(topic) = nudged {
            self.topics.notify(topic);
        }
        plan.outcome()
    }

    async fn read_log(
        &self,
        partition: &Partition,
        log: &Key,
        after: u64,
        limit: usize,
    ) -> Result<LogPage, Unavailable> {
        let space = KeySpace::of(partition);
        let name = space.log(log);
        let args = read::page_args(after, limit);
        read::page(self.run(&space, Purpose::Work, false, &PAGE, vec![name], args).await?, after)
    }

    async fn get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        let space = KeySpace::of(partition);
        match self.read(&space, read::value(&space.document(key))).await?.pop() {
            Some(Value::Nil) => Ok(None),
            Some(Value::BulkString(found)) => read::document(found).map(Some),
            other => Err(malformed(&other)),
        }
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        let Some(range) = scan.range().filter(|_| scan.limit > 0) else { return Ok(Vec::new()) };
        let space = KeySpace::of(partition);
        let (lower, upper) = read::bounds(range);
        let (first, last, reverse) = match scan.order {
            Order::Ascending => (lower, upper, ""),
            Order::Descending => (upper, lower, "REV"),
        };
        // The greatest count that Redis takes.
        let limit = scan.limit.min(1 << 31).to_string();
        let arguments = [space.document(""), first, last, reverse.to_owned(), limit].map(Bytes::from).to_vec();
        let answer = self.run(&space, Purpose::Work, false, &SCAN, vec![space.index()], arguments).await?;
        read::documents(answer)
    }

    async fn counter(&self, partition: &Partition, key: &Key) -> Result<i64, Unavailable> {
        let space = KeySpace::of(partition);
        match self.read(&space, read::value(&space.counter(key))).await?.pop() {
            Some(Value::Nil) => Ok(0),
            Some(found) => number(&found),
            None => Err(malformed(&None::<Value>)),
        }
    }

    async fn acquire(&self, partition: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        let space = KeySpace::of(partition);
        let nonce = getrandom::u64().map_err(|error| Unavailable(error.to_string()))?;
        let lease = space.lease(lease);
        let arguments = [nonce.to_string(), ttl_arg(ttl), ttl_arg(EXPIRED_LEASE_KEPT)].map(Bytes::from).to_vec();
        match self.run(&space, Purpose::Leases, true, &ACQUIRE, vec![lease.clone()], arguments).await {
            Ok(Value::Nil) => Ok(None),
            Ok(Value::Array(granted)) => {
                let [token, micros] = &granted[..] else { return Err(malformed(&granted)) };
                self.clock.note(number::<u64>(micros)? / 1_000);
                Ok(Some(Fence { token: number(token)?, nonce }))
            }
            Ok(other) => Err(malformed(&other)),
            Err(unavailable) => {
                self.release_later(space, lease, nonce);
                Err(unavailable)
            }
        }
    }

    async fn renew(
        &self,
        partition: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable> {
        let space = KeySpace::of(partition);
        let keys = vec![space.lease(lease), space.log(log)];
        let arguments = [fence_text(fence), ttl_arg(ttl), ttl_arg(EXPIRED_LEASE_KEPT)].map(Bytes::from).to_vec();
        let length = self.run(&space, Purpose::Renewals, false, &RENEW, keys, arguments).await?;
        if length == Value::Nil { Ok(None) } else { number(&length).map(Some) }
    }

    async fn release(&self, partition: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        let space = KeySpace::of(partition);
        let call = release_call(&space, space.lease(lease), fence.nonce);
        call::call(&self.topology, &call).await.map(drop)
    }

    async fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Result<RateDecision, Unavailable> {
        let space = KeySpace::of(partition);
        let operation = self.operations.next(&space);
        let keys = vec![space.bucket(bucket), operation.done, operation.repeated];
        let [every, most] = [rate.every, rate.most()].map(|time| Bytes::from(read::micros(time)));
        let arguments = vec![operation.name, Operations::remembered(), every, most];
        let answer = self.run(&space, Purpose::Work, false, &TAKE, keys, arguments).await?;
        let Value::Array(parts) = &answer else { return Err(malformed(&answer)) };
        let [taken, debt] = &parts[..] else { return Err(malformed(&answer)) };
        let debt = Duration::from_micros(number(debt)?);
        Ok(if number::<u8>(taken)? == 1 { rate.taken(debt) } else { rate.refused(debt) })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn pace(&self) -> Duration {
        PACE
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn watch(&self, topic: &Topic) -> Watch {
        let (watch, new) = self.topics.watch_newly(topic);
        if new {
            // The receiver is gone once the store is closed.
            let _ = self.events.send(Event::Watched(topic.clone()));
        }
        watch
    }

    async fn health(&self) -> Result<(), Unavailable> {
        self.topology.answers().await.map_err(|error| Unavailable(error.to_string()))
    }

    /// Nothing to do: what was acknowledged is with the server.
    async fn close(&self) {}
}

impl RedisStore {
    async fn run(
        &self,
        space: &KeySpace,
        purpose: Purpose,
        confirmed: bool,
        script: &'static Lua,
        keys: Vec<String>,
        arguments: Vec<Bytes>,
    ) -> Result<Value, Unavailable> {
        let work = Work::Run(script, keys, arguments);
        let answers = call(&self.topology, &Call { slot: space.slot, purpose, confirmed, work }).await?;
        answers.into_iter().next().ok_or_else(|| malformed(&None::<Value>))
    }

    async fn read(&self, space: &KeySpace, reads: redis::Pipeline) -> Result<Vec<Value>, Unavailable> {
        let work = Work::Read(reads);
        call(&self.topology, &Call { slot: space.slot, purpose: Purpose::Work, confirmed: false, work }).await
    }

    /// Releases, in the background, a lease that may have been granted although no answer came.
    fn release_later(&self, space: KeySpace, lease: String, nonce: u64) {
        let topology = self.topology.clone();
        self.background.spawn(async move {
            // If this fails too, the lease expires by itself.
            let _ = call(&topology, &release_call(&space, lease, nonce)).await;
        });
    }
}

fn release_call(space: &KeySpace, lease: String, nonce: u64) -> Call {
    let arguments = [nonce.to_string(), ttl_arg(TOKEN_KEPT)].map(Bytes::from).to_vec();
    let work = Work::Run(&RELEASE, vec![lease], arguments);
    Call { slot: space.slot, purpose: Purpose::Leases, confirmed: false, work }
}

/// A time to live as a script's argument: whole milliseconds, at most a century.
fn ttl_arg(time: Duration) -> String {
    if time.is_zero() { "0".to_owned() } else { millis(time).unwrap_or(100 * 365 * 86_400_000).to_string() }
}

#[cfg(test)]
pub(crate) mod tests;

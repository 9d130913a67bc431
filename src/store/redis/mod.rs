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
//! A partition lies in one slot, and a script makes each change as a whole: everything is decided before
//! the first write. Every operation is one exchange with the server; only a log's page that is large takes
//! several, so that others have their turns in between. What was sent and not answered is asked for again
//! under the same name until the time is up; `o:` and `q:` remember for a few seconds what was done and what
//! was repeated, so nothing is done twice.
//!
//! **What is promised.** `Written` has reached the primary. `Synced`, and a lease that is granted, has
//! reached a replica as well if the primary has replicas or had any within the last minute: otherwise it
//! is refused as unavailable although it may have happened. What was confirmed survives the loss of the
//! primary if the replica that has it takes over, which Sentinel and Cluster prefer and do not
//! guarantee; what was merely written may be lost with it. Fences never go back, since they are taken
//! from the clock. A server without replicas keeps what its own persistence keeps.

mod call;
mod dial;
mod fault;
mod find;
mod keys;
mod lane;
mod node;
mod nudges;
mod open;
mod operations;
mod plan;
mod read;
mod scripts;
#[cfg(test)]
mod servers;
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
use self::keys::Place;
use self::node::Purpose;
use self::nudges::Event;
pub use self::open::Refusal;
use self::operations::Operations;
use self::plan::{Plan, fence_text, millis};
use self::read::{nonsense, number, text};
use self::scripts::{ACQUIRE, COMMIT, Lua, PAGE, RELEASE, RENEW, SCAN, TAKE};
use self::topology::Topology;
use super::watch::Topics;
use super::{
    CommitError, Document, Durability, Fence, Key, LogPage, Order, Partition, Rate, Scan, Store, Taken, Topic, Tx,
    Unavailable, Watch,
};

/// How long a lease that ran out is remembered, so that its holder can still renew it.
const LEASE_KEPT: Duration = Duration::from_hours(24);

/// How long the token of a lease that was given back is remembered.
const TOKEN_KEPT: Duration = Duration::from_hours(1);

/// The pace of a store that is a network away.
const PACE: Duration = Duration::from_millis(50);

/// The backend in Redis.
pub struct RedisStore {
    /// Where it is, for people.
    name: String,
    topology: Arc<Topology>,
    operations: Operations,
    topics: Arc<Topics>,
    events: mpsc::UnboundedSender<Event>,
    /// What goes on after it was answered.
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
        let place = Place::of(&tx.partition);
        let mut plan = Plan::of(&tx, &place);
        let nudged = tx.notify.as_ref().filter(|_| plan.may_happen());
        if plan.is_empty() && nudged.is_none() {
            return plan.outcome();
        }
        let operation = self.operations.next(&place);
        let mut keys = vec![operation.done, operation.repeated, place.index()];
        let mut arguments = vec![operation.name, Operations::remembered(), place.document("").into()];
        plan.tell(&mut keys, &mut arguments);
        arguments.push(nudged.map_or_else(Bytes::new, |topic| keys::channel(topic).0.into()));
        arguments.push(self.operations.whose());
        let confirmed = tx.durability == Durability::Synced && plan.writes();
        let answer = self.run(&place, Purpose::Work, confirmed, &COMMIT, keys, arguments).await?;
        if let Value::Array(refusal) = &answer {
            let [condition, actual] = &refusal[..] else { return Err(nonsense(&answer).into()) };
            let refusal = plan.refusal(number(condition)?, &text(actual)?);
            return Err(refusal.unwrap_or_else(|| nonsense(&answer).into()));
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
        let place = Place::of(partition);
        let name = place.log(log);
        let mut page = LogPage { first: after.saturating_add(1), ..LogPage::default() };
        loop {
            let rest = read::rest(&page, after, limit);
            let answer = self.run(&place, Purpose::Work, false, &PAGE, vec![name.clone()], rest).await?;
            if read::add(answer, &mut page, after, limit)? {
                return Ok(page);
            }
        }
    }

    async fn get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        let place = Place::of(partition);
        match self.read(&place, read::value(&place.document(key))).await?.pop() {
            Some(Value::Nil) => Ok(None),
            Some(Value::BulkString(found)) => read::document(found).map(Some),
            other => Err(nonsense(&other)),
        }
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        let Some(range) = scan.range().filter(|_| scan.limit > 0) else { return Ok(Vec::new()) };
        let place = Place::of(partition);
        let (lower, upper) = read::bounds(range);
        let (first, last, reverse) = match scan.order {
            Order::Ascending => (lower, upper, ""),
            Order::Descending => (upper, lower, "REV"),
        };
        // As many as Redis can count.
        let limit = scan.limit.min(1 << 31).to_string();
        let arguments = [place.document(""), first, last, reverse.to_owned(), limit].map(Bytes::from).to_vec();
        let answer = self.run(&place, Purpose::Work, false, &SCAN, vec![place.index()], arguments).await?;
        read::documents(answer)
    }

    async fn counter(&self, partition: &Partition, key: &Key) -> Result<i64, Unavailable> {
        let place = Place::of(partition);
        match self.read(&place, read::value(&place.counter(key))).await?.pop() {
            Some(Value::Nil) => Ok(0),
            Some(found) => number(&found),
            None => Err(nonsense(&None::<Value>)),
        }
    }

    async fn acquire(&self, partition: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        let place = Place::of(partition);
        let nonce = getrandom::u64().map_err(|error| Unavailable(error.to_string()))?;
        let lease = place.lease(lease);
        let arguments = [nonce.to_string(), lasting(ttl), lasting(LEASE_KEPT)].map(Bytes::from).to_vec();
        match self.run(&place, Purpose::Leases, true, &ACQUIRE, vec![lease.clone()], arguments).await {
            Ok(Value::Nil) => Ok(None),
            Ok(token) => Ok(Some(Fence { token: number(&token)?, nonce })),
            Err(unavailable) => {
                self.give_back_later(place, lease, nonce);
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
        let place = Place::of(partition);
        let keys = vec![place.lease(lease), place.log(log)];
        let arguments = [fence_text(fence), lasting(ttl), lasting(LEASE_KEPT)].map(Bytes::from).to_vec();
        let length = self.run(&place, Purpose::Renewals, false, &RENEW, keys, arguments).await?;
        if length == Value::Nil { Ok(None) } else { number(&length).map(Some) }
    }

    async fn release(&self, partition: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        let place = Place::of(partition);
        let call = giving_back(&place, place.lease(lease), fence.nonce);
        call::call(&self.topology, &call).await.map(drop)
    }

    async fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Result<Taken, Unavailable> {
        let place = Place::of(partition);
        let operation = self.operations.next(&place);
        let keys = vec![place.bucket(bucket), operation.done, operation.repeated];
        let [every, most] = [rate.every, rate.most()].map(|time| Bytes::from(read::micros(time)));
        let arguments = vec![operation.name, Operations::remembered(), every, most];
        let answer = self.run(&place, Purpose::Work, false, &TAKE, keys, arguments).await?;
        let Value::Array(parts) = &answer else { return Err(nonsense(&answer)) };
        let [taken, debt] = &parts[..] else { return Err(nonsense(&answer)) };
        let debt = Duration::from_micros(number(debt)?);
        Ok(if number::<u8>(taken)? == 1 { rate.taken(debt) } else { rate.refused(debt) })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn pace(&self) -> Duration {
        PACE
    }

    fn watch(&self, topic: &Topic) -> Watch {
        let (watch, new) = self.topics.watch_newly(topic);
        if new {
            // The follower ends with the store.
            let _ = self.events.send(Event::Watched(topic.clone()));
        }
        watch
    }

    async fn health(&self) -> Result<(), Unavailable> {
        self.topology.answers().await.map_err(|trouble| Unavailable(trouble.to_string()))
    }

    /// There is nothing to do: what was acknowledged is with the server.
    async fn close(&self) {}
}

impl RedisStore {
    async fn run(
        &self,
        place: &Place,
        purpose: Purpose,
        confirmed: bool,
        script: &'static Lua,
        keys: Vec<String>,
        arguments: Vec<Bytes>,
    ) -> Result<Value, Unavailable> {
        let work = Work::Run(script, keys, arguments);
        let answers = call(&self.topology, &Call { slot: place.slot, purpose, confirmed, work }).await?;
        answers.into_iter().next().ok_or_else(|| nonsense(&None::<Value>))
    }

    async fn read(&self, place: &Place, reads: redis::Pipeline) -> Result<Vec<Value>, Unavailable> {
        let work = Work::Read(reads);
        call(&self.topology, &Call { slot: place.slot, purpose: Purpose::Work, confirmed: false, work }).await
    }

    /// Gives back a lease that may have been granted by an answer that never came. It would run out by
    /// itself, so nobody waits for this.
    fn give_back_later(&self, place: Place, lease: String, nonce: u64) {
        let topology = self.topology.clone();
        self.background.spawn(async move {
            // It runs out anyway.
            let _ = call(&topology, &giving_back(&place, lease, nonce)).await;
        });
    }
}

fn giving_back(place: &Place, lease: String, nonce: u64) -> Call {
    let arguments = [nonce.to_string(), lasting(TOKEN_KEPT)].map(Bytes::from).to_vec();
    let work = Work::Run(&RELEASE, vec![lease], arguments);
    Call { slot: place.slot, purpose: Purpose::Leases, confirmed: false, work }
}

/// Whole milliseconds. What lasts longer than anything lasts a century.
fn lasting(time: Duration) -> String {
    if time.is_zero() { "0".to_owned() } else { millis(time).unwrap_or(100 * 365 * 86_400_000).to_string() }
}

#[cfg(test)]
mod tests;

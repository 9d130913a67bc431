//! Slots of a cluster that move from one node to another.

use super::failovers::append_through;
use super::servers::eventually;
use super::*;

/// A slot on its way from the first primary to the second.
struct Move<'a> {
    cluster: &'a Cluster,
    slot: String,
}

impl<'a> Move<'a> {
    /// Lets the slot of a partition begin to move.
    async fn begin(cluster: &'a Cluster, partition: &Partition) -> Self {
        let slot = KeySpace::of(partition).slot.to_string();
        let moving = Self { cluster, slot };
        let [from, to] = [&cluster.primaries[0], &cluster.primaries[1]];
        moving.set(to, "IMPORTING", &from.cli(&["CLUSTER", "MYID"]).await).await;
        moving.set(from, "MIGRATING", &to.cli(&["CLUSTER", "MYID"]).await).await;
        moving
    }

    /// Moves one key; whether there was one.
    async fn one(&self) -> bool {
        let [from, to] = [&self.cluster.primaries[0], &self.cluster.primaries[1]];
        let key = from.cli(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "1"]).await;
        if key.is_empty() {
            return false;
        }
        let moved = from.cli(&["MIGRATE", "127.0.0.1", &to.port().to_string(), &key, "0", "5000"]).await;
        assert!(moved == "OK" || moved == "NOKEY", "{moved}");
        true
    }

    /// Moves what is left, and the slot with it.
    async fn end(&self) {
        while self.one().await {}
        let owner = self.cluster.primaries[1].cli(&["CLUSTER", "MYID"]).await;
        for primary in [1, 0, 2] {
            self.set(&self.cluster.primaries[primary], "NODE", &owner).await;
        }
    }

    async fn set(&self, at: &RedisServer, how: &str, node: &str) {
        assert_eq!(at.cli(&["CLUSTER", "SETSLOT", &self.slot, how, node]).await, "OK");
    }
}

/// Partitions in the first primary's slots, each in another.
fn partitions() -> impl Iterator<Item = Partition> {
    (0..).map(|number| partition(&format!("p/{number}"))).filter(|partition| KeySpace::of(partition).slot <= 5460)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_that_moves_loses_nothing_and_repeats_nothing() {
    let cluster = Cluster::start(false).await;
    let store = open(&cluster.url()).await;
    let partition = partitions().next().unwrap();
    let head = async || store.read_log(&partition, &key("log"), 0, 0).await.map_or(0, |page| page.head);
    let moves = async {
        eventually("it begins", async || head().await > 20).await;
        let moving = Move::begin(&cluster, &partition).await;
        moving.one().await;
        let waits = async || cluster.primaries[0].cli(&["INFO", "errorstats"]).await.contains("errorstat_TRYAGAIN");
        eventually("a change waits for the end", waits).await;
        moving.end().await;
        let before = head().await;
        eventually("it goes on", async || head().await > before + 20).await;
    };
    let done = append_through(&store, &partition, moves).await;
    assert!(appended_once(&store, &partition).await >= done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_is_made_as_a_whole_where_a_slot_begins_to_move() {
    let cluster = Cluster::start(false).await;
    let store = open(&cluster.url()).await;
    let put = |name: &str| Write::Put { key: key(name), value: Bytes::from_static(b"new"), ttl: None };
    let add = |delta| Write::Add { counter: key("counter"), delta, ceiling: None };
    let append = |after| Write::Append { log: key("log"), after, entries: vec![Bytes::from_static(b"new")] };
    let ttl = Duration::from_secs(60);
    let changes = [
        (vec![Write::Delete { key: key("document") }, put("document")], (Some(1), 1, 1)),
        (vec![Write::Delete { key: key("document") }, Write::DeleteLog { log: key("log") }], (None, 0, 1)),
        (vec![Write::DeleteLog { log: key("log") }, append(0), append(1)], (Some(1), 2, 1)),
        (vec![Write::DeleteLog { log: key("log") }, Write::ExpireLog { log: key("log"), ttl }], (Some(1), 0, 1)),
        (vec![add(-1), Write::ExpireCounter { counter: key("counter"), ttl }, add(5)], (Some(1), 1, 5)),
        (vec![Write::DeleteCounter { counter: key("counter") }, add(5), add(-5)], (Some(1), 1, 0)),
    ];
    for (partition, (writes, expected)) in partitions().zip(changes) {
        let change = |mut writes: Vec<Write>| {
            writes.push(Write::Add { counter: key("last"), delta: 1, ceiling: None });
            writes.into_iter().fold(Tx::new(partition.clone()), Tx::write)
        };
        store.commit(change(vec![put("document"), append(0), add(1)])).await.unwrap();
        // Only what finds all its keys is done there at all.
        let repeated = store.operations.next(&KeySpace::of(&partition)).repeated;
        assert_eq!(cluster.primaries[0].cli(&["SET", &repeated, ",;"]).await, "OK");
        let moving = Move::begin(&cluster, &partition).await;
        assert_eq!(store.commit(change(writes.clone())).await, Ok(()), "{writes:?}");
        moving.end().await;
        eventually("it can be read", async || store.counter(&partition, &key("last")).await == Ok(2)).await;
        let document = store.get(&partition, &key("document")).await.unwrap().map(|document| document.version);
        let head = store.read_log(&partition, &key("log"), 0, 0).await.unwrap().head;
        let counter = store.counter(&partition, &key("counter")).await.unwrap();
        assert_eq!((document, head, counter), expected, "{writes:?}");
    }
}

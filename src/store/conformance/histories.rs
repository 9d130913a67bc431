//! Random histories of transactions: a backend must answer each of them, and stand after each of them,
//! as a plain model does.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::fixtures::*;
use crate::store::{Check, Durability};

/// What a partition holds, in the plainest form.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Model {
    documents: BTreeMap<Key, Document>,
    logs: BTreeMap<Key, Vec<Bytes>>,
    counters: BTreeMap<Key, i64>,
}

/// One transaction of a history.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    checks: Vec<(u8, bool)>,
    writes: Vec<Step>,
    durability: Durability,
}

/// One write. What it expects of the state is filled in from the model, rightly or wrongly.
#[derive(Debug, Clone)]
enum Step {
    Put { key: u8, text: u8, ttl: Option<Duration> },
    Delete { key: u8 },
    Append { log: u8, right: bool, entries: u8 },
    DeleteLog { log: u8 },
    ExpireLog { log: u8, ttl: Duration },
    Add { counter: u8, delta: i64, ceiling: Option<i64> },
    DeleteCounter { counter: u8 },
    ExpireCounter { counter: u8, ttl: Duration },
}

/// Histories over two names of each kind.
pub(crate) fn histories() -> impl Strategy<Value = Vec<Move>> {
    let name = || 0..2_u8;
    let ttl = || prop_oneof![Just(Duration::ZERO), Just(LONG), Just(Duration::MAX)];
    let right = || prop::bool::weighted(0.9);
    let step = prop_oneof![
        4 => (name(), any::<u8>(), prop::option::weighted(0.3, ttl()))
            .prop_map(|(key, text, ttl)| Step::Put { key, text, ttl }),
        1 => name().prop_map(|key| Step::Delete { key }),
        4 => (name(), right(), 0..3_u8).prop_map(|(log, right, entries)| Step::Append { log, right, entries }),
        1 => name().prop_map(|log| Step::DeleteLog { log }),
        1 => (name(), ttl()).prop_map(|(log, ttl)| Step::ExpireLog { log, ttl }),
        3 => (name(), -4..6_i64, prop::option::of(0..12_i64))
            .prop_map(|(counter, delta, ceiling)| Step::Add { counter, delta, ceiling }),
        1 => name().prop_map(|counter| Step::DeleteCounter { counter }),
        1 => (name(), ttl()).prop_map(|(counter, ttl)| Step::ExpireCounter { counter, ttl }),
    ];
    let durability = prop_oneof![9 => Just(Durability::Written), 1 => Just(Durability::Synced)];
    let one = (prop::collection::vec((name(), right()), 0..2), prop::collection::vec(step, 0..5), durability);
    let one = one.prop_map(|(checks, writes, durability)| Move { checks, writes, durability });
    prop::collection::vec(one, 1..24)
}

/// Runs histories on one store, each in a partition of its own.
pub(crate) fn agree_with_a_plain_model<S: std::ops::Deref<Target: Store + Sized>, K>(
    make: impl AsyncFnOnce() -> (S, K),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (store, _kept) = runtime.block_on(make());
    let result = runner(128).run(&histories(), |history| {
        runtime.block_on(play(&*store, &partition(), &history));
        Ok::<(), TestCaseError>(())
    });
    runtime.block_on(store.close());
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// Runs so many cases; a failing one is shrunk and printed, and nothing is written to disk.
pub(crate) fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

/// Plays a history on a store and on a model side by side; returns the model.
pub(crate) async fn play(store: &dyn Store, partition: &Partition, history: &[Move]) -> Model {
    let mut model = Model::default();
    for step in history {
        let tx = model.transaction(partition, step);
        let expected = model.commit(&tx);
        assert_eq!(store.commit(tx.clone()).await, expected, "{tx:?}");
        model.assert_is_in(store, partition).await;
    }
    model
}

impl Model {
    /// Asserts that a store holds this and nothing else.
    pub(crate) async fn assert_is_in(&self, store: &dyn Store, partition: &Partition) {
        let scan = Scan { prefix: String::new(), after: None, limit: 100, order: Order::Ascending };
        let documents = store.scan(partition, scan).await.unwrap();
        let mut held = Self {
            documents: documents.into_iter().map(|(key, document)| (key.into(), document)).collect(),
            ..Self::default()
        };
        for name in 0..2 {
            let document = store.get(partition, &named("document", name)).await.unwrap();
            assert_eq!(document.as_ref(), held.documents.get(&named("document", name)));
            let log = named("log", name);
            let entries = entries(store, partition, &log).await;
            if !entries.is_empty() {
                held.logs.insert(log, entries);
            }
            let counter = named("counter", name);
            let value = store.counter(partition, &counter).await.unwrap();
            if value != 0 {
                held.counters.insert(counter, value);
            }
        }
        assert_eq!(&held, self);
    }

    fn transaction(&self, partition: &Partition, step: &Move) -> Tx {
        let mut tx = Tx::new(partition.clone());
        tx.durability = step.durability;
        for (name, right) in &step.checks {
            let key = named("document", *name);
            let version = self.documents.get(&key).map_or(0, |document| document.version) + u64::from(!right);
            tx = tx.check(Check::Version { key, version });
        }
        let mut before = self.clone();
        for step in &step.writes {
            let write = before.instance(step);
            // A write that is refused leaves the model as it was; the ones after it do not matter.
            let _ = before.write(&write);
            tx = tx.write(write);
        }
        tx
    }

    fn instance(&self, step: &Step) -> Write {
        match step.clone() {
            Step::Put { key, text, ttl } => {
                Write::Put { key: named("document", key), value: bytes(&text.to_string()), ttl }
            }
            Step::Delete { key } => Write::Delete { key: named("document", key) },
            Step::Append { log, right, entries } => {
                let log = named("log", log);
                let after = self.head(&log) + u64::from(!right);
                Write::Append { log, after, entries: (0..entries).map(|number| bytes(&number.to_string())).collect() }
            }
            Step::DeleteLog { log } => Write::DeleteLog { log: named("log", log) },
            Step::ExpireLog { log, ttl } => Write::ExpireLog { log: named("log", log), ttl },
            Step::Add { counter, delta, ceiling } => Write::Add { counter: named("counter", counter), delta, ceiling },
            Step::DeleteCounter { counter } => Write::DeleteCounter { counter: named("counter", counter) },
            Step::ExpireCounter { counter, ttl } => Write::ExpireCounter { counter: named("counter", counter), ttl },
        }
    }

    fn commit(&mut self, tx: &Tx) -> Result<(), CommitError> {
        for check in &tx.checks {
            let Check::Version { key, version } = check else { continue };
            let actual = self.documents.get(key).map_or(0, |document| document.version);
            if actual != *version {
                return Err(CommitError::VersionConflict { key: key.clone(), actual });
            }
        }
        let mut after = self.clone();
        for write in &tx.writes {
            after.write(write)?;
        }
        *self = after;
        Ok(())
    }

    fn write(&mut self, write: &Write) -> Result<(), CommitError> {
        match write {
            Write::Put { key, value, ttl } => {
                let version = self.documents.remove(key).map_or(0, |document| document.version) + 1;
                if *ttl != Some(Duration::ZERO) {
                    self.documents.insert(key.clone(), Document { version, value: value.clone() });
                }
            }
            Write::Delete { key } => drop(self.documents.remove(key)),
            Write::Append { log, after, entries } => {
                if self.head(log) != *after {
                    return Err(CommitError::SequenceConflict { log: log.clone(), actual: self.head(log) });
                }
                if !entries.is_empty() {
                    self.logs.entry(log.clone()).or_default().extend(entries.iter().cloned());
                }
            }
            Write::DeleteLog { log } => drop(self.logs.remove(log)),
            Write::ExpireLog { log, ttl } => {
                if ttl.is_zero() {
                    self.logs.remove(log);
                }
            }
            Write::Add { counter, delta, ceiling } => {
                let value = self.counters.get(counter).copied().unwrap_or(0);
                let sum = value + delta;
                if *delta > 0 && ceiling.is_some_and(|ceiling| sum > ceiling) {
                    return Err(CommitError::CeilingReached { counter: counter.clone(), value });
                }
                self.counters.remove(counter);
                if sum != 0 {
                    self.counters.insert(counter.clone(), sum);
                }
            }
            Write::DeleteCounter { counter } => drop(self.counters.remove(counter)),
            Write::ExpireCounter { counter, ttl } => {
                if ttl.is_zero() {
                    self.counters.remove(counter);
                }
            }
        }
        Ok(())
    }

    fn head(&self, log: &Key) -> u64 {
        self.logs.get(log).map_or(0, |entries| entries.len() as u64)
    }
}

fn named(kind: &str, name: u8) -> Key {
    Key::from(format!("{kind}/{name}"))
}

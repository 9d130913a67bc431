use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::*;
use crate::llm::health::UpstreamHealth;
use crate::llm::health::breaker::{BreakerPolicy, Standing};
use crate::llm::{ModelError, ModelErrorKind};
use crate::store::faulty::{Fate, Faulty};
use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;

pub(super) const POLICY: BreakerPolicy =
    BreakerPolicy { failures: 5, window_ms: 10_000, cooldown_ms: 1_000, most_cooldown_ms: 8_000, retry_percent: 10 };

/// A store that replicas share, whose nudges reach them or not.
#[derive(Debug, Default)]
pub(super) struct Shared {
    inner: MemoryStore,
    /// That no nudge reaches.
    deaf: MemoryStore,
    loses_nudges: bool,
}

impl Shared {
    pub(super) fn new(loses_nudges: bool) -> Arc<Self> {
        Arc::new(Self { loses_nudges, ..Self::default() })
    }
}

#[async_trait]
impl StoreLayer for Shared {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn listen(&self) -> &dyn Store {
        if self.loses_nudges { &self.deaf } else { &self.inner }
    }

    fn has_others(&self) -> bool {
        true
    }
}

/// A replica, which tells the others and learns from them until it is dropped.
pub(super) struct Member {
    pub(super) store: Arc<Faulty>,
    pub(super) health: Arc<Health>,
    pub(super) upstream: Arc<UpstreamHealth>,
    keeps: tokio::task::JoinHandle<()>,
}

impl Member {
    pub(super) fn join(store: &Arc<Shared>, name: &str) -> Self {
        let store = Faulty::new(store.clone(), |_| Fate::Happens);
        let health = Arc::<Health>::default();
        let stored = StoredHealth::new(store.clone(), &health, name);
        let upstream = health.of_upstream("u", "", POLICY);
        #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
        let keeps = tokio::spawn(async move { stored.keep().await });
        Self { store, health, upstream, keeps }
    }

    /// Where the breaker of the model stands.
    pub(super) fn standing(&self) -> Standing {
        self.health.standings().first().map_or(Standing::Closed, |model| model.standing)
    }

    /// Has so many calls fail at once.
    pub(super) async fn fail(&self, calls: usize) {
        for _ in 0..calls {
            let mut call = self.upstream.admit("m", false).await.expect("it is asked");
            call.note_failure(&down());
        }
    }

    /// The replica is gone from now on, without a word.
    pub(super) fn die(&self) {
        self.store.die();
        self.keeps.abort();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.keeps.abort();
    }
}

pub(super) fn down() -> ModelError {
    ModelError { status: Some(503), ..ModelError::new(ModelErrorKind::Transient, "it is down") }
}

/// The time that goes by in one step.
pub(super) const BIT: Duration = Duration::from_millis(50);

/// Lets a bit of time pass, on the wall clock too, from which a store in memory tells the time.
pub(super) async fn pass_a_bit() {
    tokio::time::sleep(BIT).await;
    SHIFTED.set(SHIFTED.get() + i64::try_from(BIT.as_millis()).unwrap());
    crate::types::clock::shift(SHIFTED.get());
}

pub(super) async fn pass(time: Duration) {
    for _ in 0..time.as_millis() / BIT.as_millis() {
        pass_a_bit().await;
    }
}

thread_local! {
    static SHIFTED: Cell<i64> = const { Cell::new(0) };
}

//! For tests: a layer through which one process sees a store. Its commits can fail, and the process can die, while other
//! processes go on using the store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::layer::StoreLayer;
use super::memory::MemoryStore;
use super::{CommitError, Partition, Store, Tx, Unavailable};

/// What happens to a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It happens.
    Happens,
    /// It does not happen.
    Fails,
    /// It happens, but the caller gets an error.
    FailsAfterwards,
    /// It waits for [`go_on`](Faulty::go_on), and happens then.
    Hangs,
    /// It happens, and its answer waits for [`go_on`](Faulty::go_on).
    HangsAfterwards,
    /// The process dies before it.
    DiesBefore,
    /// It happens, and the process dies before the answer.
    DiesAfter,
}

type Fates = Box<dyn FnMut(&Tx) -> Fate + Send>;

/// A store as one process sees it. The calls of a dead process never return.
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    fates: Mutex<Fates>,
    dead: AtomicBool,
    has_struck: AtomicBool,
    reached: Semaphore,
    gate: Semaphore,
}

impl Faulty {
    /// A layer that asks `fates` about each commit.
    pub(crate) fn new(inner: Arc<dyn Store>, fates: impl FnMut(&Tx) -> Fate + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            inner,
            fates: Mutex::new(Box::new(fates)),
            dead: AtomicBool::new(false),
            has_struck: AtomicBool::new(false),
            reached: Semaphore::new(0),
            gate: Semaphore::new(0),
        })
    }

    /// A layer over a memory store; every commit happens until another plan is made.
    pub(crate) fn memory() -> Arc<Self> {
        Self::new(Arc::new(MemoryStore::default()), |_| Fate::Happens)
    }

    /// Asks `fates` about each commit from now on.
    pub(crate) fn follow(&self, fates: impl FnMut(&Tx) -> Fate + Send + 'static) {
        self.has_struck.store(false, Ordering::SeqCst);
        *self.fates.lock() = Box::new(fates);
    }

    /// Gives the next commit for which `meant` is true this fate; all others happen.
    pub(crate) fn next(&self, meant: impl FnMut(&Tx) -> bool + Send + 'static, fate: Fate) {
        let mut plan = Some(meant);
        self.follow(move |tx| plan.take_if(|meant| meant(tx)).map_or(Fate::Happens, |_| fate));
    }

    /// Lets so many commits happen and fails all later ones.
    pub(crate) fn allow(&self, commits: usize) {
        let mut left = (0..commits).map(|_| Fate::Happens);
        self.follow(move |_| left.next().unwrap_or(Fate::Fails));
    }

    /// Whether a commit did not simply happen since the last plan was made.
    pub(crate) fn has_struck(&self) -> bool {
        self.has_struck.load(Ordering::SeqCst)
    }

    /// Waits until a commit has met another fate than to happen; each call waits for another such commit.
    pub(crate) async fn reached(&self) {
        self.reached.acquire().await.expect("it is never closed").forget();
    }

    /// Lets one commit that hangs go on.
    pub(crate) fn go_on(&self) {
        self.gate.add_permits(1);
    }

    /// Makes the process die.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// Whether the process has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    fn fate(&self, tx: &Tx) -> Fate {
        let fate = self.fates.lock()(tx);
        if fate != Fate::Happens {
            self.has_struck.store(true, Ordering::SeqCst);
            self.reached.add_permits(1);
        }
        fate
    }

    async fn wait(&self) {
        self.gate.acquire().await.expect("it is never closed").forget();
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
impl StoreLayer for Faulty {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn pass(&self, _partition: Option<&Partition>) -> Result<(), Unavailable> {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn on_commit(&self, tx: Tx) -> Result<(), CommitError> {
        let away = || CommitError::Unavailable(Unavailable("it is away".to_owned()));
        match self.fate(&tx) {
            Fate::Happens => self.inner.commit(tx).await,
            Fate::Fails => Err(away()),
            Fate::FailsAfterwards => {
                self.inner.commit(tx).await?;
                Err(away())
            }
            Fate::Hangs => {
                self.wait().await;
                self.inner.commit(tx).await
            }
            Fate::HangsAfterwards => {
                let done = self.inner.commit(tx).await;
                self.wait().await;
                done
            }
            Fate::DiesBefore => {
                self.die();
                std::future::pending().await
            }
            Fate::DiesAfter => {
                self.die();
                let _ = self.inner.commit(tx).await;
                std::future::pending().await
            }
        }
    }
}

//! For tests: a store as one process sees it, whose commits go wrong, or which dies, while the store itself
//! goes on for others.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::layer::StoreLayer;
use super::memory::MemoryStore;
use super::{CommitError, Partition, Store, Tx, Unavailable};

/// What becomes of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It happens.
    Happens,
    /// It does not happen.
    Fails,
    /// It happens, but nobody is told.
    FailsAfterwards,
    /// It waits until it is told to go on.
    Hangs,
    /// It happens, but is answered only once it is told to go on.
    HangsAfterwards,
    /// The process dies before it.
    DiesBefore,
    /// The process dies after it and never learns of it.
    DiesAfter,
}

type Fates = Box<dyn FnMut(&Tx) -> Fate + Send>;

/// A store as one process sees it. A dead process's calls never return.
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    fates: Mutex<Fates>,
    dead: AtomicBool,
    has_struck: AtomicBool,
    reached: Semaphore,
    gate: Semaphore,
}

impl Faulty {
    /// One whose commits end as `fates` says.
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

    /// One in memory with which nothing is wrong yet.
    pub(crate) fn memory() -> Arc<Self> {
        Self::new(Arc::new(MemoryStore::default()), |_| Fate::Happens)
    }

    /// From now on commits end as `fates` says.
    pub(crate) fn follow(&self, fates: impl FnMut(&Tx) -> Fate + Send + 'static) {
        self.has_struck.store(false, Ordering::SeqCst);
        *self.fates.lock() = Box::new(fates);
    }

    /// The next commit that is `meant` ends so; all others happen.
    pub(crate) fn next(&self, meant: impl FnMut(&Tx) -> bool + Send + 'static, fate: Fate) {
        let mut plan = Some(meant);
        self.follow(move |tx| plan.take_if(|meant| meant(tx)).map_or(Fate::Happens, |_| fate));
    }

    /// So many commits happen, and none after them.
    pub(crate) fn allow(&self, commits: usize) {
        let mut left = (0..commits).map(|_| Fate::Happens);
        self.follow(move |_| left.next().unwrap_or(Fate::Fails));
    }

    /// Whether a commit went wrong since the last plan was made.
    pub(crate) fn has_struck(&self) -> bool {
        self.has_struck.load(Ordering::SeqCst)
    }

    /// Returns once a commit has gone wrong: each time for another.
    pub(crate) async fn reached(&self) {
        self.reached.acquire().await.expect("it is never closed").forget();
    }

    /// Lets a commit that hangs go on.
    pub(crate) fn go_on(&self) {
        self.gate.add_permits(1);
    }

    /// Lets the process die.
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

    async fn pass(&self, _place: Option<&Partition>) -> Result<(), Unavailable> {
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

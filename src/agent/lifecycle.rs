//! The life of this process: its tasks, its readers, and the stage of its shutdown.
//!
//! A request's future is dropped with its connection, at any point where it waits. What the request had begun in
//! the store would then have no owner until a lease expires, or longer. So work of several steps runs in a task of
//! the agent, and the request only waits for that task. The task completes even if the request is dropped, and the
//! drain waits for it.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument;

/// How soon work beside the runs begins again after it panicked.
const BEGIN_AGAIN: Duration = Duration::from_secs(1);

/// How far a process is on its way to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Not at all.
    Serving,
    /// The process is about to end, and its readiness says so. If other replicas can resume them, runs are handed over
    /// before their next step.
    Ending,
    /// The process accepts no new runs.
    Refusing,
    /// The process leaves its runs as they are.
    Leaving,
}

/// This process's tasks, readers and stage.
#[derive(Debug)]
pub struct Lifecycle {
    tasks: TaskTracker,
    /// The readers that follow runs through this process.
    readers: TaskTracker,
    /// Those of them that get events as these happen.
    streams: TaskTracker,
    stage: watch::Sender<Stage>,
    /// Whether other replicas can resume this process's runs.
    hands_over: bool,
}

/// A reader that is counted until this is dropped.
#[derive(Debug)]
pub struct CountedReader {
    _reader: TaskTrackerToken,
    /// Unless it passes nothing on before the run ends.
    stream: Option<TaskTrackerToken>,
}

impl CountedReader {
    /// The reader passes nothing on before the run ends.
    pub fn waits_for_the_end(&mut self) {
        self.stream = None;
    }
}

/// Tells how far the process is on its way to its end. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ending {
    stage: watch::Receiver<Stage>,
    hands_over: bool,
}

impl Lifecycle {
    /// A process that serves, and hands its runs over before it ends if others share its store.
    pub fn new(hands_over: bool) -> Self {
        let stage = watch::Sender::new(Stage::Serving);
        let (tasks, readers, streams) = (TaskTracker::new(), TaskTracker::new(), TaskTracker::new());
        Self { tasks, readers, streams, stage, hands_over }
    }

    /// What tells runs and readers of this process's end.
    pub fn ending(&self) -> Ending {
        Ending { stage: self.stage.subscribe(), hands_over: self.hands_over }
    }

    /// The process is about to end.
    pub fn announce_end(&self) {
        self.reach(Stage::Ending);
    }

    /// No new runs are taken from now on.
    pub fn refuse(&self) {
        self.reach(Stage::Refusing);
    }

    /// Runs are left where they are. Returns once no task is left.
    pub async fn leave(&self) {
        self.reach(Stage::Leaving);
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Whether the process is about to end.
    pub fn is_ending(&self) -> bool {
        *self.stage.borrow() >= Stage::Ending
    }

    /// Whether runs are to go on elsewhere from their next step.
    pub fn is_handing_over(&self) -> bool {
        self.hands_over && self.is_ending()
    }

    /// Whether no new runs are taken.
    pub fn is_refusing(&self) -> bool {
        *self.stage.borrow() >= Stage::Refusing
    }

    /// Whether runs are left where they are.
    pub fn is_leaving(&self) -> bool {
        *self.stage.borrow() == Stage::Leaving
    }

    /// Counts a reader, which gets events as these happen, until what this returns is dropped.
    pub fn reader(&self) -> CountedReader {
        CountedReader { _reader: self.readers.token(), stream: Some(self.streams.token()) }
    }

    /// How many readers get events as these happen.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// How many readers there are.
    pub fn readers(&self) -> usize {
        self.readers.len()
    }

    /// Does `work` in a task, which the end of the process waits for.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Does `work` in a task until it ends or runs are left where they are.
    pub fn spawn_until_leaving(&self, work: impl Future<Output = ()> + Send + 'static) {
        let ending = self.ending();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = ending.leaving() => {}
                () = work => {}
            }
        });
    }

    /// Does the work that `begin` begins in a task until runs are left where they are. Work that panics is begun again
    /// after a moment, because runs go on and rely on it.
    pub fn spawn_supervised<F>(&self, what: &'static str, mut begin: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn_until_leaving(async move {
            while AssertUnwindSafe(begin()).catch_unwind().await.is_err() {
                tracing::error!(what, "work beside the runs panicked, and begins again");
                tokio::time::sleep(BEGIN_AGAIN).await;
            }
        });
    }

    /// Runs `work` in a task, so it completes even if the caller is dropped. A panic in `work` is resumed
    /// in the caller, whose future holds none of it. `work` comes boxed: such futures take kilobytes, which
    /// would be copied three times on their way into a task.
    pub fn run_detached<T: Send + 'static>(&self, work: BoxFuture<'static, T>) -> impl Future<Output = T> + use<T> {
        let task = self.tasks.spawn(work.in_current_span());
        async move {
            match task.await {
                Ok(output) => output,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => resume_unwind(panic),
                    // Only a runtime that ends drops a task, and nothing in it is waited for any more.
                    Err(_) => std::future::pending().await,
                },
            }
        }
    }

    /// Never goes back.
    fn reach(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let is_further = stage > *now;
            *now = stage.max(*now);
            is_further
        });
    }
}

impl Ending {
    /// Whether runs are left where they are.
    pub fn is_leaving(&self) -> bool {
        *self.stage.borrow() == Stage::Leaving
    }

    /// Whether the process is about to end.
    pub fn is_ending(&self) -> bool {
        *self.stage.borrow() >= Stage::Ending
    }

    /// Whether runs are to go on elsewhere from their next step.
    pub fn is_handing_over(&self) -> bool {
        self.hands_over && *self.stage.borrow() >= Stage::Ending
    }

    /// Returns once the process may have got further.
    pub async fn changed(&mut self) {
        // A process whose agent is gone gets no further.
        if self.stage.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns once the process is about to end.
    pub async fn announced(&self) {
        self.reached(Stage::Ending).await;
    }

    /// Returns once runs are left where they are.
    pub async fn leaving(&self) {
        self.reached(Stage::Leaving).await;
    }

    /// Returns once runs are to go on elsewhere from their next step.
    pub async fn handing_over(&self) {
        if !self.hands_over {
            return std::future::pending().await;
        }
        self.reached(Stage::Ending).await;
    }

    async fn reached(&self, stage: Stage) {
        let mut now = self.stage.clone();
        // A process whose agent is gone gets no further.
        if now.wait_for(|now| *now >= stage).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

//! Threads for work on files, which can hang as long as a network disk does: neither the runtime's threads nor the end of the
//! process wait for them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::sync::{Semaphore, oneshot};

use super::fault::Fault;

/// Whether the caller is gone, so that nothing may change any more.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// An error if the caller is gone.
    pub(super) fn check(&self) -> Result<(), Fault> {
        if self.0.load(Ordering::Relaxed) { Err(Fault::Stopped) } else { Ok(()) }
    }
}

/// Sets it when it is dropped.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` in a thread of its own, a few at once. Dropping the future tells it to stop.
pub(super) async fn aside<T: Send + 'static>(
    room: &Arc<Semaphore>,
    work: impl FnOnce(&Stop) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let permit = room.clone().acquire_owned().await.map_err(|_| Fault::NoThread)?;
    let (stop, (tell, told)) = (Stop::default(), oneshot::channel());
    let _stop = StopOnDrop(stop.clone());
    let work = move || {
        let done = catch_unwind(AssertUnwindSafe(|| work(&stop)));
        drop(permit);
        // Its caller may be gone. A panic is told by the sender that is dropped.
        if let Ok(done) = done {
            let _ = tell.send(done);
        }
    };
    thread::Builder::new().name("workspace".to_owned()).spawn(work).map_err(|_| Fault::NoThread)?;
    told.await.unwrap_or(Err(Fault::Crashed))
}

/// The same, where nobody waits for it.
pub(super) fn begin(work: impl FnOnce(&Stop) + Send + 'static) {
    let started = thread::Builder::new().name("workspace".to_owned()).spawn(move || work(&Stop::default()));
    if let Err(error) = started {
        tracing::warn!(%error, "no thread can be started to remove a workspace; it is removed later");
    }
}

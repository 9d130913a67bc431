//! Threads for runs: a few at once, each with a low priority, so that the rest of the server answers as before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::program::{Bounds, Input, Program, Ran};

/// How much less than others a run gets of a processor: a tenth, about.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Stops a run when it is dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a program in a thread of its own. Dropping the future stops it; `permit` is returned once it has stopped.
pub async fn run(
    program: Arc<Program>,
    input: Input,
    bounds: Bounds,
    permit: OwnedSemaphorePermit,
) -> Result<Ran, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = oneshot::channel();
    let _stop = StopOnDrop(stop.clone());
    let work = move || {
        lower_priority();
        let ran = catch_unwind(AssertUnwindSafe(|| program.run(input, &bounds, &stop)));
        drop(permit);
        // Its caller may be gone.
        let _ = tell.send(ran.unwrap_or_else(|_| Err("The sandbox failed.".to_owned())));
    };
    let started = thread::Builder::new().name("run-code".to_owned()).spawn(work);
    started.map_err(|error| format!("No thread can be started: {error}."))?;
    told.await.unwrap_or_else(|_| Err("The sandbox failed.".to_owned()))
}

/// Elsewhere a priority is that of the whole process.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "a run has the priority of the server");
    }
}

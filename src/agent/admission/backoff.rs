//! How a request waits for another request, or for a replica that died: it looks again and again, with growing
//! pauses, and gives up after a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::error::ClaimError;
use crate::agent::lifecycle::Ending;
use crate::agent::request_memory::RequestMemory;
use crate::types::pauses::Pauses;

/// The first and the longest pause between two looks.
const PAUSES: Pauses = Pauses::new(Duration::from_millis(5), Duration::from_millis(200));
/// A request that waited this long is refused with the advice to send it again. The lease of a process that died
/// meanwhile has expired by then.
const GIVE_UP_AFTER: Duration = Duration::from_secs(15);

/// One request that waits.
#[derive(Debug)]
pub struct Backoff {
    pauses: Pauses,
    until: Instant,
    ending: Ending,
    memory: Arc<RequestMemory>,
}

impl Backoff {
    /// A request that begins to wait.
    pub fn new(ending: Ending, memory: Arc<RequestMemory>) -> Self {
        Self { pauses: PAUSES, until: Instant::now() + GIVE_UP_AFTER, ending, memory }
    }

    /// Pauses, unless there was enough of it, too many requests wait already or this process is about to end.
    pub async fn pause(&mut self) -> Result<(), ClaimError> {
        if Instant::now() >= self.until || self.ending.is_leaving() {
            return Err(ClaimError::Busy);
        }
        let (pause, ending) = (tokio::time::sleep(self.pauses.draw()), &mut self.ending);
        let paused = self.memory.wait(async {
            tokio::select! {
                () = pause => Ok(()),
                () = ending.leaving() => Err(ClaimError::Busy),
            }
        });
        paused.await.unwrap_or(Err(ClaimError::Busy))
    }
}

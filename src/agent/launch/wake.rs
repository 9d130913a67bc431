//! Resumes a run that waits for services.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::launch::Launcher;
use crate::agent::launch::resume::{Answer, NotResumed};
use crate::agent::ledger::due::Due;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::run_memory::Purpose;
use crate::failpoint;
use crate::store::Unavailable;
use crate::types::{RunStatus, Tenant};

/// How often it is tried at once to resume a run that was answered. After that the due index sees to it.
const TRIES: u32 = 5;
/// How long after the first try the second one comes; the others come later and later.
const PAUSE: Duration = Duration::from_millis(100);

impl Launcher {
    /// Resumes a run that waits for services, and is told what they answer by its inbox; `false` if another process is about to,
    /// if the run does not wait for them, or if there is no memory for it now.
    pub(in crate::agent) async fn wake(self: &Arc<Self>, tenant: &Tenant, head: &Head) -> Result<bool, Unavailable> {
        let bytes = self.memory_of(tenant, head).await?;
        let Some(memory) = self.memory.take(bytes, Purpose::Resumption) else { return Ok(false) };
        let Some(idle) = self.acquire_idle(tenant, head).await? else { return Ok(false) };
        // The log is the truth: the run may have been resumed since its head was read.
        if idle.status() != RunStatus::RequiresAction || idle.run().pending_calls().next().is_none() {
            idle.release().await?;
            return Ok(false);
        }
        let answer = Answer { approvals: Vec::new(), leg: None, is_of_client: false, claim: None };
        match self.resume(idle, Some(answer), self.generations.current(), memory).await {
            Ok(_) => Ok(true),
            // Without a request of its client, a run needs no room.
            Err(NotResumed::NoRoom(_)) => Ok(false),
            Err(NotResumed::Failed(error)) => Err(error),
        }
    }

    /// Resumes a run to which this entry leads, unless it is under way: then its driver reads what it is told. The entry is
    /// removed once that is done, and otherwise stays for a sweep.
    pub(in crate::agent) fn wake_soon(self: &Arc<Self>, due: Due) {
        let launcher = self.clone();
        self.lifecycle.spawn(async move {
            for attempt in 0..TRIES {
                match launcher.wake_if_waiting(&due).await {
                    Ok(true) => break,
                    Ok(false) => tokio::time::sleep(PAUSE * 2_u32.pow(attempt)).await,
                    Err(error) => {
                        tracing::warn!(run = %due.run, %error, "could not resume a run that was answered; trying again");
                        return;
                    }
                }
            }
        });
    }

    /// Resumes a run to which this entry leads if it waits for services; `false` if that is to be tried again.
    pub(in crate::agent) async fn wake_if_waiting(self: &Arc<Self>, due: &Due) -> Result<bool, Unavailable> {
        let partition = keys::run_partition(&due.owner.tenant, due.owner.session.as_ref(), &due.run);
        let head = self.ledger.head(&partition, &due.run).await?;
        let is_done = match head.filter(Head::waits_for_services) {
            Some(head) => {
                failpoint::hit("pending.before_wake");
                self.wake(&due.owner.tenant, &head).await?
            }
            None => true,
        };
        if is_done {
            due.remove(&**self.ledger.store()).await?;
        }
        Ok(is_done)
    }
}

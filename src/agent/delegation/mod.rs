//! Begins runs for other runs, finds them again, and stops them; and lets runs go on as other agents.
//!
//! The run that begins another has named it before, so beginning it is tried under the same id however often that is repeated: the
//! store creates a run of an id once. A run that is wanted no more is barred first, in the partition where it would be created. So it
//! exists and is told to stop, or it never begins, whatever a replica that stood still does later.

mod handoff;
mod request;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use self::request::request;
use crate::agent::admission::Admission;
use crate::agent::delegating::{Begun, Child, Delegating};
use crate::agent::error::{ClaimError, LookupError, StartError, unavailable};
use crate::agent::ledger::due::{Due, Owner};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::limits::places::MOST_LIVE;
use crate::failpoint;
use crate::store::{Partition, Tx, Unavailable, Write};
use crate::types::delegate::ChildEnd;
use crate::types::{RunId, RunSpec, RunStatus, Tenant};

/// How long it is kept that a run is not to begin: longer than any replica stands still that was about to begin it.
const BARRED_FOR: Duration = Duration::from_secs(7 * 86_400);
/// How long a run that was told to stop is waited for, so that what it took is known.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// How long after that the due index resumes one that waits and was told to stop, should nothing else have.
const SEEN_TO_MS: u64 = 2_000;
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Begins runs for other runs, and lets runs go on as other agents.
#[derive(Debug, Default)]
pub struct Delegation {
    /// Set once all rooms are there. Weak, as admission holds what holds this.
    admission: OnceLock<Weak<Admission>>,
}

impl Delegation {
    /// The same, which begins runs through this from now on.
    pub(super) fn connected(self: Arc<Self>, admission: &Arc<Admission>) -> Arc<Self> {
        // It is connected once.
        let _ = self.admission.set(Arc::downgrade(admission));
        self
    }

    fn admission(&self) -> Result<Arc<Admission>, Unavailable> {
        let known = self.admission.get().and_then(Weak::upgrade);
        known.ok_or_else(|| Unavailable("the process is ending".to_owned()))
    }
}

/// Where a run lies that another one begins: it has no session.
fn partition(tenant: &Tenant, child: &RunId) -> Partition {
    keys::run_partition(tenant, None, child)
}

#[async_trait]
impl Delegating for Delegation {
    async fn begin(&self, parent: &RunSpec, child: &Child) -> Result<Begun, Unavailable> {
        let admission = self.admission()?;
        let id = &child.started.run;
        if let Some(begun) = found(&admission, &parent.tenant, id).await? {
            return Ok(begun);
        }
        if !admission.limits.take_place(parent, id).await? {
            let why = format!(
                "No more runs can begin: {MOST_LIVE} of this tree are under way. Do it yourself, or try again later."
            );
            return self.refuse(parent, id, why).await;
        }
        failpoint::hit("delegate.placed");
        let Err(refusal) = admission.start(request(parent, child), None).await else { return Ok(Begun::Live) };
        if let Some(begun) = found(&admission, &parent.tenant, id).await? {
            if matches!(begun, Begun::Ended(_)) {
                admission.limits.free_place(&parent.tenant, parent.root(), id).await?;
            }
            return Ok(begun);
        }
        let why = format!("The agent {:?} cannot begin: {refusal}.", child.started.agent);
        if let StartError::Store(error) = refusal {
            return Err(error);
        }
        // This replica is about to end.
        if matches!(refusal, StartError::Draining) {
            return Err(Unavailable(why));
        }
        // Another replica is beginning it, or memory is free in a moment.
        if matches!(refusal, StartError::Claim(ClaimError::Busy) | StartError::OutOfMemory) {
            return Ok(Begun::Later(why));
        }
        self.refuse(parent, id, why).await
    }

    async fn refuse(&self, parent: &RunSpec, child: &RunId, why: String) -> Result<Begun, Unavailable> {
        let admission = self.admission()?;
        self.stop(&parent.tenant, parent.root(), child).await?;
        Ok(found(&admission, &parent.tenant, child).await?.unwrap_or(Begun::Refused(why)))
    }

    async fn end_of(&self, tenant: &Tenant, child: &RunId) -> Result<Option<ChildEnd>, Unavailable> {
        let admission = self.admission()?;
        match admission.ledger.head(&partition(tenant, child), child).await? {
            Some(head) => admission.launcher.child_end(tenant, &head).await,
            None => Ok(None),
        }
    }

    async fn stop(&self, tenant: &Tenant, root: &RunId, child: &RunId) -> Result<(), Unavailable> {
        let (admission, partition) = (self.admission()?, partition(tenant, child));
        let bar = Write::Put { key: keys::barred(child), value: "barred".into(), ttl: Some(BARRED_FOR) };
        admission.ledger.commit(Tx::new(partition.clone()).write(bar)).await.map_err(unavailable)?;
        failpoint::hit("delegate.barred");
        let (until, mut told) = (Instant::now() + STOP_TIMEOUT, false);
        while let Some(head) = admission.ledger.head(&partition, child).await? {
            if head.status.is_final() {
                return Ok(());
            }
            if !std::mem::replace(&mut told, true) {
                tell(&admission, tenant, &head).await?;
                failpoint::hit("delegate.told_to_stop");
            }
            // Its driver, or the next one, reads what it was told.
            if stop_idle(&admission, tenant, &head).await? || Instant::now() >= until {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        admission.limits.free_place(tenant, root, child).await
    }
}

/// What became of a run; `None` if it does not exist.
async fn found(admission: &Admission, tenant: &Tenant, child: &RunId) -> Result<Option<Begun>, Unavailable> {
    let Some(head) = admission.ledger.head(&partition(tenant, child), child).await? else { return Ok(None) };
    let end = admission.launcher.child_end(tenant, &head).await?;
    Ok(Some(end.map_or(Begun::Live, |end| Begun::Ended(Box::new(end)))))
}

/// Tells a run to stop, also one that waits: another replica may be about to drive it.
async fn tell(admission: &Admission, tenant: &Tenant, head: &Head) -> Result<(), Unavailable> {
    if head.waits_for_services() {
        let owner = Owner { tenant: tenant.clone(), session: head.session.clone() };
        let at_ms = admission.ledger.store().now_ms().saturating_add(SEEN_TO_MS);
        // Put before, so that it does not wait behind what it is told.
        let due = Due::tool_answered(owner, head.id.clone(), at_ms);
        admission.ledger.commit(due.put()).await.map_err(unavailable)?;
    }
    match admission.control.tell_to_stop(tenant, &head.id).await {
        Ok(()) | Err(LookupError::RunNotFound(_)) => Ok(()),
        Err(LookupError::Store(error)) => Err(error),
        Err(error) => Err(Unavailable(error.to_string())),
    }
}

/// Ends a run that has no driver; `false` if it has one.
async fn stop_idle(admission: &Admission, tenant: &Tenant, head: &Head) -> Result<bool, Unavailable> {
    match head.status {
        RunStatus::RequiresAction | RunStatus::Queued => admission.launcher.stop(tenant, head).await,
        RunStatus::InProgress
        | RunStatus::Completed
        | RunStatus::Incomplete
        | RunStatus::Cancelled
        | RunStatus::Failed => Ok(false),
    }
}

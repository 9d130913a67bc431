//! Looks for schedules that are due.
//!
//! All replicas together look every few seconds, and each of them when the next schedule is due that it knows of. The lease of a
//! schedule decides which of them acts.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::lifecycle::Lifecycle;
use crate::agent::ownership::registry::Replica;
use crate::agent::schedules::Schedules;
use crate::agent::schedules::due::{self, DueSchedule};
use crate::store::Unavailable;
use crate::types::{ScheduleId, Tenant};

/// How often all replicas together look, on average.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// That this process acts on a schedule, until this is dropped.
struct Firing {
    schedules: Arc<Schedules>,
    which: (Tenant, ScheduleId),
}

impl Firing {
    /// `None` if it does already.
    fn begin(schedules: &Arc<Schedules>, due: &DueSchedule) -> Option<Self> {
        let which = (due.tenant.clone(), due.id.clone());
        let begins = schedules.firing.lock().insert(which.clone());
        begins.then(|| Self { schedules: schedules.clone(), which })
    }
}

impl Drop for Firing {
    fn drop(&mut self) {
        self.schedules.firing.lock().remove(&self.which);
    }
}

impl Schedules {
    /// Acts on what is due until the process ends.
    pub(in crate::agent) async fn keep(self: &Arc<Self>, replica: &Replica, lifecycle: &Lifecycle) {
        loop {
            let mut pause = replica.next_turn(LOOK_EVERY);
            if !lifecycle.is_ending() {
                match self.look(lifecycle).await {
                    Ok(next) => pause = pause.min(next.unwrap_or(pause)),
                    Err(error) => {
                        if self.cannot_look.is_due() {
                            tracing::warn!(%error, "could not look for schedules that are due; trying again");
                        }
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Acts on what is due now, in tasks of its own. Returns how long it is until the next firing, as far as that is known.
    async fn look(self: &Arc<Self>, lifecycle: &Lifecycle) -> Result<Option<Duration>, Unavailable> {
        let now_ms = self.store().now_ms();
        let found = due::until(self.store(), now_ms).await?;
        for due in found.due {
            let Some(firing) = Firing::begin(self, &due) else { continue };
            // None of them waits for others, so it is not long until there is room.
            let Ok(room) = self.room.clone().acquire_owned().await else { return Ok(None) };
            drop(lifecycle.run_detached(Box::pin(async move {
                firing.schedules.act(&due).await;
                drop((firing, room));
            })));
        }
        Ok(found.next_ms.map(|next_ms| Duration::from_millis(next_ms.saturating_sub(now_ms))))
    }

    /// Acts on one that is due, and removes its entry. What fails is found again.
    pub(in crate::agent) async fn act(&self, due: &DueSchedule) {
        let settled = match self.fire(due).await {
            Ok(true) => due.remove(self.store()).await,
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = settled {
            tracing::warn!(schedule = %due.id, %error, "a schedule could not fire; trying again");
        }
    }

    /// Acts on everything that is due, one after the other.
    #[cfg(test)]
    pub(in crate::agent) async fn fire_what_is_due(&self) {
        for due in due::until(self.store(), self.store().now_ms()).await.unwrap().due {
            self.act(&due).await;
        }
    }
}

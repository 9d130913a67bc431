//! Looks for schedules that are due.
//!
//! Each replica looks when the next schedule is due that it knows of, once it has changed one itself, and from time to time for what
//! others have changed. The lease of a schedule decides which of them acts.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::lifecycle::Lifecycle;
use crate::agent::schedules::Schedules;
use crate::agent::schedules::due::{self, DueSchedule};
use crate::store::Unavailable;
use crate::types::pauses::spread;
use crate::types::{ScheduleId, Tenant};

/// How often a replica looks for what others have changed: a schedule that another one made fires on time even if that one dies, if
/// it does so half a minute before. It asks the store little, as all replicas look.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How soon it looks again at what is due and could not be acted on.
const TRY_AGAIN: Duration = Duration::from_secs(5);

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
    pub(in crate::agent) async fn keep(self: &Arc<Self>, lifecycle: &Lifecycle) {
        loop {
            let mut pause = spread(LOOK_EVERY);
            if !lifecycle.is_ending() {
                match self.look(lifecycle).await {
                    Ok(next) => pause = pause.min(next.unwrap_or(pause)),
                    Err(error) => {
                        pause = spread(TRY_AGAIN);
                        if self.cannot_look.is_due() {
                            tracing::warn!(%error, "could not look for schedules that are due; trying again");
                        }
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Acts on what is due now, in tasks of its own. Returns how long it is until there is something to do, as far as
    /// that is known.
    async fn look(self: &Arc<Self>, lifecycle: &Lifecycle) -> Result<Option<Duration>, Unavailable> {
        let now_ms = self.store().now_ms();
        let found = due::until(self.store(), now_ms).await?;
        let again = (!found.due.is_empty()).then_some(TRY_AGAIN);
        for due in found.due {
            let Some(firing) = Firing::begin(self, &due) else { continue };
            // None of them waits for others, so it is not long until there is room.
            let Ok(room) = self.room.clone().acquire_owned().await else { return Ok(None) };
            drop(lifecycle.run_detached(Box::pin(async move {
                firing.schedules.act(&due).await;
                drop((firing, room));
            })));
        }
        let next = found.next_ms.map(|next_ms| Duration::from_millis(next_ms.saturating_sub(now_ms)));
        Ok(next.into_iter().chain(again).min())
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

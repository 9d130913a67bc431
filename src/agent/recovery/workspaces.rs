//! Removes the workspaces of sessions that have expired and of runs without a session that have ended.
//!
//! A store forgets a session without a word, so the workspaces are looked at in turn. Every replica does this, less often the more
//! replicas there are. Two that look at the same workspace do no harm: whoever removes it holds its lock. A workspace that
//! was changed lately is left for later, because its session or run may have been created after the store was asked.

use std::time::Duration;

use crate::agent::recovery::Recovery;
use crate::store::Unavailable;
use crate::tools::Workspaces;
use crate::tools::workspace::Owner;
use crate::types::Tenant;
use crate::types::clock::now_ms;

/// How often all workspaces are looked at by all replicas together, on average.
const EVERY: Duration = Duration::from_secs(1_800);
/// How long the store is left alone between two workspaces.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a workspace must not have changed.
const UNCHANGED: Duration = Duration::from_secs(900);

impl Recovery {
    /// Looks at all workspaces from time to time until the agent has drained.
    pub(in crate::agent) async fn sweep_workspaces(&self) {
        loop {
            tokio::time::sleep(self.ownership.replica.next_turn(EVERY)).await;
            let workspaces = self.generations.current().workspaces.clone();
            if let Some(workspaces) = workspaces.filter(|_| !self.lifecycle.is_ending()) {
                self.remove_workspaces(&workspaces, UNCHANGED).await;
            }
        }
    }

    /// Removes all workspaces that nobody needs and that did not change for so long.
    pub(in crate::agent) async fn remove_workspaces(&self, workspaces: &Workspaces, unchanged: Duration) {
        let passing = match workspaces.passing().await {
            Ok(passing) => passing,
            Err(fault) => return tracing::warn!(?fault, "could not list workspaces; trying again later"),
        };
        for (tenant, owner) in passing {
            if self.lifecycle.is_ending() {
                return;
            }
            let since = now_ms().saturating_sub(u64::try_from(unchanged.as_millis()).unwrap_or(u64::MAX)) / 1_000;
            match self.needs_workspace(&tenant, &owner).await {
                Ok(true) => {}
                Ok(false) => {
                    let since = i64::try_from(since).unwrap_or(i64::MAX);
                    match workspaces.remove_if_unchanged(&tenant, &owner, since).await {
                        Ok(true) => tracing::debug!(%tenant, ?owner, "a workspace was removed"),
                        Ok(false) => {}
                        Err(fault) => tracing::warn!(%tenant, ?owner, ?fault, "could not remove a workspace"),
                    }
                }
                Err(error) => return tracing::debug!(%error, "cannot tell which workspaces are needed"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether a workspace may still be used.
    async fn needs_workspace(&self, tenant: &Tenant, owner: &Owner) -> Result<bool, Unavailable> {
        match owner {
            Owner::Session(session) => Ok(self.ledger.find_session(tenant, session).await?.is_some()),
            Owner::Run(run) => self.ledger.is_live(tenant, None, run).await,
            Owner::User(_) => Ok(true),
        }
    }
}

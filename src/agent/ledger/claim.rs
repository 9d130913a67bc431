//! The claims of requests that may be repeated, as they are stored: each names what its request makes.

use std::time::Duration;

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use crate::agent::error::unavailable;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::store::retry::RetryConflicts;
use crate::store::{CommitError, Store, Tx, Unavailable};
use crate::types::{RunId, SessionId, Tenant};

/// What is stored of a request that may be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Hash of the request.
    pub fingerprint: String,
    /// What the request makes, named before it is made: so all requests with this claim make the same.
    pub target: Target,
    /// Whether the target is known to have been made; it may have expired since.
    pub made: bool,
    /// When the first request claimed the key, Unix milliseconds.
    pub since_ms: u64,
    /// When a request last began to make the target, Unix milliseconds; 0 if none is at work.
    pub tried_ms: u64,
    /// What became of the answer, where requests are known by all that they say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

/// What became of the answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The replica of this name writes it, or was killed.
    Open(String),
    /// All of it was written.
    Reached,
    /// Its connection was cut before that.
    Cut,
}

/// What a request makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A run's events after number `after`: 0 for a new run, more for one that waited for its client.
    Run { id: RunId, session: Option<SessionId>, after: u64 },
    /// A session.
    Session { id: SessionId },
}

/// Keeps the claims of these names for `ttl` from now on, as far as they are there and lead to this run.
pub async fn prolong(
    store: &dyn Store,
    tenant: &Tenant,
    names: &[&str],
    run: &RunId,
    ttl: Duration,
) -> Result<(), Unavailable> {
    try_join_all(names.iter().map(|name| prolong_one(store, tenant, name, run, ttl))).await.map(drop)
}

async fn prolong_one(
    store: &dyn Store,
    tenant: &Tenant,
    name: &str,
    run: &RunId,
    ttl: Duration,
) -> Result<(), Unavailable> {
    let (partition, key) = (keys::claim_partition(tenant, name), keys::claim());
    let mut retry = RetryConflicts::new();
    while retry.next().await {
        let Some(document) = store.get(&partition, &key).await? else { return Ok(()) };
        let claim: Claim = decode(&document.value)?;
        if !matches!(&claim.target, Target::Run { id, .. } if id == run) {
            return Ok(());
        }
        let kept = Tx::new(partition.clone()).put_at(key.clone(), document.version, document.value, Some(ttl));
        match store.commit(kept).await {
            Err(CommitError::VersionConflict { .. }) => {}
            result => return result.map_err(unavailable),
        }
    }
    Err(Unavailable(format!("a claim of run {run} is being changed by others")))
}

//! What a request can know of the connection over which an earlier equal one is answered.

use std::time::Duration;

use tokio::time::Instant;

use crate::agent::admission::Admission;
use crate::agent::admission::verdict::Connection;
use crate::agent::ledger::claim::{Answer, Claim, Target};
use crate::agent::ledger::keys;
use crate::agent::request_key::RequestKeyKind;
use crate::store::Unavailable;
use crate::types::Tenant;
use crate::types::run::LEASE_TTL;

/// How long an equal request waits to hear that the connection of the first was cut. Not a setting: a cut is noted within
/// milliseconds, and clients pause for longer before they send a request again.
const NOTED_WITHIN: Duration = Duration::from_millis(100);
/// How long after its death a replica is known to be gone.
const GONE_WITHIN: Duration = LEASE_TTL.saturating_add(Duration::from_secs(3));

/// What a request saw of an earlier equal one.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Since when, and the number of the last record of its run then.
    first: Option<(Instant, Option<u64>)>,
}

impl Admission {
    /// What a new claim of this kind says of the answer to its request.
    pub(super) fn begun_answer(&self, kind: RequestKeyKind) -> Option<Answer> {
        match kind {
            RequestKeyKind::Equal { .. } => Some(self.own_answer()),
            RequestKeyKind::Key | RequestKeyKind::FirstAttempt | RequestKeyKind::Repeated => None,
        }
    }

    /// An answer that this replica is to write.
    pub(super) fn own_answer(&self) -> Answer {
        Answer::Open(self.ownership.replica.id().to_owned())
    }

    /// What is known of the connection over which the claim's request is answered; nothing is waited for if the asking
    /// client counts its attempts.
    pub(super) async fn connection_of(
        &self,
        tenant: &Tenant,
        claim: &Claim,
        counted: bool,
        watched: &mut Watched,
    ) -> Result<Connection, Unavailable> {
        let replica = match &claim.answer {
            None | Some(Answer::Reached) => return Ok(Connection::Reached),
            Some(Answer::Cut) => return Ok(Connection::Cut),
            Some(Answer::Open(replica)) => replica,
        };
        let is_here = replica == self.ownership.replica.id();
        let now = if is_here || counted { None } else { self.last_seq(tenant, &claim.target).await? };
        // Asked after the log was read: what a replica recorded that took the run over shows that the first is gone.
        if !is_here && !self.ownership.replica.is_registered(replica).await? {
            return Ok(Connection::Cut);
        }
        let (since, first) = *watched.first.get_or_insert((Instant::now(), now));
        let (waited, lives) = (since.elapsed(), is_here || counted || now != first);
        Ok(match lives {
            true if waited >= NOTED_WITHIN => Connection::Open,
            false if waited >= GONE_WITHIN => Connection::Silent,
            _ => Connection::Doubtful,
        })
    }

    /// The number of the last record of a claim's run.
    async fn last_seq(&self, tenant: &Tenant, target: &Target) -> Result<Option<u64>, Unavailable> {
        let Target::Run { id, session, .. } = target else { return Ok(None) };
        let partition = keys::run_partition(tenant, session.as_ref(), id);
        Ok(self.ledger.last_record(&partition, id).await?.map(|last| last.seq))
    }
}

//! The stored claims of requests that may be repeated: who makes what a request asks for.
//!
//! [`judge`] decides by what a claim says and by the state of its target; this module reads and writes both.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::admission::Admission;
use crate::agent::admission::backoff::Backoff;
use crate::agent::admission::connection::Watched;
use crate::agent::admission::verdict::{Connection, TargetState, Verdict, judge, judge_equal};
use crate::agent::error::{ClaimError, StartError, unavailable};
use crate::agent::ledger::claim::{Answer, Claim, Target};
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::agent::request::KeyClaim;
use crate::agent::request_key::{RequestKey, RequestKeyKind};
use crate::store::retry::RetryConflicts;
use crate::store::{Check, CommitError, Durability, Partition, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::{Event, RunStatus, Tenant};

/// A claim of this request.
#[derive(Debug)]
pub(super) struct HeldClaim {
    pub(super) partition: Partition,
    pub(super) claim: Claim,
    /// The version of its document.
    pub(super) version: u64,
    /// Whether another request made the claim; that request may still be at work.
    pub(super) taken_over: bool,
    pub(super) kind: RequestKeyKind,
    /// How long the request's run may take to end.
    pub(super) longest: Duration,
}

impl HeldClaim {
    /// The claim as its run keeps it, to prolong it: a claim that holds for minutes is left to expire.
    pub(super) fn of_key(&self, name: &str) -> Option<KeyClaim> {
        let ttl = self.kind.ttl(self.longest);
        (self.kind == RequestKeyKind::Key).then(|| KeyClaim { name: name.to_owned(), ttl })
    }
}

/// Which request makes what a request asks for.
pub(super) enum Claimed {
    /// This request.
    Ours(HeldClaim),
    /// An earlier request, which has made it.
    Theirs {
        target: Target,
        /// Whether the target is as it will be.
        complete: bool,
        /// The claim, if this request is answered in place of the earlier one.
        held: Option<HeldClaim>,
    },
    /// This request, without a claim: an equal one has it and is being answered.
    None,
}

/// What became of an earlier request with the same key.
enum Earlier {
    /// There is no claim.
    Absent,
    /// Its claim no longer counts.
    Over { version: u64 },
    /// The earlier request has not made its target, and has had time to.
    Unmade { claim: Claim, version: u64 },
    /// The earlier request has made its target.
    Made {
        claim: Claim,
        version: u64,
        /// Whether the target is as it will be.
        complete: bool,
    },
    /// An equal request is being answered.
    Open,
}

impl Admission {
    /// Stores what the claim's target is going to be, before the target is made.
    pub(super) async fn set_target(&self, held: &mut HeldClaim, target: Target) -> Result<(), StartError> {
        held.claim.target = target;
        if self.put(held).await? { Ok(()) } else { Err(ClaimError::Busy.into()) }
    }

    /// Claims the request's key for `fresh`, or for the target that an earlier request with the key left unmade;
    /// returns the earlier request's target if that was made.
    pub(super) async fn claim(
        &self,
        tenant: &Tenant,
        key: &RequestKey,
        fresh: Target,
        longest: Duration,
        backoff: &mut Backoff,
    ) -> Result<Claimed, ClaimError> {
        let partition = keys::claim_partition(tenant, &key.name);
        let hold = |claim, version, taken_over| {
            let partition = partition.clone();
            HeldClaim { partition, claim, version, taken_over, kind: key.kind, longest }
        };
        let (answer, own) = (self.begun_answer(key.kind), self.own_answer());
        // An attempt that says that it is repeated takes the answer over too: the next equal request is told what becomes of it.
        let over = |claim: &Claim| answer.clone().or_else(|| claim.answer.as_ref().map(|_| own.clone()));
        let new = |version| hold(Claim { answer: answer.clone(), ..Claim::new(key, fresh.clone()) }, version, false);
        let mut ours = new(0);
        let mut made = None;
        while !self.put(&mut ours).await? {
            made = None;
            ours = match self.earlier(tenant, key, &partition, backoff).await? {
                Earlier::Absent => new(0),
                Earlier::Over { version } => new(version),
                Earlier::Unmade { claim, version } => {
                    hold(Claim { tried_ms: now_ms(), answer: over(&claim), ..claim }, version, true)
                }
                Earlier::Made { claim, version, complete } => match over(&claim) {
                    None => return Ok(Claimed::Theirs { target: claim.target, complete, held: None }),
                    answer => {
                        made = Some(complete);
                        hold(Claim { answer, ..claim }, version, true)
                    }
                },
                Earlier::Open => return Ok(Claimed::None),
            };
        }
        Ok(match made {
            Some(complete) => Claimed::Theirs { target: ours.claim.target.clone(), complete, held: Some(ours) },
            None => Claimed::Ours(ours),
        })
    }

    /// Finds the claim of an earlier request with this key and what became of its target; waits while that request
    /// is making the target.
    async fn earlier(
        &self,
        tenant: &Tenant,
        key: &RequestKey,
        partition: &Partition,
        backoff: &mut Backoff,
    ) -> Result<Earlier, ClaimError> {
        // Since when the claim has had this version.
        let mut seen = (0, Instant::now());
        let mut connection = Watched::default();
        while let Some((claim, version)) = self.read_claim(partition).await? {
            let connection = match key.kind {
                RequestKeyKind::Equal { counted } => {
                    self.connection_of(tenant, &claim, counted, &mut connection).await?
                }
                RequestKeyKind::Key | RequestKeyKind::FirstAttempt | RequestKeyKind::Repeated => Connection::Cut,
            };
            if connection == Connection::Reached {
                return Ok(Earlier::Over { version });
            }
            let state = self
                .target_state(tenant, &claim.target, (key.kind == RequestKeyKind::Key).then_some(&key.name))
                .await?;
            if seen.0 != version {
                seen = (version, Instant::now());
            }
            let since = claim.since(seen.1.elapsed());
            let verdict = match key.kind {
                RequestKeyKind::Equal { counted } => judge_equal(counted, connection, state, since),
                RequestKeyKind::Key | RequestKeyKind::FirstAttempt | RequestKeyKind::Repeated => {
                    judge(key, &claim, state, since, self.ledger.retention().run)
                }
            };
            match verdict {
                Verdict::Join => return Ok(Earlier::Made { claim, version, complete: state != TargetState::Live }),
                Verdict::GoAlone => return Ok(Earlier::Open),
                Verdict::Reused => return Err(ClaimError::Reused),
                Verdict::Gone => return Err(ClaimError::Gone),
                Verdict::BeginAnew => return Ok(Earlier::Over { version }),
                Verdict::TakeOver => return Ok(Earlier::Unmade { claim, version }),
                Verdict::Wait => match backoff.pause().await {
                    Err(_) if connection == Connection::Doubtful => return Ok(Earlier::Open),
                    paused => paused?,
                },
            }
        }
        Ok(Earlier::Absent)
    }

    /// Reads the state of a claim's target. A run that was there before has only gone on with the claim's request if its log
    /// says so, where the caller chose the key: between two tries of a request, others may have gone on with the run.
    pub(super) async fn target_state(
        &self,
        tenant: &Tenant,
        target: &Target,
        chosen: Option<&String>,
    ) -> Result<TargetState, Unavailable> {
        let (id, session, after) = match target {
            Target::Run { id, session, after } => (id, session, *after),
            Target::Session { id } => {
                let found = self.ledger.find_session(tenant, id).await?;
                return Ok(found.map_or(TargetState::Missing, |_| TargetState::MADE));
            }
        };
        let partition = keys::run_partition(tenant, session.as_ref(), id);
        let Some(head) = self.ledger.head(&partition, id).await? else { return Ok(TargetState::Missing) };
        let Some(last) = self.ledger.last_record(&partition, id).await? else { return Ok(TargetState::Missing) };
        if last.seq <= after {
            return Ok(TargetState::Untouched);
        }
        if let Some(claim) = chosen.filter(|_| after > 0)
            && !self.ledger.is_recorded(&partition, id, after, claim).await?
        {
            return Ok(TargetState::Untouched);
        }
        Ok(match head.status {
            RunStatus::Queued | RunStatus::InProgress => TargetState::Live,
            RunStatus::RequiresAction
            | RunStatus::Completed
            | RunStatus::Incomplete
            | RunStatus::Cancelled
            | RunStatus::Failed => {
                let Event::RunFinished(outcome) = &last.event else { return Ok(TargetState::MADE) };
                TargetState::Complete {
                    may_be_repeated: outcome.may_be_repeated(),
                    abandoned: outcome.was_abandoned_idle(),
                    cancelled: outcome.status() == RunStatus::Cancelled,
                }
            }
        })
    }

    /// Notes in the background that a caller's key led to a target. If the target expires later, a duplicate then knows
    /// that it existed. If the note fails, the age of the claim tells nearly the same.
    pub(super) fn note_made(self: &Arc<Self>, held: HeldClaim) {
        if held.kind != RequestKeyKind::Key {
            return;
        }
        let admission = self.clone();
        self.lifecycle.spawn(async move {
            if let Err(error) = admission.put_made(held).await {
                tracing::warn!(%error, "could not store which run or session an idempotency key led to");
            }
        });
    }

    async fn put_made(&self, mut held: HeldClaim) -> Result<(), Unavailable> {
        held.claim.made = true;
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            if self.put(&mut held).await? {
                break;
            }
            match self.read_claim(&held.partition).await? {
                Some((claim, version)) if claim.target == held.claim.target => held.version = version,
                Some(_) | None => break,
            }
        }
        Ok(())
    }

    /// Removes the claim of a refused request. Returns whether the claim is shared with another request, and so stays.
    pub(super) async fn release(&self, held: HeldClaim) -> bool {
        if held.taken_over {
            self.give_way(held).await;
            return true;
        }
        let (key, version) = (keys::claim(), held.version);
        let tx = Tx::new(held.partition).check(Check::Version { key: key.clone(), version });
        match self.ledger.commit(tx.write(Write::Delete { key })).await {
            Ok(()) => false,
            Err(CommitError::VersionConflict { .. }) => true,
            Err(error) => {
                tracing::warn!(%error, "could not release the idempotency key of a refused request");
                false
            }
        }
    }

    /// Marks the claim as idle, so that the next request with the key need not wait. Best effort.
    pub(super) async fn give_way(&self, mut held: HeldClaim) {
        held.claim.tried_ms = 0;
        held.claim.answer = held.claim.answer.map(|_| Answer::Cut);
        if let Err(error) = self.put(&mut held).await {
            tracing::warn!(%error, "could not release an idempotency key for the next request");
        }
    }

    /// Stores a claim, unless it changed since it was read.
    pub(super) async fn put(&self, held: &mut HeldClaim) -> Result<bool, Unavailable> {
        let durability = match held.kind {
            RequestKeyKind::Key => Durability::Synced,
            // Such a claim helps a client whose connection broke; it need not survive a power cut.
            RequestKeyKind::FirstAttempt | RequestKeyKind::Repeated | RequestKeyKind::Equal { .. } => {
                Durability::Written
            }
        };
        let tx = Tx { durability, ..Tx::new(held.partition.clone()) };
        let tx = tx.put_at(keys::claim(), held.version, encode(&held.claim), Some(held.kind.ttl(held.longest)));
        match self.ledger.commit(tx).await {
            Ok(()) => {
                held.version += 1;
                Ok(true)
            }
            Err(CommitError::VersionConflict { .. }) => Ok(false),
            Err(error) => Err(unavailable(error)),
        }
    }

    pub(super) async fn read_claim(&self, partition: &Partition) -> Result<Option<(Claim, u64)>, Unavailable> {
        let document = self.ledger.store().get(partition, &keys::claim()).await?;
        document.map(|document| Ok((decode(&document.value)?, document.version))).transpose()
    }
}

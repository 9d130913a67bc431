//! Exactly one run, or one session, for one request, however often the request is sent.
//!
//! A request that may be repeated first stores a claim. The claim names the id of the run or session that the request
//! is going to create. Creating something under a given id succeeds only once. So a repeated request that finds the
//! claim either shares what was created, or creates it under the same id, whether the first request is dead or only
//! slow. There is no lock, and no answer depends on which request is faster.
//!
//! A request that is refused removes its claim, as if it had never been sent. A request that took over a claim leaves
//! it, because the first request may still be at work.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::admission::backoff::Backoff;
use crate::agent::admission::claims::{Claimed, HeldClaim};
use crate::agent::admission::verdict::TargetState;
use crate::agent::admission::{Admission, OpenAnswer, Started};
use crate::agent::error::{ClaimError, LookupError, NotMade, StartError};
use crate::agent::ledger::claim::Target;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::Versioned;
use crate::agent::ledger::stored::ClaimEnd;
use crate::agent::limits::left::SharedSession;
use crate::agent::request::NewRun;
use crate::agent::request_key::{RequestKey, RequestKeyKind};
use crate::agent::request_memory::RequestMemory;
use crate::failpoint;
use crate::store::Unavailable;
use crate::types::run::OnUnknownOutcome;
use crate::types::{RunId, SessionId, Tenant};

impl Admission {
    /// Starts a run, or continues the waiting run whose calls the request answers; with a key, once. A repetition of
    /// the request follows that run from the first event that the request caused.
    pub async fn start(self: &Arc<Self>, new: NewRun, key: Option<&RequestKey>) -> Result<Started, StartError> {
        let (admission, key) = (self.clone(), key.cloned());
        let starting = Box::pin(async move {
            match key {
                Some(key) => admission.start_once(new, &key).await,
                None => admission.start_after(&new, None).await,
            }
        });
        self.lifecycle.run_detached(starting).await
    }

    /// The run that a request with this key began, if one did, and the run's session.
    pub async fn begun_under(
        &self,
        tenant: &Tenant,
        key: &RequestKey,
    ) -> Result<Option<(RunId, Option<SessionId>)>, Unavailable> {
        let Some((claim, _)) = self.read_claim(&keys::claim_partition(tenant, &key.name)).await? else {
            return Ok(None);
        };
        let Target::Run { id, session, .. } = claim.target else { return Ok(None) };
        let head = self.ledger.head(&keys::run_partition(tenant, session.as_ref(), &id), &id).await?;
        Ok(head.map(|_| (id, session)))
    }

    /// Claims the request's key and starts the run that the claim names, or joins the run of an earlier request with
    /// the same key.
    async fn start_once(self: &Arc<Self>, mut new: NewRun, key: &RequestKey) -> Result<Started, StartError> {
        // A refused first attempt must not leave an earlier request's run to its repetition.
        let is_first = matches!(key.kind, RequestKeyKind::FirstAttempt | RequestKeyKind::Equal { .. });
        if self.lifecycle.is_refusing() && !is_first {
            return Err(StartError::Draining);
        }
        let longest = match key.kind {
            // A run that waits does not wait for an equal request.
            RequestKeyKind::Equal { .. } => self.generation_of(&new).catalog.longest_timeout(),
            RequestKeyKind::Key | RequestKeyKind::FirstAttempt | RequestKeyKind::Repeated => self.longest(&new),
        };
        let named = new.run.clone();
        let mut wait = Backoff::new(self.lifecycle.ending(), new.memory.clone());
        loop {
            let fresh = Target::Run { id: RunId::mint(), session: new.session.clone(), after: 0 };
            let held = match self.claim(&new.tenant, key, fresh, longest, &mut wait).await? {
                Claimed::Ours(held) => held,
                Claimed::Theirs { target, complete, held } => {
                    // The open answer is made before the join: if the join fails, the claim then says that the answer was cut.
                    let answer = held.map(|held| OpenAnswer::new(self, held));
                    let started = self.join(&new, &target, complete).await?;
                    return Ok(Started { answer, ..started });
                }
                Claimed::None => return self.start_after(&new, None).await,
            };
            failpoint::hit("claim.recorded");
            aim(&mut new, &held.claim.target, named.as_ref())?;
            new.claim = held.of_key(&key.name);
            if let Some(started) = self.start_claimed(&new, held).await? {
                return Ok(started);
            }
            wait.pause().await?;
        }
    }

    /// Starts the run that the claim names, or joins it if another request with the claim started it first; `None`
    /// if another process is changing the run at this moment. A refused request removes its claim.
    async fn start_claimed(self: &Arc<Self>, new: &NewRun, mut held: HeldClaim) -> Result<Option<Started>, StartError> {
        let error = match self.start_after(new, Some(&mut held)).await {
            Ok(started) if held.claim.answer.is_some() => {
                return Ok(Some(Started { answer: Some(OpenAnswer::new(self, held)), ..started }));
            }
            Ok(started) => {
                self.note_made(held);
                return Ok(Some(started));
            }
            Err(error) => error,
        };
        // The run of another request with the same claim may be the reason why this one is refused.
        let chosen = new.claim.as_ref().map(|claim| &claim.name);
        let state = match self.target_state(&new.tenant, &held.claim.target, chosen).await {
            Ok(state) => state,
            Err(error) => {
                self.cut(held);
                return Err(error.into());
            }
        };
        match state {
            TargetState::Live => return self.join_claimed(new, held, false).await.map(Some),
            TargetState::Complete { .. } => return self.join_claimed(new, held, true).await.map(Some),
            TargetState::Missing | TargetState::Untouched => {}
        }
        if matches!(error, StartError::Claim(ClaimError::Busy)) {
            self.give_way(held).await;
            return Ok(None);
        }
        // If the store did not say whether anything was stored, the claim stays, and the next request finds out.
        if matches!(error, StartError::Store(_) | StartError::Claim(_)) {
            self.cut(held);
        } else {
            self.release(held).await;
        }
        Err(error)
    }

    /// Notes that the claim's request got no answer, though there may be one.
    fn cut(self: &Arc<Self>, held: HeldClaim) {
        if held.claim.answer.is_some() {
            OpenAnswer::new(self, held).cut();
        }
    }

    /// Makes a session of the id that `make` gets; with a key, once. A repetition of the request reads the session as
    /// it is now. The second value says whether the session existed. `memory` is counted for the request's data.
    pub async fn make_session<E: NotMade, F>(
        self: &Arc<Self>,
        tenant: &Tenant,
        key: Option<&RequestKey>,
        id: SessionId,
        memory: Arc<RequestMemory>,
        make: impl FnOnce(SessionId) -> F,
    ) -> Result<(Versioned, bool), E>
    where
        F: Future<Output = Result<Versioned, E>>,
    {
        let Some(key) = key else { return make(id).await.map(|made| (made, false)) };
        let held = match self.claim_session(tenant, key, id, memory).await? {
            Claimed::Ours(held) => held,
            Claimed::Theirs { target, .. } => return Ok((self.made_session(tenant, &target).await?, true)),
            // Sessions are made under a key alone.
            Claimed::None => return Err(LookupError::from(ClaimError::Busy).into()),
        };
        let target = held.claim.target.clone();
        let Target::Session { id } = &target else { return Err(LookupError::from(ClaimError::Reused).into()) };
        let claim = held.of_key(&key.name).filter(|_| !held.taken_over);
        let counted = claim.map(|claim| self.ledger.claim_end(claim.ttl));
        if let Some(end) = counted
            && let Err(error) = self.ledger.take_storage_with(tenant, ClaimEnd::BYTES, Some(end)).await
        {
            self.release(held).await;
            return Err(LookupError::from(error).into());
        }
        let error = match make(id.clone()).await {
            Ok(made) => {
                self.note_made(held);
                return Ok((made, false));
            }
            Err(error) => error,
        };
        match error.lookup() {
            Some(LookupError::Store(_) | LookupError::Claim(_)) => Err(error),
            // The first request is still at work, or what it left unfinished has not expired yet.
            Some(LookupError::VersionConflict(which)) if which == id && held.taken_over => {
                self.give_way(held).await;
                Err(LookupError::from(ClaimError::Busy).into())
            }
            cause => {
                let exists = matches!(cause, Some(LookupError::SessionExists(_)));
                let is_shared = self.release(held).await;
                if let Some(end) = counted.filter(|_| !is_shared) {
                    self.ledger.return_storage_with(tenant, ClaimEnd::BYTES, Some(end)).await;
                }
                // Another request with the same claim made the session.
                if is_shared && exists {
                    return Ok((self.made_session(tenant, &target).await?, true));
                }
                Err(error)
            }
        }
    }

    /// How long the request's run may take to end, a wait for its client included.
    pub(in crate::agent) fn longest(&self, new: &NewRun) -> Duration {
        let may_answer = new.run.is_some() || !new.answered.is_empty();
        let generation = self.generation_of(new);
        let may_need_approval = new.policy.is_some()
            || generation.policies.say_anything()
            || generation.catalog.has_policies()
            || generation.hooks.may_ask()
            // Its agent may be the tenant's own, which is not read yet.
            || new.model.as_deref().is_none_or(|name| self.agents.may_have(&generation, &new.tenant, name));
        let may_wait = may_answer
            || may_need_approval
            || !new.client_tools.is_empty()
            || new.options.on_unknown_outcome == OnUnknownOutcome::Ask;
        let wait = if may_wait { self.ledger.retention().wait } else { Duration::ZERO };
        generation.catalog.longest_timeout().saturating_add(wait)
    }

    async fn claim_session(
        &self,
        tenant: &Tenant,
        key: &RequestKey,
        id: SessionId,
        memory: Arc<RequestMemory>,
    ) -> Result<Claimed, LookupError> {
        // A session that existed before the first request is not the request's.
        if self.ledger.find_session(tenant, &id).await?.is_some()
            && self.read_claim(&keys::claim_partition(tenant, &key.name)).await?.is_none()
        {
            return Err(LookupError::SessionExists(id));
        }
        let wait = &mut Backoff::new(self.lifecycle.ending(), memory);
        Ok(self.claim(tenant, key, Target::Session { id }, Duration::ZERO, wait).await?)
    }

    async fn made_session(&self, tenant: &Tenant, target: &Target) -> Result<Versioned, LookupError> {
        let Target::Session { id } = target else { return Err(ClaimError::Reused.into()) };
        Ok(self.ledger.find_session(tenant, id).await?.ok_or(ClaimError::Gone)?)
    }

    /// Follows the run that another request with the same claim started or continued.
    async fn join_claimed(
        self: &Arc<Self>,
        new: &NewRun,
        held: HeldClaim,
        complete: bool,
    ) -> Result<Started, StartError> {
        let target = held.claim.target.clone();
        let answer = held.claim.answer.is_some().then(|| OpenAnswer::new(self, held));
        let started = self.join(new, &target, complete).await?;
        Ok(Started { answer, ..started })
    }

    /// Follows the run that an earlier request started or continued, from the first event that it caused.
    async fn join(&self, new: &NewRun, target: &Target, complete: bool) -> Result<Started, StartError> {
        let Target::Run { id, session, after } = target else { return Err(ClaimError::Reused.into()) };
        // The tail is looked up before the head is read, so that a run that ends in between is seen whole.
        let live = self.followers.live(&new.tenant, id);
        let partition = keys::run_partition(&new.tenant, session.as_ref(), id);
        let head = self.ledger.head(&partition, id).await?.ok_or(ClaimError::Gone)?;
        if !new.requester().may_use(&head.agent) {
            return Err(StartError::AgentForbidden(head.agent));
        }
        let follower = self.followers.follow(partition, id.clone(), live, *after);
        let (session, follower) = (SharedSession::unread(&head), follower.to_first_end());
        Ok(Started { head, follower, session, joined: true, replayed: complete, answer: None })
    }
}

/// Lets the request make the target of its claim: a run of that id, or the waiting run that `named` meant too.
fn aim(new: &mut NewRun, target: &Target, named: Option<&RunId>) -> Result<(), ClaimError> {
    match target {
        Target::Run { id, after: 0, .. } => (new.id, new.run) = (id.clone(), named.cloned()),
        // The claim's run was waiting: the request may continue it, and must not begin another.
        Target::Run { id, .. } => new.run = Some(id.clone()),
        Target::Session { .. } => return Err(ClaimError::Reused),
    }
    Ok(())
}

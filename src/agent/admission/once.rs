//! Exactly one run, or one session, for one request, however often it comes.
//!
//! A request that may come again claims its name first: it stores what it is going to make under an id
//! that is chosen by then. Making a thing of a chosen id succeeds only once. So whoever finds a claim
//! can tell what became of it, shares what was made, and makes under the same id what was not, be the
//! first claimant dead or only slow. Nothing here is locked, and no answer depends on who is faster.
//!
//! A refused request gives its name back, as if it had never come. One that took a claim over does not:
//! the first claimant may still be at it.

use std::time::Duration;

use tokio::time::Instant;

use crate::agent::Agent;
use crate::agent::admission::backoff::Wait;
use crate::agent::admission::start::Started;
use crate::agent::admission::verdict::{Claim, Since, Standing, Verdict, judge};
use crate::agent::error::{ClaimError, LookupError, NotMade, StartError, unavailable};
use crate::agent::follow::Follower;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::head;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::Versioned;
use crate::agent::request::Kind;
use crate::agent::request::NewRun;
use crate::agent::request::Once;
use crate::failpoint;
use crate::store::{Check, CommitError, Durability, Partition, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::{Event, RunId, RunStatus, SessionId, Tenant};

pub use crate::agent::admission::verdict::Product;

/// How often a claim that changes meanwhile is read again to note that its product was made.
const ATTEMPTS: usize = 4;

/// A claim of this request.
#[derive(Debug)]
pub(in crate::agent) struct Held {
    partition: Partition,
    claim: Claim,
    /// Of its document.
    version: u64,
    /// Whether another request made it, which may be at it still.
    taken_over: bool,
    kind: Kind,
}

/// Whose turn it is to make what a request asks for.
enum Claimed {
    /// This one's.
    Ours(Held),
    /// An earlier one's, which has made it.
    Theirs {
        product: Product,
        /// Whether it is as it will be.
        complete: bool,
    },
}

impl Agent {
    /// Starts or continues a run as [`Agent::start`] does, unless this request did already: then its
    /// events are followed from where it set in, live or once more.
    pub async fn start_once(&self, new: NewRun, once: &Once) -> Result<Started, StartError> {
        let (agent, once) = (self.clone(), once.clone());
        self.run_detached(async move { agent.start_named(new, &once).await }).await
    }

    async fn start_named(&self, mut new: NewRun, once: &Once) -> Result<Started, StartError> {
        // A refused first attempt must not leave an earlier request's run to its repetition.
        if self.refusing.is_cancelled() && once.kind != Kind::FirstAttempt {
            return Err(StartError::Draining);
        }
        let named = new.run.clone();
        let mut wait = Wait::new(self);
        loop {
            let fresh = Product::Run { id: RunId::mint(), session: new.session.clone(), after: 0 };
            let mut held = match self.claim(&new.tenant, once, fresh, &mut wait).await? {
                Claimed::Ours(held) => held,
                Claimed::Theirs { product, complete } => return self.join(&new.tenant, &product, complete).await,
            };
            failpoint::hit("claim.recorded");
            match &held.claim.product {
                Product::Run { id, after: 0, .. } => (new.id, new.run) = (id.clone(), named.clone()),
                // Going on with the run is all that is left to do; beginning another would be wrong.
                Product::Run { id, .. } => new.run = Some(id.clone()),
                Product::Session { .. } => return Err(ClaimError::Reused.into()),
            }
            let error = match self.start_under(&new, Some(&mut held)).await {
                Ok(started) => {
                    self.note_made(held);
                    return Ok(started);
                }
                Err(error) => error,
            };
            // Whoever shares the claim may have been faster, and that is in this one's way.
            match self.standing(&new.tenant, &held.claim.product).await? {
                Standing::Live => return self.join(&new.tenant, &held.claim.product, false).await,
                Standing::Complete { .. } => return self.join(&new.tenant, &held.claim.product, true).await,
                Standing::Missing | Standing::Untouched => {}
            }
            // Another process is about its run at this moment.
            if matches!(error, StartError::Claim(ClaimError::Busy)) {
                self.give_way(held).await;
                wait.pause().await?;
                continue;
            }
            // Where nobody can say whether anything was stored, the claim stays, and what comes next finds out.
            if !matches!(error, StartError::Store(_) | StartError::Claim(_)) {
                self.release(held).await;
            }
            return Err(error);
        }
    }

    /// Makes a session with `make`, which is told its id, unless this request did already: then it is
    /// read as it stands now. The second value says whether it was there.
    pub async fn make_session_once<E: NotMade, F>(
        &self,
        tenant: &Tenant,
        once: &Once,
        id: SessionId,
        make: impl FnOnce(SessionId) -> F,
    ) -> Result<(Versioned, bool), E>
    where
        F: Future<Output = Result<Versioned, E>>,
    {
        let held = match self.claim_session(tenant, once, id).await? {
            Claimed::Ours(held) => held,
            Claimed::Theirs { product, .. } => return Ok((self.made_session(tenant, &product).await?, true)),
        };
        let product = held.claim.product.clone();
        let Product::Session { id } = &product else { return Err(LookupError::from(ClaimError::Reused).into()) };
        let error = match make(id.clone()).await {
            Ok(made) => {
                self.note_made(held);
                return Ok((made, false));
            }
            Err(error) => error,
        };
        match error.lookup() {
            Some(LookupError::Store(_) | LookupError::Claim(_)) => Err(error),
            // The first claimant is still at it, or what it left unfinished has not expired yet.
            Some(LookupError::VersionConflict(which)) if which == id && held.taken_over => {
                self.give_way(held).await;
                Err(LookupError::from(ClaimError::Busy).into())
            }
            cause => {
                let exists = matches!(cause, Some(LookupError::SessionExists(_)));
                // Whoever shares the claim made it.
                if self.release(held).await && exists {
                    return Ok((self.made_session(tenant, &product).await?, true));
                }
                Err(error)
            }
        }
    }

    async fn claim_session(&self, tenant: &Tenant, once: &Once, id: SessionId) -> Result<Claimed, LookupError> {
        // A session that was there before the request came first is not what it made.
        if self.find_session(tenant, &id).await?.is_some()
            && self.read_claim(&keys::claim_partition(tenant, &once.name)).await?.is_none()
        {
            return Err(LookupError::SessionExists(id));
        }
        Ok(self.claim(tenant, once, Product::Session { id }, &mut Wait::new(self)).await?)
    }

    async fn made_session(&self, tenant: &Tenant, product: &Product) -> Result<Versioned, LookupError> {
        let Product::Session { id } = product else { return Err(ClaimError::Reused.into()) };
        Ok(self.find_session(tenant, id).await?.ok_or(ClaimError::Gone)?)
    }

    /// Says what a claim's product is going to be, before it is.
    pub(in crate::agent) async fn set_target(&self, held: &mut Held, product: Product) -> Result<(), StartError> {
        held.claim.product = product;
        if self.put(held).await? { Ok(()) } else { Err(ClaimError::Busy.into()) }
    }

    /// Claims a request's name for `fresh`, or finds whose it is. Waits for a twin that is making its
    /// product at this moment.
    async fn claim(
        &self,
        tenant: &Tenant,
        once: &Once,
        fresh: Product,
        wait: &mut Wait,
    ) -> Result<Claimed, ClaimError> {
        let partition = keys::claim_partition(tenant, &once.name);
        let hold = |claim, version, taken_over| {
            let partition = partition.clone();
            Held { partition, claim, version, taken_over, kind: once.kind }
        };
        let fresh = || {
            let (fingerprint, product, now) = (once.fingerprint.clone(), fresh.clone(), now_ms());
            Claim { fingerprint, product, made: false, since_ms: now, tried_ms: now }
        };
        let mut seen = (0, Instant::now());
        let mut ours = Some(hold(fresh(), 0, false));
        loop {
            if let Some(mut held) = ours
                && self.put(&mut held).await?
            {
                return Ok(Claimed::Ours(held));
            }
            let Some((claim, version)) = self.read_claim(&partition).await? else {
                ours = Some(hold(fresh(), 0, false));
                continue;
            };
            let standing = self.standing(tenant, &claim.product).await?;
            if seen.0 != version {
                seen = (version, Instant::now());
            }
            let passed = |since_ms| Duration::from_millis(now_ms().saturating_sub(since_ms));
            // Clocks of several machines differ; what was waited here has surely passed.
            let tried = passed(claim.tried_ms).max(seen.1.elapsed());
            let since = Since { claimed: passed(claim.since_ms), tried };
            ours = match judge(once, &claim, standing, since, self.retention.run) {
                Verdict::Join => {
                    return Ok(Claimed::Theirs { product: claim.product, complete: standing != Standing::Live });
                }
                Verdict::Reused => return Err(ClaimError::Reused),
                Verdict::Gone => return Err(ClaimError::Gone),
                Verdict::BeginAnew => Some(hold(fresh(), version, false)),
                Verdict::TakeOver => Some(hold(Claim { tried_ms: now_ms(), ..claim }, version, true)),
                Verdict::Wait => {
                    wait.pause().await?;
                    None
                }
            };
        }
    }

    /// How a claim's product is found.
    async fn standing(&self, tenant: &Tenant, product: &Product) -> Result<Standing, Unavailable> {
        let (id, session, after) = match product {
            Product::Run { id, session, after } => (id, session, *after),
            Product::Session { id } => {
                let found = self.find_session(tenant, id).await?;
                return Ok(found.map_or(Standing::Missing, |_| Standing::Complete { may_be_repeated: false }));
            }
        };
        let partition = keys::run_partition(tenant, session.as_ref(), id);
        let Some(head) = head::read(&*self.store, &partition, id).await? else { return Ok(Standing::Missing) };
        let Some(last) = self.last_record(&partition, id).await? else { return Ok(Standing::Missing) };
        if last.seq <= after {
            return Ok(Standing::Untouched);
        }
        Ok(match head.status {
            RunStatus::Queued | RunStatus::InProgress => Standing::Live,
            RunStatus::RequiresAction
            | RunStatus::Completed
            | RunStatus::Incomplete
            | RunStatus::Cancelled
            | RunStatus::Failed => {
                let may_be_repeated = matches!(&last.event, Event::RunFinished(outcome) if outcome.may_be_repeated());
                Standing::Complete { may_be_repeated }
            }
        })
    }

    /// Follows the run that an earlier request began or went on with, from where that set in.
    async fn join(&self, tenant: &Tenant, product: &Product, complete: bool) -> Result<Started, StartError> {
        let Product::Run { id, session, after } = product else { return Err(ClaimError::Reused.into()) };
        // The reader is counted before the head is read, so that a run that ends in between is seen whole.
        let live = self.active.get(id).map(|live| live.tail.reader());
        let partition = keys::run_partition(tenant, session.as_ref(), id);
        let head = head::read(&*self.store, &partition, id).await?.ok_or(ClaimError::Gone)?;
        let follower = Follower::new(self, partition, id.clone(), live, *after);
        Ok(Started { head, follower: follower.to_first_end(), replayed: complete })
    }

    /// Notes beside the answer that a caller's key led to something: from then on, should that go, it is
    /// known to have been. Where the note fails, the claim's age tells nearly the same.
    fn note_made(&self, held: Held) {
        if held.kind != Kind::Key {
            return;
        }
        let agent = self.clone();
        self.tasks.spawn(async move {
            if let Err(error) = agent.put_made(held).await {
                tracing::warn!(%error, "could not note what an idempotency key led to");
            }
        });
    }

    async fn put_made(&self, mut held: Held) -> Result<(), Unavailable> {
        held.claim.made = true;
        for _ in 0..ATTEMPTS {
            if self.put(&mut held).await? {
                break;
            }
            match self.read_claim(&held.partition).await? {
                Some((claim, version)) if claim.product == held.claim.product => held.version = version,
                Some(_) | None => break,
            }
        }
        Ok(())
    }

    /// Gives a refused request's name back. Returns whether the claim was shared, and so stays.
    async fn release(&self, held: Held) -> bool {
        if held.taken_over {
            self.give_way(held).await;
            return true;
        }
        let (key, version) = (keys::claim(), held.version);
        let tx = Tx::new(held.partition).check(Check::Version { key: key.clone(), version });
        match self.store.commit(tx.write(Write::Delete { key })).await {
            Ok(()) => false,
            Err(CommitError::VersionConflict { .. }) => true,
            Err(error) => {
                tracing::warn!(%error, "could not give the name of a refused request back");
                false
            }
        }
    }

    /// Says that this request is not at it any more, so that the next need not wait. Best effort.
    async fn give_way(&self, mut held: Held) {
        held.claim.tried_ms = 0;
        if let Err(error) = self.put(&mut held).await {
            tracing::warn!(%error, "could not give way to the next request of the same name");
        }
    }

    /// Stores a claim, unless it changed since it was read.
    async fn put(&self, held: &mut Held) -> Result<bool, Unavailable> {
        let longest = self.generation().catalog.longest_timeout();
        let durability = match held.kind {
            Kind::Key => Durability::Synced,
            // It helps a client that was cut off, not one whose server lost its power.
            Kind::FirstAttempt | Kind::Repeated => Durability::Written,
        };
        let tx = Tx { durability, ..Tx::new(held.partition.clone()) };
        let tx = tx.put_at(keys::claim(), held.version, encode(&held.claim), Some(held.kind.ttl(longest)));
        match self.store.commit(tx).await {
            Ok(()) => {
                held.version += 1;
                Ok(true)
            }
            Err(CommitError::VersionConflict { .. }) => Ok(false),
            Err(error) => Err(unavailable(error)),
        }
    }

    async fn read_claim(&self, partition: &Partition) -> Result<Option<(Claim, u64)>, Unavailable> {
        let document = self.store.get(partition, &keys::claim()).await?;
        document.map(|document| Ok((decode(&document.value)?, document.version))).transpose()
    }
}

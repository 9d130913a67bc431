//! What the outside can ask of an [`Agent`]. Each verb is one room's; what it promises is said there.

use std::num::NonZeroU32;

use crate::agent::control::{Filter, Following, RunView};
use crate::agent::error::{ForkError, LookupError, NotMade, StartError};
use crate::agent::limits::rate::RateKey;
use crate::agent::session::fork::Fork;
use crate::agent::session::snapshot::Export;
use crate::agent::session::{NewSession, SessionPatch};
use crate::agent::{Agent, Head, NewRun, RequestKey, Started, Versioned};
use crate::store::{Order, RateDecision};
use crate::types::session::Session;
use crate::types::{Message, RunId, SessionId, Tenant};

impl Agent {
    /// Starts a run, or continues the waiting one whose calls the request answers. A request that has a key
    /// does so once: when it comes again, that run's events are followed from where the request set in.
    pub async fn start(&self, new: NewRun, key: Option<&RequestKey>) -> Result<Started, StartError> {
        self.0.admission.start(new, key).await
    }

    /// Makes a session with `make`, which is told its id. A request that has a key does so once: when it
    /// comes again, the session is read as it stands now. The second value says whether it was there.
    pub async fn make_session<E: NotMade, F>(
        &self,
        tenant: &Tenant,
        key: Option<&RequestKey>,
        id: SessionId,
        make: impl FnOnce(SessionId) -> F,
    ) -> Result<(Versioned, bool), E>
    where
        F: Future<Output = Result<Versioned, E>>,
    {
        self.0.admission.make_session(tenant, key, id, make).await
    }

    /// A run of this tenant.
    pub async fn run(&self, tenant: &Tenant, id: &RunId) -> Result<RunView, LookupError> {
        self.0.control.run(tenant, id).await
    }

    /// This tenant's runs, newest first.
    pub async fn runs(&self, tenant: &Tenant, filter: &Filter) -> Result<Vec<Head>, LookupError> {
        self.0.control.runs(tenant, filter).await
    }

    /// Follows a run after event `seq`; 0 is from its beginning.
    pub async fn follow(&self, tenant: &Tenant, id: &RunId, seq: u64) -> Result<Following, LookupError> {
        self.0.control.follow(tenant, id, seq).await
    }

    /// Cancels a run and returns once it has stopped. One that ended already stays as it is.
    pub async fn cancel(&self, tenant: &Tenant, id: &RunId) -> Result<RunView, LookupError> {
        self.0.control.cancel(tenant, id).await
    }

    /// Cancels a session's runs and returns them, newest first, once they have stopped.
    pub async fn cancel_session(&self, tenant: &Tenant, id: &SessionId) -> Result<Vec<RunView>, LookupError> {
        self.0.control.cancel_session(tenant, id).await
    }

    /// Lets the caller's messages join a run's conversation before its next model call.
    /// A request that has a key does so once; the second value says whether it did before.
    pub async fn steer(
        &self,
        tenant: &Tenant,
        id: &RunId,
        messages: Vec<Message>,
        key: Option<&RequestKey>,
    ) -> Result<(Head, bool), LookupError> {
        self.0.control.steer(tenant, id, messages, key).await
    }

    /// Creates a session.
    pub async fn create_session(&self, tenant: &Tenant, new: NewSession) -> Result<Versioned, LookupError> {
        self.0.sessions.create(tenant, new).await
    }

    /// A session of this tenant.
    pub async fn session(&self, tenant: &Tenant, id: &SessionId) -> Result<Versioned, LookupError> {
        self.0.sessions.get(tenant, id).await
    }

    /// This tenant's sessions by id, those after `after`.
    pub async fn sessions(
        &self,
        tenant: &Tenant,
        after: Option<&SessionId>,
        limit: usize,
        order: Order,
    ) -> Result<Vec<Versioned>, LookupError> {
        self.0.sessions.list(tenant, after, limit, order).await
    }

    /// Changes a session's metadata and budgets.
    pub async fn patch_session(
        &self,
        tenant: &Tenant,
        id: &SessionId,
        patch: SessionPatch,
    ) -> Result<Versioned, LookupError> {
        self.0.sessions.patch(tenant, id, patch).await
    }

    /// Deletes a session with its messages and ended runs. A live run must be cancelled first.
    pub async fn delete_session(&self, tenant: &Tenant, id: &SessionId) -> Result<(), LookupError> {
        self.0.sessions.delete(tenant, id).await
    }

    /// A session's messages with numbers above `after`, counted from 1, and how many there are in all.
    pub async fn messages(
        &self,
        tenant: &Tenant,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<Message>, u64), LookupError> {
        self.0.sessions.messages(tenant, id, after, limit).await
    }

    /// Makes a new session of another's first messages.
    pub async fn fork_session(&self, tenant: &Tenant, id: &SessionId, fork: Fork) -> Result<Versioned, ForkError> {
        self.0.sessions.fork(tenant, id, fork).await
    }

    /// Reads a session with all of its messages.
    pub async fn export_session(&self, tenant: &Tenant, id: &SessionId) -> Result<Export, LookupError> {
        self.0.sessions.export(tenant, id).await
    }

    /// Stores a session as it was when it was read.
    pub async fn import_session(
        &self,
        tenant: &Tenant,
        session: Session,
        messages: Vec<Message>,
    ) -> Result<Versioned, LookupError> {
        self.0.sessions.import(tenant, session, messages).await
    }

    /// Counts a request of one who may send so many a minute; `None` if the store does not answer in time.
    pub async fn count_request(&self, rate_key: RateKey<'_>, per_minute: NonZeroU32) -> Option<RateDecision> {
        self.0.limits.count_request(rate_key, per_minute).await
    }
}

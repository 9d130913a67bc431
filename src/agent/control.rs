//! Reading, following, steering and cancelling runs.

mod responses;
mod tenants;
pub mod tree;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use tokio::time::Instant;

use crate::agent::context::screen::{blocked, refusal};
use crate::agent::error::LookupError;
use crate::agent::follow::active::Active;
use crate::agent::follow::{Follower, Followers};
use crate::agent::inbox::{self, Command, Delivery};
use crate::agent::launch::Launcher;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::{Ledger, ReadError, keys};
use crate::agent::lifecycle::Lifecycle;
use crate::agent::listed::{Listed, MOST_LOOKED_AT};
use crate::agent::machine::Run;
use crate::agent::machine::watched::Watched;
use crate::agent::request_key::RequestKey;
use crate::agent::requester::Requester;
use crate::agent::session::Sessions;
use crate::store::pages::scan_pages;
use crate::store::{Order, Partition, Scan, Unavailable};
use crate::telemetry::traces::{Ended, SpanFold, Subject, Trace};
use crate::types::guard::InputMode;
use crate::types::progress::Progress;
use crate::types::{Message, Outcome, Record, RunId, RunStatus, SessionId, Tenant};

/// How long a caller waits for a run to stop.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it looks by itself.
const CANCEL_POLL: Duration = Duration::from_millis(500);
/// Runs of a session cancelled at once.
const CANCELLED_AT_ONCE: usize = 16;

/// Which runs a list shows.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only the runs of this session.
    pub session: Option<SessionId>,
    /// Only the runs with this status.
    pub status: Option<RunStatus>,
    /// Only the runs that are older than this one.
    pub after: Option<RunId>,
    /// At most this many.
    pub limit: usize,
}

/// A run as far as it came.
#[derive(Debug, Clone)]
pub struct RunView {
    /// Where it stands.
    pub head: Head,
    /// How it ended or why it waits; `None` while it is under way.
    pub outcome: Option<Outcome>,
    /// How far it came; `None` unless it is under way.
    pub progress: Option<Progress>,
}

/// What a follower of a run needs to know of it.
#[derive(Debug)]
pub struct Following {
    /// The run's head when it was looked up.
    pub head: Head,
    /// Its events from the asked place on; `None` if it ended and all of them were seen.
    pub follower: Option<Follower>,
}

/// Reads, follows, steers and cancels runs.
#[derive(Debug)]
pub struct Control {
    ledger: Ledger,
    sessions: Arc<Sessions>,
    launcher: Arc<Launcher>,
    active: Arc<Active>,
    followers: Arc<Followers>,
    lifecycle: Arc<Lifecycle>,
}

impl Control {
    /// Control over the runs of this launcher.
    pub(super) fn new(launcher: &Arc<Launcher>) -> Self {
        Self {
            ledger: launcher.ledger.clone(),
            sessions: launcher.sessions.clone(),
            active: launcher.active.clone(),
            followers: launcher.followers.clone(),
            lifecycle: launcher.lifecycle.clone(),
            launcher: launcher.clone(),
        }
    }

    /// A run that the requester may read, and where it lies.
    async fn find(&self, requester: Requester<'_>, id: &RunId) -> Result<(Partition, Head), LookupError> {
        let (partition, head) = self.ledger.find_run(requester.tenant, id).await?;
        requester.check(&head)?;
        Ok((partition, head))
    }

    /// A run that the requester may read.
    pub async fn get<'a>(&self, requester: impl Into<Requester<'a>>, id: &RunId) -> Result<RunView, LookupError> {
        let requester = requester.into();
        let (partition, head) = self.find(requester, id).await?;
        if head.is_under_way() {
            let progress = self.progress(&partition, &head).await?;
            return Ok(RunView { head, outcome: None, progress });
        }
        let outcome = self.ledger.outcome(&partition, id).await?;
        Ok(RunView { head, outcome, progress: None })
    }

    /// How far a run came, whichever replica drives it; `None` if it has just ended, or its log cannot be read.
    async fn progress(&self, partition: &Partition, head: &Head) -> Result<Option<Progress>, Unavailable> {
        let Some(spec) = self.ledger.spec(partition, &head.id).await? else { return Ok(None) };
        let spec = Arc::new(spec);
        let mut watched = Watched::new(Run::new(spec.clone()));
        match self.ledger.read_records(&spec, |record, _| watched.take(record)).await {
            Ok(()) => Ok(Some(Progress { replica: self.driver_of(head).await, ..watched.progress() })),
            Err(ReadError::Damaged(_)) => Ok(None),
            Err(ReadError::Store(error)) => Err(error),
        }
    }

    /// The spans of a run as far as it came, without what was said.
    pub async fn trace<'a>(&self, requester: impl Into<Requester<'a>>, id: &RunId) -> Result<Trace, LookupError> {
        let (partition, head) = self.find(requester.into(), id).await?;
        let trace = self.read_trace(&partition, head.subject()).await?;
        trace.ok_or_else(|| LookupError::EventsExpired(id.clone()))
    }

    /// The trace of a run that ended; `None` if its log is gone or cannot be read.
    pub async fn ended_trace(&self, Ended { tenant, subject }: Ended) -> Option<Trace> {
        let partition = keys::run_partition(&tenant, subject.session.as_ref(), &subject.run);
        self.read_trace(&partition, subject).await.ok().flatten()
    }

    /// The spans that a log says; `None` if it is empty. What cannot be read of it is left out.
    async fn read_trace(&self, partition: &Partition, subject: Subject) -> Result<Option<Trace>, Unavailable> {
        let (run, id, of_run) = (subject.run.clone(), subject.trace_id(), subject.trace.clone());
        let providers = self.launcher.generations.current().providers.clone();
        let (mut fold, mut is_empty) = (SpanFold::new(subject, providers), true);
        let take = |record: Record, _| {
            is_empty = false;
            fold.apply(&record);
        };
        match self.ledger.read_log(partition, &run, take).await {
            Ok(()) | Err(ReadError::Damaged(_)) => {}
            Err(ReadError::Store(error)) => return Err(error),
        }
        Ok((!is_empty).then(|| Trace { id, of_run, spans: fold.into_spans() }))
    }

    /// The replica that drives a run, as far as the store tells. A queued run is registered too, and has no driver.
    async fn driver_of(&self, head: &Head) -> Option<String> {
        let own = &self.launcher.ownership.replica;
        match head.status {
            _ if self.active.get(&head.id).is_some() => Some(own.id().to_owned()),
            RunStatus::InProgress => own.driver_of(&head.id).await.ok().flatten(),
            RunStatus::Queued
            | RunStatus::RequiresAction
            | RunStatus::Completed
            | RunStatus::Incomplete
            | RunStatus::Cancelled
            | RunStatus::Failed => None,
        }
    }

    /// The runs that the requester may read, newest first.
    pub async fn list<'a>(
        &self,
        requester: impl Into<Requester<'a>>,
        filter: &Filter,
    ) -> Result<Listed<Head, RunId>, LookupError> {
        let requester = requester.into();
        let (tenant, mut found, mut looked_at) = (requester.tenant, Vec::new(), 0);
        let after = filter.after.as_ref().map(|run| keys::run_entry(run).to_string());
        let scan = Scan { prefix: keys::RUNS.to_owned(), after, limit: filter.limit, order: Order::Descending };
        let partition = keys::tenant_partition(tenant);
        let mut pages = pin!(scan_pages(&**self.ledger.store(), &partition, scan));
        let mut last = None;
        while let Some(page) = pages.try_next().await? {
            for (key, entry) in page {
                let Some(run) = key.strip_prefix(keys::RUNS).and_then(RunId::parse) else { continue };
                looked_at += 1;
                if looked_at > MOST_LOOKED_AT {
                    return Ok(Listed { found, searched_to: last });
                }
                last = Some(run.clone());
                let session: Option<SessionId> = decode(&entry.value)?;
                if filter.session.is_some() && filter.session != session {
                    continue;
                }
                let partition = keys::run_partition(tenant, session.as_ref(), &run);
                let head = self.ledger.head(&partition, &run).await?;
                let is_wanted = |head: &Head| {
                    filter.status.is_none_or(|status| status == head.status) && requester.may_use(&head.agent)
                };
                found.extend(head.filter(is_wanted));
                if found.len() == filter.limit {
                    return Ok(Listed::whole(found));
                }
            }
        }
        Ok(Listed::whole(found))
    }

    /// Follows a run after event `seq`; 0 is from its beginning.
    pub async fn follow<'a>(
        &self,
        requester: impl Into<Requester<'a>>,
        id: &RunId,
        seq: u64,
    ) -> Result<Following, LookupError> {
        let requester = requester.into();
        // The tail is looked up before the head is read, so that a run that ends in between is seen whole.
        let live = self.followers.live(requester.tenant, id);
        let (partition, head) = self.find(requester, id).await?;
        // A tail shows what this process stored. If this process stood still, another one may have resumed the run, and
        // only the log shows how far the run is.
        let last = if let Some(last) = live.as_ref().map(|tail| tail.last()).filter(|last| seq < *last) {
            last
        } else {
            let last = self.ledger.last_record(&partition, id).await.map_err(Unavailable::from)?;
            last.ok_or_else(|| LookupError::EventsExpired(id.clone()))?.seq
        };
        if seq > last {
            return Err(LookupError::EventIdAhead { asked: seq, last });
        }
        if seq == last && !head.goes_on() {
            return Ok(Following { head, follower: None });
        }
        let follower = self.followers.follow(partition, id.clone(), live, seq);
        Ok(Following { head, follower: Some(follower) })
    }

    /// Cancels a run and returns once it has stopped. One that ended already stays as it is.
    pub async fn cancel<'a>(&self, requester: impl Into<Requester<'a>>, id: &RunId) -> Result<RunView, LookupError> {
        let silent = || LookupError::Store(Unavailable("the driver of the run does not stop it".to_owned()));
        self.stop(requester.into(), id, &Command::Cancel).await?.ok_or_else(silent)
    }

    /// Cancels a run once the step that is under way is done. Returns once the run has stopped, or after a while with the
    /// run as it is then. A run without a step under way is stopped at once, and one that ended already stays as it is.
    pub async fn cancel_after_step<'a>(
        &self,
        requester: impl Into<Requester<'a>>,
        id: &RunId,
    ) -> Result<RunView, LookupError> {
        let requester = requester.into();
        match self.stop(requester, id, &Command::CancelAfterStep).await? {
            Some(view) => Ok(view),
            None => self.get(requester, id).await,
        }
    }

    /// Sends a run under way this command, and stops one that has no driver. Returns once the run has stopped; `None` if it
    /// does not within a while.
    async fn stop(
        &self,
        requester: Requester<'_>,
        id: &RunId,
        command: &Command,
    ) -> Result<Option<RunView>, LookupError> {
        let tenant = requester.tenant;
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        // The command is committed first. If the present driver dies, the next driver reads it and ends the run.
        // A run without a driver needs no command.
        let mut told = false;
        loop {
            let (partition, head) = self.find(requester, id).await?;
            if head.status == RunStatus::InProgress && !std::mem::replace(&mut told, true) {
                self.tell(tenant, id, command).await?;
            }
            // A step that its replica left is finished by another one.
            let has_step = *command == Command::CancelAfterStep && head.status == RunStatus::InProgress;
            if head.status.is_final() || !has_step && self.launcher.stop(tenant, &head).await? {
                return self.get(requester, id).await.map(Some);
            }
            // The log is the truth, should the head be older.
            if self.ledger.outcome(&partition, id).await?.is_some_and(|outcome| outcome.status().is_final()) {
                return self.get(requester, id).await.map(Some);
            }
            if Instant::now() >= deadline || self.lifecycle.is_leaving() {
                return Ok(None);
            }
            self.until_it_may_have_stopped(tenant, id).await?;
        }
    }

    /// Tells the present or the next driver of a run to stop it.
    pub(in crate::agent) async fn tell_to_stop(&self, tenant: &Tenant, id: &RunId) -> Result<(), LookupError> {
        self.tell(tenant, id, &Command::Cancel).await
    }

    async fn tell(&self, tenant: &Tenant, id: &RunId, command: &Command) -> Result<(), LookupError> {
        inbox::send(&self.ledger, tenant, id, command, None).await?;
        if let Some(live) = self.active.get(id).filter(|_| *command == Command::Cancel) {
            live.cancel.cancel();
        }
        Ok(())
    }

    /// Lets the caller's messages join a run's conversation before its next model call. A request that has a
    /// key does so once; the second value says whether it did before. The run is as it stands now.
    pub async fn steer<'a>(
        &self,
        requester: impl Into<Requester<'a>>,
        id: &RunId,
        messages: Vec<Message>,
        key: Option<&RequestKey>,
    ) -> Result<(Head, bool), LookupError> {
        let requester = requester.into();
        let (partition, head) = self.find(requester, id).await?;
        self.refuse_parts(&head, &messages)?;
        self.refuse_blocked(&partition, &head, &messages).await?;
        match inbox::send(&self.ledger, requester.tenant, id, &Command::Steer { messages }, key).await? {
            Delivery::Delivered => Ok((head, false)),
            Delivery::Repeated => Ok((head, true)),
            Delivery::Ended(_) => Err(LookupError::NotLive(id.clone())),
        }
    }

    /// Refuses messages that the input guard of a run refuses.
    async fn refuse_blocked(
        &self,
        partition: &Partition,
        head: &Head,
        messages: &[Message],
    ) -> Result<(), LookupError> {
        let Some((place, pattern)) = blocked(messages) else { return Ok(()) };
        let spec = self.ledger.spec(partition, &head.id).await?;
        let Some(_) = spec.filter(|spec| spec.guards.input == InputMode::Block) else { return Ok(()) };
        tracing::warn!(run = %head.id, pattern = pattern.as_str(), message = place, blocked = true, "security.injection_detected");
        Err(LookupError::InputBlocked { place, message: refusal(pattern) })
    }

    /// Refuses messages with parts that the model of a run does not take.
    fn refuse_parts(&self, head: &Head, messages: &[Message]) -> Result<(), LookupError> {
        let upstream = head.called_model.split('/').next().unwrap_or_default();
        let model = self.launcher.generations.current().catalog.model(upstream);
        for (index, message) in messages.iter().enumerate() {
            if let Some((part, why)) = model.refuses_part(message) {
                return Err(LookupError::PartRefused { message: index, part, why });
            }
        }
        Ok(())
    }

    /// Waits for a run's end, or for a moment.
    async fn until_it_may_have_stopped(&self, tenant: &Tenant, id: &RunId) -> Result<(), LookupError> {
        let left = async {
            if let Some(live) = self.active.get(id) {
                live.left.cancelled().await;
                return Ok(());
            }
            let (partition, _) = self.ledger.find_run(tenant, id).await?;
            self.ledger.store().watch(&keys::topic(&partition, id)).changed().await;
            Ok(())
        };
        tokio::time::timeout(CANCEL_POLL, left).await.unwrap_or(Ok(()))
    }

    /// Cancels a session's runs and returns them, newest first, once they have stopped.
    pub async fn cancel_session<'a>(
        &self,
        requester: impl Into<Requester<'a>>,
        id: &SessionId,
    ) -> Result<Vec<RunView>, LookupError> {
        let requester = requester.into();
        self.sessions.get(requester.tenant, id).await?;
        let live = self.sessions.unfinished_runs(requester.tenant, id).await?;
        // All of them or none.
        live.iter().try_for_each(|head| requester.check(head))?;
        // The queued runs are cancelled first, so that none of them begins when the live run ends.
        let (queued, others): (Vec<_>, Vec<_>) = live.into_iter().partition(|head| head.status == RunStatus::Queued);
        let mut cancelled = Vec::new();
        for heads in [queued, others] {
            let cancelling = heads.into_iter().map(|head| async move { self.cancel(requester, &head.id).await });
            let mut cancelling = futures_util::stream::iter(cancelling).buffer_unordered(CANCELLED_AT_ONCE);
            while let Some(result) = cancelling.next().await {
                match result {
                    Ok(view) => cancelled.push(view),
                    // The run ended and expired meanwhile.
                    Err(LookupError::RunNotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        cancelled.sort_by(|one, other| other.head.id.cmp(&one.head.id));
        Ok(cancelled)
    }
}

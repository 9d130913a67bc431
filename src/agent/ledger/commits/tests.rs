use std::sync::Arc;

use super::*;
use crate::agent::ledger::Ledger;
use crate::agent::ledger::log;
use crate::agent::machine::tests::spec;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::types::clock::now_ms;
use crate::types::{Event, Role, SessionId, StopReason, Usage};

const RETENTION: Retention = Retention {
    run: Duration::from_secs(60),
    wait: Duration::from_secs(3600),
    session: Duration::from_secs(30),
    history_bytes: 0,
    ended_bytes: None,
    inbox_bytes: 1 << 20,
    tenant_bytes: 1 << 30,
    usage: Duration::from_secs(86_400),
    usage_rows: 1_000,
    run_bytes: 1 << 30,
};

/// A ledger with one run of one session, whose lease is held.
struct Place {
    ledger: Ledger,
    spec: RunSpec,
    fence: Fence,
    seq: u64,
}

impl Place {
    async fn new() -> Self {
        let spec = RunSpec { session: Some(SessionId::mint()), ..spec() };
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let lease = keys::lease(&spec.id);
        let fence = store.acquire(&keys::partition_of(&spec), &lease, Duration::from_secs(10)).await.unwrap().unwrap();
        Self { ledger: Ledger::new(store, RETENTION), spec, fence, seq: 0 }
    }

    /// The same with its run, created when it is this one's turn.
    async fn with_run(turn: Turn) -> Self {
        let mut place = Self::new().await;
        let first = place.entry(if turn.must_wait() { Event::RunQueued } else { Event::RunStarted });
        let created = create(&place.spec, place.fence, vec![first], turn, (None, None), RETENTION);
        place.commit(created.index).await;
        place.commit(created.run).await;
        place
    }

    fn entry(&mut self, event: Event) -> Bytes {
        log::encode(&mut self.seq, now_ms(), event).1
    }

    async fn commit(&self, tx: Tx) {
        self.ledger.commit(tx).await.unwrap();
    }

    async fn session(&self) -> Versioned {
        let id = self.spec.session.as_ref().unwrap();
        self.ledger.find_session(&self.spec.tenant, id).await.unwrap().unwrap()
    }

    /// Where the run stands, whether it has a specification, and how long its log is.
    async fn stands(&self) -> (RunStatus, bool, u64) {
        let (partition, head) = self.ledger.find_run(&self.spec.tenant, &self.spec.id).await.unwrap();
        let has_spec = self.ledger.spec(&partition, &self.spec.id).await.unwrap().is_some();
        (head.status, has_spec, self.length(keys::events(&self.spec.id)).await)
    }

    async fn length(&self, log: crate::store::Key) -> u64 {
        self.ledger.store().read_log(&keys::partition_of(&self.spec), &log, u64::MAX, 0).await.unwrap().head
    }

    /// Adds to its run's log the last event of a run that ends for `reason`, and what changes with it.
    async fn end(&mut self, reason: StopReason, messages: Option<Vec<Message>>) -> Option<RunId> {
        let usage = Usage { prompt_tokens: 7, ..Usage::default() };
        let outcome = Outcome { usage, ..Outcome::unknown(reason) };
        let length = self.length(keys::events(&self.spec.id)).await;
        let last = self.entry(Event::RunFinished(Box::new(outcome.clone())));
        let own = Tx::new(keys::partition_of(&self.spec))
            .check(under_lease(&self.spec.id, self.fence))
            .write(Write::Append { log: keys::events(&self.spec.id), after: length, entries: vec![last] });
        let session = Some(self.session().await);
        let (spec, at_ms) = (&self.spec, now_ms());
        let waits_until_ms = (!outcome.status().is_final()).then(|| at_ms + RETENTION.wait.as_secs() * 1000);
        let outcome = &outcome;
        let ending = Ending {
            spec,
            first: spec,
            leg: 0,
            outcome,
            at_ms,
            log_bytes: 0,
            counted: 0,
            inbox_bytes: 0,
            commands_seen: 0,
            session,
            messages,
            context: None,
            waits_until_ms,
            lease: outcome.status().is_final().then(|| (keys::lease(&self.spec.id), self.fence)),
        };
        let Ended { tx, next, delta: _ } = end(own, ending, RETENTION);
        self.commit(tx).await;
        next
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_created_with_its_first_event_and_its_session_names_it() {
    let place = Place::with_run(Turn::Now).await;
    assert_eq!(place.stands().await, (RunStatus::InProgress, true, 1));
    assert_eq!(place.session().await.session.active_run, Some(place.spec.id.clone()));
    let again = create(&place.spec, place.fence, vec![Bytes::new()], Turn::Now, (None, None), RETENTION);
    assert!(place.ledger.commit(again.run).await.is_err(), "it is created once");
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_begins_as_its_sessions_own() {
    let mut place = Place::with_run(Turn::Queued).await;
    assert_eq!(place.stands().await, (RunStatus::Queued, true, 1));
    assert_eq!(place.session().await.session.queue, [place.spec.id.clone()]);
    let (started, session) = (place.entry(Event::RunStarted), place.session().await);
    let head = Head::new(&place.spec);
    place.commit(begin((&place.spec, &head), place.fence, (1, started), session, RETENTION)).await;
    assert_eq!(place.stands().await, (RunStatus::InProgress, true, 2));
    let session = place.session().await.session;
    assert_eq!((session.queue, session.active_run), (Vec::new(), Some(place.spec.id.clone())));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_is_kept_longer_than_it_may_wait_and_says_how_long_that_is() {
    let mut place = Place::with_run(Turn::Now).await;
    let before = now_ms();
    let [due, entry] = index_wait(&place.spec, before + 3_600_000, RETENTION);
    place.commit(due).await;
    place.commit(entry).await;
    place.end(StopReason::ClientTools, None).await;
    let (_, head) = place.ledger.find_run(&place.spec.tenant, &place.spec.id).await.unwrap();
    let waits_until = head.waits_until_ms.unwrap();
    assert!((before + 3_600_000..=now_ms() + 3_600_000).contains(&waits_until), "{waits_until}");
    tokio::time::advance(RETENTION.wait + Duration::from_secs(1)).await;
    assert_eq!(place.stands().await, (RunStatus::RequiresAction, true, 2));
    assert_eq!(place.session().await.session.active_run, Some(place.spec.id.clone()));
    // Should its entry in the due index be lost.
    tokio::time::advance(RETENTION.run + Duration::from_secs(1)).await;
    assert!(place.ledger.find_run(&place.spec.tenant, &place.spec.id).await.is_err(), "it expires");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_expires_no_more_and_holds_its_session() {
    let mut place = Place::with_run(Turn::Now).await;
    let under_way = place.session().await.version;
    assert_eq!(place.end(StopReason::ClientTools, None).await, None);
    assert_eq!(place.stands().await, (RunStatus::RequiresAction, true, 2));
    assert!(place.session().await.version > under_way, "who saw it under way cannot queue behind it any more");
    let resumed = place.entry(Event::RunResumed { leg: None });
    let session = Some(place.session().await);
    let commit = resume(
        (&place.spec, &Head { leg: 1, ..Head::new(&place.spec) }),
        place.fence,
        (0, None, (2, vec![resumed])),
        session,
        RETENTION,
    );
    place.commit(commit.index).await;
    place.commit(commit.run).await;
    // Longer than a waiting run is kept.
    tokio::time::advance(RETENTION.waiting_run_ttl() + Duration::from_secs(1)).await;
    assert_eq!(place.stands().await, (RunStatus::InProgress, true, 3));
    assert_eq!(place.session().await.session.active_run, Some(place.spec.id.clone()));
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_with_its_messages_in_the_session_and_the_next_one_named() {
    let mut place = Place::with_run(Turn::Now).await;
    let next = RunId::mint();
    let mut found = place.session().await;
    found.session.queue.push(next.clone());
    let ttl = RETENTION.session_ttl(&found.session);
    place.commit(put_session(Tx::new(keys::partition_of(&place.spec)), &found.session, found.version, ttl)).await;
    let said = vec![Message::text(Role::User, "question")];
    assert_eq!(place.end(StopReason::Done, Some(said)).await, Some(next.clone()));
    assert_eq!(place.stands().await, (RunStatus::Completed, false, 2));
    let session = place.session().await.session;
    assert_eq!((session.active_run, session.runs, session.message_count), (Some(next), 1, 1));
    assert_eq!((session.usage.prompt_tokens, place.length(keys::messages()).await), (7, 1));
    tokio::time::advance(RETENTION.run + Duration::from_secs(1)).await;
    assert!(place.ledger.find_run(&place.spec.tenant, &place.spec.id).await.is_err(), "an ended run expires");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_can_drive_fails_and_lets_its_session_go() {
    let mut place = Place::with_run(Turn::Now).await;
    let outcome = Outcome::unknown(StopReason::CrashLoop);
    let status = outcome.status();
    let end = Some(place.entry(Event::RunFinished(Box::new(outcome))));
    let (partition, head) = place.ledger.find_run(&place.spec.tenant, &place.spec.id).await.unwrap();
    let session = Some((place.session().await, RETENTION.session));
    let head = Head { status, ..head };
    let (tx, next) = fail(place.fence, Lost { partition, head, version: 1, length: 1, end, session }, RETENTION);
    place.commit(tx).await;
    assert_eq!(next, None);
    assert_eq!(place.stands().await, (RunStatus::Failed, false, 2));
    assert_eq!(place.session().await.session.active_run, None);
}

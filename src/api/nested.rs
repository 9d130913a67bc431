//! A stream of a run's events that shows the events of the runs below it, too.
//!
//! An event of another run is a frame of its own that names the run, and has no id: a client that comes back asks for what follows
//! the last event of the run that it follows. All that happened in a run is shown before its end is.
//!
//! Each run is read by a reader of its own, which takes memory for what it reads as any reader does. One that waits for what is left
//! of a run below gives its memory back meanwhile: what it has read then is a page at most, and runs with others below are few.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::Stream;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::agent::Agent;
use crate::agent::Requester;
use crate::agent::control::Following;
use crate::agent::error::LookupError;
use crate::agent::follow::page_memory::PageMemory;
use crate::agent::follow::{FollowError, Follower};
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::sse::{self, KEEP_ALIVE, MOVE};
use crate::api::state::Api;
use crate::api::wire::agent::entry::write_entry;
use crate::api::wire::{Encoder, RunNames};
use crate::types::delegate::{Delegated, StartedChild};
use crate::types::{Event, Record, RunId, Tenant};

/// Pieces of other runs' events that wait to be sent; a reader that takes nothing keeps those runs' readers waiting. They are not
/// counted as read any more.
const WAITING: usize = 1;
/// How long a run that is about to begin is looked for.
const FIND_TIMEOUT: Duration = Duration::from_secs(60);
/// How often.
const FIND_EVERY: Duration = Duration::from_millis(200);
/// How long the end of a run waits for what is left of its events.
const REST_TIMEOUT: Duration = Duration::from_secs(5);
/// The same of a run that was not found yet: what is kept of it may have expired.
const UNFOUND_TIMEOUT: Duration = Duration::from_secs(1);

/// What following runs below takes.
#[derive(Debug, Clone)]
pub struct Nest {
    agent: Agent,
    tenant: Tenant,
    agents: Option<Vec<String>>,
    /// Where readers of the runs below take memory, if they do.
    memory: Option<Arc<PageMemory>>,
}

impl Nest {
    /// For this caller.
    pub fn new(api: &Api, caller: &Caller) -> Self {
        Self { agent: api.agent.clone(), tenant: caller.tenant.clone(), agents: caller.agents.clone(), memory: None }
    }

    /// What a reader of a run below takes memory from.
    fn memory(&self) -> Option<PageMemory> {
        self.memory.as_ref().map(|memory| memory.another())
    }

    /// The events of a run from its beginning on; `None` if it does not begin.
    async fn follow(&self, run: &RunId) -> Option<Following> {
        let requester = Requester { tenant: &self.tenant, agents: self.agents.as_deref() };
        let until = Instant::now() + FIND_TIMEOUT;
        loop {
            match self.agent.runs().follow(requester, run, 0).await {
                Ok(following) => return Some(following),
                Err(LookupError::RunNotFound(_) | LookupError::Store(_)) if Instant::now() < until => {
                    tokio::time::sleep(FIND_EVERY).await;
                }
                Err(_) => return None,
            }
        }
    }
}

/// The readers of runs below one.
struct Below {
    nest: Nest,
    tasks: JoinSet<()>,
    /// Those of runs that have not ended, as far as is known, and whether they have found their run.
    live: HashMap<RunId, (AbortHandle, Arc<AtomicBool>)>,
    sender: mpsc::Sender<Bytes>,
}

impl Below {
    fn new(nest: Nest) -> (Self, mpsc::Receiver<Bytes>) {
        let (sender, events) = mpsc::channel(WAITING);
        (Self { nest, tasks: JoinSet::new(), live: HashMap::new(), sender }, events)
    }

    /// Follows the run that this record says is about to begin.
    fn follow(&mut self, record: &Record) {
        let Event::Delegated(delegated) = &record.event else { return };
        if let Delegated::Started(child) = &**delegated {
            let is_found = Arc::new(AtomicBool::new(false));
            let out = (self.sender.clone(), is_found.clone());
            let following = Box::pin(follow(self.nest.clone(), child.clone(), out));
            self.live.insert(child.run.clone(), (self.tasks.spawn(following), is_found));
        }
    }

    /// The next piece to send before this record, which may say that a run ended; `None` once all that happened in that run is sent,
    /// or it takes too long: then no more of it is.
    async fn rest(&mut self, record: &Record, events: &mut mpsc::Receiver<Bytes>, since: Instant) -> Option<Bytes> {
        let Event::Delegated(delegated) = &record.event else { return None };
        let Delegated::Completed(child) = &**delegated else { return None };
        loop {
            let (task, is_found) = self.live.get(&child.run)?;
            // Looked at first: what it sent before it finished is there afterwards.
            let is_finished = task.is_finished();
            if let Ok(piece) = events.try_recv() {
                return Some(piece);
            }
            let patience = if is_found.load(Ordering::Relaxed) { REST_TIMEOUT } else { UNFOUND_TIMEOUT };
            // One that did not begin, or was not waited for, has no reason.
            if is_finished || child.reason.is_none() || since.elapsed() >= patience {
                task.abort();
                self.live.remove(&child.run);
                return None;
            }
            tokio::select! {
                Some(piece) = events.recv() => return Some(piece),
                // A task that ended is forgotten.
                _ = self.tasks.join_next() => {}
                () = tokio::time::sleep_until(since + patience) => {}
            }
        }
    }
}

/// Sends the events of a run and of those below it, and says once it has found the run.
async fn follow(nest: Nest, child: StartedChild, (out, is_found): (mpsc::Sender<Bytes>, Arc<AtomicBool>)) {
    let Some(Following { head, follower: Some(mut follower) }) = nest.follow(&child.run).await else { return };
    is_found.store(true, Ordering::Relaxed);
    follower = follower.with_memory(nest.memory());
    let (mut names, (mut below, mut deeper)) = (RunNames::from(&head), Below::new(nest));
    loop {
        let records = tokio::select! {
            biased;
            Some(piece) = deeper.recv() => {
                if out.send(piece).await.is_err() {
                    return;
                }
                continue;
            }
            records = follower.next() => records,
        };
        // What cannot be read of it is left out: the run that began it tells how it ended.
        let Ok(Some(records)) = records else { return };
        for record in records {
            let since = Instant::now();
            if is_waited_for(&record) {
                follower.lend_memory();
            }
            while let Some(piece) = below.rest(&record, &mut deeper, since).await {
                if out.send(piece).await.is_err() {
                    return;
                }
            }
            names.follow(&record.event);
            if out.send(frame(&child, &record, &names)).await.is_err() {
                return;
            }
            below.follow(&record);
        }
    }
}

/// Whether this record says that a run has ended, all events of which are to be shown before.
fn is_waited_for(record: &Record) -> bool {
    matches!(&record.event, Event::Delegated(delegated) if matches!(**delegated, Delegated::Completed(_)))
}

/// The frame of another run's event.
fn frame(child: &StartedChild, record: &Record, names: &RunNames) -> Bytes {
    let mut out = BytesMut::new();
    out.put_slice(b"event: delegate.event\ndata: {\"type\":\"delegate.event\",\"run_id\":\"");
    out.put_slice(child.run.as_str().as_bytes());
    out.put_slice(format!("\",\"depth\":{},\"event\":", child.depth).as_bytes());
    write_entry(record, names, &mut out);
    out.put_slice(b"}\n\n");
    out.freeze()
}

/// Streams what the follower finds, as the encoder writes it, and what happens in the runs below, then `[DONE]`.
pub fn stream<E: Encoder>(mut nest: Nest, mut follower: Follower, encoder: E, names: &RunNames) -> Response {
    nest.memory = follower.memory_for_another().map(Arc::new);
    if E::READERS_COME_BACK {
        follower = follower.movable();
    }
    sse::respond(Body::from_stream(events(nest, follower, encoder)), names)
}

/// What the follower finds, as the encoder writes it, and what happens in the runs below, then `[DONE]`.
fn events<E: Encoder>(
    nest: Nest,
    mut follower: Follower,
    mut encoder: E,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    async_stream::stream! {
        let (mut below, mut events) = Below::new(nest);
        let mut out = BytesMut::new();
        loop {
            let found = tokio::select! {
                biased;
                Some(piece) = events.recv() => {
                    yield Ok::<_, Infallible>(piece);
                    continue;
                }
                found = follower.next() => found,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    yield Ok(Bytes::from_static(b": keep-alive\n\n"));
                    continue;
                }
            };
            match found {
                Ok(Some(records)) => {
                    for record in records {
                        let since = Instant::now();
                        if is_waited_for(&record) {
                            follower.lend_memory();
                        }
                        while let Some(piece) = below.rest(&record, &mut events, since).await {
                            yield Ok(piece);
                        }
                        encoder.encode(&record, &mut out);
                        below.follow(&record);
                        if !out.is_empty() {
                            yield Ok(out.split().freeze());
                        }
                    }
                    if follower.has_ended() {
                        // Nothing comes after it, whatever still happens below.
                        yield Ok(Bytes::from_static(E::LAST_FRAME));
                        break;
                    }
                }
                Ok(None) => break,
                Err(FollowError::Leaving) if E::READERS_COME_BACK => {
                    yield Ok(Bytes::from_static(MOVE));
                    break;
                }
                Err(error) => {
                    encoder.break_off(ApiError::from(error).object(), &mut out);
                    yield Ok(out.split().freeze());
                    break;
                }
            }
        }
    }
}

//! Room for so many calls at once. A slot is free again once it is dropped, and a call that waits leaves the queue by
//! dropping its place.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::fair::{FairQueue, Ticket};
use crate::telemetry::metrics::CallQueueMetrics;
use crate::types::Tenant;

/// The slots of one upstream. They outlive a configuration, as the calls do that hold them.
#[derive(Debug)]
pub struct Slots {
    state: Mutex<State>,
    metrics: CallQueueMetrics,
}

#[derive(Debug)]
struct State {
    /// Most calls at once; `None` without end.
    capacity: Option<u32>,
    taken: u32,
    /// The calls that wait. While some do, no slot is free.
    queue: FairQueue<oneshot::Sender<()>>,
}

/// The right to make one call.
#[derive(Debug)]
pub struct Slot(Arc<Slots>);

/// A place in the queue for a slot.
#[derive(Debug)]
pub struct Waiting {
    slots: Arc<Slots>,
    tenant: Tenant,
    ticket: Ticket,
    turn: oneshot::Receiver<()>,
    since: Instant,
    /// Whether the slot that was waited for is handed on.
    is_over: bool,
}

/// What a call gets that asks for a slot.
#[derive(Debug)]
pub enum Entry {
    /// A slot, at once.
    Slot(Slot),
    /// A place in the queue.
    Waiting(Waiting),
}

impl Slots {
    /// Slots for so many calls at once; `None` for any number.
    pub fn new(capacity: Option<u32>, metrics: CallQueueMetrics) -> Self {
        Self { state: Mutex::new(State { capacity, taken: 0, queue: FairQueue::default() }), metrics }
    }

    /// Allows so many calls at once from now on. Calls beyond it that are under way go on.
    pub fn resize(&self, capacity: Option<u32>) {
        let mut state = self.state.lock();
        state.capacity = capacity;
        self.hand_out(&mut state);
    }

    /// A slot, or else a place in the queue.
    pub fn enter(self: &Arc<Self>, tenant: &Tenant) -> Entry {
        let mut state = self.state.lock();
        if state.has_room() {
            state.taken += 1;
            self.metrics.show(state.taken, state.queue.len());
            self.metrics.waited(Duration::ZERO);
            return Entry::Slot(Slot(self.clone()));
        }
        let (hand, turn) = oneshot::channel();
        let ticket = state.queue.push(tenant, hand);
        self.metrics.show(state.taken, state.queue.len());
        let (slots, tenant) = (self.clone(), tenant.clone());
        Entry::Waiting(Waiting { slots, tenant, ticket, turn, since: Instant::now(), is_over: false })
    }

    /// Frees a slot.
    fn free(&self) {
        let mut state = self.state.lock();
        state.taken -= 1;
        self.hand_out(&mut state);
    }

    /// Gives free slots to those whose turn it is.
    fn hand_out(&self, state: &mut State) {
        while state.has_room()
            && let Some(turn) = state.queue.pop()
        {
            state.taken += 1;
            // A call that gave up meanwhile finds itself out of the queue, and frees the slot.
            let _ = turn.send(());
        }
        self.metrics.show(state.taken, state.queue.len());
    }

    /// How many calls are under way, and how many wait.
    #[cfg(test)]
    pub fn used(&self) -> (u32, usize) {
        let state = self.state.lock();
        (state.taken, state.queue.len())
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.capacity.is_none_or(|capacity| self.taken < capacity)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.free();
    }
}

impl Waiting {
    /// Waits for the turn of this call.
    pub async fn turn(mut self) -> Slot {
        // The sender is in the queue, or was used.
        let _ = (&mut self.turn).await;
        self.is_over = true;
        self.slots.metrics.waited(self.since.elapsed());
        Slot(self.slots.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.slots.state.lock();
        if state.queue.remove(&self.tenant, self.ticket).is_none() {
            // Its turn came just as it gave up.
            state.taken -= 1;
        }
        self.slots.hand_out(&mut state);
    }
}

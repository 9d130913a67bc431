//! The memory that the conversations of this process's live runs take, all together.
//!
//! A run is counted before its conversation is read, and until its driver has left it. A new run is refused while there
//! is no room. No run that is under way ends for want of memory: what joins its conversation is counted, so that fewer
//! others begin. New runs leave a part of the memory to runs that are resumed, so that a replica that is always full takes
//! over the runs of one that died, and not so many at once that it dies too.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::types::{History, Message};

/// Of the memory, new runs leave one part in so many to runs that are resumed.
const RESUMED_PART: u64 = 4;
/// What is in memory of a conversation at most, in its own size: itself, and the request to the model that is made of it.
const COPIES: u64 = 2;

/// The memory that live runs share.
#[derive(Debug)]
pub struct RunMemory {
    limit: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    bytes: u64,
    runs: u64,
}

/// What a run asks for memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To begin, or to go on with what its client answered.
    Request,
    /// To be resumed after its replica died or left it.
    Resumption,
}

impl Purpose {
    /// What a run asks for that is to begin. One that another run waits for takes from what is left to resumed runs: that run cannot go
    /// on without it.
    pub fn of_new(is_waited_for: bool) -> Self {
        if is_waited_for { Self::Resumption } else { Self::Request }
    }
}

/// The share of one live run; free again once it is dropped.
#[derive(Debug)]
pub struct MemoryShare {
    memory: Arc<RunMemory>,
    bytes: u64,
}

impl RunMemory {
    /// So many bytes for all live runs.
    pub fn new(limit: u64) -> Self {
        Self { limit, taken: Mutex::default() }
    }

    /// The share of a run whose conversation has about so many bytes; `None` if there is no room for it. A run that is
    /// the only one always has room.
    pub fn take(self: &Arc<Self>, conversation: u64, purpose: Purpose) -> Option<MemoryShare> {
        let limit = match purpose {
            Purpose::Request => self.limit - self.limit / RESUMED_PART,
            Purpose::Resumption => self.limit,
        };
        let mut taken = self.taken.lock();
        let bytes = conversation.saturating_mul(COPIES);
        if taken.runs > 0 && taken.bytes.saturating_add(bytes) > limit {
            return None;
        }
        taken.add(bytes);
        drop(taken);
        Some(MemoryShare { memory: self.clone(), bytes })
    }

    /// The share of a run that goes on whether there is room or not, for which nothing is counted yet.
    pub fn begin(self: &Arc<Self>) -> MemoryShare {
        self.taken.lock().add(0);
        MemoryShare { memory: self.clone(), bytes: 0 }
    }
}

impl Taken {
    fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.runs += 1;
    }
}

impl MemoryShare {
    /// Counts the conversation as it is now.
    pub fn count(&mut self, conversation: u64) {
        let bytes = conversation.saturating_mul(COPIES);
        if bytes != self.bytes {
            let mut taken = self.memory.taken.lock();
            taken.bytes = taken.bytes.saturating_sub(self.bytes).saturating_add(bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        let mut taken = self.memory.taken.lock();
        taken.bytes = taken.bytes.saturating_sub(self.bytes);
        taken.runs -= 1;
    }
}

/// How much memory messages take at most, about, that take so many bytes in the store: text is kept encoded as well.
pub fn of_stored(bytes: u64) -> u64 {
    bytes.saturating_mul(2)
}

/// How much memory these messages take, about.
pub fn size<'a>(messages: impl IntoIterator<Item = &'a Message>) -> u64 {
    messages.into_iter().map(|message| message.memory() as u64).sum()
}

/// How much memory a run's conversation takes, about: what its model is told, the session's history and its own messages.
pub fn conversation_size<'m>(told: impl Iterator<Item = &'m Message>, history: &History, own: &[Message]) -> u64 {
    history.memory() as u64 + size(told) + size(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_runs_leave_room_for_those_that_are_resumed() {
        let memory = Arc::new(RunMemory::new(800));
        let alone = memory.take(10_000, Purpose::Request).expect("the only run has room");
        assert!(memory.take(0, Purpose::Request).is_none() && memory.take(0, Purpose::Resumption).is_none());
        drop(alone);
        let mut first = memory.take(200, Purpose::Request).expect("there is room");
        assert!(memory.take(101, Purpose::Request).is_none());
        let second = memory.take(200, Purpose::Resumption).expect("there is room for resumed runs");
        assert!(memory.take(1, Purpose::Resumption).is_none());
        first.count(0);
        let third = memory.take(100, Purpose::Request).expect("what a run no longer takes is free");
        let unasked = memory.begin();
        drop((first, second, third));
        let taken = memory.taken.lock();
        assert_eq!((taken.bytes, taken.runs), (0, 1));
        drop(taken);
        drop(unasked);
    }
}

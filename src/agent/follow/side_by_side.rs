//! Several runs that are read for one client, each by a reader of its own: what their readers take of its memory.

use crate::agent::follow::Follower;
use crate::agent::follow::page_memory::PageMemory;

impl Follower {
    /// Where the reader of another run takes memory that is read for the same client; `None` if this one takes none.
    pub fn memory_for_another(&self) -> Option<PageMemory> {
        self.memory.as_ref().map(|memory| memory.another())
    }

    /// Gives the memory of the page back that was read, although it has not been passed on: before that, other runs are to be read
    /// for the same client, whose readers would wait for this memory.
    pub fn lend_memory(&mut self) {
        self.give_memory_back();
    }
}

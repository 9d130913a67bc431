//! What an outside server saw, in the order in which it saw it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loopgate::types::clock::now_ms;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::within;

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ending {
    /// The whole answer was sent.
    Finished,
    /// The peer went away before.
    Dropped,
}

/// One exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry<T> {
    /// When it began, Unix milliseconds.
    pub(crate) at_ms: u64,
    /// When and how it ended; `None` while it lasts.
    pub(crate) ended: Option<(u64, Ending)>,
    /// What it was about.
    pub(crate) what: T,
}

impl<T> Entry<T> {
    /// The same exchange, about what this finds in it, if it finds anything.
    pub(crate) fn and_then<U>(self, read: impl FnOnce(&T) -> Option<U>) -> Option<Entry<U>> {
        Some(Entry { at_ms: self.at_ms, ended: self.ended, what: read(&self.what)? })
    }
}

/// Entries, shared by all who write them.
#[derive(Debug)]
pub(crate) struct Journal<T> {
    entries: Arc<Mutex<Vec<Entry<T>>>>,
    changed: Arc<watch::Sender<()>>,
}

impl<T> Clone for Journal<T> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), changed: self.changed.clone() }
    }
}

impl<T> Default for Journal<T> {
    fn default() -> Self {
        Self { entries: Arc::default(), changed: Arc::new(watch::Sender::new(())) }
    }
}

impl<T: Clone> Journal<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down that an exchange begins. It is dropped unless it is finished.
    pub(crate) fn begin(&self, what: T) -> Exchange<T> {
        let mut entries = self.lock();
        entries.push(Entry { at_ms: now_ms(), ended: None, what });
        let index = entries.len() - 1;
        drop(entries);
        self.changed.send_replace(());
        Exchange { journal: self.clone(), index, ending: Ending::Dropped }
    }

    /// Everything so far.
    pub(crate) fn entries(&self) -> Vec<Entry<T>> {
        self.lock().clone()
    }

    /// Returns once there is an entry, after the first `known` ones, for which `is_it` holds.
    pub(crate) async fn until(&self, what: &str, known: usize, is_it: impl Fn(&Entry<T>) -> bool) {
        let mut changed = self.changed.subscribe();
        let found = async {
            while !self.lock().iter().skip(known).any(&is_it) {
                changed.changed().await.expect("we hold a sender");
            }
        };
        within(what, found).await;
    }
}

/// An exchange that is under way.
#[derive(Debug)]
pub(crate) struct Exchange<T: Clone> {
    journal: Journal<T>,
    index: usize,
    ending: Ending,
}

impl<T: Clone> Exchange<T> {
    /// It came to its end.
    pub(crate) fn finish(mut self) {
        self.ending = Ending::Finished;
    }
}

impl<T: Clone> Drop for Exchange<T> {
    fn drop(&mut self) {
        if let Some(entry) = self.journal.lock().get_mut(self.index) {
            entry.ended = Some((now_ms(), self.ending));
        }
        self.journal.changed.send_replace(());
    }
}

//! Nudges between tasks of one process, by topic.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::Partition;
use crate::types::maps::HashMap;

/// What a nudge is about, such as a run's log or its inbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Topic {
    /// Where it changed.
    pub partition: Partition,
    /// What changed; the text is the owner's choice.
    pub name: Arc<str>,
}

impl Topic {
    /// A topic of this partition.
    #[must_use]
    pub fn new(partition: Partition, name: impl Into<Arc<str>>) -> Self {
        Self { partition, name: name.into() }
    }
}

/// Waits for nudges about one topic.
#[derive(Debug)]
pub struct Watch(watch::Receiver<()>);

impl Watch {
    /// Waits for a nudge that came after the last call, or after the watch was made.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The sender lives in the store, which outlives its watches. Without the store no nudge will come.
            std::future::pending::<()>().await;
        }
    }
}

/// The watched topics of one process.
#[derive(Debug, Default)]
pub(super) struct Topics(Mutex<Watched>);

#[derive(Debug, Default)]
struct Watched {
    senders: HashMap<Topic, watch::Sender<()>>,
    /// From this many topics on, those without watchers are removed. It is twice as many as were left the last
    /// time, so that making a watch costs the same however many there are.
    sweep_at: usize,
}

impl Topics {
    /// Watches a topic.
    pub(super) fn watch(&self, topic: &Topic) -> Watch {
        self.watch_newly(topic).0
    }

    /// Watches a topic, and returns whether no task watched it before.
    pub(super) fn watch_newly(&self, topic: &Topic) -> (Watch, bool) {
        let mut watched = self.lock();
        if watched.senders.len() >= watched.sweep_at {
            watched.sweep();
        }
        let known = watched.senders.len();
        let sender = watched.senders.entry(topic.clone()).or_insert_with(|| watch::channel(()).0);
        let watch = Watch(sender.subscribe());
        (watch, watched.senders.len() > known)
    }

    /// The topics that some task watches. Removes the others.
    pub(super) fn watched(&self) -> Vec<Topic> {
        let mut watched = self.lock();
        watched.sweep();
        watched.senders.keys().cloned().collect()
    }

    /// Nudges the tasks that watch the topic.
    pub(super) fn notify(&self, topic: &Topic) {
        if let Some(sender) = self.lock().senders.get(topic) {
            sender.send_replace(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock()
    }
}

impl Watched {
    fn sweep(&mut self) {
        self.senders.retain(|_, sender| sender.receiver_count() > 0);
        self.sweep_at = 2 * self.senders.len().max(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_without_watchers_are_removed() {
        let topics = Topics::default();
        let topic = |name: String| Topic::new(Partition::new("p"), name);
        let kept = topics.watch(&topic("kept".to_owned()));
        for number in 0..10_000 {
            drop(topics.watch(&topic(number.to_string())));
        }
        let watched = topics.lock();
        assert!(watched.senders.len() <= 64, "{} topics are left", watched.senders.len());
        assert!(watched.senders.contains_key(&topic("kept".to_owned())));
        drop(kept);
    }
}

//! A conversation that outlives its runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::types::clock::now_ms;
use crate::types::context::SessionContext;
use crate::types::json::is_default;
use crate::types::prompt::PromptLayer;
use crate::types::usage::{Micros, Usage};
use crate::types::{Message, RunId, SessionId};

/// The document of a session: everything except its messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The session.
    pub id: SessionId,
    /// When it was created, Unix milliseconds.
    pub created_ms: u64,
    /// When a run last changed it, Unix milliseconds.
    pub updated_ms: u64,
    /// The agent that requests without a `model` of their own run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The end user whom a run of it named last, cut to what its tenant's usage tells apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What its newest run is; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<Box<LastRun>>,
    /// The caller's own notes.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// How long it is kept after its last change, in seconds; `None` means the server's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
    /// Most tokens of all its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_budget: Option<u64>,
    /// Most money of all its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_budget: Option<Micros>,
    /// Messages in its history.
    pub message_count: u64,
    /// How many bytes they take.
    #[serde(default)]
    pub bytes: u64,
    /// What they are.
    #[serde(default)]
    pub digest: Digest,
    /// Tokens of all its ended runs.
    pub usage: Usage,
    /// Cost of all its ended runs.
    pub cost: Micros,
    /// Runs that ended in it.
    pub runs: u64,
    /// What was taken out of its history, or put in beside runs. Boxed, as that happens to few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spliced: Option<Box<Spliced>>,
    /// What of its messages models are shown, and how long that is; `None` for all of a short conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Box<SessionContext>>,
    /// Layers of the prompts of its runs, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<SessionLayer>,
    /// The highest version of a layer that was taken out. A new one begins above it, so no version comes again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub layers_floor: u64,
    /// The run that holds it now: live, or waiting for its client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_run: Option<RunId>,
    /// The runs that wait until it is theirs, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<RunId>,
    /// The concurrent runs, which run beside the run that holds the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub concurrent_runs: Vec<RunId>,
    /// The one among them that shortens what models are shown: there is one at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacting: Option<RunId>,
}

impl Session {
    /// A session as it begins.
    #[must_use]
    pub fn new(id: SessionId) -> Self {
        let now = now_ms();
        Self {
            id,
            created_ms: now,
            updated_ms: now,
            agent: None,
            user: None,
            last_run: None,
            metadata: BTreeMap::new(),
            ttl_s: None,
            token_budget: None,
            cost_budget: None,
            message_count: 0,
            bytes: 0,
            digest: Digest::mint(),
            usage: Usage::default(),
            cost: Micros::default(),
            runs: 0,
            spliced: None,
            context: None,
            layers: Vec::new(),
            layers_floor: 0,
            active_run: None,
            queue: Vec::new(),
            concurrent_runs: Vec::new(),
            compacting: None,
        }
    }

    /// Takes a run out of the session's care; if it held the session, the first in the queue does now,
    /// and is returned.
    pub fn detach_run(&mut self, run: &RunId) -> Option<RunId> {
        self.queue.retain(|queued| queued != run);
        self.concurrent_runs.retain(|beside| beside != run);
        self.compacting.take_if(|compacting| compacting == run);
        if self.active_run.as_ref() != Some(run) {
            return None;
        }
        self.active_run = (!self.queue.is_empty()).then(|| self.queue.remove(0));
        self.active_run.clone()
    }

    /// Notes what its newest run is: as which agent and model it runs, and for whom, if it says so.
    pub fn ran_as(&mut self, id: &RunId, (agent, model): (&str, &str), user: Option<&str>) {
        self.last_run =
            Some(Box::new(LastRun { id: Some(id.clone()), agent: agent.to_owned(), model: model.to_owned() }));
        if let Some(user) = user {
            self.user = Some(user.to_owned());
        }
    }

    /// The agent of its newest run; before the first, that which it names.
    #[must_use]
    pub fn agent_of_late(&self) -> Option<&str> {
        self.last_run.as_ref().map(|run| run.agent.as_str()).or(self.agent.as_deref())
    }

    /// How often a range of its history was replaced, and how many bytes the records of that take.
    #[must_use]
    pub fn spliced(&self) -> Spliced {
        self.spliced.as_deref().copied().unwrap_or_default()
    }

    /// How many bytes its messages take, and what was replaced of them.
    #[must_use]
    pub fn all_bytes(&self) -> u64 {
        self.bytes + self.spliced().bytes
    }

    /// How many bytes those of its messages take, about, that models are not shown a summary of.
    #[must_use]
    pub fn shown_bytes(&self) -> u64 {
        let removed = self.context.as_ref().map_or(0, |context| context.view.removed()).min(self.message_count);
        let left = u128::from(self.message_count - removed);
        let bytes = u128::from(self.bytes) * left / u128::from(self.message_count.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// The runs that are live in it, wait in it or are about to begin.
    pub fn all_runs(&self) -> impl Iterator<Item = &RunId> {
        self.active_run.iter().chain(&self.queue).chain(&self.concurrent_runs)
    }

    /// Whether there are any.
    pub fn has_runs(&self) -> bool {
        self.all_runs().next().is_some()
    }
}

/// What the newest run of a session runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// Its id. What an earlier version stored has none.
    #[serde(default)]
    pub id: Option<RunId>,
    /// The agent; after a handoff that which went on with it.
    pub agent: String,
    /// The upstream and its model that it began with, with a slash between them.
    pub model: String,
}

/// How often a range of a session's history was replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spliced {
    /// How often. The records of what was replaced are as many.
    pub times: u64,
    /// How many bytes these records take.
    pub bytes: u64,
}

/// What was replaced in a session's history once. It is kept as long as the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Splice {
    /// When, Unix milliseconds.
    pub at_ms: u64,
    /// How many messages stood before.
    pub after: u64,
    /// How many stand there in their place.
    pub inserted: u64,
    /// Those that stood there.
    pub removed: Vec<Message>,
}

/// A layer of a session's prompts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLayer {
    /// What it says.
    #[serde(flatten)]
    pub layer: PromptLayer,
    /// Grows with every change of it.
    pub version: u64,
    /// When it was changed, Unix milliseconds.
    pub updated_ms: u64,
}

/// Stands for a session's messages: while it is the same, so are they.
///
/// It begins at random, which tells a session from an earlier one of the same name, and takes in each
/// message that is appended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(Uuid);

impl Digest {
    /// The digest of a history that begins.
    #[must_use]
    pub fn mint() -> Self {
        Self(Uuid::now_v7())
    }

    /// The digest once these messages are appended.
    #[must_use]
    pub fn with<T: AsRef<[u8]>>(self, messages: &[T]) -> Self {
        messages.iter().fold(self, |Self(before), message| {
            let hash = Sha256::new().chain_update(before.as_bytes()).chain_update(message).finalize();
            Self(Uuid::from_bytes(std::array::from_fn(|index| hash[index])))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::context::View;

    #[test]
    fn a_run_takes_memory_for_what_is_shown() {
        let mut session = Session { message_count: 10, bytes: 1_000, ..Session::new(SessionId::mint()) };
        assert_eq!(session.shown_bytes(), 1_000);
        let view = View { covers: 6, kept: vec![0], ..View::default() };
        session.context = Some(Box::new(SessionContext { view, ..SessionContext::default() }));
        assert_eq!((session.shown_bytes(), Session::new(SessionId::mint()).shown_bytes()), (500, 0));
    }

    #[test]
    fn ending_a_run_wakes_the_next_queued_run() {
        let [holder, first, second, other] = [(); 4].map(|()| RunId::mint());
        let mut session = Session {
            active_run: Some(holder.clone()),
            queue: vec![first.clone(), second.clone()],
            ..Session::new(SessionId::mint())
        };
        assert_eq!(session.detach_run(&other), None);
        assert_eq!(session.detach_run(&first), None, "a queued run that leaves wakes no run");
        assert_eq!(session.detach_run(&holder), Some(second.clone()));
        assert_eq!((session.active_run.as_ref(), session.queue.len()), (Some(&second), 0));
        assert_eq!(session.detach_run(&second), None);
        assert_eq!(session.active_run, None);
    }
}

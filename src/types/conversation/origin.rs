//! Where a message of a conversation came from.

use serde::{Deserialize, Serialize};

use crate::types::RunId;

/// Where a message came from. Whatever an endpoint shows of it is named after this, so the names are the same
/// in a stream, in its run and in the session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// It was there before any run: put in, imported or copied with a session, or written by the server
    /// for one request.
    #[default]
    Given,
    /// A request that started a run or answered one.
    Request {
        /// The run.
        run: RunId,
        /// Which of the run's requests: 0 started it, each answer of its client begins the next.
        leg: u32,
        /// Its place among the request's messages, counted from 0.
        index: u32,
    },
    /// The model, or the tools that it called, in a step of a run.
    Step {
        /// The run.
        run: RunId,
        /// The step, counted from 1.
        step: u32,
    },
    /// A client that sent messages to a live run.
    Steering {
        /// The run.
        run: RunId,
        /// The number of the command that brought it.
        command: u64,
    },
}

impl Origin {
    /// Its run, if it has one.
    #[must_use]
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Self::Given => None,
            Self::Request { run, .. } | Self::Step { run, .. } | Self::Steering { run, .. } => Some(run),
        }
    }

    /// Holds the same copy of the run's id as `other`, if they are of one run.
    pub fn share_run_with(&mut self, other: &Self) {
        let Some(shared) = other.run() else { return };
        match self {
            Self::Given => {}
            Self::Request { run, .. } | Self::Step { run, .. } | Self::Steering { run, .. } => {
                if run == shared {
                    run.clone_from(shared);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_of_one_run_share_its_id() {
        let at = |origin: &Origin| origin.run().unwrap().as_str().as_ptr();
        let read = |json: &str| serde_json::from_str::<Origin>(json).unwrap();
        let run = RunId::mint();
        let first = read(&format!(r#"{{"step":{{"run":"{run}","step":1}}}}"#));
        let mut second = read(&format!(r#"{{"step":{{"run":"{run}","step":2}}}}"#));
        assert_ne!(at(&first), at(&second));
        second.share_run_with(&first);
        assert_eq!(at(&first), at(&second));
        let mut other = Origin::Step { run: RunId::mint(), step: 1 };
        let before = other.clone();
        other.share_run_with(&first);
        assert_eq!(other, before);
    }
}

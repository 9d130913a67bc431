//! Where a message of a conversation came from.

use serde::{Deserialize, Serialize};

use crate::types::RunId;

/// Where a message came from. Whatever a door shows of it is named after this, so the names are the same
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
    /// Somebody who spoke to a run that was under way.
    Steering {
        /// The run.
        run: RunId,
        /// The number of the command that brought it.
        command: u64,
    },
}

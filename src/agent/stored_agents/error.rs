//! Why an agent is not read or changed.

use crate::agent::stored_agents::document::LONGEST_SETTINGS;
use crate::config::ConfigErrors;
use crate::store::Unavailable;

/// Why an agent is not changed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There is no such agent.
    #[error("there is no agent {0:?} of your own; GET /v1/agents lists them")]
    NotFound(String),
    /// There is no such version of it.
    #[error("version {version} of the agent {name:?} is not kept; GET /v1/agents/{name}/versions lists those that are")]
    NoSuchVersion {
        /// The agent.
        name: String,
        /// The version.
        version: u64,
    },
    /// It belongs to the configuration of the server.
    #[error("the agent {0:?} is part of the server's configuration, which only its operator changes")]
    OfFile(String),
    /// It is not as the request expects it.
    #[error("the agent {name:?} {}", found(*.version))]
    OtherVersion {
        /// The agent.
        name: String,
        /// The version that it has; `None` if there is none.
        version: Option<u64>,
    },
    /// There is no room for another one.
    #[error("there are {0} agents, as many as a tenant may have")]
    TooMany(usize),
    /// Its settings are too long.
    #[error("the settings of an agent have {LONGEST_SETTINGS} bytes at most")]
    TooLong,
    /// Its settings hold mistakes.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Others changed the tenant's agents at the same time, again and again.
    #[error("the agents are being changed by others; try again")]
    Busy,
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] Unavailable),
}

/// What is wrong with the settings of an agent, each mistake with its place.
#[derive(Debug, thiserror::Error)]
#[error("{}", in_words(.0))]
pub struct Unreadable(pub ConfigErrors);

fn in_words(ConfigErrors(mistakes): &ConfigErrors) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn found(version: Option<u64>) -> String {
    match version {
        Some(version) => format!("has the version {version}"),
        None => "does not exist".to_owned(),
    }
}

//! Agents as resources.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::agent::stored_agents::{LONGEST_SETTINGS, StoredAgent};
use crate::api::wire::body::parse;
use crate::api::wire::error::{ErrorCode, WireError};
use crate::config::{AgentReader, ReadAgent};

/// The settings of an agent: the keys of `[agents.NAME]` of the configuration file, as JSON.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "it only describes; the configuration reads the settings")]
pub struct AgentSettings {
    /// `UPSTREAM/MODEL`, or a bare model name.
    #[schema(example = "openai/gpt-5-mini")]
    model: Option<String>,
    /// System prompt.
    system: Option<String>,
    /// Server-side tools; `*` matches any characters.
    #[schema(example = json!(["calculator"]))]
    tools: Option<Vec<String>>,
}

/// An agent.
#[derive(Debug, Serialize, ToSchema)]
pub struct StoredAgentObject {
    /// Its name, which a request's `model` may say.
    #[schema(example = "clerk")]
    pub id: String,
    /// `agent`.
    object: &'static str,
    /// `file` for one of the server's configuration, which cannot be changed here, or `store`.
    origin: &'static str,
    /// Its version; greater than that of every earlier change of the tenant's agents. Absent for one of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// When this version was made, Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_ms: Option<u64>,
    /// The name of the key that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_by: Option<String>,
    /// Whether this version is the agent's deletion.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    /// The settings that it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<AgentSettings>)]
    settings: Option<Map<String, Value>>,
    /// All of its settings, as far as they may be shown: defaults, and what it inherits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<AgentSettings>)]
    effective: Option<Map<String, Value>>,
    /// Why it cannot be used as the server is configured now.
    #[serde(skip_serializing_if = "Option::is_none")]
    mistake: Option<String>,
}

/// That an agent is gone.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentDeletion {
    /// The agent.
    id: String,
    /// `agent`.
    object: &'static str,
    /// The version that is its deletion.
    version: u64,
    /// `true`.
    deleted: bool,
}

impl AgentDeletion {
    /// That the newest version of an agent is its deletion.
    pub fn of(agent: StoredAgent) -> Self {
        Self { id: agent.name, object: "agent", version: agent.version, deleted: true }
    }
}

impl StoredAgentObject {
    /// An agent of the configuration.
    pub fn of_file(ReadAgent { config, settings }: ReadAgent) -> Self {
        Self {
            id: config.name,
            object: "agent",
            origin: "file",
            version: None,
            changed_ms: None,
            changed_by: None,
            deleted: false,
            settings: None,
            effective: Some(settings),
            mistake: None,
        }
    }

    /// A version of an agent of the store, as it is read now.
    pub fn of_store(agent: StoredAgent, reader: Option<&AgentReader>) -> Self {
        let read = reader.zip(agent.settings.as_ref()).map(|(reader, settings)| reader.read(&agent.name, settings));
        let (effective, mistake) = match read {
            Some(Ok(read)) => (Some(read.settings), None),
            Some(Err(mistakes)) => (None, Some(mistakes.to_string())),
            None => (None, None),
        };
        Self {
            id: agent.name,
            object: "agent",
            origin: "store",
            version: Some(agent.version),
            changed_ms: Some(agent.changed_ms),
            changed_by: agent.changed_by,
            deleted: agent.settings.is_none(),
            settings: agent.settings,
            effective,
            mistake,
        }
    }
}

/// Reads settings, or a change of them: any JSON object. What its members mean is not looked at.
pub fn read_settings(body: &str) -> Result<Map<String, Value>, WireError> {
    if body.len() > LONGEST_SETTINGS {
        let message = format!("the settings of an agent have {LONGEST_SETTINGS} bytes at most");
        return Err(WireError::new(ErrorCode::PayloadTooLarge, message));
    }
    parse(body)
}

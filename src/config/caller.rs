//! `[keys.NAME]`: callers, their tenants and what they may use.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::agent::AgentConfig;
use super::key;
use super::mistake::suggestion;
use super::prompt::read_layer;
use super::quota::{QuotaConfig, ShareConfig};
use super::reader::Section;
use super::scope::Scopes;
use super::secret_source;
use super::value::{PLAIN_NAME, is_plain_name};
use super::values::Recorded;
use crate::types::Tenant;
use crate::types::policy::{Layer, LayerOwner};
use crate::types::prompt::PromptLayer;

/// A key that callers authenticate with.
#[derive(Debug, Clone)]
pub struct KeyConfig {
    /// The operator's name for it.
    pub name: String,
    /// Whose runs and sessions its callers see.
    pub tenant: Tenant,
    /// SHA-256 of the key.
    pub hash: [u8; 32],
    /// Agents that its callers may use; `None` for all.
    pub agents: Option<Vec<String>>,
    /// What its callers may do.
    pub scopes: Scopes,
    /// Most requests a minute; `None` without end.
    pub requests_per_minute: Option<u32>,
    /// Whether its requests may name servers of tools.
    pub request_mcp: bool,
    /// What its runs may take together.
    pub quota: QuotaConfig,
    /// What the runs of each of its users may take together.
    pub per_user: ShareConfig,
    /// Which tool calls its runs make, ask for and deny.
    pub policy: Arc<Layer>,
    /// Layers of the prompts of its runs.
    pub layers: Arc<[PromptLayer]>,
}

impl KeyConfig {
    /// Reads a key that must differ from `others` and may name `agents`.
    pub(super) fn read(
        name: &str,
        section: &mut Section<'_>,
        agents: &BTreeMap<String, AgentConfig>,
        others: &[Self],
    ) -> Option<Self> {
        if !is_plain_name(name) {
            section.refuse_here(PLAIN_NAME);
        }
        let tenant: Option<String> = section.optional(
            "tenant",
            "Owner of the runs and sessions that the key gives access to; if absent, the key's name.",
        );
        let tenant = Tenant::parse(tenant.as_deref().unwrap_or(name));
        if tenant.is_none() && section.is_written("tenant") {
            section.refuse("tenant", "a tenant has 1 to 128 characters of A-Z a-z 0-9 . _ : - and is not only dots");
        }
        let hash = read_hash(section);
        if let Some(other) = others.iter().find(|other| Some(other.hash) == hash) {
            section.refuse_here(format!("is the same key as keys.{}", other.name));
        }
        let allowed = read_agents(section, agents);
        let scopes = section.key(
            "scopes",
            "What requests with this key may do: `run` starts runs and answers those that wait, `read` reads runs, \
             sessions, skills and what agents [remember](memory.md), `approvals` approves tool calls, `steer` sends messages and answers to live runs, `cancel` cancels runs, `sessions` creates, changes, copies and \
             deletes sessions, `memory` writes and deletes what agents remember, `skills` writes and deletes [skills](skills.md) and files of agents, `usage` reads what all runs of the tenant took, `metrics` reads the metrics of the whole server, \
             `tools` accepts definitions of tools that are held back, `agents` changes the [agents of the tenant](agents.md), `schedules` changes [schedules](schedules.md) and begins their runs, `operator` lists, reads and cancels the \
             [runs of all tenants](operations.md#runs-of-all-tenants).",
            Scopes::of_tenant(),
        );
        let requests_per_minute = section
            .optional("requests_per_minute", "Most requests a minute with this key, over all replicas together.");
        let request_mcp = section.key(
            "request_mcp",
            "Whether requests with this key may name [servers of their own](mcp.md#servers-that-a-request-names), within the bounds of \
             [`[request_mcp]`](#mcp-servers-of-requests).",
            false,
        );
        let (quota, per_user) = (QuotaConfig::read(section), section.section("per_user", ShareConfig::of_user));
        let policy = Arc::new(section.section("policy", |policy| Layer::read(policy, LayerOwner::Key, None)));
        let layers = section.named("layers", None, read_layer);
        Some(Self {
            name: name.to_owned(),
            tenant: tenant?,
            hash: hash?,
            agents: allowed,
            scopes,
            requests_per_minute,
            request_mcp,
            quota,
            per_user,
            policy,
            layers: layers.into(),
        })
    }
}

/// The agents that requests with the key may use.
fn read_agents(section: &mut Section<'_>, agents: &BTreeMap<String, AgentConfig>) -> Option<Vec<String>> {
    let allowed: Option<Vec<String>> =
        section.optional("agents", "Agents that requests with this key may use; if absent, all of them.");
    let known: Vec<&str> = agents.keys().map(String::as_str).collect();
    for agent in allowed.iter().flatten().filter(|agent| !known.contains(&agent.as_str())) {
        section.refuse("agents", format!("there is no agent `{agent}`; {}", suggestion(agent, &known)));
    }
    allowed
}

fn read_hash(section: &mut Section<'_>) -> Option<[u8; 32]> {
    let written: Option<String> =
        section.optional("key_sha256", "SHA-256 of the key in hex, as `loopgate key new` prints it.");
    let variable: Option<String> = section.optional("key_env", "Environment variable that holds the key itself.");
    match (written, variable) {
        (Some(hex), None) => {
            // It is no secret, and tells a reader nothing.
            section.record("key_sha256", Recorded::hidden(&hex));
            let hash = key::parse_hash(&hex);
            if hash.is_none() {
                section.refuse("key_sha256", "must be 64 hex digits: the SHA-256 of a key, not the key");
            }
            hash
        }
        (None, Some(variable)) => {
            let secret = secret_source::reported(section, "key_env", secret_source::from_env(section, &variable))?;
            section.record_secret("key_env", secret.expose());
            Some(key::hash(secret.expose()))
        }
        (Some(_), Some(_)) => {
            section.refuse("key_env", "give key_sha256 or key_env, not both");
            None
        }
        (None, None) => {
            if !section.is_written("key_sha256") && !section.is_written("key_env") {
                section.refuse_here("needs key_sha256 or key_env");
            }
            None
        }
    }
}

//! Changes agents in the store.

use serde_json::{Map, Value};

use crate::agent::error::unavailable;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::stored_agents::document::{Change, LONGEST_SETTINGS, MOST_AGENTS, Refused, StoredAgent};
use crate::agent::stored_agents::{AgentError, StoredAgents, Unreadable};
use crate::config::AgentReader;
use crate::store::retry::RetryConflicts;
use crate::store::{CommitError, Tx, Write};
use crate::types::json::compact;
use crate::types::{Expected, Tenant};

/// The key that changes an agent, and the tenant whose agent it is.
#[derive(Debug, Clone, Copy)]
pub struct Changer<'a> {
    /// Whose agent it is.
    pub tenant: &'a Tenant,
    /// The key that asks.
    pub key_name: Option<&'a str>,
}

impl StoredAgents {
    /// Gives an agent these settings, which are read first. Returns its version then: the one that it had, if these are the
    /// settings that it has.
    pub async fn put(
        &self,
        changer: Changer<'_>,
        name: &str,
        settings: Map<String, Value>,
        expected: Expected,
    ) -> Result<StoredAgent, AgentError> {
        self.check(name, &settings)?;
        self.change(changer, name, expected, |_| Ok(Some(settings.clone()))).await
    }

    /// Changes the settings of an agent by a JSON merge patch (RFC 7396).
    pub async fn patch(
        &self,
        changer: Changer<'_>,
        name: &str,
        patch: &Map<String, Value>,
        expected: Expected,
    ) -> Result<StoredAgent, AgentError> {
        let expected = if expected == Expected::Anything { Expected::Something } else { expected };
        self.change(changer, name, expected, |before| {
            let mut settings = before.and_then(|before| before.settings.clone()).unwrap_or_default();
            merge(&mut settings, patch);
            self.check(name, &settings)?;
            Ok(Some(settings))
        })
        .await
    }

    /// Gives an agent the settings of an earlier version, also if it was deleted since.
    pub async fn restore(
        &self,
        changer: Changer<'_>,
        name: &str,
        version: u64,
        expected: Expected,
    ) -> Result<StoredAgent, AgentError> {
        let missing = || AgentError::NoSuchVersion { name: name.to_owned(), version };
        let earlier = self.version(changer.tenant, name, version).await?;
        let settings = earlier.and_then(|earlier| earlier.settings).ok_or_else(missing)?;
        self.put(changer, name, settings, expected).await
    }

    /// Deletes an agent. Its versions are kept for a while.
    pub async fn delete(
        &self,
        changer: Changer<'_>,
        name: &str,
        expected: Expected,
    ) -> Result<StoredAgent, AgentError> {
        // One that the file has taken the name of since can still be deleted.
        if self.read_index(changer.tenant).await?.1.version(name).is_none() {
            self.refuse_of_file(name)?;
        }
        let expected = if expected == Expected::Anything { Expected::Something } else { expected };
        self.change(changer, name, expected, |_| Ok(None)).await
    }

    fn refuse_of_file(&self, name: &str) -> Result<(), AgentError> {
        let generation = self.generations.current();
        let is_of_file = generation.agents.as_ref().is_none_or(|reader| reader.has(name));
        if is_of_file { Err(AgentError::OfFile(name.to_owned())) } else { Ok(()) }
    }

    /// Whether an agent of this name may have these settings.
    fn check(&self, name: &str, settings: &Map<String, Value>) -> Result<(), AgentError> {
        self.refuse_of_file(name)?;
        AgentReader::check_name(name).map_err(Unreadable)?;
        // Patches add up.
        if compact(settings).is_ok_and(|json| json.len() > LONGEST_SETTINGS) {
            return Err(AgentError::TooLong);
        }
        if let Some(reader) = &self.generations.current().agents {
            reader.read(name, settings).map_err(Unreadable)?;
        }
        Ok(())
    }

    /// Stores the settings that `next` makes of an agent as its newest version, unless the agent has them already.
    async fn change(
        &self,
        changer: Changer<'_>,
        name: &str,
        expected: Expected,
        next: impl Fn(Option<&StoredAgent>) -> Result<Option<Map<String, Value>>, AgentError>,
    ) -> Result<StoredAgent, AgentError> {
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            let (document, index) = self.read_index(changer.tenant).await?;
            let before = match index.version(name) {
                Some(version) => self.read(changer.tenant, name, version).await?,
                None => None,
            };
            let settings = next(before.as_ref())?;
            // A request that is sent again after its answer was lost changes nothing, whatever it expects.
            if let Some(before) = before.filter(|before| settings.is_some() && before.settings == settings) {
                return Ok(before);
            }
            index.check(name, expected).map_err(|refused| refusal(&refused, name))?;
            let change = index.change(name, settings, self.store.now_ms(), changer.key_name);
            let change = change.map_err(|refused| refusal(&refused, name))?;
            match self.commit(changer.tenant, document, &change).await {
                Ok(()) => return Ok(self.made(changer, change)),
                Err(CommitError::VersionConflict { .. }) => {}
                Err(error) => return Err(unavailable(error).into()),
            }
        }
        Err(AgentError::Busy)
    }

    async fn commit(&self, tenant: &Tenant, document: u64, change: &Change) -> Result<(), CommitError> {
        let made = &change.made;
        let put = Write::Put { key: keys::agent_version(&made.name, made.version), value: encode(made), ttl: None };
        let tx = Tx::new(keys::agents_partition(tenant));
        let tx = tx.put_at(keys::agents_index(), document, encode(&change.index), None).write(put);
        let deletions = change.forgotten.iter().map(|(name, version)| keys::agent_version(name, *version));
        self.store.commit(deletions.fold(tx, |tx, key| tx.write(Write::Delete { key }))).await
    }

    /// Counts here from now on.
    fn made(&self, Changer { tenant, key_name }: Changer<'_>, Change { index, made, .. }: Change) -> StoredAgent {
        self.known.keep_index(tenant, index);
        let (agent, version, deleted) = (&made.name, made.version, made.settings.is_none());
        tracing::info!(%tenant, agent, version, deleted, key = key_name, "an agent was changed");
        made
    }
}

fn refusal(refused: &Refused, name: &str) -> AgentError {
    match refused {
        Refused::Missing => AgentError::NotFound(name.to_owned()),
        Refused::OtherVersion(version) => AgentError::OtherVersion { name: name.to_owned(), version: *version },
        Refused::TooMany => AgentError::TooMany(MOST_AGENTS),
    }
}

/// Changes members by those of a patch: null takes one out, an object changes one that is an object too.
fn merge(members: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, change) in patch {
        match change {
            Value::Null => drop(members.remove(key)),
            Value::Object(change) => {
                let member = members.entry(key).or_insert_with(|| Map::new().into());
                if !member.is_object() {
                    *member = Map::new().into();
                }
                if let Some(member) = member.as_object_mut() {
                    merge(member, change);
                }
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                members.insert(key.clone(), change.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_changes_and_takes_out_members() {
        let mut settings = json!({"system": "a", "limits": {"timeout": "1s", "max_iterations": 2}, "tools": ["x"]});
        let patch = json!({"system": null, "limits": {"timeout": null, "token_budget": 9}, "tools": [], "policy": {"deny": null}});
        merge(settings.as_object_mut().unwrap(), patch.as_object().unwrap());
        assert_eq!(settings, json!({"limits": {"max_iterations": 2, "token_budget": 9}, "tools": [], "policy": {}}));
    }
}

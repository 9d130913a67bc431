//! The caller of a request for a run or session that exists, and what this caller may see.

use crate::agent::error::LookupError;
use crate::agent::ledger::head::Head;
use crate::types::Tenant;

/// Who asks for a run or session that is there already.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'a> {
    /// Whose runs and sessions it sees.
    pub tenant: &'a Tenant,
    /// The agents that its key may use; `None` for all.
    pub agents: Option<&'a [String]>,
}

impl Requester<'_> {
    /// Whether it may use this agent, and so may read, steer and cancel the agent's runs.
    pub fn may_use(self, agent: &str) -> bool {
        self.agents.is_none_or(|agents| agents.iter().any(|allowed| allowed == agent))
    }

    /// Refuses a run of an agent that the requester may not use.
    pub(super) fn check(self, head: &Head) -> Result<(), LookupError> {
        if self.may_use(&head.agent) {
            return Ok(());
        }
        Err(LookupError::AgentForbidden { run: head.id.clone(), agent: head.agent.clone() })
    }
}

/// A caller that may use all agents.
impl<'a> From<&'a Tenant> for Requester<'a> {
    fn from(tenant: &'a Tenant) -> Self {
        Self { tenant, agents: None }
    }
}

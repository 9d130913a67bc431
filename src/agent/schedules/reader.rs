//! What reads the requests of schedules. The agent knows nothing of their form.

use std::fmt;
use std::sync::Arc;

use crate::agent::{Generation, NewRun};
use crate::types::Tenant;

/// Reads the body of a request that a schedule makes.
pub trait RequestReader: Send + Sync + fmt::Debug {
    /// The run that it asks for.
    ///
    /// # Errors
    /// What is wrong with it.
    fn read(&self, body: &str, by: RequestedBy) -> Result<NewRun, BadRequest>;
}

/// For whom a request is made.
#[derive(Debug)]
pub struct RequestedBy {
    /// Whose run it will be.
    pub tenant: Tenant,
    /// The configuration that the request is served by.
    pub generation: Arc<Generation>,
    /// The name of the key.
    pub key_name: Option<String>,
    /// The agents that the key may use; `None` for all.
    pub allowed_agents: Option<Vec<String>>,
}

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRequest {
    /// The member that is wrong.
    pub param: Option<String>,
    /// What is wrong with it.
    pub message: String,
}

//! The caller of a request.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::agent::catalog::Resolved;
use crate::agent::error::StartError;
use crate::agent::{Agent, Generation, Requester};
use crate::api::auth::token::{May, Token};
use crate::api::error::ApiError;
use crate::api::wire::error::ErrorCode;
use crate::config::{Scope, Scopes};
use crate::types::Tenant;

/// Who made a request, and what it is served by.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose runs and sessions it sees.
    pub tenant: Tenant,
    /// The name of its key.
    pub key_name: Option<String>,
    /// The agents that it may use; `None` for all.
    pub agents: Option<Vec<String>>,
    /// What it may do.
    pub scopes: Scopes,
    /// The token that it shows in place of the key which gave it.
    pub token: Option<Arc<Token>>,
    /// The configuration that the whole request is served by.
    pub generation: Arc<Generation>,
}

/// By what this process tells callers apart, when it counts what each of them takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallerId {
    /// All callers with the key of this name.
    Key(String),
    /// All without a key from an address, or from the /64 of an IPv6 address.
    Address(IpAddr),
}

/// All whose address is not known.
impl Default for CallerId {
    fn default() -> Self {
        Self::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }
}

impl Caller {
    /// What a model's name leads to; what the caller may not use does not exist for it.
    pub async fn resolve(&self, agent: &Agent, name: &str) -> Result<Resolved, StartError> {
        let may_use = |agent: &str| self.requester().may_use(agent);
        let resolved = agent.agents().resolve(&self.generation, &self.tenant, name, may_use).await?;
        if may_use(&resolved.agent_name) {
            Ok(resolved)
        } else {
            Err(self.generation.catalog.not_found(name, may_use).await)
        }
    }

    /// Whether it may read what runs answered: all but tokens that may not follow them.
    pub fn follows(&self) -> bool {
        self.token.as_ref().is_none_or(|token| token.may(May::Follow))
    }

    /// What a refusal tells this caller.
    pub fn told(&self, refusal: StartError) -> ApiError {
        let error = ApiError::from(refusal);
        if self.token.is_some() { error.without_figures() } else { error }
    }

    /// Who asks, for what is there already.
    pub fn requester(&self) -> Requester<'_> {
        Requester { tenant: &self.tenant, agents: self.agents.as_deref() }
    }

    /// Whether it may list, read and cancel the runs of all tenants: a key that names this scope.
    pub fn is_operator(&self) -> bool {
        self.key_name.is_some() && self.token.is_none() && self.scopes.contains(Scope::Operator)
    }

    /// The tenant, where the caller sees runs of several.
    pub fn shown_tenant(&self) -> Option<&Tenant> {
        self.is_operator().then_some(&self.tenant)
    }

    /// Refuses a caller whose key lacks this scope.
    pub fn check(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.contains(scope) {
            return Ok(());
        }
        let message = format!("this needs the scope `{scope}`, which this key does not have");
        Err(ApiError::new(ErrorCode::Forbidden, message).permanent())
    }
}

/// A handler that names the caller stands behind [`admit`](crate::api::auth::admit).
impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let admitted = parts.extensions.get::<Self>().cloned();
        admitted.ok_or_else(|| ApiError::internal(&"a route that needs a caller is not behind the guard"))
    }
}

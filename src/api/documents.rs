//! What requests about documents share: whose they are, how they are named, and why one fails.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::agent::documents::{Collection, DocumentError, Kind};
use crate::agent::error::LookupError;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::Query;
use crate::api::wire::body::clip;
use crate::api::wire::error::ErrorCode;
use crate::types::Tenant;
use crate::types::memory::MOST_USER;

/// That a document is gone.
#[derive(Debug, Serialize, ToSchema)]
pub struct DocumentDeletion {
    /// The document.
    pub id: String,
    /// `memory.document` or `skill`.
    pub object: &'static str,
    /// `true`.
    pub deleted: bool,
}

/// The document that a path names. What cannot be a document's name is none.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path, names("name"))]
pub struct DocumentPath(
    /// The document
    #[param(value_type = String, pattern = "^[A-Za-z0-9._-]{1,100}$")]
    pub String,
);

impl<S: Send + Sync> FromRequestParts<S> for DocumentPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let name = Path::<String>::from_request_parts(parts, state).await;
        name.map(|Path(name)| Self(name))
            .map_err(|_| ApiError::new(ErrorCode::UnknownUrl, "the path is not valid UTF-8"))
    }
}

/// Whose memory a query names.
#[derive(Debug, Default)]
pub struct Owner {
    /// The agent.
    pub agent: Option<String>,
    /// The user.
    pub user: Option<String>,
}

impl Owner {
    /// Reads it, if the caller may see it: a key that is bound to agents sees what belongs to one of them.
    pub fn read(query: &Query, caller: &Caller) -> Result<Self, ApiError> {
        let given = |name| query.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
        let owner = Self { agent: given("agent"), user: given("user") };
        if owner.agent.is_none() && owner.user.is_none() {
            let message = "name whose memory is meant: a `user`, an `agent`, or both";
            return Err(ApiError::new(ErrorCode::MissingField, message).at("user"));
        }
        owner.checked(caller)
    }

    /// It, if it can be one and the caller may see it.
    pub fn checked(self, caller: &Caller) -> Result<Self, ApiError> {
        let owner = self;
        // An agent may be gone whose memory is still there. The names of all of them are fit for tenants.
        if owner.agent.as_deref().is_some_and(|agent| agent.len() > 64 || Tenant::parse(agent).is_none()) {
            return Err(ApiError::invalid("agent", "is not the name of an agent"));
        }
        if owner.user.as_ref().is_some_and(|user| user.len() > MOST_USER) {
            return Err(ApiError::invalid("user", format!("must not be longer than {MOST_USER} bytes")));
        }
        let forbidden = match &owner.agent {
            Some(agent) => !caller.requester().may_use(agent),
            None => caller.agents.is_some(),
        };
        if forbidden {
            let message = match &owner.agent {
                Some(agent) => format!("this key may not use the agent {:?}", clip(agent)),
                None => "this key may use some agents only: name one of them in `agent`".to_owned(),
            };
            return Err(ApiError::new(ErrorCode::Forbidden, message).at("agent").permanent());
        }
        Ok(owner)
    }

    /// The memory that is just this owner's.
    pub fn memory(self) -> Collection {
        Collection { kind: Kind::Memory, agent: self.agent, user: self.user }
    }
}

/// That there is no such document.
pub fn missing(name: &str) -> ApiError {
    ApiError::new(ErrorCode::DocumentNotFound, format!("there is no document {:?}", clip(name)))
}

impl From<DocumentError> for ApiError {
    fn from(error: DocumentError) -> Self {
        let message = error.to_string();
        match error {
            DocumentError::BadName => Self::invalid("name", message),
            DocumentError::NotFound(name) => missing(&name),
            DocumentError::Changed { .. } => Self::new(ErrorCode::VersionConflict, message).at("version").permanent(),
            DocumentError::TooLong { .. } => Self::new(ErrorCode::PayloadTooLarge, message).at("content"),
            DocumentError::TooMany { .. } | DocumentError::Full { .. } => {
                Self::new(ErrorCode::StorageFull, message).permanent()
            }
            DocumentError::Busy => Self::new(ErrorCode::VersionConflict, message).retry_after(1),
            DocumentError::Storage(error) => error.into(),
            DocumentError::Store(error) => LookupError::Store(error).into(),
        }
    }
}

//! `/v1/budget`: what is left of the budgets in force for a caller.

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::Query;
use crate::api::params::BudgetParams;
use crate::api::state::Api;
use crate::api::wire::budgets::BudgetStateObject;
use crate::api::wire::run::List;
use crate::config::Scope;
use crate::types::SessionId;

/// Shows what is left of the budgets of the caller's key, and of a session.
///
/// Any key may read its own budgets. A session's take the scope `read`.
#[utoipa::path(
    get, path = "/v1/budget", tag = "usage", operation_id = "getBudget",
    params(BudgetParams),
    responses((status = 200, description = "The budgets in force; none where nothing is limited",
               body = List<BudgetStateObject>)),
)]
pub async fn budget(State(api): State<Api>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let session = query.parsed("session_id", SessionId::parse)?;
    if session.is_some() {
        caller.check(Scope::Read)?;
    }
    let (key, quotas) = (caller.key_name.as_deref(), &caller.generation.quotas);
    let states = api.agent.limits().budgets(&caller.tenant, key, session.as_ref(), quotas).await?;
    let data: Vec<_> = states.iter().map(BudgetStateObject::from).collect();
    Ok(axum::Json(List::whole(data)).into_response())
}

//! What a key with the scope `operator` may do to the runs of all tenants, and that the log says so.

use crate::agent::control::Filter;
use crate::agent::listed::Listed;
use crate::agent::{Generation, Head};
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::Query;
use crate::api::state::Api;
use crate::api::wire::error::ErrorCode;
use crate::types::{RunId, Tenant};

/// Most tenants that are looked through for a run or a list. With more of them, a request names one.
const MOST_TENANTS: usize = 500;

/// The caller as one who may do this to a run: an operator does it as a caller of the run's tenant.
pub async fn reach(
    api: &Api,
    caller: Caller,
    id: &RunId,
    query: &Query,
    action: &'static str,
) -> Result<Caller, ApiError> {
    let Some(named) = named(&caller, query)? else { return Ok(caller) };
    let found = match named {
        Named::One(tenant) => Some(tenant),
        Named::Any => api.agent.runs().tenant_of(&tenants(&caller.generation)?, id).await?,
    };
    // Before it is known what comes of it: whoever tries is in the log too.
    let (key, of) = (caller.key_name.as_deref(), found.as_ref().map_or("*", Tenant::as_str));
    tracing::info!(key, tenant = of, run = %id, action, "an operator asked for a run");
    let missing = || ApiError::new(ErrorCode::RunNotFound, format!("run {id} does not exist"));
    let tenant = found.ok_or_else(missing)?;
    Ok(Caller { tenant, ..caller })
}

/// The runs that a caller may see, each with its tenant where the caller is an operator.
pub async fn list(
    api: &Api,
    caller: &Caller,
    query: &Query,
    filter: &Filter,
) -> Result<Listed<(Option<Tenant>, Head), RunId>, ApiError> {
    let Some(named) = named(caller, query)? else {
        let Listed { found, searched_to } = api.agent.runs().list(caller.requester(), filter).await?;
        return Ok(Listed { found: found.into_iter().map(|head| (None, head)).collect(), searched_to });
    };
    let (tenants, shown) = match named {
        Named::One(tenant) => (vec![tenant.clone()], tenant.to_string()),
        Named::Any => (tenants(&caller.generation)?, "*".to_owned()),
    };
    let key = caller.key_name.as_deref();
    tracing::info!(key, tenant = shown, action = "list", "an operator listed runs");
    let Listed { found, searched_to } = api.agent.runs().list_over(&tenants, caller.agents.as_deref(), filter).await?;
    Ok(Listed { found: found.into_iter().map(|(tenant, head)| (Some(tenant), head)).collect(), searched_to })
}

/// Of whom an operator asks.
enum Named {
    One(Tenant),
    Any,
}

/// `None` for a caller that is no operator, and so may name nobody but its own tenant.
fn named(caller: &Caller, query: &Query) -> Result<Option<Named>, ApiError> {
    let named = query.parsed("tenant", Tenant::parse)?;
    if caller.is_operator() {
        return Ok(Some(named.map_or(Named::Any, Named::One)));
    }
    if named.is_none_or(|named| named == caller.tenant) {
        return Ok(None);
    }
    let message = "the runs of other tenants need the scope `operator`, which this key does not have";
    Err(ApiError::new(ErrorCode::Forbidden, message).at("tenant").permanent())
}

/// The tenants of all keys.
fn tenants(generation: &Generation) -> Result<Vec<Tenant>, ApiError> {
    let mut tenants: Vec<Tenant> = generation.keys.values().map(|key| key.tenant.clone()).collect();
    tenants.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    tenants.dedup();
    if tenants.len() > MOST_TENANTS {
        let message = format!("must name one of the tenants, as there are more than {MOST_TENANTS}");
        return Err(ApiError::invalid("tenant", message));
    }
    Ok(tenants)
}

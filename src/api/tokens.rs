//! `/v1/tokens`: what pages of a browser show in place of a key.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use uuid::Uuid;

use crate::agent::error::LookupError;
use crate::agent::revocations::RevokeError;
use crate::api::auth::Caller;
use crate::api::auth::token::{Bound, May, Token};
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, Texts};
use crate::api::params::TokenPath;
use crate::api::state::Api;
use crate::api::wire::error::ErrorCode;
use crate::api::wire::openai_error::ErrorBody;
use crate::api::wire::token::{AskedToken, CreateToken, TokenDeletion, TokenObject, read_create};
use crate::config::{KeyConfig, TokensConfig};
use crate::types::{RunId, SessionId};

/// What the ids of tokens begin with.
const PREFIX: &str = "tok_";

/// Gives a token for a page: it does some of what the key may do, in one run or session, for a while.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "tokens", operation_id = "createToken",
    request_body = CreateToken,
    responses(
        (status = 201, description = "The token, which is shown this once", body = TokenObject<'_>),
        (status = 404, description = "There is no such run or session", body = ErrorBody),
    ),
)]
pub async fn create(State(api): State<Api>, caller: Caller, body: JsonText) -> Result<Response, ApiError> {
    let (config, key) = giver(&caller)?;
    let AskedToken { on, may, life, agent, user } = read_create(body.as_str()?)?;
    for (what, scope) in may.iter().flat_map(|what| what.scopes().iter().map(move |scope| (what, scope))) {
        if !caller.scopes.contains(*scope) {
            let message =
                format!("a token that may {what} needs a key with the scope `{scope}`, which this one does not have");
            return Err(ApiError::new(ErrorCode::Forbidden, message).at("may").permanent());
        }
    }
    if let Some(agent) = &agent {
        let resolved = caller.resolve(&api.agent, agent).await.map_err(|error| ApiError::from(error).at("agent"))?;
        if resolved.agent_name != *agent {
            return Err(ApiError::invalid("agent", "must be the name of an agent"));
        }
    }
    check_there(&api, &caller, &on, &may).await?;
    let revocations = api.agent.revocations();
    let epoch = revocations.epoch(&caller.tenant, &key.name).await.map_err(LookupError::from)?;
    let life_ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
    let token = Token {
        id: format!("{PREFIX}{}", Uuid::now_v7().simple()),
        key: key.name.clone(),
        tenant: caller.tenant.clone(),
        on,
        may,
        agent,
        user,
        epoch,
        expires_ms: revocations.now_ms().saturating_add(life_ms),
    };
    let mut response = (StatusCode::CREATED, axum::Json(shown(&token, token.sign(config, key)))).into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Revokes a token that the key gave: it is void at every replica within 5 seconds, and streams that it opened end.
#[utoipa::path(
    delete, path = "/v1/tokens/{token}", tag = "tokens", operation_id = "revokeToken",
    params(TokenPath),
    responses(
        (status = 200, description = "It is void, if the key gave it", body = TokenDeletion),
        (status = 404, description = "This is not the id of a token", body = ErrorBody),
    ),
)]
pub async fn revoke(State(api): State<Api>, caller: Caller, Texts(id): Texts<String>) -> Result<Response, ApiError> {
    let (_, key) = giver(&caller)?;
    let Some(uuid) = id.strip_prefix(PREFIX).and_then(|id| Uuid::try_parse(id).ok()) else {
        // What was sent may be the token itself, which must not come back.
        return Err(ApiError::new(
            ErrorCode::ItemNotFound,
            "this is not the id of a token, which is `tok_` and 32 digits",
        ));
    };
    // However it was written, as tokens have it.
    let id = format!("{PREFIX}{}", uuid.simple());
    api.agent.revocations().revoke(&caller.tenant, &key.name, &id).await?;
    Ok(deleted(Some(id)))
}

/// Revokes all tokens that the key gave until now.
#[utoipa::path(
    delete, path = "/v1/tokens", tag = "tokens", operation_id = "revokeTokens",
    responses((status = 200, description = "They are void", body = TokenDeletion)),
)]
pub async fn revoke_all(State(api): State<Api>, caller: Caller) -> Result<Response, ApiError> {
    let (_, key) = giver(&caller)?;
    api.agent.revocations().revoke_all(&caller.tenant, &key.name).await?;
    Ok(deleted(None))
}

/// The key that gives tokens, and what it signs them with.
fn giver(caller: &Caller) -> Result<(&TokensConfig, &KeyConfig), ApiError> {
    let disabled = |message: &str| ApiError::new(ErrorCode::TokensDisabled, message).permanent();
    let name = caller.key_name.as_deref();
    let key = name.and_then(|name| caller.generation.keys.values().find(|key| key.name == name));
    let key = key.ok_or_else(|| disabled("keys give tokens, and this server has none: declare [keys.NAME]"))?;
    let config = caller.generation.tokens.as_ref();
    let none = "this server gives no tokens: name the secret that they are signed with as tokens.secret_env in its configuration";
    Ok((config.ok_or_else(|| disabled(none))?, key))
}

/// Refuses what the caller itself could not reach. A session that is not there yet can be started in.
async fn check_there(api: &Api, caller: &Caller, on: &Bound, may: &[May]) -> Result<(), ApiError> {
    match on {
        Bound::Run(run) => {
            api.agent.runs().get(caller.requester(), run).await.map_err(|error| ApiError::from(error).at("run_id"))?;
        }
        Bound::Session(session) => match api.agent.sessions().get(&caller.tenant, session).await {
            Ok(_) => {}
            Err(LookupError::SessionNotFound(_)) if may.contains(&May::Start) => {}
            Err(error) => return Err(ApiError::from(error).at("session_id")),
        },
    }
    Ok(())
}

fn shown(token: &Token, text: String) -> TokenObject<'_> {
    let (run_id, session_id) = match &token.on {
        Bound::Run(run) => (Some(RunId::as_str(run)), None),
        Bound::Session(session) => (None, Some(SessionId::as_str(session))),
    };
    TokenObject {
        id: &token.id,
        object: "token",
        token: text,
        expires_ms: token.expires_ms,
        session_id,
        run_id,
        may: token.may.iter().map(|may| may.as_str()).collect(),
        agent: token.agent.as_deref(),
        user: token.user.as_deref(),
    }
}

fn deleted(id: Option<String>) -> Response {
    axum::Json(TokenDeletion { id, object: "token", deleted: true }).into_response()
}

impl From<RevokeError> for ApiError {
    fn from(error: RevokeError) -> Self {
        let message = error.to_string();
        match error {
            RevokeError::TooMany => Self::new(ErrorCode::StorageFull, message).permanent(),
            RevokeError::Store(error) => LookupError::Store(error).into(),
        }
    }
}

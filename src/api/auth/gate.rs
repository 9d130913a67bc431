//! Which requests a token is good for. All others are refused, so that a route that is new takes no token until it is named here.

use axum::extract::{FromRequestParts, Path};
use http::Method;
use http::request::Parts;

use crate::agent::Agent;
use crate::agent::error::LookupError;
use crate::api::auth::token::{Bound, May, Token};
use crate::api::error::ApiError;
use crate::api::wire::body::clip;
use crate::api::wire::error::ErrorCode;
use crate::types::RunId;

/// What a route is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// The run in its path.
    Run,
    /// The session in its path.
    Session,
    /// The runs of a session that its query names.
    Runs,
    /// A session that its body names, which the handler looks at.
    Body,
}

/// What a request takes, and what it is about; `None` if no token is good for it.
fn needed(method: &Method, route: &str) -> Option<(May, About)> {
    Some(match (method.as_str(), route) {
        ("GET", "/v1/runs/{id}" | "/v1/runs/{id}/events") => (May::Follow, About::Run),
        ("GET", "/v1/runs") => (May::Follow, About::Runs),
        ("GET", "/v1/sessions/{id}" | "/v1/sessions/{id}/messages" | "/v1/agent/ui/{id}/stream") => {
            (May::Follow, About::Session)
        }
        ("POST", "/v1/runs/{id}/messages" | "/v1/runs/{id}/cancel") => (May::Steer, About::Run),
        ("POST", "/v1/sessions/{id}/cancel") => (May::Steer, About::Session),
        ("POST", "/v1/runs/{id}/answers") => (May::Answer, About::Run),
        ("POST", "/v1/runs/{id}/approvals") => (May::Approve, About::Run),
        ("POST", "/v1/agent/completions" | "/v1/chat/completions" | "/v1/agent/ui" | "/v1/agent/ag-ui") => {
            (May::Start, About::Body)
        }
        _ => return None,
    })
}

/// Refuses what a token is not good for.
pub async fn pass(token: &Token, agent: &Agent, parts: &mut Parts, route: &str) -> Result<(), ApiError> {
    let Some((what, about)) = needed(&parts.method, route) else {
        return Err(forbidden("tokens are not good for this request; it needs a key"));
    };
    if !token.may(what) {
        return Err(forbidden(format!("this needs a token that may {what}, which this one may not")));
    }
    match about {
        About::Run => {
            let id = id_of(parts).await?;
            let missing = || ApiError::new(ErrorCode::RunNotFound, format!("run {:?} does not exist", clip(&id)));
            of_run(token, agent, &RunId::parse(&id).ok_or_else(missing)?).await
        }
        About::Session => of_session(token, Some(&id_of(parts).await?)),
        About::Runs => {
            // Of several the last one counts, as it does for the handler.
            let pairs = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
            let named = pairs.filter(|(name, _)| name == "session_id").last();
            of_session(token, named.map(|(_, session)| session.into_owned()).as_deref())
        }
        About::Body => Ok(()),
    }
}

/// Refuses a run that a token is not for as if there were none: whether there is one is not its holder's to know.
pub async fn of_run(token: &Token, agent: &Agent, run: &RunId) -> Result<(), ApiError> {
    let is_its = match &token.on {
        Bound::Run(own) => own == run,
        Bound::Session(own) => agent.runs().session_of(&token.tenant, run).await?.as_ref() == Some(own),
    };
    if is_its { Ok(()) } else { Err(LookupError::RunNotFound(run.to_string()).into()) }
}

async fn id_of(parts: &mut Parts) -> Result<String, ApiError> {
    let id = Path::<String>::from_request_parts(parts, &()).await;
    id.map(|Path(id)| id).map_err(|_| ApiError::new(ErrorCode::UnknownUrl, "the path is not valid UTF-8"))
}

fn of_session(token: &Token, asked: Option<&str>) -> Result<(), ApiError> {
    match (&token.on, asked) {
        (Bound::Session(own), Some(asked)) if own.as_str() == asked => Ok(()),
        (Bound::Session(own), None) => {
            Err(forbidden(format!("this token is for the session {own} alone: name it as session_id")))
        }
        (Bound::Session(_), Some(asked)) => Err(LookupError::SessionNotFound(clip(asked).to_owned()).into()),
        (Bound::Run(run), _) => Err(forbidden(format!("this token is for the run {run} alone"))),
    }
}

/// The refusal of what a token may not do.
pub fn forbidden(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Forbidden, message).permanent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::openapi;

    /// Whatever else is routed is refused.
    #[test]
    fn a_token_is_good_for_these_operations_and_no_others() {
        let described = serde_json::to_value(openapi()).unwrap();
        let mut good = Vec::new();
        for (path, operations) in described["paths"].as_object().unwrap() {
            for method in operations.as_object().unwrap().keys() {
                let method: Method = method.to_uppercase().parse().unwrap();
                good.extend(needed(&method, path).map(|(may, _)| format!("{may}: {method} {path}")));
            }
        }
        good.sort();
        assert_eq!(
            good,
            [
                "answer: POST /v1/runs/{id}/answers",
                "approve: POST /v1/runs/{id}/approvals",
                "follow: GET /v1/agent/ui/{id}/stream",
                "follow: GET /v1/runs",
                "follow: GET /v1/runs/{id}",
                "follow: GET /v1/runs/{id}/events",
                "follow: GET /v1/sessions/{id}",
                "follow: GET /v1/sessions/{id}/messages",
                "start: POST /v1/agent/ag-ui",
                "start: POST /v1/agent/completions",
                "start: POST /v1/agent/ui",
                "start: POST /v1/chat/completions",
                "steer: POST /v1/runs/{id}/cancel",
                "steer: POST /v1/runs/{id}/messages",
                "steer: POST /v1/sessions/{id}/cancel",
            ]
        );
        assert_eq!(needed(&Method::HEAD, "/v1/runs"), None);
    }
}

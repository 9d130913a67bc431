//! Whether a token still holds: when a request comes, and while a stream is open.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures_util::StreamExt;
use http::header::CONTENT_TYPE;

use crate::agent::Agent;
use crate::agent::error::LookupError;
use crate::api::auth::token::Token;
use crate::api::error::ApiError;
use crate::api::wire::error::ErrorCode;

/// How often it is looked whether the token of an open stream still holds.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Refuses a token that has expired.
pub fn check_time(token: &Token, now_ms: u64) -> Result<(), ApiError> {
    if now_ms < token.expires_ms {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::TokenExpired, "the token has expired; ask for a new one"))
}

/// Refuses a token that was revoked.
pub async fn check_revoked(token: &Token, agent: &Agent) -> Result<(), ApiError> {
    let revoked = agent.revocations().is_revoked(&token.tenant, &token.key, &token.id, token.epoch).await;
    if revoked.map_err(LookupError::from)? {
        return Err(ApiError::new(ErrorCode::TokenRevoked, "the token was revoked"));
    }
    Ok(())
}

/// Ends a stream of events when its token no longer holds. A client then comes back with the last id that it has, and learns why.
pub fn bounded(response: Response, token: Arc<Token>, key_hash: [u8; 32], agent: Agent) -> Response {
    let media_type = response.headers().get(CONTENT_TYPE);
    if !media_type.is_some_and(|media_type| media_type.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    response.map(|body| {
        Body::from_stream(async_stream::stream! {
            let mut pieces = body.into_data_stream();
            let void = async move { until_void(&token, key_hash, &agent).await };
            tokio::pin!(void);
            loop {
                tokio::select! {
                    biased;
                    () = &mut void => break,
                    piece = pieces.next() => match piece {
                        Some(piece) => yield piece,
                        None => break,
                    },
                }
            }
        })
    })
}

/// Returns once the token does not hold any more. A store that does not answer voids nothing.
async fn until_void(token: &Token, key_hash: [u8; 32], agent: &Agent) {
    loop {
        let left = token.expires_ms.saturating_sub(agent.revocations().now_ms());
        let generation = agent.generation();
        let has_key =
            generation.keys.get(&key_hash).is_some_and(|key| key.name == token.key && key.tenant == token.tenant);
        let is_revoked = async {
            let revoked = agent.revocations().is_revoked(&token.tenant, &token.key, &token.id, token.epoch).await;
            revoked.unwrap_or(false)
        };
        if left == 0 || !has_key || generation.tokens.is_none() || is_revoked.await {
            return;
        }
        tokio::time::sleep(LOOK_EVERY.min(Duration::from_millis(left))).await;
    }
}

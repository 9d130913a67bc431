//! Whether a token still holds: when a request comes, and while a stream is open.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures_util::StreamExt;
use http::header::CONTENT_TYPE;
use tokio::time::Instant;

use crate::agent::error::LookupError;
use crate::agent::revocations::LONGEST_LIFE;
use crate::agent::{Agent, Generation};
use crate::api::auth::token::Token;
use crate::api::error::ApiError;
use crate::api::wire::error::ErrorCode;
use crate::config::{Scopes, Secret};

/// How often it is looked whether the token of an open stream still holds.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// In how many milliseconds a token expires at most, and a minute for replicas that differ about the time.
const MOST_LEFT_MS: u64 = (LONGEST_LIFE.as_secs() + 60) * 1_000;

/// A token as it was shown, and what its key let it do then.
#[derive(Debug)]
pub struct Shown {
    /// The token itself.
    pub text: Secret,
    /// What it says.
    pub token: Arc<Token>,
    /// What it may do.
    pub scopes: Scopes,
    /// The agents that its key may use; `None` for all.
    pub agents: Option<Vec<String>>,
}

impl Shown {
    /// Whether it is signed by what signs tokens now, and its key has lost nothing of what it lent.
    fn is_given(&self, generation: &Generation) -> bool {
        let Some(config) = &generation.tokens else { return false };
        let Some((token, key)) = Token::read(self.text.expose(), config, generation.keys.values()) else {
            return false;
        };
        let mut lent = token.may.iter().flat_map(|may| may.scopes()).filter(|scope| self.scopes.contains(**scope));
        let was_allowed = |now: &Vec<String>| {
            self.agents.as_ref().is_some_and(|before| before.iter().all(|agent| now.contains(agent)))
        };
        lent.all(|scope| key.scopes.contains(*scope)) && key.agents.as_ref().is_none_or(was_allowed)
    }
}

/// Refuses a token that has expired, or that says that it lives longer than tokens do.
pub fn check_time(token: &Token, now_ms: u64) -> Result<(), ApiError> {
    if now_ms >= token.expires_ms {
        return Err(ApiError::new(ErrorCode::TokenExpired, "the token has expired; ask for a new one"));
    }
    if token.expires_ms - now_ms > MOST_LEFT_MS {
        return Err(ApiError::new(ErrorCode::InvalidToken, "the token is not valid: no token lives that long"));
    }
    Ok(())
}

/// Refuses a token that was revoked.
pub async fn check_revoked(token: &Token, agent: &Agent) -> Result<(), ApiError> {
    let revoked = agent.revocations().is_revoked(&token.tenant, &token.key, &token.id, token.epoch).await;
    if revoked.map_err(LookupError::from)? {
        return Err(ApiError::new(ErrorCode::TokenRevoked, "the token was revoked"));
    }
    Ok(())
}

/// Breaks a stream of events off when its token no longer holds. A client then comes back with the last id that it has, and learns why.
pub fn bounded(response: Response, shown: Shown, agent: Agent) -> Response {
    let media_type = response.headers().get(CONTENT_TYPE);
    if !media_type.is_some_and(|media_type| media_type.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    response.map(|body| {
        Body::from_stream(async_stream::stream! {
            let mut pieces = body.into_data_stream();
            let void = async move { until_void(&shown, &agent).await };
            tokio::pin!(void);
            loop {
                tokio::select! {
                    biased;
                    () = &mut void => {
                        // A body that came to its end would look whole.
                        yield Err(axum::Error::new("the token that opened the stream does not hold any more"));
                        break;
                    }
                    piece = pieces.next() => match piece {
                        Some(piece) => yield piece,
                        None => break,
                    },
                }
            }
        })
    })
}

/// Returns once the token does not hold any more. A store that does not answer voids nothing, and keeps nothing from expiring.
async fn until_void(shown: &Shown, agent: &Agent) {
    let token = &*shown.token;
    // The configuration by which it was found to be given.
    let mut given_by: Option<Arc<Generation>> = None;
    loop {
        let left = token.expires_ms.saturating_sub(agent.revocations().now_ms());
        let generation = agent.generation();
        let is_known = given_by.as_ref().is_some_and(|known| Arc::ptr_eq(known, &generation));
        if left == 0 || !is_known && !shown.is_given(&generation) {
            return;
        }
        given_by = Some(generation);
        let expires_at = Instant::now() + Duration::from_millis(left);
        let revoked = agent.revocations().is_revoked(&token.tenant, &token.key, &token.id, token.epoch);
        if matches!(tokio::time::timeout_at(expires_at, revoked).await, Ok(Ok(true))) {
            return;
        }
        tokio::time::sleep_until(expires_at.min(Instant::now() + LOOK_EVERY)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::auth::token::{Bound, May};
    use crate::types::{SessionId, Tenant};

    #[test]
    fn a_token_holds_until_it_expires_and_for_no_longer_than_tokens_live() {
        let check = |expires_ms| {
            let token = Token {
                id: "tok_1".into(),
                key: "web".into(),
                tenant: Tenant::default_tenant(),
                on: Bound::Session(SessionId::parse("s").unwrap()),
                may: vec![May::Follow],
                agent: None,
                user: None,
                epoch: 0,
                expires_ms,
            };
            check_time(&token, 1_000).map_err(|error| error.object().code)
        };
        assert_eq!([999, 1_000].map(check), [Err("token_expired"); 2]);
        assert_eq!([1_001, 1_000 + MOST_LEFT_MS].map(check), [Ok(()); 2]);
        assert_eq!([1_001 + MOST_LEFT_MS, u64::MAX].map(check), [Err("invalid_token"); 2]);
    }
}

//! The token that counts now, asked for once by however many calls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use url::Url;

use super::endpoint::{TokenEndpoint, find};
use super::refusals::Refusals;
use super::request::{Granted, TokenRequest, read};
use super::web::AuthWeb;
use crate::config::{Grant, OAuthConfig, Secret};

/// How long before its end a token is replaced, unless it counts for less than ten times as long.
const AHEAD: Duration = Duration::from_secs(60);
/// How long nothing is asked for after a failure.
const REST: Duration = Duration::from_secs(2);
/// The shortest and the longest that a token counts, whatever its authorization server says: the latter is a year.
const SHORTEST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);
/// So many of the last tokens are known to be secrets, those that were replaced too.
const KNOWN: usize = 8;
/// How long it is believed where tokens are given.
const BELIEVE: Duration = Duration::from_secs(3_600);

/// Why there is no token, as the end of a sentence about the server. It holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no token for it can be had: {0}")]
pub(in crate::tools::mcp) struct NoToken(String);

impl NoToken {
    pub(in crate::tools::mcp) fn unsendable() -> Self {
        Self("its authorization server gave one that an HTTP header cannot carry".to_owned())
    }
}

/// The tokens for a server, or those of one account for it.
#[derive(Debug)]
pub(in crate::tools::mcp) struct Tokens {
    config: OAuthConfig,
    server: Url,
    web: AuthWeb,
    tasks: TaskTracker,
    current: Mutex<Option<Token>>,
    /// Whether the refresh token is another one than the configured one.
    are_replaced: AtomicBool,
    /// The last tokens of either kind.
    known: Mutex<VecDeque<Secret>>,
    /// Held while a token is asked for.
    asking: Arc<tokio::sync::Mutex<Asking>>,
}

#[derive(Debug, Clone)]
struct Token {
    value: Secret,
    given: Instant,
    /// When the next one is asked for, and when it counts no more.
    ends: Option<(Instant, Instant)>,
}

#[derive(Debug)]
struct Asking {
    endpoint: Option<(Instant, TokenEndpoint)>,
    refresh_token: Option<Secret>,
    failed: Option<(Instant, NoToken)>,
    refusals: Refusals,
}

impl Tokens {
    /// The tokens for the server at `server`. `refresh_token` is that of an account; without one, the configured one counts.
    pub(in crate::tools::mcp) fn new(
        config: &OAuthConfig,
        server: &Url,
        web: AuthWeb,
        tasks: TaskTracker,
        refresh_token: Option<Secret>,
    ) -> Arc<Self> {
        let configured = match &config.grant {
            Grant::RefreshToken(token) => token.clone(),
            Grant::ClientCredentials => None,
        };
        let asking = Asking {
            endpoint: None,
            refresh_token: refresh_token.or(configured),
            failed: None,
            refusals: Refusals::default(),
        };
        Arc::new(Self {
            config: config.clone(),
            server: server.clone(),
            web,
            tasks,
            current: Mutex::default(),
            are_replaced: AtomicBool::new(false),
            known: Mutex::new(asking.refresh_token.iter().cloned().collect()),
            asking: Arc::new(tokio::sync::Mutex::new(asking)),
        })
    }

    /// What must not be told of all this.
    pub(in crate::tools::mcp) fn secrets(&self) -> Vec<Secret> {
        self.known.lock().iter().chain(&self.config.client_secret).cloned().collect()
    }

    fn keep_secret(&self, token: &Secret) {
        let mut known = self.known.lock();
        if known.len() == KNOWN {
            known.pop_front();
        }
        known.push_back(token.clone());
    }

    /// The token that counts now.
    pub(in crate::tools::mcp) async fn current(self: &Arc<Self>) -> Result<Secret, NoToken> {
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        self.ask(None).await
    }

    /// The token that counts in place of this one, which the server refused. It is the same one for a while if the server refuses
    /// one after the other.
    pub(in crate::tools::mcp) async fn in_place_of(self: &Arc<Self>, refused: &Secret) -> Result<Secret, NoToken> {
        self.ask(Some(refused.clone())).await
    }

    /// Whether what was given cannot be asked for with the refresh token of the configuration: that was replaced.
    pub(in crate::tools::mcp) fn are_irreplaceable(&self) -> bool {
        self.are_replaced.load(Ordering::Relaxed)
    }

    /// The token that is not to be replaced yet.
    fn fresh(&self) -> Option<Secret> {
        let current = self.current.lock();
        let fresh = current.as_ref().filter(|token| token.ends.is_none_or(|(renew, _)| Instant::now() < renew));
        fresh.map(|token| token.value.clone())
    }

    /// Asks for a token in a task of its own: what the authorization server gives may replace what it gave before, so it must
    /// not be lost with the call that asked.
    async fn ask(self: &Arc<Self>, refused: Option<Secret>) -> Result<Secret, NoToken> {
        let this = self.clone();
        let asking = self.tasks.spawn(async move {
            let mut asking = this.asking.clone().lock_owned().await;
            if let Some(refused) = &refused {
                this.forget(refused, &mut asking.refusals);
            }
            // Another call may have asked meanwhile.
            if let Some(token) = this.fresh() {
                return Ok(token);
            }
            this.renew(&mut asking).await
        });
        if let Ok(asked) = asking.await {
            return asked;
        }
        let why = NoToken("asking for it broke off".to_owned());
        self.asking.lock().await.failed = Some((Instant::now(), why.clone()));
        Err(why)
    }

    fn forget(&self, refused: &Secret, refusals: &mut Refusals) {
        let mut current = self.current.lock();
        let is_current = current.as_ref().filter(|token| token.value == *refused);
        if is_current.is_some_and(|token| refusals.replaces(token.given.elapsed())) {
            *current = None;
        }
    }

    async fn renew(&self, asking: &mut Asking) -> Result<Secret, NoToken> {
        if let Some((_, why)) = asking.failed.as_ref().filter(|(at, _)| at.elapsed() < REST) {
            return self.last(why.clone());
        }
        match self.exchange(asking).await {
            Ok(granted) => {
                asking.failed = None;
                let now = Instant::now();
                let lasts = granted.expires_in.map(|lasts| lasts.clamp(SHORTEST, LONGEST));
                let ends = lasts.map(|lasts| (now + lasts - AHEAD.min(lasts / 10), now + lasts));
                *self.current.lock() = Some(Token { value: granted.token.clone(), given: now, ends });
                Ok(granted.token)
            }
            Err(why) => {
                let why = NoToken(why);
                tracing::warn!(host = self.server.host_str(), %why, "an MCP server cannot be shown a token");
                (asking.failed, asking.endpoint) = (Some((Instant::now(), why.clone())), None);
                self.last(why)
            }
        }
    }

    /// The last token, if it still counts.
    fn last(&self, why: NoToken) -> Result<Secret, NoToken> {
        let current = self.current.lock();
        let counts = current.as_ref().filter(|token| token.ends.is_some_and(|(_, end)| Instant::now() < end));
        counts.map(|token| token.value.clone()).ok_or(why)
    }

    async fn exchange(&self, asking: &mut Asking) -> Result<Granted, String> {
        let known = asking.endpoint.as_ref().filter(|(at, _)| at.elapsed() < BELIEVE);
        let endpoint = if let Some((_, endpoint)) = known {
            endpoint.clone()
        } else {
            let found = find(&self.config, &self.server, &self.web).await?;
            asking.endpoint.insert((Instant::now(), found)).1.clone()
        };
        let request = TokenRequest {
            client_id: &self.config.client_id,
            client_secret: self.config.client_secret.as_ref(),
            in_body: endpoint.in_body,
            refresh_token: asking.refresh_token.as_ref(),
            scope: self.config.scope.as_deref(),
            resource: &endpoint.resource,
        };
        let answer = self.web.post(&endpoint.url, request.body(), request.authorization()).await?;
        let granted = read(answer.status, &answer.body)?;
        self.keep_secret(&granted.token);
        if asking.refresh_token.is_some()
            && let Some(next) = &granted.refresh_token
            && asking.refresh_token.as_ref() != Some(next)
        {
            tracing::warn!(
                host = self.server.host_str(),
                "an authorization server replaced a refresh token: this process goes on with the new one, and others cannot"
            );
            self.keep_secret(next);
            self.are_replaced.store(true, Ordering::Relaxed);
            asking.refresh_token = Some(next.clone());
        }
        Ok(granted)
    }
}

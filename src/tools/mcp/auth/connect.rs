//! The connection of a call: that of all, or the one of its tenant, user or run.

use std::sync::Arc;
use tokio::time::timeout;

use super::{Authorization, Open, SessionKey, Tokens, account};
use crate::config::{Grant, McpAccess, McpSession, OAuthConfig, Secret};
use crate::tools::mcp::call::{MARGIN, Until};
use crate::tools::mcp::connection::Connection;
use crate::tools::mcp::fault::Fault;
use crate::tools::mcp::shared::Shared;
use crate::tools::mcp::start::connect;
use crate::tools::{CallContext, ToolError};

impl Shared {
    /// The connection through which a call is made, in less time than the call has.
    pub(in crate::tools::mcp) async fn connection_for(
        &self,
        context: &CallContext,
        until: &Until,
    ) -> Result<Arc<Connection>, ToolError> {
        let access = &self.config.access;
        if !access.is_apart() {
            return self.connection(until).await;
        }
        let caller = match &access.credentials {
            Some(credentials) => account(credentials, context).await.map_err(|why| self.unusable(&why))?,
            None => None,
        };
        let run = (access.session == McpSession::Run).then(|| context.run.clone());
        if caller.is_none() && run.is_none() {
            return self.connection(until).await;
        }
        self.listed(until).await?;
        let (account, secret) = caller.unzip();
        let limit = until.left().saturating_sub(MARGIN).min(self.config.start_timeout);
        let opening = timeout(limit, self.session(SessionKey { account, run }, secret));
        opening.await.unwrap_or_else(|_| Err(self.unusable("it does not answer in time")))
    }

    /// Returns once the tools of the server are known: by what it listed, a call is checked.
    async fn listed(&self, until: &Until) -> Result<(), ToolError> {
        if self.state.borrow().tools.is_some() {
            return Ok(());
        }
        self.connection(until).await.map(drop)
    }

    /// The session of this key, opened if it is not open or shows another secret.
    async fn session(&self, key: SessionKey, secret: Option<Secret>) -> Result<Arc<Connection>, ToolError> {
        let most = self.config.access.max_sessions;
        let session = self.sessions.of(&key, most).ok_or_else(|| {
            self.unusable(&format!("{most} sessions of it are in use at once, which is as many as it is given"))
        })?;
        let mut open = session.open.lock().await;
        if let Some(open) = &*open
            && open.secret == secret
            && !open.connection.is_closed()
        {
            return Ok(open.connection.clone());
        }
        *open = None;
        let authorization = self.authorization(&key, secret.as_ref()).map_err(|why| self.unusable(&why))?;
        let connecting = connect(&self.config, &self.clients, &self.tasks, authorization);
        let connection = connecting.await.map_err(|fault: Fault| self.unusable(&fault.to_string()))?;
        let connection = Arc::new(connection);
        *open = Some(Open { connection: connection.clone(), secret });
        Ok(connection)
    }

    /// What a session shows.
    fn authorization(&self, key: &SessionKey, secret: Option<&Secret>) -> Result<Authorization, String> {
        let McpAccess { credentials, oauth, .. } = &self.config.access;
        match (&key.account, secret, credentials, oauth) {
            (Some(account), Some(secret), Some(_), Some(oauth)) => {
                let make = || self.tokens(oauth, Some(secret.clone()));
                Ok(Authorization::Token(self.sessions.tokens(account, secret, make)))
            }
            (Some(_), Some(secret), Some(credentials), None) => Authorization::of(credentials, secret),
            _ => Ok(self.own_authorization()),
        }
    }

    /// What the server is shown where it sees no difference between callers.
    pub(in crate::tools::mcp) fn own_authorization(&self) -> Authorization {
        match &self.config.access.oauth {
            // Only tenants and users have tokens.
            None | Some(OAuthConfig { grant: Grant::RefreshToken(None), .. }) => Authorization::Nothing,
            Some(oauth) => Authorization::Token(self.own_tokens.get_or_init(|| self.tokens(oauth, None)).clone()),
        }
    }

    fn tokens(&self, oauth: &OAuthConfig, refresh_token: Option<Secret>) -> Arc<Tokens> {
        let server = self.config.url().expect("the configuration takes `oauth` only beside a `url`");
        let named = [Some(server), oauth.issuer.as_ref(), oauth.token_url.as_ref()];
        let web = self.clients.auth_web(named.into_iter().flatten());
        Tokens::new(oauth, server, web, self.tasks.clone(), refresh_token)
    }

    /// That a call cannot be made, and why.
    pub(in crate::tools::mcp) fn unusable(&self, why: &str) -> ToolError {
        ToolError::Failed(format!("The MCP server `{}` cannot be used: {why}. Nothing was sent.", self.config.name))
    }
}

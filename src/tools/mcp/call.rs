//! Calls a tool of a server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::tools::mcp::connection::{Connection, ToolRequest};
use crate::tools::mcp::content;
use crate::tools::mcp::fault::Fault;
use crate::tools::mcp::shared::Shared;
use crate::tools::{CallContext, ToolAnswer, ToolError, ToolSpec};
use crate::types::Effect;

/// How much earlier than the call a wait for the server ends: a call that was never sent must not count as lost.
pub(super) const MARGIN: Duration = Duration::from_millis(50);

/// Held by a call that is the only one on its connection.
type Turn = Option<OwnedMutexGuard<()>>;

/// When the time of a call is up.
pub(super) struct Until {
    end: Instant,
}

/// What counts as no limit: a year.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

impl Until {
    fn after(limit: Duration) -> Self {
        Self { end: Instant::now() + limit.min(FAR) }
    }

    /// How long it lasts from now.
    pub(super) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }
}

impl Shared {
    /// Calls a tool, if the server still has it with the definition of this hash whenever something is sent.
    pub(super) async fn call(
        &self,
        spec: &ToolSpec,
        offered: &str,
        mut request: ToolRequest,
        context: &CallContext,
    ) -> Result<ToolAnswer, ToolError> {
        // Waits for a turn and for the server, and the call itself, share the time of the call.
        let until = Until::after(context.timeout);
        let (_permit, (mut connection, mut _turn)) = self.ready(context, &until).await?;
        let name = spec.name.as_str();
        request.tool = self.own_name(name, offered)?;
        request.tell_deadline(until.left());
        let mut answer = connection.call(request.again(), until.end).await;
        let is_denied = matches!(answer, Err(Fault::SessionDenied));
        if is_denied || matches!(answer, Err(Fault::SessionExpired)) {
            connection.renew();
            // A server that ended the session, as the protocol defines it, did nothing. It is asked again, once.
            if !is_denied || spec.effect != Effect::Write {
                (connection, _turn) = self.ready_in_turn(context, &until).await?;
                // What it offers in another session may be something else.
                request.tool = self.own_name(name, offered)?;
                request.tell_deadline(until.left());
                answer = connection.call(request, until.end).await;
            }
        }
        let server = &self.config.name;
        match answer {
            Ok(result) => Ok(content::answer(&result)),
            Err(fault @ (Fault::Answered(_) | Fault::SessionDenied)) => {
                let words = if let Fault::Answered(words) = fault { words } else { fault.to_string() };
                let text = format!("The MCP server `{server}` refused the call: {words}");
                Ok(ToolAnswer { is_error: true, ..ToolAnswer::text(text) })
            }
            Err(fault) => {
                let is_lost = fault.may_have_worked();
                tracing::warn!(run = %context.run, call = %context.call, tool = name, is_lost, %fault, "an MCP server gave no answer");
                Err(if is_lost {
                    ToolError::Lost(format!("The MCP server `{server}` was called: {fault}."))
                } else {
                    ToolError::Failed(format!("The call of the MCP server `{server}` failed: {fault}."))
                })
            }
        }
    }

    /// A turn among the calls, and a connection, in less time than the call has.
    async fn ready(
        &self,
        context: &CallContext,
        until: &Until,
    ) -> Result<(SemaphorePermit<'_>, (Arc<Connection>, Turn)), ToolError> {
        let waiting = timeout(until.left().saturating_sub(MARGIN), self.calls.acquire());
        let Ok(Ok(permit)) = waiting.await else {
            let (server, most) = (&self.config.name, self.config.max_concurrent_calls);
            return Err(ToolError::Failed(format!(
                "The MCP server `{server}` has {most} calls at once, which is as many as it is given. Nothing was sent."
            )));
        };
        Ok((permit, self.ready_in_turn(context, until).await?))
    }

    /// The connection of a call, and its turn on it where the server may ask something and does not say which call asks.
    async fn ready_in_turn(&self, context: &CallContext, until: &Until) -> Result<(Arc<Connection>, Turn), ToolError> {
        loop {
            let connection = self.ready_connection(context, until).await?;
            let Some(turns) = connection.turns() else { return Ok((connection, None)) };
            let limit = until.left().saturating_sub(MARGIN);
            let Ok(turn) = timeout(limit, turns.lock_owned()).await else {
                return Err(self.unusable("another call, which may ask the user something, uses the connection to it"));
            };
            // The call before may have ended the connection.
            if !connection.is_closed() {
                return Ok((connection, Some(turn)));
            }
        }
    }

    /// The connection of a call, once there is a token for it where one is shown: a call that waits for one in vain was never sent.
    async fn ready_connection(&self, context: &CallContext, until: &Until) -> Result<Arc<Connection>, ToolError> {
        let connection = self.connection_for(context, until).await?;
        let limit = until.left().saturating_sub(MARGIN);
        match timeout(limit, connection.ready()).await {
            Ok(Ok(())) => Ok(connection),
            Ok(Err(why)) => Err(self.unusable(&why.to_string())),
            Err(_) => Err(self.unusable("no token for it was had in time")),
        }
    }

    /// A connection, once there is one. There is none while the server is left alone.
    pub(super) async fn connection(&self, until: &Until) -> Result<Arc<Connection>, ToolError> {
        let server = &self.config.name;
        let mut state = self.state.subscribe();
        let waiting = async {
            loop {
                {
                    let state = state.borrow_and_update();
                    if let Some(connection) = state.connection.as_ref().filter(|connection| !connection.is_closed()) {
                        return Ok(connection.clone());
                    }
                    if let Some(trouble) = &state.trouble {
                        let why = &trouble.why;
                        return Err(format!("The MCP server `{server}` cannot be used: {why}. Nothing was sent."));
                    }
                }
                if state.changed().await.is_err() {
                    return Err(format!("The MCP server `{server}` is no longer configured. Nothing was sent."));
                }
            }
        };
        let too_slow = || format!("The MCP server `{server}` is still starting. Nothing was sent.");
        let connection =
            timeout(until.left().saturating_sub(MARGIN), waiting).await.unwrap_or_else(|_| Err(too_slow()));
        connection.map_err(ToolError::Failed)
    }

    /// What the server calls the tool, if it has it as it was offered.
    fn own_name(&self, name: &str, offered: &str) -> Result<String, ToolError> {
        let state = self.state.borrow();
        let now = state.tools.iter().flat_map(|tools| tools.iter()).find(|tool| tool.spec().name == name);
        if now.is_some_and(|now| offered != now.hash()) {
            return Err(ToolError::Failed(format!(
                "The tool `{name}` has changed since this conversation was offered it, and cannot be called as it was. Go on \
                 without it."
            )));
        }
        let found = now.and_then(|_| state.definitions.iter().find(|definition| definition.name == name));
        found.map(|definition| definition.own_name.clone()).ok_or_else(|| {
            let server = &self.config.name;
            ToolError::Failed(format!("The MCP server `{server}` no longer has the tool `{name}`. Go on without it."))
        })
    }
}

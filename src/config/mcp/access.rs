//! What a server is shown of who calls it, and which connections are kept apart.

use std::time::Duration;

use super::credentials::CallerCredentials;
use super::oauth::{Grant, OAuthConfig};
use crate::config::quantity::seconds;
use crate::config::reader::Section;
use crate::config::value::Word;

/// What a server is shown of who calls it, and which connections are kept apart.
#[derive(Debug, Clone, PartialEq)]
pub struct McpAccess {
    /// What it is shown of the tenant or user for whom it is called; `None` if it sees no difference.
    pub credentials: Option<CallerCredentials>,
    /// The authorization server whose tokens it is shown.
    pub oauth: Option<OAuthConfig>,
    /// Which calls share a session.
    pub session: McpSession,
    /// Most sessions at once, beside the one in which tools are listed.
    pub max_sessions: u32,
    /// How long an unused session is kept.
    pub session_idle: Duration,
}

impl Default for McpAccess {
    fn default() -> Self {
        let (session, max_sessions, session_idle) = (McpSession::Shared, 256, seconds(300));
        Self { credentials: None, oauth: None, session, max_sessions, session_idle }
    }
}

/// Which calls share a session of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpSession {
    /// All calls with the same credentials.
    Shared,
    /// The calls of one run.
    Run,
}

impl Word for McpSession {
    const WORDS: &'static [(&'static str, Self)] = &[("shared", Self::Shared), ("run", Self::Run)];
}

impl McpAccess {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let usual = Self::default();
        let credentials = section.optional_section("credentials", CallerCredentials::read);
        let oauth = section.optional_section("oauth", OAuthConfig::read);
        let session = section.key(
            "session",
            "Which calls share a [session](mcp.md#sessions) of the server: `shared` all of those with the same credentials, `run` \
             those of one run.",
            usual.session,
        );
        let max_sessions = section.key(
            "max_sessions",
            "Most sessions at once of tenants, users and runs, in each replica. The one that was unused for longest ends for \
             another; if all are in use, calls fail.",
            usual.max_sessions,
        );
        let session_idle =
            section.key("session_idle", "How long such a session is kept without a call.", usual.session_idle);
        let access = Self { credentials, oauth, session, max_sessions, session_idle };
        if !section.is_described() {
            access.check(section);
        }
        access
    }

    /// Whether some calls have a session of their own.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        self.credentials.is_some() || self.session == McpSession::Run
    }

    fn check(&self, section: &Section<'_>) {
        let is_url = section.is_written("url");
        for name in ["credentials", "oauth"] {
            if section.is_written(name) && !is_url {
                section.refuse(name, "only a server with a `url` is shown credentials; a `command` gets them in `env`");
            }
        }
        if self.session == McpSession::Run && !is_url {
            section.refuse("session", "only a server with a `url` has sessions");
        }
        let Some(OAuthConfig { grant, .. }) = &self.oauth else { return };
        let has_own = section.is_written("credentials");
        match grant {
            Grant::ClientCredentials if has_own => section.refuse(
                "oauth",
                "with `credentials`, the grant must be \"refresh_token\": the secret of a tenant or user is its refresh token",
            ),
            Grant::RefreshToken(None) if !has_own => section.refuse(
                "oauth",
                "give refresh_token_env or refresh_token_file, or `credentials` that hold the refresh token of each tenant",
            ),
            Grant::ClientCredentials | Grant::RefreshToken(_) => {}
        }
    }
}

//! The connections of tenants, users and runs to a server, each its own: opened by the first call that needs it, and closed
//! when its run ends, when it was unused for a while, or when it shows a secret that counts no more.
//!
//! A server that has sessions is told of the end of each. A process that is killed tells nothing: its sessions end as the
//! server ends others that are not used, and a run that goes on elsewhere gets a new one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::account::Account;
use super::oauth::Tokens;
use crate::config::Secret;
use crate::tools::mcp::connection::Connection;
use crate::types::RunId;

/// Of how many accounts tokens are kept that can be asked for again with the refresh tokens that the operator wrote.
const MOST_TOKENS: usize = 10_000;
/// How often unused sessions are looked for, where they are kept for longer.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Whose a session is. Callers that differ in it never share one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::tools::mcp) struct SessionKey {
    /// The tenant or user whose secret is shown; `None` where that of the server is.
    pub(in crate::tools::mcp) account: Option<Account>,
    /// The run, where each has its own.
    pub(in crate::tools::mcp) run: Option<RunId>,
}

/// The sessions of a server.
#[derive(Debug, Default)]
pub(in crate::tools::mcp) struct Sessions {
    all: Mutex<HashMap<SessionKey, Arc<Session>>>,
    /// Those of accounts, which their sessions share.
    tokens: Mutex<HashMap<Account, (Secret, Arc<Tokens>)>>,
}

/// A session that may be open.
#[derive(Debug)]
pub(in crate::tools::mcp) struct Session {
    used: Mutex<Instant>,
    /// Held while it is opened.
    pub(in crate::tools::mcp) open: tokio::sync::Mutex<Option<Open>>,
}

/// An open session.
#[derive(Debug)]
pub(in crate::tools::mcp) struct Open {
    pub(in crate::tools::mcp) connection: Arc<Connection>,
    /// The secret that it shows.
    pub(in crate::tools::mcp) secret: Option<Secret>,
}

impl Session {
    /// Whether a call uses it, or opens it.
    fn is_in_use(&self) -> bool {
        match self.open.try_lock() {
            Ok(open) => open.as_ref().is_some_and(|open| Arc::strong_count(&open.connection) > 1),
            Err(_) => true,
        }
    }

    /// Since when it is not used.
    fn unused_since(&self) -> Option<Instant> {
        let mut used = self.used.lock();
        if self.is_in_use() {
            *used = Instant::now();
            return None;
        }
        Some(*used)
    }
}

impl Sessions {
    /// The session of this key, which is open or is to be opened. `None` if as many as `most` are in use.
    pub(in crate::tools::mcp) fn of(&self, key: &SessionKey, most: u32) -> Option<Arc<Session>> {
        let mut all = self.all.lock();
        if let Some(session) = all.get(key) {
            *session.used.lock() = Instant::now();
            return Some(session.clone());
        }
        if all.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
            let unused = all.iter().filter_map(|(key, session)| Some((session.unused_since()?, key)));
            let longest = unused.min_by_key(|(since, _)| *since).map(|(_, key)| key.clone())?;
            all.remove(&longest);
        }
        let session = Arc::new(Session { used: Mutex::new(Instant::now()), open: tokio::sync::Mutex::default() });
        all.insert(key.clone(), session.clone());
        Some(session)
    }

    /// The tokens of an account with this refresh token, made by `make` if they are not there. They are kept as long as the server is
    /// configured once their authorization server replaced the refresh token: the new one is known here alone.
    pub(in crate::tools::mcp) fn tokens(
        &self,
        account: &Account,
        secret: &Secret,
        make: impl FnOnce() -> Arc<Tokens>,
    ) -> Arc<Tokens> {
        let mut all = self.tokens.lock();
        if let Some((of, tokens)) = all.get(account)
            && of == secret
        {
            return tokens.clone();
        }
        if all.len() >= MOST_TOKENS {
            all.retain(|_, (_, tokens)| tokens.are_irreplaceable());
        }
        let tokens = make();
        all.insert(account.clone(), (secret.clone(), tokens.clone()));
        tokens
    }

    /// Ends those of a run. A call under way in one goes on.
    pub(in crate::tools::mcp) fn end_run(&self, run: &RunId) {
        self.all.lock().retain(|key, _| key.run.as_ref() != Some(run));
    }

    /// Ends those that were not used for so long.
    fn end_unused(&self, idle: Duration) {
        self.all.lock().retain(|_, session| session.unused_since().is_none_or(|since| since.elapsed() < idle));
    }

    /// Ends all.
    fn end_all(&self) {
        self.all.lock().clear();
    }
}

/// Ends sessions that are unused for so long, and all of them once the server is to stop.
pub(in crate::tools::mcp) async fn sweep(sessions: Arc<Sessions>, idle: Duration, stop: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return sessions.end_all(),
            () = sleep(idle.min(SWEEP_EVERY)) => sessions.end_unused(idle),
        }
    }
}

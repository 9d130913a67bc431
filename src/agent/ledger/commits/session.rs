//! How the document of a session changes.

use std::time::Duration;

use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::ledger::retention::Retention;
use crate::agent::ledger::session::{Versioned, keep_session};
use crate::store::Tx;
use crate::types::RunSpec;
use crate::types::session::Session;

/// Changes a session's document, and lets all that the session has live as long.
pub(super) fn put_session(tx: Tx, session: &Session, version: u64, ttl: Duration) -> Tx {
    keep_session(put_session_document(tx, session, version, ttl), session, ttl)
}

/// Changes a session's document.
pub(super) fn put_session_document(tx: Tx, session: &Session, version: u64, ttl: Duration) -> Tx {
    tx.put_at(keys::session(), version, encode(session), Some(ttl))
}

/// Lets the session name the first `upto` messages of its history as those that what matters of is written down, or is about to be.
/// The commit fails if the session was changed since it was read.
pub fn claim_flush(tx: Tx, session: Versioned, upto: u64, spec: &RunSpec, retention: Retention) -> Tx {
    let Versioned { mut session, version } = session;
    session.context.get_or_insert_default().flushed = upto;
    let ttl = retention.session_ttl_under(&session, spec);
    put_session(tx, &session, version, ttl)
}

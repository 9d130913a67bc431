//! What a session keeps of how its conversation is shown, when a run ends in it. Pure.

use crate::agent::ledger::retention::Retention;
use crate::agent::ledger::session::{Versioned, put_session};
use crate::store::Tx;
use crate::types::RunSpec;
use crate::types::context::SessionContext;
use crate::types::session::Session;

/// Lets the session name the first `upto` messages of its history as those that what matters of is written down, or is about to be.
/// The commit fails if the session was changed since it was read.
pub fn claim_flush(tx: Tx, session: Versioned, upto: u64, spec: &RunSpec, retention: Retention) -> Tx {
    let Versioned { mut session, version } = session;
    session.context.get_or_insert_default().flushed = upto;
    let ttl = retention.session_ttl_under(&session, spec);
    put_session(tx, &session, version, ttl)
}

/// Keeps what of a session's messages models are shown, as a run that ends in it says. Where the session has as many messages as when
/// the run began, the run knows the places of its own, and no other run but one that replaced messages can have ended meanwhile. Else
/// another run has added some before them: only what holds for those that the run began with is kept. What reaches further than what
/// the session has replaces it.
pub(super) fn keep_context(session: &mut Session, context: Option<SessionContext>, spec: &RunSpec, ended_at: u64) {
    let flushed = flushed(session, context.as_ref(), spec.history_len, ended_at);
    keep_view(session, context, spec, ended_at);
    if flushed > 0 {
        session.context.get_or_insert_default().flushed = flushed.min(session.message_count);
    }
}

/// Of how many messages from the beginning what matters was written down. Where the run wrote down what matters of its own and others
/// were added before those, that counts as written down too: nothing is written down twice.
fn flushed(session: &Session, ours: Option<&SessionContext>, began_at: u64, ended_at: u64) -> u64 {
    let known = session.context.as_ref().map_or(0, |known| known.flushed);
    let ours = ours.map_or(0, |ours| ours.flushed);
    let shifted = if ours > began_at { ours + ended_at.saturating_sub(began_at) } else { ours };
    known.max(shifted)
}

fn keep_view(session: &mut Session, context: Option<SessionContext>, spec: &RunSpec, ended_at: u64) {
    let began_at = spec.history_len;
    let covered = session.context.as_ref().map_or(0, |known| known.view.covers);
    let is_further = |ours: &SessionContext| ours.view.covers > covered;
    if began_at == ended_at && !spec.compacts {
        let known = session.context.take().map(|known| *known).unwrap_or_default();
        let ours = context.and_then(|context| context.of_first(session.message_count)).unwrap_or_default();
        let mut kept =
            if ours.view.covers < covered { SessionContext { anchor: None, ..known.clone() } } else { ours.clone() };
        kept.learned = ours.learned.or(known.learned);
        session.context = (!kept.is_empty()).then(|| Box::new(kept));
        return;
    }
    let anchor = if began_at == ended_at { context.as_ref().and_then(|context| context.anchor) } else { None };
    if let Some(further) = context.and_then(|context| context.of_first(began_at)).filter(is_further) {
        session.context = Some(Box::new(SessionContext { anchor, ..further }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::machine::tests::spec;
    use crate::types::SessionId;
    use crate::types::context::{Anchor, View};

    /// A context in which so many messages are replaced, of a conversation of so many.
    fn covering(covers: u64, messages: u64) -> SessionContext {
        let anchor = Some(Anchor { messages, tokens: 9, beside: 0 });
        SessionContext { view: View { covers, ..View::default() }, anchor, ..SessionContext::default() }
    }

    /// How many messages are replaced, and whether it is known how long they are, once a run ended that began with ten messages.
    fn kept(known: Option<SessionContext>, ours: Option<SessionContext>, ended_at: u64, compacts: bool) -> (u64, bool) {
        let mut session = Session { message_count: ended_at + 2, ..Session::new(SessionId::mint()) };
        if compacts {
            session.message_count = ended_at;
        }
        session.context = known.map(Box::new);
        keep_context(&mut session, ours, &RunSpec { history_len: 10, compacts, ..spec() }, ended_at);
        session.context.map_or((0, false), |kept| (kept.view.covers, kept.anchor.is_some()))
    }

    #[test]
    fn what_was_written_down_once_is_never_written_down_again() {
        let kept = |known: u64, ours: u64, ended_at: u64| {
            let mut session = Session { message_count: ended_at + 4, ..Session::new(SessionId::mint()) };
            let of = |flushed| SessionContext { flushed, ..SessionContext::default() };
            session.context = (known > 0).then(|| Box::new(of(known)));
            let ours = (ours > 0).then(|| of(ours));
            keep_context(&mut session, ours, &RunSpec { history_len: 10, ..spec() }, ended_at);
            session.context.map_or(0, |kept| kept.flushed)
        };
        assert_eq!(kept(0, 0, 10), 0);
        assert_eq!(kept(0, 12, 10), 12, "the run's own messages too");
        assert_eq!(kept(8, 0, 10), 8, "the run wrote nothing down");
        assert_eq!(kept(9, 8, 10), 9, "another run went further");
        assert_eq!(kept(10, 12, 14), 16, "others were added before its own");
    }

    #[test]
    fn what_reaches_further_is_kept() {
        assert_eq!(kept(None, Some(covering(4, 12)), 10, false), (4, true));
        assert_eq!(kept(Some(covering(4, 10)), Some(covering(4, 12)), 10, false), (4, true));
        assert_eq!(
            kept(Some(covering(6, 10)), Some(covering(4, 12)), 10, false),
            (6, false),
            "another run did more meanwhile"
        );
        assert_eq!(kept(Some(covering(6, 10)), None, 10, false), (6, false));
        assert_eq!(kept(Some(covering(4, 10)), Some(covering(8, 10)), 10, true), (8, true));
        assert_eq!(kept(Some(covering(4, 10)), Some(covering(4, 10)), 10, true), (4, true), "it did nothing");
        assert_eq!(kept(Some(covering(4, 14)), Some(covering(8, 10)), 14, true), (8, false), "more was said meanwhile");
        assert_eq!(kept(Some(covering(9, 14)), Some(covering(8, 10)), 14, false), (9, true));
    }
}

//! Replaces a range of a session's history.
//!
//! The history is written anew in the commit that changes the session's document, so it is changed as a whole or not at all, and a run
//! that begins meanwhile makes the commit fail. What is replaced is kept in a log of its own, as long as the session. The digest of
//! the history begins anew, so no replica takes what it keeps in memory for the session's.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;

use crate::agent::context::fit::pairs::broken;
use crate::agent::error::{LookupError, SpliceError, unavailable};
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::agent::ledger::session::{Versioned, keep_session};
use crate::agent::session::Sessions;
use crate::agent::session::history::{decoded, pages};
use crate::store::retry::RetryConflicts;
use crate::store::{CommitError, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::session::{Digest, Session, Splice};
use crate::types::{Message, Role, SessionId, Tenant};

/// Longest history that is written in one piece, in bytes.
pub const MOST_SPLICED: u64 = 4 << 20;

/// Which messages are to be replaced, and by what.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// How many messages stay before them.
    pub after: u64,
    /// How many are removed.
    pub remove: u64,
    /// What takes their place.
    pub messages: Vec<Message>,
    /// The version that the session must have.
    pub version: Option<u64>,
    /// How many messages it must have.
    pub count: Option<u64>,
}

/// What was done.
#[derive(Debug, Clone)]
pub struct Done {
    /// The session as it is then.
    pub session: Versioned,
    /// Whether a summary was dropped, as it told of what was replaced.
    pub summary_dropped: bool,
}

impl Sessions {
    /// Replaces messages of a session's history. What has begun is completed whether or not the caller waits for it.
    pub async fn splice(self: &Arc<Self>, tenant: &Tenant, id: &SessionId, asked: Asked) -> Result<Done, SpliceError> {
        let (sessions, tenant, id) = (self.clone(), tenant.clone(), id.clone());
        let splicing = async move {
            let mut retry = RetryConflicts::new();
            while retry.next().await {
                if let Some(done) = sessions.try_splice(&tenant, &id, &asked).await? {
                    return Ok(done);
                }
            }
            Err(LookupError::VersionConflict(id).into())
        };
        self.lifecycle.run_detached(Box::pin(splicing)).await
    }

    /// What was replaced in a session's history, oldest first, behind so many of these times.
    pub async fn splices(
        &self,
        tenant: &Tenant,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Splice>, LookupError> {
        let session = self.get(tenant, id).await?.session;
        if session.spliced.is_none() {
            return Ok(Vec::new());
        }
        let partition = keys::session_partition(tenant, id);
        let page = self.ledger.store().read_log(&partition, &keys::spliced(), after, limit).await?;
        Ok(page.entries.iter().map(|entry| decode(entry)).collect::<Result<_, _>>()?)
    }

    /// `None` if the session was changed meanwhile.
    async fn try_splice(&self, tenant: &Tenant, id: &SessionId, asked: &Asked) -> Result<Option<Done>, SpliceError> {
        let Versioned { mut session, version } = self.get(tenant, id).await?;
        check(asked, &session, version)?;
        self.check_idle(tenant, &mut session).await?;
        let history = self.whole(tenant, &session).await?;
        let (spliced, entry) = spliced(history, asked)?;
        let entries: Vec<Bytes> = spliced.iter().map(encode).collect();
        let bytes = entries.iter().map(|entry| entry.len() as u64).sum::<u64>();
        let (had, times) = (session.all_bytes(), session.spliced().times);
        fits(bytes)?;
        let entry = encode(&entry);
        let summary_dropped = change(&mut session, asked, (&entries, bytes), entry.len() as u64);
        let has = session.all_bytes();
        let grows = has.saturating_sub(had);
        self.ledger.fits_storage(has)?;
        self.ledger.take_storage(tenant, grows).await?;
        let ttl = self.ledger.session_ttl(&session);
        let mut tx =
            Tx::new(keys::session_partition(tenant, id)).put_at(keys::session(), version, encode(&session), Some(ttl));
        tx = tx.write(Write::DeleteLog { log: keys::messages() });
        tx = tx.write(Write::Append { log: keys::messages(), after: 0, entries });
        if times == 0 {
            // An expired session of the same name leaves nothing to its successor.
            tx = tx.write(Write::DeleteLog { log: keys::spliced() });
        }
        tx = tx.write(Write::Append { log: keys::spliced(), after: times, entries: vec![entry] });
        match self.ledger.commit(keep_session(tx, &session, ttl)).await {
            Ok(()) => {
                self.ledger.return_storage(tenant, had.saturating_sub(has)).await;
                self.ledger.index_session(tenant, &session, ttl).await?;
                Ok(Some(Done { session: Versioned { session, version: version + 1 }, summary_dropped }))
            }
            Err(CommitError::VersionConflict { .. }) => {
                self.ledger.return_storage(tenant, grows).await;
                Ok(None)
            }
            Err(error) => Err(unavailable(error).into()),
        }
    }

    /// Refuses a session that has a run which has not ended: what it was shown must not change. Runs that are over did not say so
    /// where the store lost a part of it.
    pub(super) async fn check_idle(&self, tenant: &Tenant, session: &mut Session) -> Result<(), SpliceError> {
        let partition = keys::session_partition(tenant, &session.id);
        for run in session.all_runs().cloned().collect::<Vec<_>>() {
            let head = self.ledger.head(&partition, &run).await?;
            if head.is_some_and(|head| !head.status.is_final()) {
                return Err(LookupError::SessionBusy { session: session.id.clone(), run }.into());
            }
            session.detach_run(&run);
        }
        Ok(())
    }

    /// All messages of a session.
    async fn whole(&self, tenant: &Tenant, session: &Session) -> Result<Vec<Message>, SpliceError> {
        fits(session.bytes)?;
        let partition = keys::session_partition(tenant, &session.id);
        let mut found = Vec::new();
        let mut pages = std::pin::pin!(pages(&**self.ledger.store(), &partition, 0, session.message_count));
        while let Some(page) = pages.try_next().await? {
            found.extend(decoded(&page)?);
        }
        if found.len() as u64 != session.message_count {
            return Err(LookupError::VersionConflict(session.id.clone()).into());
        }
        Ok(found)
    }
}

fn fits(bytes: u64) -> Result<(), SpliceError> {
    if bytes > MOST_SPLICED { Err(SpliceError::TooLong { bytes, most: MOST_SPLICED }) } else { Ok(()) }
}

/// Whether the session is as the caller knows it, and has what is to be replaced.
fn check(asked: &Asked, session: &Session, version: u64) -> Result<(), SpliceError> {
    let count = session.message_count;
    if asked.version.is_some_and(|known| known != version) || asked.count.is_some_and(|known| known != count) {
        return Err(SpliceError::Changed { version, count });
    }
    if asked.remove == 0 && asked.messages.is_empty() {
        return Err(SpliceError::Nothing);
    }
    let upto = asked.after.saturating_add(asked.remove);
    if upto > count {
        return Err(SpliceError::BeyondEnd { from: asked.after.saturating_add(1), upto, count });
    }
    Ok(())
}

/// The history with other messages in place of those, and the record of it. What was broken before may stay so.
fn spliced(mut history: Vec<Message>, asked: &Asked) -> Result<(Vec<Message>, Splice), SpliceError> {
    let (after, remove) = (place(asked.after), place(asked.remove));
    let (upto, inserted) = (after + remove, asked.messages.len());
    let known = broken(&history).into_iter().filter(|place| !(after..upto).contains(place));
    let known: Vec<usize> = known.map(|place| if place < after { place } else { place - remove + inserted }).collect();
    let removed = history.splice(after..upto, asked.messages.iter().cloned()).collect();
    if let Some(place) = broken(&history).into_iter().find(|place| !known.contains(place)) {
        let is_result = history[place].role == Role::Tool;
        let what = if is_result { "a result without its call" } else { "a call without all of its results" };
        return Err(SpliceError::SplitsCalls { place: place as u64 + 1, what });
    }
    Ok((history, Splice { at_ms: now_ms(), after: asked.after, inserted: inserted as u64, removed }))
}

fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// What the session's document says then; whether a summary was dropped.
fn change(session: &mut Session, asked: &Asked, (entries, bytes): (&[Bytes], u64), record: u64) -> bool {
    session.message_count = entries.len() as u64;
    session.bytes = bytes;
    session.digest = Digest::mint().with(entries);
    session.updated_ms = now_ms();
    let spliced = session.spliced.get_or_insert_default();
    spliced.times += 1;
    spliced.bytes += record;
    let Some(before) = session.context.take() else { return false };
    let context = before.spliced(asked.after, asked.remove, asked.messages.len() as u64);
    let dropped = before.view.summary.is_some() && context.view.summary.is_none();
    session.context = (!context.is_empty()).then(|| Box::new(context));
    dropped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::{CallId, ToolCall};

    /// A conversation of turns with so many calls each, whose calls bear the same ids again and again.
    fn talk(turns: &[usize]) -> Vec<Message> {
        let mut messages = Vec::new();
        for (number, calls) in turns.iter().enumerate() {
            messages.push(Message::text(Role::User, &format!("question {number}")));
            let ids: Vec<CallId> = (0..*calls).map(|call| CallId::foreign(&format!("call_{call}"))).collect();
            let named = |id: &CallId| ToolCall { id: id.clone(), name: "echo".into(), arguments: "{}".into() };
            if !ids.is_empty() {
                messages.push(Message::assistant("", &ids.iter().map(named).collect::<Vec<_>>()));
                messages.extend(ids.iter().map(|id| Message::tool(id, &format!("result {number}"))));
            }
            messages.push(Message::text(Role::Assistant, &format!("answer {number}")));
        }
        messages
    }

    proptest! {
        #[test]
        fn pairs_stay_whole_the_order_is_kept_and_nothing_is_lost(
            turns in prop::collection::vec(0_usize..4, 1..8),
            inserted in prop::collection::vec(0_usize..3, 0..3),
            after in 0_usize..40,
            remove in 0_usize..20,
        ) {
            let (history, messages) = (talk(&turns), talk(&inserted));
            let (after, count) = (after.min(history.len()), history.len());
            let remove = remove.min(count - after);
            let asked = Asked {
                after: after as u64, remove: remove as u64, messages: messages.clone(), ..Asked::default()
            };
            let cuts = |place: usize| place < count && history[place].role == Role::Tool;
            match spliced(history.clone(), &asked) {
                Ok((whole, record)) => {
                    prop_assert!(broken(&whole).is_empty());
                    let expected: Vec<Message> =
                        [&history[..after], &messages[..], &history[after + remove..]].concat();
                    prop_assert_eq!(&whole, &expected);
                    prop_assert_eq!(&record.removed[..], &history[after..after + remove]);
                    prop_assert_eq!(record.inserted, messages.len() as u64);
                }
                // It is refused only where it would cut through a call and its results.
                Err(SpliceError::SplitsCalls { .. }) => prop_assert!(cuts(after) || cuts(after + remove)),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}

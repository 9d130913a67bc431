//! Sessions in the order in which they were created.
//!
//! An index of each tenant has an entry by time for each session. A second entry, by id, says where in it a session stands,
//! and outlives the session: so a client may delete what a page shows before it asks for the next one.

use std::fmt;
use std::pin::pin;

use futures_util::TryStreamExt;

use crate::agent::error::LookupError;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::Versioned;
use crate::agent::listed::{Listed, MOST_LOOKED_AT, Traits};
use crate::agent::session::Sessions;
use crate::store::pages::scan_pages;
use crate::store::{Order, Scan};
use crate::types::session::Session;
use crate::types::{SessionId, Tenant};

/// Whether a list by these traits shows a session.
fn fits(traits: &Traits, session: &Session) -> bool {
    let model = session.last_run.as_ref().map(|run| run.model.as_str());
    traits.fit(session.agent_of_late(), model, session.user.as_deref(), &session.metadata)
}

/// Where a session stands among those of its tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPlace {
    /// When it was created, Unix milliseconds.
    pub created_ms: u64,
    /// The session.
    pub id: SessionId,
}

/// What a page of sessions comes after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterSession {
    /// This session, which may have been deleted meanwhile.
    Id(SessionId),
    /// This place, whether or not a session stands there.
    Place(SessionPlace),
}

impl fmt::Display for SessionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.created_ms, self.id)
    }
}

impl SessionPlace {
    /// The place of this text; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (created_ms, id) = text.split_once('/')?;
        Some(Self { created_ms: created_ms.parse().ok()?, id: SessionId::parse(id)? })
    }
}

impl AfterSession {
    /// What a client names: a session, or the place where a search gave up.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        SessionPlace::parse(text).map(Self::Place).or_else(|| SessionId::parse(text).map(Self::Id))
    }
}

impl Sessions {
    /// This tenant's sessions by the time of their creation, those after `after` that are so.
    pub async fn list(
        &self,
        tenant: &Tenant,
        traits: &Traits,
        after: Option<AfterSession>,
        (limit, order): (usize, Order),
    ) -> Result<Listed<Versioned, SessionPlace>, LookupError> {
        let after = match after {
            Some(AfterSession::Id(id)) => Some(self.place(tenant, id).await?),
            Some(AfterSession::Place(place)) => Some(place),
            None => None,
        };
        let after = after.map(|place| keys::session_by_time(place.created_ms, &place.id).to_string());
        let scan = Scan { prefix: keys::SESSIONS_BY_TIME.to_owned(), after, limit, order };
        let partition = keys::tenant_partition(tenant);
        let (mut found, mut looked_at, mut last) = (Vec::new(), 0, None);
        let mut pages = pin!(scan_pages(&**self.ledger.store(), &partition, scan));
        while let Some(page) = pages.try_next().await? {
            for (key, _) in page {
                let Some(place) = key.strip_prefix(keys::SESSIONS_BY_TIME).and_then(SessionPlace::parse) else {
                    continue;
                };
                looked_at += 1;
                if looked_at > MOST_LOOKED_AT {
                    return Ok(Listed { found, searched_to: last });
                }
                // An earlier session of the same id may have left its entry.
                let session = self.ledger.find_session(tenant, &place.id).await?;
                let is_wanted = |session: &Session| session.created_ms == place.created_ms && fits(traits, session);
                found.extend(session.filter(|found| is_wanted(&found.session)));
                last = Some(place);
                if found.len() == limit {
                    return Ok(Listed::whole(found));
                }
            }
        }
        Ok(Listed::whole(found))
    }

    /// Where a session stands, or stood before it was deleted or expired.
    async fn place(&self, tenant: &Tenant, id: SessionId) -> Result<SessionPlace, LookupError> {
        let entry = self.ledger.store().get(&keys::tenant_partition(tenant), &keys::session_entry(&id)).await?;
        let Some(entry) = entry else { return Err(LookupError::SessionNotFound(id.to_string())) };
        Ok(SessionPlace { created_ms: decode(&entry.value)?, id })
    }
}

//! Lists of runs.

use std::pin::pin;

use futures_util::TryStreamExt;

use crate::agent::control::Control;
use crate::agent::error::LookupError;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::listed::{Listed, MOST_LOOKED_AT, Traits};
use crate::agent::requester::Requester;
use crate::store::pages::scan_pages;
use crate::store::{Order, Scan};
use crate::types::{RunId, RunStatus, SessionId};

/// Which runs a list shows.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only the runs of this session.
    pub session: Option<SessionId>,
    /// Only the runs with this status.
    pub status: Option<RunStatus>,
    /// Only the runs of this agent, model and user, and with these notes.
    pub traits: Traits,
    /// Only the runs that are older than this one.
    pub after: Option<RunId>,
    /// At most this many.
    pub limit: usize,
}

impl Filter {
    /// Whether a list shows the run with this head.
    pub(super) fn takes(&self, head: &Head) -> bool {
        self.status.is_none_or(|status| status == head.status)
            && self.traits.fit(Some(&head.agent), Some(&head.called_model), head.user.as_deref(), &head.metadata)
    }
}

impl Control {
    /// The runs that the requester may read, newest first.
    pub async fn list<'a>(
        &self,
        requester: impl Into<Requester<'a>>,
        filter: &Filter,
    ) -> Result<Listed<Head, RunId>, LookupError> {
        let requester = requester.into();
        let (tenant, mut found, mut looked_at) = (requester.tenant, Vec::new(), 0);
        let after = filter.after.as_ref().map(|run| keys::run_entry(run).to_string());
        let scan = Scan { prefix: keys::RUNS.to_owned(), after, limit: filter.limit, order: Order::Descending };
        let partition = keys::tenant_partition(tenant);
        let mut pages = pin!(scan_pages(&**self.ledger.store(), &partition, scan));
        let mut last = None;
        while let Some(page) = pages.try_next().await? {
            for (key, entry) in page {
                let Some(run) = key.strip_prefix(keys::RUNS).and_then(RunId::parse) else { continue };
                looked_at += 1;
                if looked_at > MOST_LOOKED_AT {
                    return Ok(Listed { found, searched_to: last });
                }
                // The requester may not know this run: its id is told only if the run is found.
                last = Some(run.place());
                let session: Option<SessionId> = decode(&entry.value)?;
                if filter.session.is_some() && filter.session != session {
                    continue;
                }
                let partition = keys::run_partition(tenant, session.as_ref(), &run);
                let head = self.ledger.head(&partition, &run).await?;
                let is_wanted = |head: &Head| filter.takes(head) && requester.may_use(&head.agent);
                if let Some(head) = head.filter(is_wanted) {
                    found.push(head);
                    last = Some(run);
                }
                if found.len() == filter.limit {
                    return Ok(Listed::whole(found));
                }
            }
        }
        Ok(Listed::whole(found))
    }
}

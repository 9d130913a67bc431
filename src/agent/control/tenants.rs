//! The runs of several tenants as one list, for who operates the server.
//!
//! No index leads to the runs of all tenants: each tenant has one of its own, in the order of the runs' ids, which is that of time.
//! So the list is what these are merged into, a page of each at a time.

use std::collections::VecDeque;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::agent::control::{Control, Filter};
use crate::agent::error::LookupError;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::listed::{Listed, MOST_LOOKED_AT};
use crate::agent::requester::Requester;
use crate::store::{Order, Scan, Unavailable};
use crate::types::{RunId, SessionId, Tenant};

/// So many tenants are asked about at a time.
const AT_ONCE: usize = 16;

/// What is known of a tenant's index.
struct Index {
    tenant: Tenant,
    /// What was read of it and is not in the list yet, newest first.
    ahead: VecDeque<(RunId, Option<SessionId>)>,
    /// The last entry that was read.
    read_to: Option<String>,
    /// Whether there is more to read.
    has_more: bool,
}

impl Control {
    /// Which of these tenants has this run; `None` if none of them has.
    pub async fn tenant_of(&self, tenants: &[Tenant], id: &RunId) -> Result<Option<Tenant>, LookupError> {
        let looks = stream::iter(tenants.to_vec()).map(|tenant| async move {
            let entry = self.ledger.store().get(&keys::tenant_partition(&tenant), &keys::run_entry(id)).await?;
            Ok::<_, Unavailable>(entry.map(|_| tenant))
        });
        let mut looks = looks.buffer_unordered(AT_ONCE);
        while let Some(found) = looks.try_next().await? {
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The session of a run; an error if the tenant has no such run.
    pub async fn session_of(&self, tenant: &Tenant, id: &RunId) -> Result<Option<SessionId>, LookupError> {
        let entry = self.ledger.store().get(&keys::tenant_partition(tenant), &keys::run_entry(id)).await?;
        let entry = entry.ok_or_else(|| LookupError::RunNotFound(id.to_string()))?;
        Ok(decode(&entry.value)?)
    }

    /// The runs of these tenants whose agents are among `agents`, newest first, each with its tenant.
    pub async fn list_over(
        &self,
        tenants: &[Tenant],
        agents: Option<&[String]>,
        filter: &Filter,
    ) -> Result<Listed<(Tenant, Head), RunId>, LookupError> {
        let read_to = filter.after.as_ref().map(|run| keys::run_entry(run).to_string());
        let reading = stream::iter(tenants.to_vec()).map(|tenant| {
            let index = Index { tenant, ahead: VecDeque::new(), read_to: read_to.clone(), has_more: true };
            self.read_on(index, filter.limit)
        });
        let mut indexes: Vec<Index> = reading.buffer_unordered(AT_ONCE).try_collect().await?;
        let (mut found, mut last) = (Vec::new(), None);
        for looked_at in 0.. {
            let newest = indexes.iter_mut().filter(|index| !index.ahead.is_empty());
            let newest = newest.max_by(|one, other| one.ahead[0].0.as_str().cmp(other.ahead[0].0.as_str()));
            let Some(index) = newest else { break };
            if looked_at == MOST_LOOKED_AT {
                return Ok(Listed { found, searched_to: last });
            }
            let tenant = index.tenant.clone();
            let Some((run, session)) = index.ahead.pop_front() else { break };
            if index.ahead.is_empty() && index.has_more {
                let read_to = index.read_to.take();
                let next = Index { tenant: tenant.clone(), ahead: VecDeque::new(), read_to, has_more: true };
                *index = self.read_on(next, filter.limit).await?;
            }
            last = Some(run.place());
            if filter.session.is_some() && filter.session != session {
                continue;
            }
            let head = self.ledger.head(&keys::run_partition(&tenant, session.as_ref(), &run), &run).await?;
            let requester = Requester { tenant: &tenant, agents };
            let is_wanted = |head: &Head| filter.takes(head) && requester.may_use(&head.agent);
            if let Some(head) = head.filter(is_wanted) {
                found.push((tenant.clone(), head));
                last = Some(run);
            }
            if found.len() == filter.limit {
                break;
            }
        }
        Ok(Listed::whole(found))
    }

    /// An index with its next page.
    async fn read_on(&self, mut index: Index, limit: usize) -> Result<Index, Unavailable> {
        let scan = Scan { prefix: keys::RUNS.to_owned(), after: index.read_to.take(), limit, order: Order::Descending };
        let page = self.ledger.store().scan(&keys::tenant_partition(&index.tenant), scan).await?;
        index.has_more = page.len() == limit;
        index.read_to = page.last().map(|(key, _)| key.clone());
        for (key, entry) in page {
            let Some(run) = key.strip_prefix(keys::RUNS).and_then(RunId::parse) else { continue };
            index.ahead.push_back((run, decode(&entry.value)?));
        }
        Ok(index)
    }
}

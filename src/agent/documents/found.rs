//! Reads whole collections, to be searched. What was read stays at hand until the collection changes, at whatever replica: its head
//! says so.

use std::sync::Arc;

use crate::agent::documents::Documents;
use crate::agent::documents::entry::Entry;
use crate::agent::documents::named::Named;
use crate::agent::ledger::collection::Collection;
use crate::store::Unavailable;
use crate::types::Tenant;

impl Documents {
    /// All of a collection, ready to be searched; `None` if it has nothing. Asks the store whether it has changed, and reads it only
    /// then.
    pub async fn searchable(&self, tenant: &Tenant, of: &Collection) -> Result<Option<Arc<Entry>>, Unavailable> {
        let at = (of.partition(tenant), of.prefix());
        let Some((head, version)) = self.head(tenant, of).await? else {
            self.indexes.0.invalidate(&at);
            return Ok(None);
        };
        if let Some(known) = self.indexes.0.get(&at).filter(|known| known.is_of(&head, version)) {
            return Ok(Some(known));
        }
        let mut documents: Vec<Named> = Vec::new();
        loop {
            let after = documents.last().map(|last| last.name.clone());
            let page = self.list(tenant, of, after.as_deref(), super::PAGE).await?;
            let is_last = page.len() < super::PAGE;
            documents.extend(page);
            if is_last {
                break;
            }
        }
        // What was put meanwhile belongs to a later version, by which the next request reads again.
        let entry = Arc::new(Entry::of(of.kind, (&head, version), documents));
        self.indexes.0.insert(at, entry.clone());
        Ok(Some(entry))
    }
}

//! Deletes everything of a user, or of a collection.
//!
//! Documents go a page at a time, each page in one commit with the head, and the head goes with the last of them. So a deletion
//! that breaks off is completed by repeating it, and what is counted is true at any time.

use std::sync::Arc;

use crate::agent::documents::Documents;
use crate::agent::documents::error::DocumentError;
use crate::agent::documents::named::named;
use crate::agent::error::unavailable;
use crate::agent::ledger::collection::{Collection, CollectionHead};
use crate::agent::ledger::document::{decode, encode};
use crate::store::retry::RetryConflicts;
use crate::store::{Check, CommitError, Order, Scan, Tx, Write};
use crate::types::Tenant;

/// Documents deleted at a time.
const PAGE: usize = 64;

impl Documents {
    /// Deletes all documents of these collections, and returns how many there were. What has begun is completed whether or not
    /// the caller waits for it.
    pub async fn erase(self: &Arc<Self>, tenant: &Tenant, all: Vec<Collection>) -> Result<u64, DocumentError> {
        let (documents, tenant) = (self.clone(), tenant.clone());
        let erasing = async move {
            let mut count = 0;
            for of in &all {
                count += documents.erase_all_of(&tenant, of).await?;
            }
            Ok(count)
        };
        self.lifecycle.run_detached(Box::pin(erasing)).await
    }

    async fn erase_all_of(&self, tenant: &Tenant, of: &Collection) -> Result<u64, DocumentError> {
        let (mut erased, mut retry) = (0, RetryConflicts::new());
        while retry.next().await {
            match self.erase_page(tenant, of).await? {
                Page::Last(count) => return Ok(erased + count),
                Page::More(count) => {
                    erased += count;
                    retry = RetryConflicts::new();
                }
                Page::Conflict => {}
            }
        }
        Err(DocumentError::Busy)
    }

    async fn erase_page(&self, tenant: &Tenant, of: &Collection) -> Result<Page, DocumentError> {
        let (partition, prefix, store) = (of.partition(tenant), of.prefix(), self.ledger.store());
        let Some(found) = store.get(&partition, &of.head()).await? else { return Ok(Page::Last(0)) };
        let head: CollectionHead = decode(&found.value)?;
        let scan = Scan { prefix: prefix.clone(), after: None, limit: PAGE, order: Order::Ascending };
        let page = store.scan(&partition, scan).await?;
        let mut left = head.clone();
        let mut tx = Tx::new(partition).check(Check::Version { key: of.head(), version: found.version });
        for (key, document) in &page {
            let name = key.strip_prefix(&*prefix).unwrap_or(key);
            left.bytes = left.bytes.saturating_sub(named(name, document)?.text.bytes(name));
            left.documents = left.documents.saturating_sub(1);
            tx = tx.write(Write::Delete { key: key.as_str().into() });
        }
        let is_last = page.len() < PAGE;
        let write = if is_last {
            left = CollectionHead::default();
            // Before the head: whoever makes the collection anew, which begins once the head is gone, puts another entry.
            self.index(tenant, Write::Delete { key: of.entry() }).await?;
            Write::Delete { key: of.head() }
        } else {
            Write::Put { key: of.head(), value: encode(&left), ttl: None }
        };
        match self.ledger.commit(tx.write(write)).await {
            Ok(()) => {
                self.ledger.return_storage(tenant, head.stored().saturating_sub(left.stored())).await;
                let count = page.len() as u64;
                Ok(if is_last { Page::Last(count) } else { Page::More(count) })
            }
            Err(CommitError::VersionConflict { .. }) => {
                self.index(tenant, Write::Put { key: of.entry(), value: encode(of), ttl: None }).await?;
                Ok(Page::Conflict)
            }
            Err(error) => Err(unavailable(error).into()),
        }
    }
}

/// What became of a page of documents.
enum Page {
    /// So many were deleted, and there are no more.
    Last(u64),
    /// So many were deleted.
    More(u64),
    /// The collection changed meanwhile.
    Conflict,
}

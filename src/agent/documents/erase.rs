//! Deletes everything of a user, or of a collection.
//!
//! Documents go a page at a time, each page in one commit with the head, which forgets whose it was with the last of them. So a
//! deletion that breaks off is completed by repeating it, what is counted is true at any time, and who read before the deletion
//! cannot write what was deleted.

use std::sync::Arc;

use crate::agent::documents::Documents;
use crate::agent::documents::error::DocumentError;
use crate::agent::documents::named::named;
use crate::agent::error::unavailable;
use crate::agent::ledger::collection::{Collection, CollectionHead, KEPT};
use crate::agent::ledger::document::{decode, encode};
use crate::store::retry::RetryConflicts;
use crate::store::{CommitError, Order, Scan, Tx, Write};
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
        if head.of.is_none() {
            return Ok(Page::Last(0));
        }
        let scan = Scan { prefix: prefix.clone(), after: None, limit: PAGE, order: Order::Ascending };
        let page = store.scan(&partition, scan).await?;
        let is_last = page.len() < PAGE;
        let mut left = head.clone();
        let mut tx = Tx::new(partition);
        for (key, document) in &page {
            let name = key.strip_prefix(&*prefix).unwrap_or(key);
            let document = named(name, document)?;
            left.bytes = left.bytes.saturating_sub(document.text.bytes(name));
            left.documents = left.documents.saturating_sub(1);
            left.floor = left.floor.max(document.version);
            tx = tx.write(Write::Delete { key: key.as_str().into() });
        }
        if is_last {
            left = CollectionHead { of: None, documents: 0, bytes: 0, ..left };
        }
        match self.ledger.commit(tx.put_at(of.head(), found.version, encode(&left), is_last.then_some(KEPT))).await {
            Ok(()) => {
                self.ledger.return_storage(tenant, head.stored().saturating_sub(left.stored())).await;
                let count = page.len() as u64;
                Ok(if is_last { Page::Last(count) } else { Page::More(count) })
            }
            Err(CommitError::VersionConflict { .. }) => Ok(Page::Conflict),
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

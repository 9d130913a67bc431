//! Finds passages of documents by words. What was read of a collection stays at hand until the collection changes, at whatever
//! replica: its head says so.

use std::ops::Range;
use std::sync::Arc;

use moka::sync::Cache;

use crate::agent::context::search::Index;
use crate::agent::documents::passages::passages;
use crate::agent::documents::{Documents, Named};
use crate::agent::ledger::collection::{Collection, CollectionHead};
use crate::store::{Partition, Unavailable};
use crate::types::Tenant;

/// Most bytes of documents that are kept at hand.
const MAX_KEPT: u64 = 16 << 20;
/// About how much an index takes beside each byte of text.
const INDEXED: u64 = 3;
/// About what an entry takes beside that.
const FRAME: u64 = 1 << 10;
/// A word of a document's name or description says more than one of its text.
const TITLE: u32 = 2;
/// Most bytes of what is looked for.
const MAX_QUERY: usize = 4 << 10;

/// A collection as it was read.
#[derive(Debug)]
pub struct Entry {
    id: u64,
    version: u64,
    documents: Vec<Named>,
    passages: Vec<(usize, Range<usize>)>,
    index: Index,
}

/// A passage that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<'e> {
    /// The document.
    pub name: &'e str,
    /// What it says there.
    pub text: &'e str,
}

impl Entry {
    fn of(head: &CollectionHead, version: u64, documents: Vec<Named>) -> Self {
        let passages: Vec<_> = documents
            .iter()
            .enumerate()
            .flat_map(|(place, document)| passages(&document.text.content).into_iter().map(move |range| (place, range)))
            .collect();
        let texts = passages.iter().map(|(place, range)| {
            let Named { name, text, .. } = &documents[*place];
            [(name.as_str(), TITLE), (text.description.as_str(), TITLE), (&text.content[range.clone()], 1)]
        });
        let index = Index::of_texts(texts);
        Self { id: head.id, version, documents, passages, index }
    }

    /// The passages that fit best, the best first.
    pub fn find(&self, query: &str, most: usize) -> impl Iterator<Item = Found<'_>> {
        let query = &query[..query.floor_char_boundary(MAX_QUERY)];
        self.index.find(query, most).into_iter().map(|place| {
            let (document, range) = &self.passages[place];
            let Named { name, text, .. } = &self.documents[*document];
            Found { name, text: &text.content[range.clone()] }
        })
    }

    /// The document of this name.
    pub fn document(&self, name: &str) -> Option<&Named> {
        self.documents.iter().find(|document| document.name == name)
    }

    /// The documents, in the order of their names.
    pub fn documents(&self) -> &[Named] {
        &self.documents
    }
}

/// What was read lately, by where it lies.
#[derive(Debug)]
pub(super) struct Indexes(Cache<(Partition, String), Arc<Entry>>);

impl Default for Indexes {
    fn default() -> Self {
        let weight = |entry: &Entry| {
            let bytes: u64 = entry.documents.iter().map(|document| document.text.bytes(&document.name)).sum();
            u32::try_from(FRAME + INDEXED * bytes).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().max_capacity(INDEXED * MAX_KEPT);
        Self(cache.weigher(move |_, entry: &Arc<Entry>| weight(entry)).build())
    }
}

impl Documents {
    /// All of a collection, ready to be searched; `None` if it has nothing. Asks the store whether it has changed, and reads it only
    /// then.
    pub async fn searchable(&self, tenant: &Tenant, of: &Collection) -> Result<Option<Arc<Entry>>, Unavailable> {
        let at = (of.partition(tenant), of.prefix());
        let Some((head, version)) = self.head(tenant, of).await? else {
            self.indexes.0.invalidate(&at);
            return Ok(None);
        };
        if let Some(known) = self.indexes.0.get(&at).filter(|known| known.id == head.id && known.version == version) {
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
        let entry = Arc::new(Entry::of(&head, version, documents));
        self.indexes.0.insert(at, entry.clone());
        Ok(Some(entry))
    }
}

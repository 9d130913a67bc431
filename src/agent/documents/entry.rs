//! A collection as it was read, and the passages in it that fit some words.

use std::ops::Range;
use std::sync::Arc;

use moka::sync::Cache;

use crate::agent::context::search::Index;
use crate::agent::documents::named::Named;
use crate::agent::documents::passages::passages;
use crate::agent::ledger::collection::CollectionHead;
use crate::store::Partition;

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
    /// These documents of a collection with this head.
    pub(super) fn of(head: &CollectionHead, version: u64, documents: Vec<Named>) -> Self {
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

    /// Whether it is the collection as this head has it.
    pub(super) fn is_of(&self, head: &CollectionHead, version: u64) -> bool {
        self.id == head.id && self.version == version
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
pub(super) struct Indexes(pub(super) Cache<(Partition, String), Arc<Entry>>);

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

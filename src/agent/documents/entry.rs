//! A collection as it was read, and the passages in it that fit some words.

use std::ops::Range;
use std::sync::Arc;

use moka::sync::Cache;

use crate::agent::context::search::Index;
use crate::agent::documents::named::Named;
use crate::agent::documents::passages::passages;
use crate::agent::ledger::collection::{CollectionHead, Kind};
use crate::store::Partition;

/// Most bytes of memory for what is kept at hand.
const MAX_KEPT: u64 = 48 << 20;
/// About what an entry takes beside its documents and its index.
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
    /// Of memories alone: nothing else is searched so.
    index: Option<Index>,
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
    /// These documents of a collection of this kind with this head.
    pub(super) fn of(kind: Kind, (head, version): (&CollectionHead, u64), documents: Vec<Named>) -> Self {
        let searched = if kind == Kind::Memory { &*documents } else { &[] };
        let passages: Vec<_> = searched
            .iter()
            .enumerate()
            .flat_map(|(place, document)| passages(&document.text.content).into_iter().map(move |range| (place, range)))
            .collect();
        let texts = passages.iter().map(|(place, range)| {
            let Named { name, text, .. } = &documents[*place];
            [(name.as_str(), TITLE), (text.description.as_str(), TITLE), (&text.content[range.clone()], 1)]
        });
        let index = (kind == Kind::Memory).then(|| Index::of_texts(texts));
        Self { id: head.id, version, documents, passages, index }
    }

    /// Whether it is the collection as this head has it.
    pub(super) fn is_of(&self, head: &CollectionHead, version: u64) -> bool {
        self.id == head.id && self.version == version
    }

    /// The passages that fit best, the best first.
    pub fn find(&self, query: &str, most: usize) -> impl Iterator<Item = Found<'_>> {
        let query = &query[..query.floor_char_boundary(MAX_QUERY)];
        let places = self.index.as_ref().map(|index| index.find(query, most)).unwrap_or_default();
        places.into_iter().map(|place| {
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
            let texts: u64 = entry.documents.iter().map(|document| document.text.bytes(&document.name)).sum();
            let own = entry.documents.len() * size_of::<Named>() + size_of_val(&*entry.passages);
            let index = entry.index.as_ref().map_or(0, Index::bytes);
            u32::try_from(FRAME + texts + (own + index) as u64).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().max_capacity(MAX_KEPT);
        Self(cache.weigher(move |_, entry: &Arc<Entry>| weight(entry)).build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ledger::collection::StoredText;

    #[test]
    fn only_memories_are_indexed_and_an_index_counts_as_what_it_takes() {
        let content: String = (0..20_000_u32).filter_map(|number| char::from_u32(0x4E00 + number)).collect();
        let document = || vec![Named::new("a", StoredText { content: content.clone(), ..StoredText::default() })];
        let entry = |kind| Entry::of(kind, (&CollectionHead::default(), 1), document());
        assert!(entry(Kind::Skills).index.is_none() && entry(Kind::Files).passages.is_empty());
        let memory = entry(Kind::Memory);
        let words = memory.index.as_ref().map_or(0, Index::bytes);
        assert!(words > 15 * content.len(), "pairs of letters take much: {words} of {}", content.len());
        assert_eq!(memory.find("\u{4E00}\u{4E01}", 1).count(), 1);
    }
}

//! A page of a list whose entries are looked at one by one.

/// Most entries of an index that one request looks at, whatever it finds among them.
pub const MOST_LOOKED_AT: usize = 1_000;

/// What was found, and how far the search came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T, I> {
    /// The entries, in the list's order.
    pub found: Vec<T>,
    /// The last one that was looked at, where the search gave up before the list's end or a whole page.
    pub searched_to: Option<I>,
}

impl<T, I> Listed<T, I> {
    /// What a search found that came to the list's end, or has a whole page.
    pub(super) fn whole(found: Vec<T>) -> Self {
        Self { found, searched_to: None }
    }
}

//! Pages of lists. Pure.

use crate::store::Order;

/// The page that `found` is, which was read with one entry more than `limit`, and whether there are more.
pub fn page_of<T>(mut found: Vec<T>, limit: usize) -> (Vec<T>, bool) {
    let has_more = found.len() > limit;
    found.truncate(limit);
    (found, has_more)
}

/// A piece of a sequence that is counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// How many entries stand before it.
    pub from: u64,
    /// How many it has at most.
    pub count: u64,
    order: Order,
}

impl Window {
    /// The page of at most `limit` entries beyond place `after`, of `total`, in this order.
    pub fn new(after: Option<u64>, limit: u64, total: u64, order: Order) -> Self {
        match order {
            Order::Ascending => Self { from: after.unwrap_or(0), count: limit, order },
            Order::Descending => {
                let end = after.map_or(total, |after| after.saturating_sub(1).min(total));
                let from = end.saturating_sub(limit);
                Self { from, count: end - from, order }
            }
        }
    }

    /// The same without its first entries, so that so many stand before it.
    pub fn from(self, from: u64) -> Self {
        Self { from, ..self }
    }

    /// The entries that were found in it, each with its place, in the page's order.
    pub fn numbered<T>(self, found: Vec<T>) -> Vec<(u64, T)> {
        let mut numbered: Vec<_> = (self.from.saturating_add(1)..).zip(found).collect();
        if self.order == Order::Descending {
            numbered.reverse();
        }
        numbered
    }

    /// Whether there are entries beyond it, of `total`, if `found` are in it.
    pub fn has_more(self, found: usize, total: u64) -> bool {
        match self.order {
            Order::Ascending => self.from.saturating_add(found as u64) < total,
            Order::Descending => self.from > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_both_orders_cover_everything_once() {
        let entries: Vec<u64> = (1..=7).collect();
        for order in [Order::Ascending, Order::Descending] {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let window = Window::new(after, 3, 7, order);
                let (from, to) = (window.from, window.from + window.count);
                let found: Vec<_> = entries.iter().copied().filter(|entry| (from + 1..=to).contains(entry)).collect();
                let has_more = window.has_more(found.len(), 7);
                let page = window.numbered(found);
                assert!(page.iter().all(|(place, entry)| place == entry), "{page:?}");
                after = page.last().map(|(place, _)| *place);
                seen.extend(page.into_iter().map(|(_, entry)| entry));
                if !has_more {
                    break;
                }
            }
            let expected =
                if order == Order::Ascending { entries.clone() } else { entries.iter().rev().copied().collect() };
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn places_beyond_the_end_have_no_page() {
        let window = Window::new(Some(u64::MAX), 3, 7, Order::Ascending);
        assert_eq!((window.numbered(Vec::<u8>::new()), window.has_more(0, 7)), (Vec::new(), false));
        assert_eq!(Window::new(Some(1), 3, 7, Order::Descending).count, 0);
        assert_eq!(page_of(vec![1, 2, 3], 2), (vec![1, 2], true));
        assert_eq!(page_of(vec![1, 2], 2), (vec![1, 2], false));
    }
}

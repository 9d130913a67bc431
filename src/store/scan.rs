//! Which keys a [`Scan`] covers: the same range for every backend that keeps keys in order.

use std::ops::Bound;

use super::{Order, Scan};

impl Scan {
    /// The range of keys to walk; its upper end is excluded. `None` if no key can be in it.
    pub(super) fn range(&self) -> Option<(Bound<String>, Bound<String>)> {
        let mut lower = Bound::Included(self.prefix.clone());
        let mut upper = successor(&self.prefix);
        match (&self.after, self.order) {
            (Some(after), Order::Ascending) if *after >= self.prefix => lower = Bound::Excluded(after.clone()),
            (Some(after), Order::Descending) if upper.as_ref().is_none_or(|upper| after < upper) => {
                upper = Some(after.clone());
            }
            (Some(_) | None, Order::Ascending | Order::Descending) => {}
        }
        let (Bound::Included(first) | Bound::Excluded(first)) = &lower else { return None };
        if upper.as_ref().is_some_and(|upper| first >= upper) {
            return None;
        }
        Some((lower, upper.map_or(Bound::Unbounded, Bound::Excluded)))
    }
}

/// The lowest string above every string that begins with `prefix`; `None` if there is none.
///
/// Strings are ordered by their bytes, which for UTF-8 is the order of their characters.
fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // The range of characters steps over the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(prefix: &str, after: Option<&str>, order: Order) -> Scan {
        Scan { prefix: prefix.into(), after: after.map(Into::into), limit: 10, order }
    }

    fn at(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn successor_is_the_next_string_that_does_not_begin_with_the_prefix() {
        assert_eq!(successor("run/"), Some(at("run0")));
        assert_eq!(successor("a\u{10FFFF}"), Some(at("b")));
        assert_eq!(successor("\u{D7FF}"), Some(at("\u{E000}")));
        assert_eq!(successor(""), None);
        assert_eq!(successor("\u{10FFFF}"), None);
    }

    #[test]
    fn range_begins_or_ends_at_the_key_to_continue_from() {
        use Bound::{Excluded, Included, Unbounded};
        use Order::{Ascending, Descending};
        assert_eq!(scan("a/", None, Ascending).range(), Some((Included(at("a/")), Excluded(at("a0")))));
        assert_eq!(scan("a/", Some("a/3"), Ascending).range(), Some((Excluded(at("a/3")), Excluded(at("a0")))));
        assert_eq!(scan("a/", Some("a/3"), Descending).range(), Some((Included(at("a/")), Excluded(at("a/3")))));
        assert_eq!(scan("", None, Descending).range(), Some((Included(at("")), Unbounded)));
    }

    #[test]
    fn key_outside_the_prefix_covers_all_of_it_or_nothing() {
        use Order::{Ascending, Descending};
        let all = scan("b", None, Ascending).range();
        assert_eq!(scan("b", Some("a"), Ascending).range(), all);
        assert_eq!(scan("b", Some("z"), Descending).range(), all);
        assert_eq!(scan("b", Some("z"), Ascending).range(), None);
        assert_eq!(scan("b", Some("a"), Descending).range(), None);
        assert_eq!(scan("b", Some("b"), Descending).range(), None);
    }
}

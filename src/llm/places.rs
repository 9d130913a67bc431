//! Where the parts of a turn are, by the keys under which an upstream adds to them.

use std::collections::HashMap;
use std::hash::Hash;

/// The place of the part of each key that began last. An upstream may begin very many parts and add to any, so finding a place
/// takes no longer the more there are.
#[derive(Debug)]
pub struct Places<K>(HashMap<K, usize>);

impl<K> Default for Places<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Places<K> {
    /// Keeps the place of a part that begins.
    pub fn insert(&mut self, key: K, place: usize) {
        self.0.insert(key, place);
    }

    /// The place of the part of this key that began last.
    pub fn get(&self, key: &K) -> Option<usize> {
        self.0.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::testing::CountedKey;

    #[test]
    fn finding_one_of_many_takes_few_steps() {
        const PARTS: usize = 10_000;
        let mut places = Places::default();
        for place in 0..PARTS {
            places.insert(CountedKey(place), place);
        }
        CountedKey::comparisons();
        for place in 0..PARTS {
            assert_eq!(places.get(&CountedKey(place)), Some(place));
        }
        let comparisons = CountedKey::comparisons();
        assert!(comparisons < 2 * PARTS, "{comparisons} comparisons for {PARTS} parts");
    }

    #[test]
    fn the_last_part_of_a_key_is_found() {
        let mut places = Places::default();
        for (place, key) in [1, 0, 1].into_iter().enumerate() {
            places.insert(key, place);
        }
        assert_eq!([1, 0, 2].map(|key| places.get(&key)), [Some(2), Some(1), None]);
    }
}

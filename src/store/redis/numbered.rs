//! Names that get a number each, in the order in which they come.

use std::collections::HashMap;
use std::hash::Hash;

/// So few names are compared one by one, which takes less than to hash them. Nearly all commits have fewer; that of a deletion
/// has hundreds.
const FEW: usize = 16;

/// Names, each once.
#[derive(Debug)]
pub(super) struct Numbered<K> {
    names: Vec<K>,
    /// The numbers of the names, as far as they were needed: of more than a few.
    numbers: HashMap<K, usize>,
}

impl<K> Default for Numbered<K> {
    fn default() -> Self {
        Self { names: Vec::new(), numbers: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Numbered<K> {
    /// The number of a name, which gets the next one if it has none yet.
    pub(super) fn number(&mut self, name: K) -> usize {
        self.find(&name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }

    /// Moves all names to the end of `to`, in the order of their numbers.
    pub(super) fn append_to(&mut self, to: &mut Vec<K>) {
        to.append(&mut self.names);
        self.numbers.clear();
    }

    fn find(&mut self, name: &K) -> Option<usize> {
        if self.names.len() <= FEW {
            return self.names.iter().position(|known| known == name);
        }
        let known = self.numbers.len();
        let new = self.names.iter().enumerate().skip(known);
        self.numbers.extend(new.map(|(number, name)| (name.clone(), number)));
        self.numbers.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::testing::CountedKey;

    #[test]
    fn each_name_has_one_number() {
        let mut numbered = Numbered::default();
        for _ in 0..3 {
            for name in 0..3 * FEW {
                assert_eq!(numbered.number(name), name);
            }
        }
        let mut names = vec![7];
        numbered.append_to(&mut names);
        assert_eq!(names, std::iter::once(7).chain(0..3 * FEW).collect::<Vec<_>>());
        assert_eq!(numbered.number(5), 0, "it is empty again");
    }

    #[test]
    fn numbering_many_takes_few_steps_for_each() {
        const NAMES: usize = 2_000;
        let mut numbered = Numbered::default();
        for name in (0..NAMES).chain(0..NAMES) {
            numbered.number(CountedKey(name));
        }
        let comparisons = CountedKey::comparisons();
        assert!(comparisons < 5 * NAMES, "{comparisons} comparisons for {NAMES} names");
    }
}

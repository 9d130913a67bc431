//! Bounds the values of labels that name things: names of the configuration, and those that are admitted while there is
//! room, up to a number.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::types::maps::{HashMap, HashSet};

/// The value that stands for all other names.
pub(super) const OTHER: &str = "other";

/// Handles by name, for a bounded number of names.
pub(super) struct Named<M> {
    most: usize,
    state: RwLock<State<M>>,
    make: Box<dyn Fn(&str) -> M + Send + Sync>,
}

struct State<M> {
    /// The names of the configuration; `None` for all names.
    known: Option<HashSet<String>>,
    made: HashMap<String, Arc<M>>,
    other: Option<Arc<M>>,
}

impl<M> Named<M> {
    /// Handles for no names yet, and at most for so many.
    pub(super) fn new(most: usize, make: impl Fn(&str) -> M + Send + Sync + 'static) -> Self {
        let state = State { known: Some(HashSet::default()), made: HashMap::default(), other: None };
        Self { most, state: RwLock::new(state), make: Box::new(make) }
    }

    /// Handles for any name, of which there are few by their nature.
    pub(super) fn any(make: impl Fn(&str) -> M + Send + Sync + 'static) -> Self {
        let state = State { known: None, made: HashMap::default(), other: None };
        Self { most: usize::MAX, state: RwLock::new(state), make: Box::new(make) }
    }

    /// Counts these names by themselves from now on. What was counted stays.
    pub(super) fn know(&self, names: impl IntoIterator<Item = String>) {
        self.state.write().known = Some(names.into_iter().collect());
    }

    /// Counts this name by itself too from now on, if the names that are known leave room for it.
    pub(super) fn admit(&self, name: &str) {
        let has_room = |known: &HashSet<String>| known.len() < self.most && !known.contains(name);
        let is_due = self.state.read().known.as_ref().is_some_and(has_room);
        if is_due {
            let mut state = self.state.write();
            // Another run may have taken the last room meanwhile.
            if let Some(known) = state.known.as_mut().filter(|known| has_room(known)) {
                known.insert(name.to_owned());
            }
        }
    }

    /// The handles of this name, or of all other names.
    pub(super) fn of(&self, name: &str) -> Arc<M> {
        let state = self.state.read();
        if let Some(made) = state.made.get(name) {
            return made.clone();
        }
        let is_known = state.knows(name);
        if let Some(other) = state.other.as_ref().filter(|_| !is_known || state.made.len() >= self.most) {
            return other.clone();
        }
        drop(state);
        self.make(name)
    }

    fn make(&self, name: &str) -> Arc<M> {
        let mut state = self.state.write();
        if state.knows(name) && (state.made.len() < self.most || state.made.contains_key(name)) {
            state.made.entry(name.to_owned()).or_insert_with(|| Arc::new((self.make)(name))).clone()
        } else {
            state.other.get_or_insert_with(|| Arc::new((self.make)(OTHER))).clone()
        }
    }
}

impl<M> State<M> {
    fn knows(&self, name: &str) -> bool {
        self.known.as_ref().is_none_or(|known| known.contains(name))
    }
}

impl<M> fmt::Debug for Named<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named").field("made", &self.state.read().made.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_configuration_and_beyond_the_bound_are_one() {
        let named = Named::new(2, str::to_owned);
        assert_eq!(*named.of("a"), OTHER);
        named.know(["a", "b", "c"].map(str::to_owned));
        let of = |name| (*named.of(name)).clone();
        assert_eq!(["a", "b", "c", "x", "a"].map(of), ["a", "b", OTHER, OTHER, "a"]);
        named.know(["c".to_owned()]);
        assert_eq!(["a", "c"].map(of), ["a", OTHER], "what was counted by its name stays");
    }

    #[test]
    fn admitted_names_take_the_room_that_those_of_the_configuration_leave() {
        let named = Named::new(2, str::to_owned);
        named.know(["a".to_owned()]);
        for name in ["x", "x", "y"] {
            named.admit(name);
        }
        let of = |name| (*named.of(name)).clone();
        assert_eq!(["x", "y", "a"].map(of), ["x", OTHER, "a"]);
    }
}

//! What is remembered of an upstream's addresses and keys, also when its configuration changes.

use std::sync::Arc;

use parking_lot::Mutex;
use url::Url;

use super::standing::{AddressStanding, KeyStanding};
use crate::config::Secret;
use crate::telemetry::metrics::RestMetrics;

/// What is known of an address, shared by the calls of all configurations that have it.
pub type AddressState = Arc<Mutex<AddressStanding>>;
/// What is known of a key, shared likewise.
pub type KeyState = Arc<Mutex<KeyStanding>>;

/// The state of one upstream's addresses and keys, by what they are.
#[derive(Debug, Default)]
pub struct PoolState {
    addresses: Mutex<Vec<(Url, AddressState)>>,
    keys: Mutex<Vec<(Secret, KeyState)>>,
    /// Counts their rests.
    pub(super) metrics: RestMetrics,
}

impl PoolState {
    /// The state of an upstream whose rests are counted so.
    #[must_use]
    pub fn counted(metrics: RestMetrics) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Forgets all but these addresses and keys.
    pub fn keep<'u>(&self, urls: impl Iterator<Item = &'u Url>, keys: &[Secret]) {
        let urls: Vec<_> = urls.collect();
        self.addresses.lock().retain(|(known, _)| urls.contains(&known));
        self.keys.lock().retain(|(known, _)| keys.contains(known));
    }

    /// The state of these addresses.
    pub(super) fn of_addresses<'u>(&self, urls: impl Iterator<Item = &'u Url>) -> Vec<AddressState> {
        of(&mut self.addresses.lock(), urls.cloned())
    }

    /// The state of these keys.
    pub(super) fn of_keys(&self, keys: &[Secret]) -> Vec<KeyState> {
        of(&mut self.keys.lock(), keys.iter().cloned())
    }
}

/// What is known of each that is wanted, which is known from now on.
fn of<K: PartialEq, S: Default>(known: &mut Vec<(K, Arc<S>)>, wanted: impl Iterator<Item = K>) -> Vec<Arc<S>> {
    let states = wanted.map(|wanted| {
        if let Some((_, state)) = known.iter().find(|(known, _)| *known == wanted) {
            return state.clone();
        }
        let state = Arc::<S>::default();
        known.push((wanted, state.clone()));
        state
    });
    states.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_keeps_its_state_and_what_left_is_forgotten() {
        let state = PoolState::default();
        let urls = |urls: &[&str]| -> Vec<Url> { urls.iter().map(|url| url.parse().unwrap()).collect() };
        let before = state.of_addresses(urls(&["http://a", "http://b"]).iter());
        let after = state.of_addresses(urls(&["http://c", "http://b"]).iter());
        assert!(Arc::ptr_eq(&before[1], &after[1]) && !Arc::ptr_eq(&before[0], &after[0]));
        // The configuration that lacks it may never be in force.
        let again = state.of_addresses(urls(&["http://a"]).iter());
        assert!(Arc::ptr_eq(&before[0], &again[0]));
        state.keep(urls(&["http://c", "http://b"]).iter(), &[]);
        let again = state.of_addresses(urls(&["http://a", "http://b"]).iter());
        assert!(!Arc::ptr_eq(&before[0], &again[0]) && Arc::ptr_eq(&before[1], &again[1]));
    }
}

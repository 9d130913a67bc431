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

    /// The state of these addresses, which are all that there are from now on.
    pub(super) fn of_addresses<'u>(&self, urls: impl Iterator<Item = &'u Url>) -> Vec<AddressState> {
        of(&mut self.addresses.lock(), urls.cloned())
    }

    /// The state of these keys, which are all that there are from now on.
    pub(super) fn of_keys(&self, keys: &[Secret]) -> Vec<KeyState> {
        of(&mut self.keys.lock(), keys.iter().cloned())
    }
}

fn of<K: PartialEq, S: Default>(known: &mut Vec<(K, Arc<S>)>, wanted: impl Iterator<Item = K>) -> Vec<Arc<S>> {
    let find = |wanted: &K| known.iter().find(|(known, _)| known == wanted).map(|(_, state)| state.clone());
    let now: Vec<_> = wanted.map(|wanted| (find(&wanted).unwrap_or_default(), wanted)).collect();
    let states = now.iter().map(|(state, _)| state.clone()).collect();
    *known = now.into_iter().map(|(state, wanted)| (wanted, state)).collect();
    states
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
        let again = state.of_addresses(urls(&["http://a"]).iter());
        assert!(!Arc::ptr_eq(&before[0], &again[0]));
    }
}

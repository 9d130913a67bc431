//! The addresses and keys of an upstream that has several: which a call gets, and which rest because calls with them failed.
//!
//! | file | holds |
//! | --- | --- |
//! | `choose` | which of several servers, or keys, a call gets (pure) |
//! | `blame` | what a failed call is blamed on (pure) |
//! | `standing` | what is known of an address and of a key: what it has to do, and until when it rests (pure) |
//! | `state` | what is remembered of them, also when the configuration changes |
//!
//! While all addresses rest, calls go to them as if none did: the server that is asked in vain costs less than a server
//! that is not asked though it is well. While all keys rest, calls fail at once and are told how long.

mod blame;
mod choose;
mod standing;
mod state;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use tokio::time::Instant;

pub use self::blame::KeyFault;
use self::blame::{Blame, Severity, blame};
use self::choose::{Candidate, choose};
use self::standing::Rest;
pub use self::state::PoolState;
use self::state::{AddressState, KeyState};
use crate::config::{self, Balance, HttpUpstream, Secret};
use crate::llm::pairing::Pairing;
use crate::llm::{Extent, ModelError};

/// The longest that an upstream's word keeps an address or a key away. Not a setting: it bounds what an upstream that is
/// wrong can do.
const MOST_REST: Duration = Duration::from_secs(3_600);

/// The addresses and keys of an upstream that has several of one of these.
pub struct Pools {
    upstream: String,
    settings: config::Pools,
    addresses: Vec<Address>,
    /// Empty unless there are several.
    keys: Vec<Key>,
    key_header: Option<HeaderName>,
    state: Arc<PoolState>,
}

struct Address {
    /// The host and the port, for logs and metrics: a path may hold what not all of their readers should know.
    host: String,
    weight: u32,
    seed: u64,
    state: AddressState,
}

struct Key {
    value: HeaderValue,
    state: KeyState,
}

/// The address and the key that a call gets, by their places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Choice {
    /// The address.
    pub address: usize,
    key: usize,
}

/// What a call has tried without success.
#[derive(Debug, Default)]
pub struct Tried {
    addresses: Vec<usize>,
    keys: Vec<usize>,
    /// Those of the keys that may not do what the call asks for. Perhaps no key may.
    forbidden: Vec<usize>,
}

/// Why there is nothing left to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// No further address.
    Addresses,
    /// No further key; the first of those that rest may be used again after so long.
    Keys(Option<(Duration, KeyFault)>),
}

impl Pools {
    /// The pools of an upstream; `None` if there is nothing to choose.
    pub fn new(upstream: &str, config: &HttpUpstream, state: Arc<PoolState>) -> Option<Self> {
        let states = state.of_addresses(config.urls());
        if config.base_urls.len() < 2 && config.api_keys.len() < 2 {
            return None;
        }
        let addresses = config.base_urls.iter().zip(states).map(|(base_url, state)| Address {
            host: base_url.url.authority().to_owned(),
            weight: base_url.weight,
            seed: xxhash_rust::xxh3::xxh3_64(base_url.url.as_str().as_bytes()),
            state,
        });
        let (upstream, settings, addresses) = (upstream.to_owned(), config.pools, addresses.collect());
        Some(Self { upstream, settings, addresses, keys: Vec::new(), key_header: None, state })
    }

    /// Adds several keys, which are these values of a header.
    pub fn add_keys(&mut self, keys: &[Secret], header: HeaderName, values: Vec<HeaderValue>) {
        let states = self.state.of_keys(keys);
        self.keys = values.into_iter().zip(states).map(|(value, state)| Key { value, state }).collect();
        self.key_header = Some(header);
    }

    fn has_addresses(&self) -> bool {
        self.addresses.len() > 1
    }

    fn has_keys(&self) -> bool {
        self.keys.len() > 1
    }

    /// The address and the key for a call of this affinity to this model. The call is under way there until it
    /// [leaves](Self::leave).
    pub fn enter(&self, affinity: u64, model: u64, tried: &Tried) -> Result<Choice, Exhausted> {
        let now = Instant::now();
        let key = self.choose_key(affinity, model, tried, now)?;
        let address = self.enter_address(affinity, tried, now).ok_or(Exhausted::Addresses)?;
        Ok(Choice { address, key })
    }

    /// What the second of two calls does not try, because the first is there: its address, or its key where there is one address.
    pub fn tried_by_first(&self, pairing: &Pairing) -> Tried {
        match pairing.first() {
            None => Tried::default(),
            Some((address, _)) if self.has_addresses() => Tried { addresses: vec![address], ..Tried::default() },
            Some((_, key)) => Tried { keys: vec![key], ..Tried::default() },
        }
    }

    /// Leaves word for the second of two calls where the first goes.
    pub fn note(&self, choice: Choice, pairing: &Pairing) {
        pairing.note(choice.address, choice.key);
    }

    /// A call has left its address.
    pub fn leave(&self, address: usize) {
        if self.has_addresses() {
            self.addresses[address].state.lock().leave();
        }
    }

    /// Adds the key to the headers of a request.
    pub fn add_key(&self, choice: Choice, headers: &mut HeaderMap) {
        if let (Some(key), Some(name)) = (self.keys.get(choice.key), &self.key_header) {
            headers.insert(name, key.value.clone());
        }
    }

    fn choose_key(&self, affinity: u64, model: u64, tried: &Tried, now: Instant) -> Result<usize, Exhausted> {
        if !self.has_keys() {
            return if tried.keys.is_empty() { Ok(0) } else { Err(Exhausted::Keys(None)) };
        }
        let rests: Vec<_> = self.keys.iter().map(|key| key.state.lock().rest(model, now)).collect();
        let is_ready = |key: &usize| rests[*key].is_none() && !tried.keys.contains(key);
        let ready: Vec<_> = (0..self.keys.len()).filter(is_ready).collect();
        let candidates: Vec<_> =
            ready.iter().map(|key| Candidate { seed: *key as u64, weight: 1, active: 0 }).collect();
        choose(Balance::Session, affinity, &candidates).map(|place| ready[place]).ok_or_else(|| {
            let first = rests.iter().flatten().min_by_key(|rest| rest.until);
            Exhausted::Keys(first.map(|rest| (rest.until.saturating_duration_since(now), rest.fault)))
        })
    }

    fn enter_address(&self, affinity: u64, tried: &Tried, now: Instant) -> Option<usize> {
        if !self.has_addresses() {
            return tried.addresses.is_empty().then_some(0);
        }
        loop {
            let mut ready =
                self.candidates(|address, state| !tried.addresses.contains(&address) && state.is_ready(now));
            let is_last_resort = ready.is_empty() && tried.addresses.is_empty();
            if is_last_resort {
                ready = self.candidates(|_, _| true);
            }
            let candidates: Vec<_> = ready.iter().map(|(_, candidate)| *candidate).collect();
            let (address, _) = ready[choose(self.settings.balance, affinity, &candidates)?];
            // If it failed elsewhere at this moment, or another call tries it, it is no longer ready.
            if self.addresses[address].state.lock().enter(now, self.settings.address_cooldown, is_last_resort) {
                return Some(address);
            }
        }
    }

    /// The addresses that may be chosen, with their places.
    fn candidates(&self, may_be_chosen: impl Fn(usize, &standing::AddressStanding) -> bool) -> Vec<(usize, Candidate)> {
        let candidates =
            self.addresses.iter().enumerate().filter_map(|(place, Address { weight, seed, state, .. })| {
                let state = state.lock();
                let candidate = Candidate { seed: *seed, weight: *weight, active: state.active };
                may_be_chosen(place, &state).then_some((place, candidate))
            });
        candidates.collect()
    }

    /// Another key may do what these keys were forbidden, so that they rest.
    pub fn rest_forbidden_keys(&self, model: u64, tried: &Tried) {
        for key in &tried.forbidden {
            self.rest_key(*key, model, KeyFault::Forbidden, None);
        }
    }

    /// An address has given a whole answer, whatever it says.
    pub fn finish(&self, address: usize) {
        if self.has_addresses() && self.addresses[address].state.lock().succeed() {
            tracing::info!(
                upstream = self.upstream,
                address = self.addresses[address].host,
                "an address answers again"
            );
        }
    }

    /// A call failed before it was answered, whose limit on the use of its key ends after `reset`. Returns whether it
    /// may succeed elsewhere.
    pub fn fail(
        &self,
        choice: Choice,
        model: u64,
        error: &ModelError,
        reset: Option<Duration>,
        tried: &mut Tried,
    ) -> bool {
        match blame(error, self.has_keys()) {
            Blame::Chance => false,
            Blame::Request => {
                self.finish(choice.address);
                false
            }
            Blame::Address(severity) => {
                self.fail_at(choice.address, severity, error);
                tried.addresses.push(choice.address);
                true
            }
            Blame::Key(fault) => {
                self.finish(choice.address);
                tried.keys.push(choice.key);
                if fault == KeyFault::Forbidden {
                    tried.forbidden.push(choice.key);
                } else {
                    self.rest_key(choice.key, model, fault, error.retry_after.or(reset));
                }
                true
            }
        }
    }

    /// A call failed in the middle of its answer.
    pub fn break_off(&self, address: usize, error: &ModelError) {
        if let Blame::Address(severity) = blame(error, self.has_keys()) {
            self.fail_at(address, severity, error);
        }
    }

    /// How far a failure of a call at this address reaches, which is told already.
    pub fn extent(&self, address: usize, error: &ModelError) -> Extent {
        let now = Instant::now();
        let is_of_address = error.extent == Extent::Model && matches!(blame(error, self.has_keys()), Blame::Address(_));
        let mut others = self.addresses.iter().enumerate().filter(|(place, _)| *place != address);
        if is_of_address && others.any(|(_, other)| other.state.lock().is_ready(now)) {
            Extent::Address
        } else {
            error.extent
        }
    }

    fn fail_at(&self, address: usize, severity: Severity, error: &ModelError) {
        if !self.has_addresses() {
            return;
        }
        let own_word = error.retry_after.filter(|_| severity == Severity::Certain);
        let rest = rest(own_word, self.settings.address_cooldown);
        let Address { host, state, .. } = &self.addresses[address];
        if state.lock().fail(severity, Instant::now(), rest) {
            self.state.metrics.address(host);
            let (place, of, cause, seconds) = (address + 1, self.addresses.len(), &error.message, rest.as_secs_f64());
            tracing::warn!(upstream = self.upstream, address = host, place, of, seconds, %cause, "an address is left out");
        }
    }

    fn rest_key(&self, key: usize, model: u64, fault: KeyFault, own_word: Option<Duration>) {
        let Some(Key { state, .. }) = self.keys.get(key) else { return };
        let rest = rest(own_word, self.settings.key_cooldown);
        let now = Instant::now();
        state.lock().fail(model, Rest { until: now + rest, fault }, now);
        self.state.metrics.key(key + 1, fault.word());
        let (place, of, cause, seconds) = (key + 1, self.keys.len(), fault.word(), rest.as_secs_f64());
        tracing::warn!(upstream = self.upstream, key = place, of, seconds, cause, "a key is left out");
    }

    /// Whether another key is a retry: after two that may not do what the call asks for, perhaps none may.
    pub fn next_is_retry(&self, tried: &Tried) -> bool {
        tried.forbidden.len() > 1 && tried.keys.len() < self.keys.len()
    }

    /// How many keys there are.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Which address and key a call got, in words. The address itself is not named, because the caller of a run reads
    /// this.
    pub fn place(&self, choice: Choice) -> String {
        let of =
            |what: &str, place: usize, count: usize| (count > 1).then(|| format!("{what} {} of {count}", place + 1));
        let parts = [of("address", choice.address, self.addresses.len()), of("key", choice.key, self.keys.len())];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        parts.join(", ")
    }
}

/// How long an address or a key rests that says so itself, or else for this cooldown.
fn rest(own_word: Option<Duration>, cooldown: Duration) -> Duration {
    own_word.filter(|asked| !asked.is_zero()).map_or(cooldown, |asked| asked.min(MOST_REST))
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (addresses, keys) = (self.addresses.len(), self.keys.len());
        f.debug_struct("Pools").field("addresses", &addresses).field("keys", &keys).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstreams_own_word_is_taken_up_to_an_hour_and_the_operators_without_end() {
        let (hour, day) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
        assert_eq!(
            [None, Some(Duration::ZERO), Some(hour / 2), Some(day)].map(|own| rest(own, day)),
            [day, day, hour / 2, hour]
        );
    }
}

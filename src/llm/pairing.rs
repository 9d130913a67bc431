//! Two calls of one request: the second goes elsewhere than the first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which of two calls a request is for.
#[derive(Debug, Clone, Default)]
pub enum Pairing {
    /// There is only one.
    #[default]
    Alone,
    /// The first: it leaves word where it went.
    First(Arc<Place>),
    /// The second: it does not go where the first went.
    Second(Arc<Place>),
}

/// The server and the key of a call at an upstream that has several, by their places; nothing before it went anywhere.
#[derive(Debug)]
pub struct Place {
    server: AtomicUsize,
    key: AtomicUsize,
}

/// No server and no key has this place.
const NOWHERE: usize = usize::MAX;

impl Default for Place {
    fn default() -> Self {
        Self { server: AtomicUsize::new(NOWHERE), key: AtomicUsize::new(NOWHERE) }
    }
}

impl Pairing {
    /// Leaves word that the call goes to this server with this key.
    pub fn note(&self, server: usize, key: usize) {
        if let Self::First(place) = self {
            place.server.store(server, Ordering::Relaxed);
            place.key.store(key, Ordering::Relaxed);
        }
    }

    /// The server and the key of the first call, if this is the second and the first went somewhere.
    #[must_use]
    pub fn first(&self) -> Option<(usize, usize)> {
        let Self::Second(place) = self else { return None };
        let (server, key) = (place.server.load(Ordering::Relaxed), place.key.load(Ordering::Relaxed));
        (server != NOWHERE).then_some((server, key))
    }
}

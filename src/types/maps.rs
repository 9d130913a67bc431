//! Hash maps for what each request looks up several times.
//!
//! The library's hasher costs a fifth of the standard one for keys as short as ours. Its seeds are drawn at random when the
//! process starts, so that no client can choose names that fall into one place.

use std::collections;

use ahash::RandomState;

/// A map that is made with `default()`.
pub type HashMap<K, V> = collections::HashMap<K, V, RandomState>;

/// A set that is made with `default()`.
pub type HashSet<K> = collections::HashSet<K, RandomState>;

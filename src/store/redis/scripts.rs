//! The scripts. Redis runs each as a whole, with nothing in between, and refuses it before it starts
//! when memory is full.

use std::sync::OnceLock;

/// A script and what the server knows it by.
#[derive(Debug)]
pub(super) struct Lua {
    /// Its text.
    pub(super) source: &'static str,
    hash: OnceLock<String>,
}

impl Lua {
    const fn new(source: &'static str) -> Self {
        Self { source, hash: OnceLock::new() }
    }

    /// What the server knows it by once it has seen it.
    pub(super) fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.source).get_hash().to_owned())
    }
}

/// Makes a change.
pub(super) static COMMIT: Lua = Lua::new(include_str!("commit.lua"));
/// Reads part of a log.
pub(super) static PAGE: Lua = Lua::new(include_str!("page.lua"));
/// Reads documents in order.
pub(super) static SCAN: Lua = Lua::new(include_str!("scan.lua"));
/// Takes a lease.
pub(super) static ACQUIRE: Lua = Lua::new(include_str!("acquire.lua"));
/// Prolongs a lease.
pub(super) static RENEW: Lua = Lua::new(include_str!("renew.lua"));
/// Gives a lease back.
pub(super) static RELEASE: Lua = Lua::new(include_str!("release.lua"));
/// Takes from a bucket.
pub(super) static TAKE: Lua = Lua::new(include_str!("take.lua"));

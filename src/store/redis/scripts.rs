//! The Lua scripts. Redis runs each script without anything in between. When its memory is full, it refuses a script
//! before the script starts.

use std::sync::OnceLock;

/// A script and its hash.
#[derive(Debug)]
pub(super) struct Lua {
    /// The script's text.
    pub(super) source: &'static str,
    hash: OnceLock<String>,
}

impl Lua {
    const fn new(source: &'static str) -> Self {
        Self { source, hash: OnceLock::new() }
    }

    /// The hash by which a server knows the script once it has run it.
    pub(super) fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.source).get_hash().to_owned())
    }
}

/// Makes a commit.
pub(super) static COMMIT: Lua = Lua::new(include_str!("commit.lua"));
/// Reads part of a log.
pub(super) static PAGE: Lua = Lua::new(include_str!("page.lua"));
/// Reads documents in order.
pub(super) static SCAN: Lua = Lua::new(include_str!("scan.lua"));
/// Acquires a lease.
pub(super) static ACQUIRE: Lua = Lua::new(include_str!("acquire.lua"));
/// Renews a lease.
pub(super) static RENEW: Lua = Lua::new(include_str!("renew.lua"));
/// Releases a lease.
pub(super) static RELEASE: Lua = Lua::new(include_str!("release.lua"));
/// Takes a token from a bucket.
pub(super) static TAKE: Lua = Lua::new(include_str!("take.lua"));

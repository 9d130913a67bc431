//! How calls are spread over the base URLs and keys of an upstream, and how many are made at once.

use std::time::Duration;

use crate::config::quantity::seconds;
use crate::config::reader::Section;
use crate::config::value::Word;

/// How calls are spread, and how many are made at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pools {
    /// Which of several base URLs a call goes to.
    pub balance: Balance,
    /// How long a base URL is left out after calls to it failed.
    pub address_cooldown: Duration,
    /// How long a key is left out after the upstream refused it, where the upstream does not say.
    pub key_cooldown: Duration,
    /// Most calls of one replica at once.
    pub max_concurrent_calls: Option<u32>,
}

/// Which of several base URLs a call goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    /// The one that its session is always asked at, unless that has much more to do than the others.
    Session,
    /// The one that has the fewest calls under way for its weight.
    LeastBusy,
}

impl Word for Balance {
    const WORDS: &'static [(&'static str, Self)] = &[("session", Self::Session), ("least_busy", Self::LeastBusy)];
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            balance: Balance::Session,
            address_cooldown: seconds(10),
            key_cooldown: seconds(60),
            max_concurrent_calls: None,
        }
    }
}

impl Pools {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        Self {
            balance: section.key(
                "balance",
                "Which of several `base_urls` a call goes to: with `session` calls of one session go to the same one, which may \
                 still have the beginning of the conversation in its cache, unless it has more than 1.25 times its part \
                 of the calls under way; with `least_busy` each call goes where the fewest are under way. Both heed weights.",
                default.balance,
            ),
            address_cooldown: section.key(
                "address_cooldown",
                "How long one of several `base_urls` is left out after calls to it failed, unless it says itself when to come back. \
                 Short, as one call tries it then: if it still fails, that call goes elsewhere where nothing was spent.",
                default.address_cooldown,
            ),
            key_cooldown: section.key(
                "key_cooldown",
                "How long one of several keys is left out after the upstream refused it or its quota was used up, unless the \
                 upstream says until when, but an hour at most. A minute, as a key that was mended should soon be used again.",
                default.key_cooldown,
            ),
            max_concurrent_calls: section.optional(
                "max_concurrent_calls",
                "Most model calls of each replica at once; others wait for their turn, within their run's `timeout`. See \
                 [calls at once](upstreams.md#calls-at-once). If absent, there is no bound but that on runs.",
            ),
        }
    }
}

//! `[upstreams.NAME.breaker]`: when the models of an upstream are left alone for a while.

use std::time::Duration;

use crate::config::quantity::seconds;
use crate::config::reader::Section;

/// When a model of an upstream is left alone, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Whether they are left alone at all.
    pub enabled: bool,
    /// So many failed calls, if they are at least half.
    pub failures: u32,
    /// Within this time.
    pub window: Duration,
    /// How long at first.
    pub cooldown: Duration,
    /// How long at most.
    pub max_cooldown: Duration,
    /// How many retries a hundred calls earn.
    pub retry_percent: u32,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            failures: 5,
            window: seconds(30),
            cooldown: seconds(5),
            max_cooldown: seconds(120),
            retry_percent: 10,
        }
    }
}

impl BreakerConfig {
    /// Reads what is declared.
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        Self {
            enabled: section.key("enabled", "Whether models are left alone at all.", default.enabled),
            failures: section.key(
                "failures",
                "So many calls of a model that fail within `window`, if they are at least half of those that were made until then, \
                 open its breaker: then no call of it is made until `cooldown` is over. An answer that breaks off is a failure, \
                 however much of it came. A key that the upstream does not know or an account that is used up opens the breaker \
                 at once, and a rate limit with a time to wait as soon as a second call meets it and none is answered. It counts \
                 for nothing that the upstream does not have the model, that a call is cut short by its own run's `timeout`, or \
                 that one of several `base_urls` fails while another can be asked.",
                default.failures,
            ),
            window: section.key("window", "How long a failure counts.", default.window),
            cooldown: section.key(
                "cooldown",
                "How long a breaker is open at first. Then one call, of all replicas together, probes the model, for as long as it \
                 takes: if it fails, the breaker is open for twice as long. Once the model speaks, all calls are made again; where \
                 answers broke off, once that answer is whole. A breaker that opens again within `window` goes on where it was.",
                default.cooldown,
            ),
            max_cooldown: section.key(
                "max_cooldown",
                "How long it is open at most, unless the upstream itself asks for a longer wait.",
                default.max_cooldown,
            ),
            retry_percent: section.key(
                "retry_percent",
                "How many calls a replica may repeat for each hundred that it makes, beside ten at first: an upstream in trouble \
                 gets no more load than that. Up to a thousand are saved up, so that runs go on whose answers all break off at \
                 once; a call is given back that repeats a broken-off one and is answered. A run waits up to 45 seconds for \
                 the right to repeat such a call, where it has no fallback.",
                default.retry_percent,
            ),
        }
    }
}

//! When the models of an upstream are left alone, as the configuration says.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::config::{BreakerConfig, Secret, Upstream};
use crate::llm::health::breaker::BreakerPolicy;

/// When breakers of this upstream open, and for how long.
pub(super) fn policy(breaker: &BreakerConfig) -> BreakerPolicy {
    let BreakerConfig { enabled, failures, window, cooldown, max_cooldown, retry_percent } = *breaker;
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    BreakerPolicy {
        failures: if enabled { failures } else { 0 },
        window_ms: millis(window),
        cooldown_ms: millis(cooldown),
        most_cooldown_ms: millis(max_cooldown),
        retry_percent,
    }
}

/// Tells an upstream apart from others of its name, such as that with the key before: what is known of one says nothing of the
/// other.
pub(super) fn fingerprint(upstream: &Upstream) -> String {
    let keys = upstream.kind.http().map_or(&[][..], |http| &http.api_keys);
    // Only secrets are not shown.
    let keys: Vec<&str> = keys.iter().map(Secret::expose).collect();
    let digest = Sha256::digest(format!("{upstream:?}\0{}", keys.join("\0")));
    format!("{:x}", bytes::Bytes::copy_from_slice(&digest[..8]))
}

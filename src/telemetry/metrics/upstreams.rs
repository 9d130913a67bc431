//! What is counted of upstreams themselves: calls that wait, and addresses and keys that rest.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::declare::Declarations;
use super::family::{Family, Histogram};

/// Bounds of the times that calls wait.
const BOUNDS: &[f64] = &[0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// What is counted of upstreams.
#[derive(Debug)]
pub struct UpstreamMetrics {
    active: Family<Gauge>,
    queued: Family<Gauge>,
    waits: Family<Histogram>,
    address_rests: Family<Counter>,
    key_rests: Family<Counter>,
}

/// Counts the calls of one upstream that bounds them; nothing where metrics are off.
#[derive(Debug, Clone, Default)]
pub struct CallQueueMetrics(Option<CallQueue>);

#[derive(Debug, Clone)]
struct CallQueue {
    active: Gauge,
    queued: Gauge,
    waits: Histogram,
}

/// Counts how often the addresses and keys of one upstream rest; nothing where metrics are off.
#[derive(Debug, Clone, Default)]
pub struct RestMetrics(Option<Rests>);

#[derive(Debug, Clone)]
struct Rests {
    upstream: String,
    addresses: Family<Counter>,
    keys: Family<Counter>,
}

impl UpstreamMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        Self {
            active: to.gauges(
                "upstream_active_calls",
                &["upstream"],
                "Model calls of this replica that are under way at an upstream with `max_concurrent_calls`.",
            ),
            queued: to.gauges(
                "upstream_queued_calls",
                &["upstream"],
                "Model calls of this replica that wait for their turn at such an upstream.",
            ),
            waits: to.seconds(
                "upstream_queue_wait",
                &["upstream"],
                BOUNDS,
                "How long model calls waited for their turn at such an upstream; 0 for those that did not wait.",
            ),
            address_rests: to.counters(
                "upstream_address_rests",
                &["upstream", "address"],
                "How often this replica left out an address of an upstream that has several, since calls to it failed.",
            ),
            key_rests: to.counters(
                "upstream_key_rests",
                &["upstream", "key", "reason"],
                "How often this replica left out a key of an upstream that has several, by the key's place in the \
                 configuration: `rate_limit`, `quota`, `refused` or `forbidden`.",
            ),
        }
    }

    /// What counts the calls at the upstream of this name.
    #[must_use]
    pub fn queue(&self, upstream: &str) -> CallQueueMetrics {
        let names = [upstream];
        let (active, queued, waits) = (self.active.of(&names), self.queued.of(&names), self.waits.of(&names));
        CallQueueMetrics(Some(CallQueue { active, queued, waits }))
    }

    /// What counts how often addresses and keys of the upstream of this name rest.
    #[must_use]
    pub fn rests(&self, upstream: &str) -> RestMetrics {
        let (addresses, keys) = (self.address_rests.clone(), self.key_rests.clone());
        RestMetrics(Some(Rests { upstream: upstream.to_owned(), addresses, keys }))
    }
}

impl CallQueueMetrics {
    /// Shows how many calls are under way, and how many wait.
    pub fn show(&self, active: u32, queued: usize) {
        if let Some(queue) = &self.0 {
            queue.active.set(i64::from(active));
            queue.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
        }
    }

    /// Counts a call that got its turn after so long.
    pub fn waited(&self, time: Duration) {
        if let Some(queue) = &self.0 {
            queue.waits.observe(time.as_secs_f64(), None);
        }
    }
}

impl RestMetrics {
    /// Counts a rest of an address.
    pub fn address(&self, address: &str) {
        if let Some(rests) = &self.0 {
            rests.addresses.of(&[&rests.upstream, address]).inc();
        }
    }

    /// Counts a rest of the key in this place, counted from 1.
    pub fn key(&self, place: usize, reason: &'static str) {
        if let Some(rests) = &self.0 {
            rests.keys.of(&[&rests.upstream, &place.to_string(), reason]).inc();
        }
    }
}

//! What is kept of upstreams while configurations replace each other: which addresses and keys rest, and the calls that
//! are under way or wait.

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::{Settings, Upstream};
use crate::llm::http::pools::PoolState;
use crate::llm::queue::Slots;
use crate::telemetry::metrics::Metrics;

/// What is kept of upstreams, by their names.
#[derive(Debug, Default)]
pub(super) struct KeptUpstreams {
    metrics: Metrics,
    by_name: HashMap<String, Kept>,
}

/// What is kept of one upstream.
#[derive(Debug)]
struct Kept {
    /// The state of its addresses and keys.
    pools: Arc<PoolState>,
    /// Room for its calls, if these are or were bounded.
    slots: Option<Arc<Slots>>,
}

impl KeptUpstreams {
    /// Nothing yet, counted so.
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, by_name: HashMap::new() }
    }

    /// The state of this upstream's addresses and keys.
    pub(super) fn pools(&mut self, upstream: &Upstream) -> Arc<PoolState> {
        self.of(upstream).pools.clone()
    }

    /// Room for this upstream's calls, if these are or were bounded: a bound that is lifted and set again counts the calls that
    /// began in between.
    pub(super) fn slots(&mut self, upstream: &Upstream) -> Option<Arc<Slots>> {
        let (capacity, metrics) = (capacity(upstream), self.metrics.clone());
        let kept = self.of(upstream);
        if kept.slots.is_none() && capacity.is_some() {
            let metrics = metrics.upstreams().map(|metrics| metrics.queue(&upstream.name)).unwrap_or_default();
            kept.slots = Some(Arc::new(Slots::new(capacity, metrics)));
        }
        kept.slots.clone()
    }

    fn of(&mut self, upstream: &Upstream) -> &mut Kept {
        let metrics = &self.metrics;
        self.by_name.entry(upstream.name.clone()).or_insert_with(|| {
            let metrics = metrics.upstreams().map(|metrics| metrics.rests(&upstream.name)).unwrap_or_default();
            Kept { pools: Arc::new(PoolState::counted(metrics)), slots: None }
        })
    }

    /// Keeps what these settings have, and bounds calls as they say. To be called once they are in force.
    pub(super) fn settle(&mut self, settings: &Settings) {
        self.by_name.retain(|name, _| settings.upstreams.iter().any(|upstream| upstream.name == *name));
        for upstream in &settings.upstreams {
            let Some(Kept { pools, slots }) = self.by_name.get(&upstream.name) else { continue };
            if let Some(http) = upstream.kind.http() {
                pools.keep(http.urls(), &http.api_keys);
            }
            if let Some(slots) = slots {
                slots.resize(capacity(upstream));
            }
        }
    }
}

/// Most calls at once.
fn capacity(upstream: &Upstream) -> Option<u32> {
    upstream.kind.http().and_then(|http| http.pools.max_concurrent_calls)
}

//! What traces call the services behind upstreams. Pure.
//!
//! Viewers know the services by the names that OpenTelemetry's conventions give them, and an upstream has whatever name the
//! operator likes. The configuration of the replica that makes the spans says which is which.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The names of services, by the names of upstreams. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Providers(Arc<BTreeMap<String, &'static str>>);

impl Providers {
    /// The service of this upstream, or the upstream's own name if nothing better is known.
    pub(super) fn of<'n>(&'n self, upstream: &'n str) -> &'n str {
        self.0.get(upstream).copied().unwrap_or(upstream)
    }
}

impl FromIterator<(String, &'static str)> for Providers {
    fn from_iter<I: IntoIterator<Item = (String, &'static str)>>(named: I) -> Self {
        Self(Arc::new(named.into_iter().collect()))
    }
}

//! The store, by its kind.

use super::attempt::AREA;
use super::finding::Finding;
use super::{embedded, redis};
use crate::config::{Settings, StoreUrl};

/// The store by its kind.
pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    match &settings.store.url {
        StoreUrl::Memory => {
            let advice = "Choose `embedded:DIR`, or a Redis for several replicas, to keep runs and sessions.";
            vec![Finding::warn(AREA, "memory: keeps nothing when the server ends").advice(advice)]
        }
        StoreUrl::Embedded(directory) => embedded::check(settings, directory).await,
        StoreUrl::Redis(url) => redis::check(settings, url).await,
    }
}

//! What replicas counted, as their metrics tell it.

use std::collections::BTreeMap;

use loopgate::types::clock::now_ms;
use serde::{Deserialize, Serialize};

use super::evidence::Window;
use crate::support::redis::eventually;

/// A run may end for so long before its end is counted: while it is stored.
const STORED_MS: u64 = 2_000;

/// What one process counted. What it counted after it was asked last is gone with it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Life {
    /// Its samples, by name and labels.
    pub(crate) samples: BTreeMap<String, f64>,
    /// The time of which it did not tell; `None` if it was asked after all was over.
    pub(crate) untold: Option<Window>,
}

impl Life {
    /// Asks a replica that lives on, once it drives nothing any more.
    pub(crate) async fn at_rest(address: &str) -> Self {
        eventually("the replica drives nothing", async || Self::read(address).await["loopgate_live_runs"] == 0.0).await;
        Self { samples: Self::read(address).await, untold: None }
    }

    /// Asks a replica just before this ends it.
    pub(crate) async fn until(address: &str, ending: impl Future<Output = ()>) -> Self {
        let from_ms = now_ms().saturating_sub(STORED_MS);
        let samples = Self::read(address).await;
        ending.await;
        Self { samples, untold: Some(Window { from_ms, to_ms: now_ms() }) }
    }

    async fn read(address: &str) -> BTreeMap<String, f64> {
        let answer = super::http().get(format!("{address}/metrics")).send().await.expect("the replica answers");
        let text = answer.text().await.expect("the metrics are text");
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
        let samples = lines.filter_map(|line| line.rsplit_once(' '));
        samples.map(|(name, value)| (name.to_owned(), value.parse().expect("a sample is a number"))).collect()
    }

    /// The sum of a metric's samples that have all of these labels.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters are small whole numbers")]
    pub(crate) fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> u64 {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let is_it = |sample: &str| {
            sample.split('{').next() == Some(metric) && labels.iter().all(|label| sample.contains(label.as_str()))
        };
        self.samples.iter().filter(|(sample, _)| is_it(sample)).map(|(_, value)| *value as u64).sum()
    }
}

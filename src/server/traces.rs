//! Puts the parts together that traces need, and lets their exporter end with the server.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::build::BuildError;
use crate::agent::Agent;
use crate::config::TracesConfig;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::export::{Collector, Exporter};
use crate::telemetry::traces::{Keep, Traces};

/// Most time for the traces that are left when the server ends. Not a setting: a collector takes them at once or is gone.
const FLUSH: Duration = Duration::from_secs(5);

/// Where runs leave their traces, and what sends them; nothing and nobody without a collector.
pub(super) fn build(config: &TracesConfig, metrics: &Metrics) -> Result<(Traces, Option<Exporter>), BuildError> {
    let Some(url) = &config.url else { return Ok((Traces::default(), None)) };
    let keep = Keep {
        ratio: config.ratio,
        follow_caller: config.follow_caller,
        failed: config.keep_failed,
        limited: config.keep_limited,
        slower_than: config.keep_slower_than,
    };
    let collector = Collector::new(config, url).map_err(BuildError::new)?;
    let (traces, queue) = Traces::new(keep, config.content.into(), config.queue as usize, metrics.traces());
    Ok((traces, Some(Exporter::new(queue, collector, config.resource.clone(), metrics.traces()))))
}

/// The task that sends traces.
#[derive(Debug)]
pub(super) struct Exporting {
    stop: CancellationToken,
    /// One task, or none without a collector.
    task: JoinSet<()>,
}

impl Exporting {
    /// Begins to send the traces of this agent's runs.
    pub(super) fn begin(exporter: Option<Exporter>, agent: &Agent) -> Self {
        let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
        if let Some(exporter) = exporter {
            let (agent, stop) = (agent.clone(), stop.clone());
            task.spawn(async move { exporter.run(|ended| agent.runs().ended_trace(ended), stop).await });
        }
        Self { stop, task }
    }

    /// Sends what is left, as far as that is soon done.
    pub(super) async fn end(mut self) {
        self.stop.cancel();
        if tokio::time::timeout(FLUSH, self.task.join_next()).await.is_err() {
            tracing::warn!("the collector of traces did not take the last traces in time; they are dropped");
        }
    }
}

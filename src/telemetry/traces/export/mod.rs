//! Sends traces to a collector, in a task of its own.
//!
//! Runs that ended wait in a queue with a bound. Their logs are read one after the other, as fast as the collector takes
//! the spans. A collector that is slow or gone delays nothing but this task, and costs nothing but telemetry.

mod collector;
mod shipment;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

pub use self::collector::Collector;
use self::collector::{SendError, Taken};
use self::shipment::{Encoded, Shipment, packed};
use super::otlp::Trace;
use super::tracer::Ended;
use crate::telemetry::metrics::{TraceFate, TraceMetrics};
use crate::types::pauses::random;

/// How many bytes are sent together, about, if so many are there. Not a setting: collectors batch by themselves.
const BATCH: usize = 512 << 10;

/// How long the first trace of a batch waits for others. Not a setting: nothing waits for it.
const DELAY: Duration = Duration::from_secs(1);

/// How often a batch is sent before it is dropped.
const ATTEMPTS: u32 = 5;

/// The pause after the first attempt, which doubles with each.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest pause, whatever the collector asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Sends traces to a collector.
#[derive(Debug)]
pub struct Exporter {
    queue: mpsc::Receiver<Ended>,
    collector: Collector,
    /// What traces come from: names and values.
    resource: Vec<(String, String)>,
    counted: Option<Arc<TraceMetrics>>,
    /// Whether the last batch was not sent: the log says so once.
    is_failing: bool,
    /// Whether the collector did not want all of the last batch that it took: the log says so once.
    is_refusing: bool,
}

impl Exporter {
    /// Sends what is put into this queue.
    #[must_use]
    pub fn new(
        queue: mpsc::Receiver<Ended>,
        collector: Collector,
        resource: Vec<(String, String)>,
        counted: Option<Arc<TraceMetrics>>,
    ) -> Self {
        Self { queue, collector, resource, counted, is_failing: false, is_refusing: false }
    }

    /// Sends the traces that `read` makes of runs, until it is told to stop and the queue is empty. From then on nothing
    /// is sent twice.
    pub async fn run<F>(mut self, read: impl Fn(Ended) -> F, stop: CancellationToken)
    where
        F: Future<Output = Option<Trace>>,
    {
        while let Some(batch) = self.next_batch(&read, &stop).await {
            self.send(batch, &stop).await;
        }
    }

    /// The next traces; `None` at the end.
    async fn next_batch<F>(&mut self, read: impl Fn(Ended) -> F, stop: &CancellationToken) -> Option<Vec<Encoded>>
    where
        F: Future<Output = Option<Trace>>,
    {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut ended = Some(self.next(stop).await?);
        let due = Instant::now() + DELAY;
        while let Some(run) = ended.take() {
            match read(run).await {
                Some(trace) => {
                    let encoded = Encoded::new(&self.resource, trace);
                    bytes += encoded.bytes();
                    batch.push(encoded);
                }
                None => self.count(TraceFate::Unreadable, 1),
            }
            if bytes < BATCH {
                ended = timeout_at(due, self.next(stop)).await.ok().flatten();
            }
        }
        Some(batch)
    }

    /// The next run of the queue. Once it is to stop, only if there is one.
    async fn next(&mut self, stop: &CancellationToken) -> Option<Ended> {
        tokio::select! {
            biased;
            ended = self.queue.recv() => ended,
            () = stop.cancelled() => None,
        }
    }

    /// Sends a batch. What is too much for the collector together is sent trace by trace.
    async fn send(&mut self, batch: Vec<Encoded>, stop: &CancellationToken) {
        let mut waiting = VecDeque::from(packed(batch));
        while let Some(shipment) = waiting.pop_front() {
            match self.ship(&shipment, stop).await {
                Ok(rejected) if rejected < shipment.spans() => self.count(TraceFate::Exported, shipment.traces()),
                Ok(_) => self.count(TraceFate::NotSent, shipment.traces()),
                Err(error) if error.is_too_much && shipment.traces() > 1 => waiting.extend(shipment.singly()),
                Err(SendError { why, .. }) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        tracing::warn!(error = %why, "traces are dropped: the collector does not take them");
                    }
                    self.count(TraceFate::NotSent, shipment.traces());
                }
            }
        }
    }

    /// Sends what belongs together. Returns how many spans the collector did not want.
    async fn ship(&mut self, shipment: &Shipment, stop: &CancellationToken) -> Result<u64, SendError> {
        let mut rejected = 0;
        for request in shipment.requests() {
            let taken = self.send_patiently(request, stop).await?;
            rejected += taken.rejected;
            if taken.rejected > 0 && !self.is_refusing {
                let Taken { rejected, why } = &taken;
                tracing::warn!(rejected, error = %why, "the collector of traces did not take all spans");
            }
            self.is_refusing = taken.rejected > 0;
            if let Some(counted) = &self.counted {
                counted.count_rejected(taken.rejected);
            }
        }
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("the collector of traces takes traces again");
        }
        Ok(rejected)
    }

    /// Sends a request, again if the collector may take it later.
    async fn send_patiently(&self, request: Bytes, stop: &CancellationToken) -> Result<Taken, SendError> {
        let mut attempt = 1;
        loop {
            let sent = self.collector.send(request.clone()).await;
            if let (Err(_), Some(counted)) = (&sent, &self.counted) {
                counted.count_failure();
            }
            match sent {
                Err(SendError { why, after: Some(after), .. }) if attempt < ATTEMPTS && !stop.is_cancelled() => {
                    tracing::debug!(error = %why, attempt, "the collector of traces is asked again");
                    let pause = (PAUSE * 2_u32.pow(attempt - 1)).mul_f64(0.5 + random() / 2.0).max(after);
                    tokio::select! {
                        () = tokio::time::sleep(pause.min(LONGEST_PAUSE)) => {}
                        () = stop.cancelled() => {}
                    }
                    attempt += 1;
                }
                settled => return settled,
            }
        }
    }

    fn count(&self, fate: TraceFate, traces: u64) {
        if let Some(counted) = &self.counted {
            counted.count(fate, traces);
        }
    }
}

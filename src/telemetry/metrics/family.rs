//! Metrics with labels, and the handles by which they are counted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use prometheus_client::encoding::{
    EncodeLabel, EncodeLabelSet, EncodeMetric, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::{Family as Inner, MetricConstructor};
use prometheus_client::metrics::{MetricType, TypedMetric};

use crate::types::Micros;

/// A sum of money, exact to the millionth of a dollar.
#[derive(Debug, Clone, Default)]
pub(super) struct Spending(Arc<AtomicU64>);

impl Spending {
    pub(super) fn add(&self, cost: Micros) {
        self.0.fetch_add(cost.0, Ordering::Relaxed);
    }
}

impl TypedMetric for Spending {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for Spending {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let usd = Micros(self.0.load(Ordering::Relaxed)).as_usd();
        encoder.encode_counter::<NoLabelSet, _, u64>(&usd, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Money that is set aside now, exact to the millionth of a dollar.
#[derive(Debug, Clone, Default)]
pub(super) struct Reserved(Arc<AtomicU64>);

impl Reserved {
    /// Sets `next` aside in place of `before`.
    pub(super) fn replace(&self, before: Micros, next: Micros) {
        // Wraps below 0 for a moment if others release meanwhile, and back again.
        self.0.fetch_add(next.0.wrapping_sub(before.0), Ordering::Relaxed);
    }
}

impl TypedMetric for Reserved {
    const TYPE: MetricType = MetricType::Gauge;
}

impl EncodeMetric for Reserved {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&Micros(self.0.load(Ordering::Relaxed)).as_usd())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// The values of a metric's labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Labels {
    names: &'static [&'static str],
    values: Box<[Box<str>]>,
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        for (name, value) in self.names.iter().zip(&self.values) {
            (*name, value.as_ref()).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

/// Makes the metric of a new combination of labels.
#[derive(Clone)]
pub(super) struct Maker<M>(Arc<dyn Fn() -> M + Send + Sync>);

impl<M> MetricConstructor<M> for Maker<M> {
    fn new_metric(&self) -> M {
        (self.0)()
    }
}

/// A metric with labels.
#[derive(Debug, Clone)]
pub(super) struct Family<M> {
    names: &'static [&'static str],
    inner: Inner<Labels, M, Maker<M>>,
}

impl<M: Clone + TypedMetric + EncodeMetric> Family<M> {
    pub(super) fn new(names: &'static [&'static str], make: impl Fn() -> M + Send + Sync + 'static) -> Self {
        Self { names, inner: Inner::new_with_constructor(Maker(Arc::new(make))) }
    }

    /// The handle of this combination, in the order in which the labels are declared. Handles are kept: finding one
    /// takes a lock.
    pub(super) fn of(&self, values: &[&str]) -> M {
        debug_assert_eq!(self.names.len(), values.len(), "{:?}", self.names);
        let values = values.iter().map(|value| printable(value)).collect();
        self.inner.get_or_create_owned(&Labels { names: self.names, values })
    }

    /// Forgets all combinations.
    pub(super) fn clear(&self) {
        self.inner.clear();
    }

    /// What is registered.
    pub(super) fn metric(&self) -> Inner<Labels, M, Maker<M>> {
        self.inner.clone()
    }
}

/// Handles by a value of which there are few, found without hashing or making text.
#[derive(Debug)]
pub(super) struct Few<K, M>(RwLock<Vec<(K, M)>>);

impl<K, M> Default for Few<K, M> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: PartialEq, M: Clone> Few<K, M> {
    /// The handle for this value, made when it is first asked for.
    pub(super) fn of(&self, value: K, make: impl FnOnce() -> M) -> M {
        let find = |made: &[(K, M)]| made.iter().find(|(known, _)| *known == value).map(|(_, handle)| handle.clone());
        if let Some(handle) = find(&self.0.read()) {
            return handle;
        }
        let mut made = self.0.write();
        find(&made).unwrap_or_else(|| {
            let handle = make();
            made.push((value, handle.clone()));
            handle
        })
    }
}

/// A label's value without what could end it, or its line, early.
fn printable(value: &str) -> Box<str> {
    let fit = |c: char| if c.is_alphanumeric() || "-_.:/@+".contains(c) { c } else { '_' };
    value.chars().take(MOST_VALUE).map(fit).collect()
}

/// Longest value of a label, in characters.
const MOST_VALUE: usize = 128;

/// The trace that an observation belongs to.
#[derive(Debug, Clone)]
pub(super) struct Exemplar(pub(super) Arc<str>);

impl EncodeLabelSet for Exemplar {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        ("trace_id", self.0.as_ref()).encode(encoder.encode_label())
    }
}

/// A distribution, with an example in each bucket.
#[derive(Debug, Clone)]
pub(super) struct Histogram(HistogramWithExemplars<Exemplar>);

impl Histogram {
    pub(super) fn new(bounds: &[f64]) -> Self {
        Self(HistogramWithExemplars::new(bounds.iter().copied()))
    }

    /// Adds a time in seconds, perhaps with the trace that it belongs to.
    pub(super) fn observe(&self, seconds: f64, trace: Option<&Exemplar>) {
        self.0.observe(seconds, trace.cloned(), None);
    }

    /// Adds a time in milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "exact for 285,000 years")]
    pub(super) fn observe_ms(&self, ms: u64, trace: Option<&Exemplar>) {
        self.observe(ms as f64 / 1e3, trace);
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

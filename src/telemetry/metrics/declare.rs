//! The declaration of a metric: the call that registers it is also its line in the documentation.

use std::fmt::Write;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::family::{Family, Histogram, Reserved, Spending};

/// What all names begin with.
const PREFIX: &str = "loopgate";

/// A metric as it is documented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name where it is read.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it tells, in one sentence.
    pub help: &'static str,
}

/// Registers metrics and notes what is said of them.
#[derive(Debug)]
pub(super) struct Declarations {
    registry: Registry,
    rows: Vec<Row>,
}

impl Declarations {
    pub(super) fn new() -> Self {
        Self { registry: Registry::with_prefix(PREFIX), rows: Vec::new() }
    }

    /// A counter for each combination of labels.
    pub(super) fn counters(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Family<Counter> {
        self.note(format!("{PREFIX}_{name}_total"), "counter", labels, help);
        let family = Family::new(labels, Counter::default);
        self.registry.register(name, unstopped(help), family.metric());
        family
    }

    /// As [`Declarations::counters`], of US dollars.
    pub(super) fn spending(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Family<Spending> {
        self.note(format!("{PREFIX}_{name}_usd_total"), "counter", labels, help);
        let family = Family::new(labels, Spending::default);
        self.registry.register_with_unit(name, unstopped(help), usd(), family.metric());
        family
    }

    /// A gauge of US dollars.
    pub(super) fn reserved(&mut self, name: &'static str, help: &'static str) -> Reserved {
        self.note(format!("{PREFIX}_{name}_usd"), "gauge", &[], help);
        let reserved = Reserved::default();
        self.registry.register_with_unit(name, unstopped(help), usd(), reserved.clone());
        reserved
    }

    /// A histogram of seconds for each combination of labels.
    pub(super) fn seconds(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        bounds: &'static [f64],
        help: &'static str,
    ) -> Family<Histogram> {
        self.note(format!("{PREFIX}_{name}_seconds"), "histogram", labels, help);
        let family = Family::new(labels, move || Histogram::new(bounds));
        self.registry.register_with_unit(name, unstopped(help), Unit::Seconds, family.metric());
        family
    }

    /// A gauge.
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> Gauge {
        self.note(format!("{PREFIX}_{name}"), "gauge", &[], help);
        let gauge = Gauge::default();
        self.registry.register(name, unstopped(help), gauge.clone());
        gauge
    }

    /// A gauge for each combination of labels.
    pub(super) fn gauges(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Family<Gauge> {
        self.note(format!("{PREFIX}_{name}"), "gauge", labels, help);
        let family = Family::new(labels, Gauge::default);
        self.registry.register(name, unstopped(help), family.metric());
        family
    }

    fn note(&mut self, name: String, kind: &'static str, labels: &'static [&'static str], help: &'static str) {
        self.rows.push(Row { name, kind, labels, help });
    }

    /// What was registered, and what is said of it.
    pub(super) fn into_parts(self) -> (Registry, Vec<Row>) {
        (self.registry, self.rows)
    }
}

fn usd() -> Unit {
    Unit::Other("usd".to_owned())
}

/// The registry adds a full stop.
fn unstopped(help: &'static str) -> &'static str {
    help.trim_end_matches('.')
}

/// The metrics as a table in Markdown.
#[must_use]
pub fn to_markdown(rows: &[Row]) -> String {
    let mut text = String::from("| metric | kind | labels | tells |\n| --- | --- | --- | --- |\n");
    for Row { name, kind, labels, help } in rows {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
        writeln!(text, "| `{name}` | {kind} | {labels} | {help} |").expect("writing to a string cannot fail");
    }
    text
}

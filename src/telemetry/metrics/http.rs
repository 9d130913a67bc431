//! What is counted of requests.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::bounds::DURATIONS;
use super::declare::Declarations;
use super::family::{Family, Few, Histogram};
use super::names::Named;

/// What is counted of the requests of one route.
#[derive(Debug)]
struct RouteMeters {
    route: String,
    answered: Family<Counter>,
    /// The handles of those by status.
    by_status: Few<u16, Counter>,
    duration: Histogram,
}

/// All metrics of requests.
#[derive(Debug)]
pub(super) struct HttpMetrics {
    routes: Named<RouteMeters>,
    refused: Family<Counter>,
    pub(super) connections: Connections,
}

/// Counts connections; nothing where metrics are off.
#[derive(Debug, Clone, Default)]
pub struct Connections(Option<(Gauge, Counter)>);

impl Connections {
    fn declare(to: &mut Declarations) -> Self {
        let open =
            to.gauge("connections", "Open connections, those of probes among them, but not of this page's own port.");
        let refused = to.counters(
            "connections_refused",
            &[],
            "Connections that were closed at once, as there was no room even to refuse their requests.",
        );
        Self(Some((open, refused.of(&[]))))
    }

    /// A connection was opened.
    pub fn opened(&self) {
        if let Some((open, _)) = &self.0 {
            open.inc();
        }
    }

    /// A connection was closed.
    pub fn closed(&self) {
        if let Some((open, _)) = &self.0 {
            open.dec();
        }
    }

    /// A connection was not taken.
    pub fn refused(&self) {
        if let Some((_, refused)) = &self.0 {
            refused.inc();
        }
    }
}

impl HttpMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        let answered = to.counters("http_requests", &["route", "status"], "Requests that were answered.");
        let duration = to.seconds(
            "http_request_duration",
            &["route"],
            DURATIONS,
            "From a request to the head of its response: to the end of the run, unless it is streamed.",
        );
        let refused = to.counters("http_errors", &["code"], "Error responses, by the code that clients are told.");
        let routes = Named::any(move |route| RouteMeters {
            route: route.to_owned(),
            answered: answered.clone(),
            by_status: Few::default(),
            duration: duration.of(&[route]),
        });
        Self { routes, refused, connections: Connections::declare(to) }
    }

    pub(super) fn answered(&self, route: &str, status: u16, after: Duration) {
        let meters: Arc<RouteMeters> = self.routes.of(route);
        let make = || meters.answered.of(&[&meters.route, &status.to_string()]);
        meters.by_status.of(status, make).inc();
        meters.duration.observe(after.as_secs_f64(), None);
    }

    pub(super) fn refused(&self, code: &'static str) {
        self.refused.of(&[code]).inc();
    }
}

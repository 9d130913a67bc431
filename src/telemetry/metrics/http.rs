//! What is counted of requests.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

use super::declare::Declarations;
use super::family::{Family, Few, Histogram};
use super::names::Named;
use super::runs::DURATIONS;

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
        Self { routes, refused }
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

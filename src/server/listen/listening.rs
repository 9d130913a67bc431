//! What all connections have in common.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::slots::Limits;
use crate::telemetry::metrics::Connections;

/// What bounds connections.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Bounds {
    /// How many there may be.
    pub(in crate::server) limits: Limits,
    /// How long a new connection may take to send the headers of its first request.
    pub(in crate::server) header_timeout: Duration,
    /// How long a connection is kept open between requests, and how long the next one's headers may take.
    pub(in crate::server) keep_alive: Duration,
    /// How long a client may take nothing of its answer.
    pub(in crate::server) write_timeout: Duration,
}

/// What all connections have in common.
#[derive(Debug, Clone)]
pub(super) struct Listening {
    pub(super) http: http1::Builder,
    pub(super) router: Router,
    pub(super) bounds: Bounds,
    pub(super) stop: CancellationToken,
    pub(super) connections: TaskTracker,
    /// What counts them for the metrics.
    pub(super) counted: Connections,
}

//! Logs and metrics.
//!
//! Metrics of runs are a reader of their events: [`fold`] turns the records of a run into observations, which
//! [`metrics`] counts. The loop itself counts nothing. Knows neither the agent nor HTTP.

pub mod fold;
mod log_writer;
pub mod logs;
pub mod metrics;

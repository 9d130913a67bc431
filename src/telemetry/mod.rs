//! Logs, metrics and traces.
//!
//! Metrics of runs are a reader of their events: [`fold`] turns the records of a run into observations, which
//! [`metrics`] counts; [`traces`] makes spans of them. The loop itself counts and traces nothing. Knows nothing of the agent.

pub mod fold;
mod json_lines;
mod log_writer;
pub mod logs;
pub mod metrics;
pub mod run;
pub mod traces;

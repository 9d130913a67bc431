//! The steps that do I/O, a file each.

pub mod answer_call;
pub mod begin;
pub mod call_model;
mod dispatch;
pub mod finish;
pub(super) mod outcome;
pub mod run_tools;

//! The steps that do I/O, a file each.

pub mod answer_call;
pub mod begin;
pub mod call_model;
pub mod finish;
pub mod run_tools;

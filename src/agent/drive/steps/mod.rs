//! The steps that do I/O, a file each.

pub mod admit;
pub mod answer_call;
pub(super) mod ask;
pub(super) mod ask_guardrails;
pub(super) mod await_services;
pub mod begin;
mod beside;
pub mod call_model;
mod call_tool;
pub mod compact;
mod conversation;
pub mod count;
mod dispatch;
mod fail;
pub(super) mod fall_back;
pub mod finish;
pub mod flush;
mod flush_call;
pub(super) mod hedge;
pub mod hooks;
pub(super) mod judge_call;
mod listen;
pub(super) mod outcome;
pub(super) mod questions;
pub mod run_tools;
pub(in crate::agent::drive) mod settle_result;
pub mod summarise;

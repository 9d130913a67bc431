//! One run's task: asks the machine for the next step, does it, and records what happened.
//!
//! Knows nothing of how the run got its driver, nor of the readers of its events.

mod asked;
mod child_ended;
pub(super) mod driver;
mod guarded;
pub(super) mod handing_over;
mod judge;
pub(super) mod meter;
pub(super) mod notices;
mod pending;
pub mod recorder;
pub mod replay;
pub(super) mod run_loop;
pub(super) mod signals;
pub(super) mod steps;
pub(super) mod watcher;
pub(super) mod when_woken;

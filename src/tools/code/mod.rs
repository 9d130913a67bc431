//! `run_code`: code of a model, run in a sandbox within this process.
//!
//! The operator names interpreters that are WebAssembly modules. Each call makes a new instance of one, with files in memory,
//! and forgets it. Where the server keeps files, a program finds those of the call's workspace, and what it changes is written back once
//! it has ended. The module is interpreted ([`wasmi`]): no code is made at run time, so what it can do is what [`wasi`] offers.
//! A run has a thread of its own with a low priority, and is looked at every few milliseconds.

mod answer;
mod program;
#[cfg(test)]
mod tests;
mod tool;
mod wasi;
mod worker;
mod written;

pub use tool::RunCode;

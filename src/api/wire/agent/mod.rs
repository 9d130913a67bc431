//! Our own dialect: the `agent` object of requests and answers, and the stream of named events.

pub mod approval;
mod attempts;
pub mod budget;
pub mod context;
mod context_events;
pub mod delegate;
pub mod dry_run;
pub mod ending;
pub mod entry;
mod event_names;
pub mod events;
pub mod guarded;
mod hook;
pub mod object;
pub mod options;
pub mod policy;
pub mod progress;
pub mod prompt;
pub mod question;
pub mod result_part;
pub mod rules;
pub mod stream;

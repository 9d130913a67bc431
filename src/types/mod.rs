//! The vocabulary: plain data that all other modules use.
//!
//! No I/O, no async, no HTTP and no decisions. It does not know which modules store, send or run what it describes.

pub mod approval;
pub mod clock;
pub mod context;
pub mod conversation;
pub mod delegate;
pub mod discard;
pub mod error;
pub mod event;
mod expected;
pub mod fallback;
pub mod guard;
pub mod handoff;
pub mod hedge;
pub mod hook;
pub mod id;
pub mod json;
pub mod lineage;
pub mod memory;
pub mod named_server;
pub mod offer;
pub mod outcome;
pub mod pattern;
pub mod pauses;
pub mod pending;
pub mod policy;
pub mod price;
pub mod progress;
pub mod prompt;
pub mod question;
pub mod report;
pub mod reservation;
pub mod response;
pub mod rules;
pub mod run;
pub mod sampling;
pub mod schedule;
pub mod session;
pub mod shortfall;
pub mod skill;
pub mod stop;
pub mod succession;
pub mod taken;
#[cfg(test)]
pub(crate) mod testing;
pub mod tool;
pub mod tool_question;
pub mod trace;
pub mod turn_end;
pub mod unambiguous;
pub mod usage;

pub use conversation::{Conversation, History, Message, Role, ToolCall};
pub use error::{ErrorKind, RunError};
pub use event::{Event, Record};
pub use expected::Expected;
pub use id::{CallId, RunId, ScheduleId, SessionId, Tenant};
pub use outcome::{Outcome, RunStatus, StopReason};
pub use price::Price;
pub use report::Report;
pub use run::{Limits, RunSpec};
pub use shortfall::{BudgetOwner, Shortfall};
pub use tool::{Effect, ToolOutcome, ToolProgress};
pub use trace::{RunTrace, SpanKey, TraceContext, TraceParent};
pub use turn_end::TurnEnd;
pub use usage::{BudgetStatus, Micros, Usage, Used};

//! Traces: the records of a run become spans.
//!
//! [`SpanFold`] is pure and needs nothing but the records, so spans can be made of a log at any time and at any replica,
//! and are the same each time. The loop itself knows nothing of spans: [`RunTracer`] looks at a run's end whether its trace
//! is wanted, and [`export`] then makes the spans of its log and sends them.

mod calls;
mod content;
mod describe;
pub mod export;
mod fold;
mod keep;
mod names;
mod otlp;
mod providers;
mod redact;
mod span;
mod subject;
#[cfg(test)]
mod tests;
mod tracer;

pub use self::content::Content;
pub use self::fold::SpanFold;
pub use self::keep::Keep;
pub use self::otlp::{Trace, json, requests};
pub use self::providers::Providers;
pub use self::span::{Attribute, Kind, Moment, Span, Value};
pub use self::subject::Subject;
pub use self::tracer::{Ended, RunTracer, Traces};

//! Our own dialect: the `agent` object of requests and answers, and the stream of named events.

pub mod budget;
pub mod ending;
pub mod events;
pub mod object;
pub mod options;
pub mod result_part;

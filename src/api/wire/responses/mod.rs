//! OpenAI's Responses: the request, the one object and the stream of its events.
//!
//! A response is one leg of a run: from its first record, or from the request with which its client continued it, to the next
//! end. Its ids are made of the run's, so any replica finds what an id names in the run's log.

mod checks;
pub mod content;
pub mod events;
pub mod frame;
pub mod id;
pub mod input;
pub mod input_items;
pub mod item;
pub mod items;
pub mod object;
pub mod output;
pub mod param;
pub mod request;
pub mod tool_names;
pub mod tools;

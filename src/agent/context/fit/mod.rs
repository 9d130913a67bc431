//! Makes a conversation fit: decides what of it a model is shown, and shows that. Pure.
//!
//! What was said stays as it is, in the run's log and in the session. A [view](crate::types::context::View) says what of it
//! a model is shown. It changes seldom, with an event of the run, and not with every call: requests that begin alike are
//! cheaper, as upstreams cache how a request begins.
//!
//! | file | holds |
//! | --- | --- |
//! | `begin` | what is shown when a run begins |
//! | `subject` | a conversation that is too long, and the views that make it fit |
//! | `cut` | where a conversation may be cut |
//! | `places` | where messages stand in the whole conversation, of which a run may have a part |
//! | `prune` | results of tools in short |
//! | `shown` | the messages that a view shows |
//! | `pairs` | that each call has its result |
//! | `local` | a summary without a model |
//! | `transcript` | what a model is given to summarise |
//! | `words` | texts in short |

pub mod begin;
pub mod cut;
pub mod local;
pub mod pairs;
pub mod places;
mod prune;
pub mod shown;
pub mod subject;
#[cfg(test)]
mod tests;
pub mod transcript;
mod words;

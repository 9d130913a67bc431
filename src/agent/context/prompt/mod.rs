//! What a model is told beside the conversation: sections are put in order, and find their place in a request. Pure.
//!
//! | file | decides |
//! | --- | --- |
//! | `compose` | the order of sections, and what becomes of them in a request |
//! | `place` | where what is of one run alone stands in the conversation |

pub mod compose;
pub mod place;

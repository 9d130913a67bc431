//! What a model is told beside the conversation: sections are put in order, and find their place in a request. Pure.
//!
//! | file | decides |
//! | --- | --- |
//! | `compose` | the order of sections, and what becomes of them in a request |
//! | `frame` | that no text ends the tags in which it is shown |
//! | `layers` | which layer of a name counts |
//! | `place` | where what is of one run alone stands in the conversation |
//! | `written` | which sections the server writes by itself |

pub mod compose;
pub mod frame;
pub mod layers;
pub mod place;
pub mod written;

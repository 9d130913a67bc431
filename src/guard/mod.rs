//! What guards a run's messages, answers and results: pure rules over texts.
//!
//! Nothing here knows runs, models or tools: the caller of a rule decides what becomes of a text. All rules take time linear
//! in the text, whatever it says.
//!
//! | file | guards |
//! | --- | --- |
//! | `code` | knows the code of Markdown, whose text is not touched |
//! | `hold` | what a model says, while it streams, by its guardrails |
//! | `input` | what persons and documents say |
//! | `json` | follows a JSON value to its end |
//! | `output` | what a model says, while it streams |
//! | `plain` | texts with JSON, as they read with its escapes resolved |
//! | `question` | what a model is asked that judges a text |
//! | `rails` | texts, by the guardrails of an agent |
//! | `result` | results of tools: what no model reads becomes a note of its size |

pub mod code;
pub mod hold;
pub mod input;
pub mod json;
pub mod output;
pub mod plain;
pub mod question;
pub mod rails;
pub mod result;

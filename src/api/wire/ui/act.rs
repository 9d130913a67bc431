//! What a stream for a chat interface tells.

use std::borrow::Cow;
use std::fmt;

use bytes::BytesMut;

use crate::api::wire::RunNames;
use crate::api::wire::openai_error::ErrorObject;
use crate::types::{CallId, Outcome, Record, ToolCall};

/// A piece of what a stream tells.
#[derive(Debug)]
pub enum Act<'a> {
    /// The stream begins.
    Begin,
    /// A model call begins.
    BeginStep(u32),
    /// It ended, with the calls of its turn.
    EndStep(u32),
    /// A text begins.
    BeginText(Kind, &'a str),
    /// A piece of the text of this id.
    Text(Kind, &'a str, &'a str),
    /// The text is whole.
    EndText(Kind, &'a str),
    /// A call with its arguments, and the message that it goes with.
    Call {
        /// The call.
        call: &'a ToolCall,
        /// Who makes it.
        maker: Maker,
        /// The id of the message.
        message: &'a str,
    },
    /// A call of this tool, which an earlier request of the run was told, goes on.
    Recall(&'a CallId, &'a str),
    /// A call waits for an approval.
    AskApproval(&'a ToolCall),
    /// What came of a call.
    Answer {
        /// The call.
        call: &'a CallId,
        /// Who made it.
        maker: Maker,
        /// What it said.
        text: Cow<'a, str>,
        /// How it ended.
        ending: Ending,
    },
    /// The texts of a step are void.
    Void {
        /// The step.
        step: u32,
        /// Why.
        reason: &'static str,
        /// The ids of its texts.
        texts: &'a [String],
    },
    /// Something else happened in the run.
    Aside(&'a Record),
    /// The run ended, or waits for its client.
    End(&'a Outcome),
    /// The stream cannot be told to its end.
    BreakOff(&'a ErrorObject),
}

/// What kind of text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What the model says.
    Text,
    /// What it thinks.
    Thinking,
}

/// Who makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// The server.
    Server,
    /// The client.
    Client,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was made.
    Made,
    /// It failed.
    Failed,
    /// It was not made, as somebody decided.
    Denied,
}

/// How a protocol writes what a stream tells.
pub trait Dialect: fmt::Debug + Send + 'static {
    /// What follows the last frame.
    const LAST_FRAME: &'static [u8];
    /// What a header says of the stream's version, if clients of the AI SDK read it.
    const UI_MESSAGE_STREAM: Option<&'static str>;

    /// Appends the frames of a piece, often one, sometimes none.
    fn write(&self, act: &Act<'_>, names: &RunNames, out: &mut BytesMut);
}

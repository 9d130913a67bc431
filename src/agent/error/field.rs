//! What of a request is wrong.

/// A part of a request for a run. The endpoint knows the part's name on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The model or agent.
    Model,
    /// A message, counted from 0.
    Message(usize),
    /// A part of a message, both counted from 0.
    Part {
        /// The message.
        message: usize,
        /// The part of it.
        part: usize,
    },
    /// The session.
    Session,
    /// The name of a client's tool, counted from 0.
    ClientToolName(usize),
    /// The parameters of a client's tool, counted from 0.
    ClientToolParameters(usize),
    /// The client's tools.
    ClientTools,
    /// The server's tools.
    Tools,
    /// Which tool must be called first.
    ToolChoice,
    /// The most model calls.
    MaxIterations,
    /// The run's time.
    Timeout,
    /// The time of each tool call.
    ToolTimeout,
    /// The most tokens.
    TokenBudget,
    /// The most money.
    CostBudget,
    /// What happens to messages that look like injected instructions.
    InputGuard,
    /// The longest message.
    MaxMessageChars,
    /// The longest result of a tool.
    MaxToolResultBytes,
    /// A member of a server of tools that the request names, by the place of the server among the tools, counted from 0.
    Server(usize, &'static str),
    /// A member of a decision about a call, counted from 0.
    Approval(usize, &'static str),
    /// A layer of the request's prompt, counted from 0.
    Layer(usize),
    /// The member of this name.
    Member(&'static str),
}

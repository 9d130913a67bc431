//! What a run has asked its model beside the conversation.

/// What of it a run has asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Prompts {
    /// Whether the log tells that the model is asked for a plan.
    pub(super) is_planned: bool,
    /// How many tool calls were made since the model was asked how far it has come.
    pub(super) calls: u32,
    /// Whether the next model call is to ask that.
    pub(super) is_reflecting: bool,
}

impl Prompts {
    pub(super) fn begin_reflection(&mut self) {
        self.calls = 0;
        self.is_reflecting = true;
    }
}

//! For tests: what several parts count alike.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::types::offer::ToolChoice;
use crate::types::run::{OnDisconnect, OnUnknownOutcome, RunOptions};

thread_local! {
    static COMPARISONS: Cell<usize> = const { Cell::new(0) };
}

/// A key that counts how often two of its kind are compared.
#[derive(Debug, Clone, Copy, Eq)]
pub(crate) struct CountedKey(pub(crate) usize);

impl CountedKey {
    /// How often this thread has compared two of them since it last asked.
    pub(crate) fn comparisons() -> usize {
        COMPARISONS.take()
    }
}

impl PartialEq for CountedKey {
    fn eq(&self, other: &Self) -> bool {
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0 == other.0
    }
}

impl Hash for CountedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// The options of a run that asks for nothing.
pub(crate) fn options() -> RunOptions {
    RunOptions {
        tool_choice: ToolChoice::Auto,
        sampling: Arc::default(),
        parallel_tool_calls: true,
        on_disconnect: OnDisconnect::Continue,
        on_unknown_outcome: OnUnknownOutcome::Fail,
        reconnect_grace_ms: 0,
        hide_intermediate_text: false,
        stream_tool_arguments: false,
        max_discards: 0,
        response: None,
    }
}

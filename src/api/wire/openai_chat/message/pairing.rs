//! Pairs the tool calls of a transcript with their results.

use std::collections::HashSet;

use super::view::View;
use crate::api::wire::body::clip;
use crate::api::wire::error::{ErrorCode, WireError};
use crate::types::Role;

/// Every assistant call has exactly one result before the next message of another kind. An id belongs to one
/// turn: many servers count their calls anew in each.
#[derive(Default)]
pub(super) struct Pairing {
    open: HashSet<String>,
    /// The ids of this turn.
    seen: HashSet<String>,
    may_begin_with_results: bool,
}

impl Pairing {
    /// The pairing of a transcript, which may begin with results for calls that the server knows of.
    pub(super) fn new(may_begin_with_results: bool) -> Self {
        Self { may_begin_with_results, ..Self::default() }
    }

    /// Takes the next message.
    pub(super) fn take(&mut self, role: Role, view: &View<'_>) -> Result<(), WireError> {
        if role == Role::Tool {
            let Some(id) = &view.tool_call_id else {
                return Err(WireError::new(ErrorCode::MissingField, "tool_call_id is missing").at("tool_call_id"));
            };
            let known = self.open.remove(&**id) || (self.may_begin_with_results && self.seen.insert(id.to_string()));
            if !known {
                let message = format!("no assistant message before it has an open call {:?}", clip(id));
                return Err(WireError::invalid("tool_call_id", message));
            }
            return Ok(());
        }
        self.close()?;
        // A client that answers a waiting run may add messages in the same request.
        self.may_begin_with_results &= role == Role::System || role == Role::Developer;
        self.seen.clear();
        for (index, call) in view.tool_calls.iter().flatten().enumerate() {
            if call.function.name.is_empty() {
                let path = format!("tool_calls[{index}].function.name");
                return Err(WireError::invalid(path, "the name is empty"));
            }
            if !self.seen.insert(call.id.to_string()) {
                let message = format!("two calls of this message have the id {:?}", clip(&call.id));
                return Err(WireError::invalid(format!("tool_calls[{index}].id"), message));
            }
            self.open.insert(call.id.to_string());
        }
        Ok(())
    }

    /// Refuses calls without a result.
    pub(super) fn close(&self) -> Result<(), WireError> {
        match self.open.iter().next() {
            Some(id) => {
                let message = format!("the tool call {:?} before it has no result", clip(id));
                Err(WireError::new(ErrorCode::InvalidValue, message))
            }
            None => Ok(()),
        }
    }
}

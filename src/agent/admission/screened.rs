//! Screens the messages of a request, and refuses what the agent's input guard refuses.

use std::sync::Arc;

use crate::agent::context::screen::{refusal, refused, screen};
use crate::agent::error::{Field, StartError};
use crate::agent::request::GuardsPatch;
use crate::types::guard::{Guarded, Guards};
use crate::types::{CallId, Message};

/// Screens messages that stand in a request from this place on, and answer what a model asked by these calls. Returns what the
/// log is to tell.
pub(super) fn screened(
    messages: &mut [Message],
    guards: &Guards,
    from: usize,
    asked: &[CallId],
) -> Result<Vec<Guarded>, StartError> {
    let told = screen(messages, guards, asked);
    let Some((place, pattern)) = refused(guards, &told) else { return Ok(told) };
    tracing::warn!(pattern = pattern.as_str(), message = from + place, blocked = true, "security.injection_detected");
    Err(StartError::Blocked { field: Field::Message(from + place), message: refusal(pattern) })
}

/// The guards of an agent, or stricter ones as a request asks for them. Asking for less is an error.
pub(super) fn tightened(guards: &Arc<Guards>, asked: GuardsPatch) -> Result<Arc<Guards>, StartError> {
    let GuardsPatch { input, max_message_chars, max_tool_result_bytes } = asked;
    if input.is_none() && max_message_chars.is_none() && max_tool_result_bytes.is_none() {
        return Ok(guards.clone());
    }
    let looser = |field, what: &str| {
        let message = format!("this is less strict than the agent's guards, which have {what}");
        Err(StartError::Invalid { field, message })
    };
    let mut strict = Guards::clone(guards);
    strict.input = input.unwrap_or(strict.input);
    strict.max_message_chars = max_message_chars.unwrap_or(strict.max_message_chars);
    strict.results.max_bytes = max_tool_result_bytes.unwrap_or(strict.results.max_bytes);
    if strict.input < guards.input {
        return looser(Field::InputGuard, guards.input.as_str());
    }
    if strict.max_message_chars > guards.max_message_chars {
        return looser(Field::MaxMessageChars, &guards.max_message_chars.to_string());
    }
    if strict.results.max_bytes > guards.results.max_bytes {
        return looser(Field::MaxToolResultBytes, &guards.results.max_bytes.to_string());
    }
    Ok(Arc::new(strict))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::guard::InputMode;

    #[test]
    fn a_request_can_only_tighten_guards() {
        let guards = Arc::<Guards>::default();
        let patch = |input, max_message_chars, max_tool_result_bytes| GuardsPatch {
            input,
            max_message_chars,
            max_tool_result_bytes,
        };
        let strict = tightened(&guards, patch(Some(InputMode::Block), Some(9), Some(2_000))).unwrap();
        assert_eq!((strict.input, strict.max_message_chars, strict.results.max_bytes), (InputMode::Block, 9, 2_000));
        assert!(Arc::ptr_eq(&tightened(&guards, GuardsPatch::default()).unwrap(), &guards));
        for (asked, field) in [
            (patch(Some(InputMode::Log), None, None), Field::InputGuard),
            (patch(None, Some(40_000), None), Field::MaxMessageChars),
            (patch(None, None, Some(60_000)), Field::MaxToolResultBytes),
        ] {
            let refused = tightened(&guards, asked);
            assert!(matches!(refused, Err(StartError::Invalid { field: known, .. }) if known == field), "{refused:?}");
        }
    }
}

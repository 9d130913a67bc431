//! That each call of what is shown has its result, and each result its call. Upstreams refuse a conversation where that is not so.

use std::collections::VecDeque;

use crate::llm::message_parts;
use crate::types::conversation::{Part, ToolResult};
use crate::types::{CallId, Message, Role};

/// What takes the place of a result that is missing.
const MISSING: &str = "[Tool result missing: the conversation was shortened]";

/// The messages without results whose call is not there, and with a result for each call that has none. Calls may bear the same
/// id in different turns, so each turn is looked at by itself.
pub(super) fn repaired(messages: Vec<Message>) -> Vec<Message> {
    let mut whole = Vec::with_capacity(messages.len());
    let mut open: VecDeque<CallId> = VecDeque::new();
    for message in messages {
        if message.role == Role::Tool {
            let answered = answered(&message);
            if answered.iter().any(|call| open.contains(call)) {
                open.retain(|call| !answered.contains(call));
                whole.push(message);
            }
            continue;
        }
        close(&mut open, &mut whole);
        if message.role == Role::Assistant {
            open = asked(&message);
        }
        whole.push(message);
    }
    close(&mut open, &mut whole);
    whole
}

/// The places of calls without their result, and of results without their call.
#[must_use]
pub fn broken(messages: &[Message]) -> Vec<usize> {
    let (mut broken, mut open, mut asked_at) = (Vec::new(), VecDeque::new(), 0);
    for (place, message) in messages.iter().enumerate() {
        if message.role == Role::Tool {
            let answered = answered(message);
            let fits = !answered.is_empty() && answered.iter().all(|call| open.contains(call));
            broken.extend((!fits).then_some(place));
            open.retain(|call| !answered.contains(call));
            continue;
        }
        broken.extend((!open.is_empty()).then_some(asked_at));
        (open, asked_at) = (if message.role == Role::Assistant { asked(message) } else { VecDeque::new() }, place);
    }
    broken.extend((!open.is_empty()).then_some(asked_at));
    broken
}

fn close(open: &mut VecDeque<CallId>, whole: &mut Vec<Message>) {
    let missing =
        |call| Message::result(ToolResult { call, parts: vec![Part::text(MISSING)], structured: None, is_error: true });
    whole.extend(open.drain(..).map(missing));
}

fn asked(message: &Message) -> VecDeque<CallId> {
    let Ok(parts) = message_parts(message) else { return VecDeque::new() };
    parts.list.iter().filter_map(Part::as_call).map(|call| call.id.clone()).collect()
}

fn answered(message: &Message) -> Vec<CallId> {
    let Ok(parts) = message_parts(message) else { return Vec::new() };
    parts.list.iter().filter_map(Part::as_result).map(|result| result.call.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ToolCall;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: CallId::foreign(id), name: "echo".into(), arguments: "{}".into() }
    }

    fn result(id: &str) -> Message {
        Message::tool(&CallId::foreign(id), "done")
    }

    fn ids(messages: &[Message]) -> Vec<String> {
        messages.iter().flat_map(answered).map(|call| call.to_string()).collect()
    }

    #[test]
    fn what_has_lost_its_other_half_is_found() {
        let said = Message::assistant("", &[call("a"), call("b")]);
        let user = Message::text(Role::User, "so?");
        let whole = vec![user.clone(), said.clone(), result("b"), result("a"), user.clone()];
        assert_eq!(broken(&whole), [0_usize; 0]);
        assert_eq!(broken(&[result("a"), user.clone(), said.clone(), result("a")]), [0, 2]);
        assert_eq!(broken(&[said.clone(), user, result("a"), result("b")]), [0, 2, 3]);
        assert_eq!(broken(&[said, result("a"), result("a"), result("b")]), [2]);
    }

    #[test]
    fn a_result_without_its_call_goes_and_a_call_without_its_result_gets_one() {
        use Role::{Assistant, Tool, User};
        let said = Message::assistant("", &[call("a"), call("b")]);
        let user = Message::text(Role::User, "so?");
        let whole = repaired(vec![result("lost"), said.clone(), result("b"), user.clone(), said.clone(), result("a")]);
        assert_eq!(ids(&whole), ["b", "a", "a", "b"]);
        let roles: Vec<_> = whole.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Assistant, Tool, Tool, User, Assistant, Tool, Tool]);
    }

    #[test]
    fn what_is_whole_stays_as_it_is() {
        let said = Message::assistant("", &[call("a"), call("b")]);
        let whole = vec![said.clone(), result("b"), result("a"), said, result("a"), result("b")];
        assert_eq!(repaired(whole.clone()), whole);
    }
}

//! Results of tools in short: the beginning and the end of what was long, or a note.

use crate::agent::context::fit::words::ends;
use crate::llm::message_parts;
use crate::types::context::PruningRules;
use crate::types::conversation::{Extra, Part, PartKind, Parts, ToolResult, lines};
use crate::types::{Message, Role};

/// What replaces a result.
const CLEARED: &str = "[Old tool result content cleared]";

/// A result that keeps its beginning and its end; `None` if it is short.
pub(super) fn softly(message: &Message, rules: &PruningRules) -> Option<Message> {
    let [most, head, tail] = [rules.max_chars, rules.head_chars, rules.tail_chars].map(|chars| chars as usize);
    if message.role != Role::Tool || message.weight() <= most {
        return None;
    }
    changed(message, |result| Some(vec![Part::text(ends(&lines(&result.parts), most, head, tail)?)]))
}

/// A note in place of a result; `None` if that is no shorter.
pub(super) fn hard(message: &Message) -> Option<Message> {
    if message.role != Role::Tool {
        return None;
    }
    changed(message, |_| Some(vec![Part::text(CLEARED)]))
}

/// The message with other parts in its results, if that makes it shorter.
fn changed(message: &Message, mut change: impl FnMut(&ToolResult) -> Option<Vec<Part>>) -> Option<Message> {
    let parts = message_parts(message).ok()?;
    let mut is_changed = false;
    let mut shorter = |part: &Part| {
        let short = part.as_result().and_then(|result| {
            let (call, is_error) = (result.call.clone(), result.is_error);
            Some(ToolResult { call, parts: change(result)?, structured: None, is_error })
        });
        is_changed |= short.is_some();
        short.map_or_else(|| part.clone(), |short| PartKind::ToolResult(Box::new(short)).into())
    };
    let list = parts.list.iter().map(&mut shorter).collect();
    let short = Message::from_parts(message.role, Parts { list, extra: Extra::default() });
    (is_changed && short.weight() < message.weight()).then(|| short.from(message.origin.clone()))
}

/// The place from which on results are protected: that of the model's turn which is the newest but `keep - 1`.
pub(super) fn protected_from(messages: &[&Message], keep: u32) -> usize {
    let turns = messages.iter().enumerate().rev().filter(|(_, message)| message.role == Role::Assistant);
    let nth = usize::try_from(keep).unwrap_or(usize::MAX);
    match nth.checked_sub(1) {
        None => messages.len(),
        Some(before) => turns.map(|(place, _)| place).nth(before).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CallId;
    use crate::types::conversation::Source;

    fn text(message: &Message) -> String {
        message_parts(message).unwrap().list[0].in_words().into_owned()
    }

    #[test]
    fn a_long_result_keeps_its_ends_and_its_call() {
        let rules = PruningRules::default();
        let call = CallId::foreign("call_1");
        let long = Message::tool(&call, &format!("begin{}end", "x".repeat(5_000)));
        let short = softly(&long, &rules).unwrap();
        let words = text(&short);
        assert!(words.starts_with("beginx") && words.ends_with("xend") && words.contains("2008 of 5008"), "{words}");
        let parts = message_parts(&short).unwrap();
        assert_eq!(parts.list[0].as_result().map(|result| &result.call), Some(&call));
        assert_eq!(softly(&short, &rules), None, "it is short now");
        assert_eq!(text(&hard(&short).unwrap()), CLEARED);
        assert_eq!(hard(&Message::tool(&call, "ok")), None, "a note would be longer");
        assert_eq!(softly(&Message::text(Role::User, &"x".repeat(9_000)), &rules), None);
    }

    #[test]
    fn a_picture_in_a_result_weighs_too() {
        let source = Source::Base64 { media_type: "image/png".into(), data: "x".repeat(10) };
        let parts = vec![PartKind::Image { source, detail: None }.into()];
        let result = ToolResult { call: CallId::foreign("call_1"), parts, structured: None, is_error: false };
        let picture = Message::result(result);
        assert_eq!(text(&hard(&picture).unwrap()), CLEARED);
    }
}

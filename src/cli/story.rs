//! A run's events in words for people.

mod below;
mod event;
mod notes;
mod own;

use self::below::Below;
pub(super) use self::event::{Ending, Event, Usage};
use self::own::Own;
pub(super) use self::own::{Detail, Told};

/// Tells a run, event by event.
#[derive(Debug)]
pub(super) struct Story {
    own: Own,
    /// The runs that do a part of it.
    below: Below,
}

impl Story {
    pub(super) fn new(detail: Detail) -> Self {
        Self { own: Own::new(detail), below: Below::default() }
    }

    /// What is to be shown of this event, in order.
    pub(super) fn tell(&mut self, event: &Event) -> Vec<Told> {
        if let Some(inner) = &event.inner {
            return self.below.tell(event, inner, self.own.detail);
        }
        if self.below.is_waited_for(event) {
            return Vec::new();
        }
        match self.below.changes(event) {
            Some(notes) => self.own.thought().into_iter().chain(notes).collect(),
            None => self.own.tell(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(story: &mut Story, event: &serde_json::Value) -> Vec<Told> {
        story.tell(&serde_json::from_value(event.clone()).unwrap())
    }

    #[test]
    fn no_event_brings_commands_for_the_terminal() {
        let mut story = Story::new(Detail::All);
        let hostile = "a\u{1b}[2J\u{9b}b";
        for event in [
            serde_json::json!({"choices": [{"delta": {"content": hostile}}]}),
            serde_json::json!({"type": "tool.call", "name": hostile, "arguments": {hostile: hostile}}),
            serde_json::json!({"type": "tool.progress", "name": hostile, "message": hostile}),
            serde_json::json!({"type": "tool.result", "name": hostile, "content": hostile, "is_error": true}),
            serde_json::json!({"type": "provider.retry", "cause": hostile}),
            serde_json::json!({"type": "provider.fallback", "upstream": hostile, "model": hostile, "cause": hostile}),
            serde_json::json!({"type": "provider.hedge", "upstream": hostile, "model": hostile}),
            serde_json::json!({"type": "provider.hedge.ended", "dropped_upstream": hostile, "dropped_model": hostile}),
            serde_json::json!({"type": "budget.warning", "scope": hostile, "kind": hostile, "used": 4, "limit": 5}),
            serde_json::json!({"type": "run.queued", "run_id": hostile}),
            serde_json::json!({"type": "approval.required", "name": hostile, "reason": hostile}),
            serde_json::json!({"type": "approval.resolved", "name": hostile, "decision": hostile, "by": hostile}),
            serde_json::json!({"type": "run.started", "run_id": "r", "model": hostile, "session_id": hostile}),
            serde_json::json!({"type": "step.completed", "finish_reason": hostile}),
            serde_json::json!({"type": "thinking.delta", "text": format!("{hostile}\n")}),
            serde_json::json!({"type": "run.failed", "error": {"message": hostile}, "agent": {"status": "failed",
                "stop_reason": hostile, "message": hostile, "run_id": "r", "iterations": 1, "tool_calls": 1, "cost_usd": 0,
                "required_action": {"calls": [{"name": hostile}]}, "warnings": [hostile]}}),
        ] {
            let told = format!("{:?}", told(&mut story, &event));
            assert!(told.contains("[2J") && !told.contains("\\u{1b}") && !told.contains("\\u{9b}"), "{told}");
        }
    }

    #[test]
    fn a_decision_is_told_with_who_made_it_and_why() {
        let tell = |by: &serde_json::Value, reason: &serde_json::Value| {
            let event = serde_json::json!({"type": "approval.resolved", "name": "pay", "decision": "deny", "by": by, "reason": reason});
            told(&mut Story::new(Detail::All), &event)
        };
        assert_eq!(
            tell(&"ops".into(), &"too much".into()),
            [Told::Note("pay: the decision is deny by ops: too much".to_owned())]
        );
        let null = serde_json::Value::Null;
        assert_eq!(tell(&null, &null), [Told::Note("pay: the decision is deny".to_owned())]);
    }

    #[test]
    fn thoughts_are_told_line_by_line() {
        let mut story = Story::new(Detail::Answer);
        let mut think = |text: &str| told(&mut story, &serde_json::json!({"type": "thinking.delta", "text": text}));
        assert_eq!(think("One "), []);
        assert_eq!(think("line.\nAnother"), [Told::Note("One line.".to_owned())]);
        let text = serde_json::json!({"choices": [{"delta": {"content": "So."}}]});
        assert_eq!(told(&mut story, &text), [Told::Note("Another".to_owned()), Told::Text("So.".to_owned())]);
    }
}

//! Chunks of OpenAI's chat streams, which our own streams use for text as well.

use bytes::{BufMut, BytesMut};
use serde::Serialize;

use crate::api::wire::{RunNames, write_json};
use crate::types::Event;

/// The parts of a chunk that are the same in all of a run's.
#[derive(Debug)]
pub struct ChunkTemplate {
    /// Everything up to the delta.
    head: String,
    /// What closes a chunk whose last member is `choices`.
    tail: &'static str,
}

/// A piece of what the model says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said<'a> {
    /// Answer text.
    Text(&'a str),
    /// Text in which the model declines to answer.
    Refusal(&'a str),
}

impl<'a> Said<'a> {
    /// What is said in an event, and in which step.
    pub fn of(event: &'a Event) -> Option<(u32, Self)> {
        match event {
            Event::TextDelta { step, text } => Some((*step, Self::Text(text))),
            Event::RefusalDelta { step, text } => Some((*step, Self::Refusal(text))),
            Event::RunQueued
            | Event::RunStarted
            | Event::RunResumed { .. }
            | Event::StepStarted { .. }
            | Event::ThinkingDelta { .. }
            | Event::ToolArgumentsDelta { .. }
            | Event::ProviderRetry { .. }
            | Event::ProviderFallback(_)
            | Event::HedgeStarted(_)
            | Event::HedgeEnded(_)
            | Event::TurnFinished { .. }
            | Event::StepDiscarded { .. }
            | Event::Guarded(_)
            | Event::Context(_)
            | Event::BudgetWarning { .. }
            | Event::CallAllowed { .. }
            | Event::ApprovalRequired(_)
            | Event::ApprovalResolved(_)
            | Event::LoopGuardTriggered(_)
            | Event::PlanCreated { .. }
            | Event::ReflectionStarted { .. }
            | Event::ToolStarted { .. }
            | Event::ToolPending(_)
            | Event::Delegated(_)
            | Event::Handoff(_)
            | Event::QuestionAsked(_)
            | Event::QuestionResolved(_)
            | Event::ToolProgress { .. }
            | Event::ToolAnswered { .. }
            | Event::HookRan(_)
            | Event::StartHooked
            | Event::ToolFinished { .. }
            | Event::StepCompleted { .. }
            | Event::StopRequested { .. }
            | Event::StopAfterStep
            | Event::CommandsApplied { .. }
            | Event::HandedOff
            | Event::RunFinished(_) => None,
        }
    }
}

impl ChunkTemplate {
    /// For one response of a run; with `usage_member`, each chunk bears `"usage":null`, as OpenAI's do when usage is
    /// asked for.
    pub fn new(names: &RunNames, usage_member: bool) -> Self {
        let model = serde_json::to_string(&names.model).expect("a string always encodes");
        let head = format!(
            r#"{{"id":"{}","object":"chat.completion.chunk","created":{},"model":{model},"choices":[{{"index":0,"delta":"#,
            completion_id(names),
            names.created_ms / 1000,
        );
        Self { head, tail: if usage_member { r#","usage":null"# } else { "" } }
    }

    /// A chunk of text; with `step`, it says which step the text belongs to.
    pub fn write_text(&self, said: Said<'_>, step: Option<u32>, out: &mut BytesMut) {
        let (member, text) = match said {
            Said::Text(text) => (&br#"{"content":"#[..], text),
            Said::Refusal(text) => (&br#"{"refusal":"#[..], text),
        };
        out.put_slice(self.head.as_bytes());
        out.put_slice(member);
        write_json(text, out);
        out.put_slice(br#"},"finish_reason":null}]"#);
        out.put_slice(self.tail.as_bytes());
        if let Some(step) = step {
            out.put_slice(br#","loopgate":{"step":"#);
            write_json(&step, out);
            out.put_u8(b'}');
        }
        out.put_u8(b'}');
    }

    /// The same as an entry of a list, with the event's number.
    pub fn write_entry(&self, said: Said<'_>, step: u32, seq: u64, out: &mut BytesMut) {
        self.write_text(said, Some(step), out);
        out.truncate(out.len() - 1);
        out.put_slice(br#","seq":"#);
        write_json(&seq, out);
        out.put_u8(b'}');
    }

    /// A chunk with this delta and finish reason, and further members of the chunk, each with its comma.
    pub fn write<D: Serialize + ?Sized>(
        &self,
        delta: &D,
        finish_reason: Option<&str>,
        more: &[u8],
        out: &mut BytesMut,
    ) {
        out.put_slice(b"data: ");
        out.put_slice(self.head.as_bytes());
        write_json(delta, out);
        out.put_slice(br#","finish_reason":"#);
        write_json(&finish_reason, out);
        out.put_slice(b"}]");
        out.put_slice(self.tail.as_bytes());
        out.put_slice(more);
        out.put_slice(b"}\n\n");
    }
}

/// The id of the response: the run's, whose last digits count the requests that continued the run.
pub fn completion_id(names: &RunNames) -> String {
    let suffix = names.id.suffix();
    format!("chatcmpl-{}{:04x}", &suffix[..suffix.len() - 4], names.leg & 0xffff)
}

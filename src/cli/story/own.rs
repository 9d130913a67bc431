//! What a run does itself. Pure.

use super::event::{AgentMember, Choice, Ending, Event, MOST_SHOWN};
use super::notes::{progress_note, tool_note, trouble_note};
use crate::cli::text::{clean, count, line};

/// How much of a run is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Detail {
    /// The answer, and what was done for it.
    Answer,
    /// Everything that happened.
    All,
}

/// What is to be shown of an event.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) enum Told {
    /// A piece of the answer's text.
    Text(String),
    /// A line beside it.
    Note(String),
    /// The last line, with the run's status and, if it failed, its error.
    End { line: String, status: String, error: Option<String> },
}

/// Tells what a run does itself, event by event.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) detail: Detail,
    /// The line of the model's reasoning that has not ended yet.
    thinking: String,
}

impl Own {
    pub(super) fn new(detail: Detail) -> Self {
        Self { detail, thinking: String::new() }
    }

    /// What the model was thinking, if that has not been told.
    pub(super) fn thought(&mut self) -> Option<Told> {
        thought(&std::mem::take(&mut self.thinking))
    }

    /// What is to be shown of this event, in order.
    pub(super) fn tell(&mut self, event: &Event) -> Vec<Told> {
        let mut told = Vec::new();
        if event.r#type == "thinking.delta" {
            self.thinking.push_str(&event.text);
            while let Some((ended, rest)) = self.thinking.split_once('\n') {
                told.extend(thought(ended));
                self.thinking = rest.to_owned();
            }
            return told;
        }
        told.extend(self.thought());
        if event.r#type.is_empty() {
            let said = event.choices.iter().flat_map(|Choice { delta }| [&*delta.content, &*delta.refusal]);
            let text: String = said.collect();
            told.extend((!text.is_empty()).then(|| Told::Text(clean(&text))));
        } else if let Some(AgentMember::Ending(ending)) = &event.agent {
            told.extend(self.end(event, ending));
        } else {
            let note = tool_note(event).or_else(|| trouble_note(event));
            let note = note.or_else(|| (self.detail == Detail::All).then(|| progress_note(event)).flatten());
            told.extend(note.map(Told::Note));
        }
        told
    }

    fn end(&self, event: &Event, ending: &Ending) -> Vec<Told> {
        let Ending { status, stop_reason, run_id, iterations, tool_calls, cost_usd, .. } = ending;
        let mut told = Vec::new();
        if self.detail == Detail::All || ending.required_action.is_some() {
            told.extend(ending.remarks().into_iter().map(Told::Note));
        }
        let (models, tools) = (count(iterations, "model call"), count(tool_calls, "tool call"));
        let mut line = clean(&format!("{status} ({stop_reason}), {models}, {tools}, ${cost_usd}, {run_id}"));
        if let Some(usage) = event.usage.as_ref().filter(|_| self.detail == Detail::All) {
            line = format!("{line}, {usage}");
        }
        if let Some(tree) = &ending.tree {
            line = format!("{line}; all of the tree: {tree}");
        }
        let error = event.error.as_ref().map(|error| clean(&error.message));
        told.push(Told::End { line, status: status.clone(), error });
        told
    }
}

fn thought(text: &str) -> Option<Told> {
    let text = line(text, MOST_SHOWN);
    (!text.is_empty()).then_some(Told::Note(text))
}

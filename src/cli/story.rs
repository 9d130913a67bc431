//! A run's events in words for people.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::ErrorText;
use super::text::{clean, count, line};

/// Most characters of arguments, results and causes that are shown.
const MOST_SHOWN: usize = 400;

/// An event of a run, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    /// Chunks of text have none.
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    run_id: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    upstream: String,
    #[serde(default)]
    dropped_upstream: String,
    #[serde(default)]
    dropped_model: String,
    session_id: Option<String>,
    #[serde(default)]
    step: u32,
    #[serde(default)]
    name: String,
    arguments: Option<Box<RawValue>>,
    #[serde(default)]
    content: String,
    #[serde(default)]
    is_error: bool,
    #[serde(default)]
    outcome_unknown: bool,
    #[serde(default)]
    latency_ms: u64,
    #[serde(default)]
    text: String,
    #[serde(default)]
    message: String,
    progress: Option<f64>,
    total: Option<f64>,
    #[serde(default)]
    cause: String,
    reason: Option<String>,
    /// Of an approval.
    #[serde(default)]
    decision: String,
    by: Option<String>,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    used: f64,
    #[serde(default)]
    limit: f64,
    #[serde(default)]
    finish_reason: String,
    usage: Option<Usage>,
    agent: Option<Ending>,
    error: Option<ErrorText>,
    #[serde(default)]
    choices: Vec<Choice>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Debug, Deserialize)]
struct Delta {
    #[serde(default)]
    content: String,
    #[serde(default)]
    refusal: String,
}

/// Tokens.
#[derive(Debug, Deserialize)]
pub(super) struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl Usage {
    /// Those that were read and those that were written.
    pub(super) fn total(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens in, {} out", self.prompt_tokens, self.completion_tokens)
    }
}

/// How a run ended or why it waits.
#[derive(Debug, Deserialize)]
pub(super) struct Ending {
    pub(super) status: String,
    pub(super) stop_reason: String,
    message: Option<String>,
    run_id: String,
    iterations: u32,
    tool_calls: u32,
    pub(super) cost_usd: f64,
    required_action: Option<RequiredAction>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct RequiredAction {
    calls: Vec<RequiredCall>,
}

#[derive(Debug, Deserialize)]
struct RequiredCall {
    name: String,
}

/// How much of a run is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// The answer, and what was done for it.
    Answer,
    /// Everything that happened.
    All,
}

/// What is to be shown of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// A piece of the answer's text.
    Text(String),
    /// A line beside it.
    Note(String),
    /// The last line, with the run's status and, if it failed, its error.
    End { line: String, status: String, error: Option<String> },
}

/// Tells a run, event by event.
#[derive(Debug)]
pub(super) struct Story {
    detail: Detail,
    /// The line of the model's reasoning that has not ended yet.
    thinking: String,
}

impl Event {
    /// What the server says if this is no event of the run but an error that ends the stream.
    pub(super) fn stream_error(&self) -> Option<String> {
        let error = self.error.as_ref().filter(|_| self.r#type.is_empty())?;
        Some(clean(&error.message))
    }
}

impl Story {
    pub(super) fn new(detail: Detail) -> Self {
        Self { detail, thinking: String::new() }
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
        told.extend(thought(&std::mem::take(&mut self.thinking)));
        if event.r#type.is_empty() {
            let said = event.choices.iter().flat_map(|Choice { delta }| [&*delta.content, &*delta.refusal]);
            let text: String = said.collect();
            told.extend((!text.is_empty()).then(|| Told::Text(clean(&text))));
        } else if let Some(ending) = &event.agent {
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
        let error = event.error.as_ref().map(|error| clean(&error.message));
        told.push(Told::End { line, status: status.clone(), error });
        told
    }
}

impl Ending {
    /// What there is to say of the end besides its reason.
    pub(super) fn remarks(&self) -> Vec<String> {
        let message = self.message.as_ref().map(|message| line(message, MOST_SHOWN));
        let calls = self.required_action.as_ref().map(|action| {
            let names: Vec<_> = action.calls.iter().map(|call| line(&call.name, MOST_SHOWN)).collect();
            let names = names.join(", ");
            match self.stop_reason.as_str() {
                "approval" => {
                    format!("waits for an approval of {names}: POST /v1/runs/{}/approvals decides", self.run_id)
                }
                "tool_pending" => format!("waits for services to answer {names}"),
                _ => format!("waits for its client to answer {names}"),
            }
        });
        let warnings = self.warnings.iter().map(|warning| format!("warning: {}", line(warning, MOST_SHOWN)));
        message.into_iter().chain(calls).chain(warnings).collect()
    }
}

fn thought(text: &str) -> Option<Told> {
    let text = line(text, MOST_SHOWN);
    (!text.is_empty()).then_some(Told::Note(text))
}

/// What a tool does.
fn tool_note(event: &Event) -> Option<String> {
    let name = line(&event.name, MOST_SHOWN);
    Some(match event.r#type.as_str() {
        "tool.call" => {
            let arguments = event.arguments.as_ref().map_or("", |arguments| arguments.get());
            format!("→ {name} {}", line(arguments, MOST_SHOWN))
        }
        "tool.progress" => {
            let count = match (event.progress, event.total) {
                (Some(done), Some(total)) => format!(" {done} of {total}"),
                (Some(done), None) => format!(" {done}"),
                (None, _) => String::new(),
            };
            format!("… {name}{count} {}", line(&event.message, MOST_SHOWN)).trim_end().to_owned()
        }
        "tool.pending" => format!("… {name} was accepted by its service, which answers later"),
        "question.asked" => format!("? {name} asks the user: {}", line(&event.message, MOST_SHOWN)),
        "tool.result" => {
            let mark = if event.is_error || event.outcome_unknown { "✗" } else { "←" };
            let first = line(event.content.lines().next().unwrap_or_default(), MOST_SHOWN);
            let unknown = if event.outcome_unknown { ", it is unknown whether it took effect" } else { "" };
            format!("{mark} {name}: {first} ({} ms{unknown})", event.latency_ms)
        }
        _ => return None,
    })
}

/// What did not go as it should.
fn trouble_note(event: &Event) -> Option<String> {
    Some(match event.r#type.as_str() {
        "step.discarded" => {
            let why = line(event.reason.as_deref().unwrap_or_default(), MOST_SHOWN).replace('_', " ");
            format!("(the answer broke off: {why}; the text of this step is void)")
        }
        "provider.retry" => {
            format!("(the model did not answer; trying again: {})", line(&event.cause, MOST_SHOWN))
        }
        "provider.fallback" => {
            let (upstream, model) = (line(&event.upstream, MOST_SHOWN), line(&event.model, MOST_SHOWN));
            format!("(the run goes on with {upstream}/{model}: {})", line(&event.cause, MOST_SHOWN))
        }
        "provider.hedge" => {
            let (upstream, model) = (line(&event.upstream, MOST_SHOWN), line(&event.model, MOST_SHOWN));
            format!("(the model says nothing yet; {upstream}/{model} is asked as well)")
        }
        "provider.hedge.ended" => {
            let (upstream, model) = (line(&event.dropped_upstream, MOST_SHOWN), line(&event.dropped_model, MOST_SHOWN));
            format!("({upstream}/{model} is not waited for any longer: another one answers)")
        }
        "budget.warning" => {
            let (used, limit, kind) = (event.used, event.limit, line(&event.kind, MOST_SHOWN));
            let scope = line(&event.scope, MOST_SHOWN);
            format!("(four fifths of the {scope}'s budget are used: {used} of {limit}, {kind})")
        }
        _ => return None,
    })
}

/// How the run moves.
fn progress_note(event: &Event) -> Option<String> {
    let step = event.step;
    Some(match event.r#type.as_str() {
        "run.queued" => format!("{} waits behind another run of its session", line(&event.run_id, MOST_SHOWN)),
        "run.started" => {
            let session = event.session_id.as_ref().map(|session| format!(" in session {session}"));
            let text = format!("{} began with {}{}", event.run_id, event.model, session.unwrap_or_default());
            line(&text, MOST_SHOWN)
        }
        "run.resumed" => "the run was resumed".to_owned(),
        "approval.required" => {
            format!(
                "{} needs an approval: {}",
                line(&event.name, MOST_SHOWN),
                line(event.reason.as_deref().unwrap_or_default(), MOST_SHOWN)
            )
        }
        "approval.resolved" => {
            let by = event.by.as_ref().map(|by| format!(" by {}", line(by, MOST_SHOWN))).unwrap_or_default();
            let why = if event.reason.is_none() {
                String::new()
            } else {
                format!(": {}", line(event.reason.as_deref().unwrap_or_default(), MOST_SHOWN))
            };
            format!("{}: the decision is {}{by}{why}", line(&event.name, MOST_SHOWN), line(&event.decision, MOST_SHOWN))
        }
        "step.started" => format!("step {step}: the model is called"),
        "step.completed" => {
            let usage = event.usage.as_ref().map(|usage| format!(", {usage}")).unwrap_or_default();
            let (reason, ms) = (line(&event.finish_reason, MOST_SHOWN), event.latency_ms);
            format!("step {step}: the model took {ms} ms{usage} ({reason})")
        }
        _ => return None,
    })
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

//! What is to be said of single events, whatever was before them. Pure.

use super::event::{Event, MOST_SHOWN};
use crate::cli::text::line;

/// What a tool does.
pub(super) fn tool_note(event: &Event) -> Option<String> {
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
pub(super) fn trouble_note(event: &Event) -> Option<String> {
    Some(match event.r#type.as_str() {
        "step.discarded" => {
            let why = reason(event).replace('_', " ");
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
pub(super) fn progress_note(event: &Event) -> Option<String> {
    let step = event.step;
    Some(match event.r#type.as_str() {
        "run.queued" => format!("{} waits behind another run of its session", line(&event.run_id, MOST_SHOWN)),
        "run.started" => {
            let session = event.session_id.as_ref().map(|session| format!(" in session {session}"));
            let text = format!("{} began with {}{}", event.run_id, event.model, session.unwrap_or_default());
            line(&text, MOST_SHOWN)
        }
        "run.resumed" => "the run was resumed".to_owned(),
        "approval.required" => format!("{} needs an approval: {}", line(&event.name, MOST_SHOWN), reason(event)),
        "approval.resolved" => {
            let by = event.by.as_ref().map(|by| format!(" by {}", line(by, MOST_SHOWN))).unwrap_or_default();
            let why = event.reason.as_ref().map(|_| format!(": {}", reason(event))).unwrap_or_default();
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

/// Why it happened, in the server's words or a person's.
fn reason(event: &Event) -> String {
    line(event.reason.as_deref().unwrap_or_default(), MOST_SHOWN)
}

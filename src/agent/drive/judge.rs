//! Judges texts by the guardrails of a run. What fails is told in the log; a tripwire ends the run.

use crate::agent::drive::guarded::tell;
use crate::agent::drive::recorder::Recorder;
use crate::agent::machine::Run;
use crate::guard::rails::failed;
use crate::llm::message_parts;
use crate::types::conversation::{Origin, Part, ToolResult, lines};
use crate::types::guard::{GuardPoint, Guarded, Guardrail, Triggered};
use crate::types::{CallId, History, Message, Role, ToolCall, ToolOutcome};

/// What a model is told of a call whose arguments ended the run.
pub(super) const NOT_MADE: &str = "The call was not made: a guardrail stopped the run because of its arguments.";
/// What takes the place of a result that ended the run.
pub(super) const WITHHELD: &str = "The result was withheld: it failed a guardrail, which stopped the run.";

/// Judges what users said since the model spoke last; whether the run goes on.
pub(super) fn judge_input(recorder: &mut Recorder, history: &History) -> bool {
    let run = recorder.run();
    if !run.guards().judges(GuardPoint::Input) {
        return true;
    }
    let (step, spec) = (run.step() + 1, run.spec().clone());
    let mut told = Vec::new();
    for (place, text) in user_texts(run, history) {
        let failed = failed(&spec.guards.guardrails, GuardPoint::Input, &[&text]);
        let new = failed.filter(|rail| !run.has_triggered(&rail.name, place));
        told.extend(new.map(|rail| Triggered { message: place, ..Triggered::new(rail, step) }));
    }
    let goes_on = !told.iter().any(|triggered| triggered.tripwire);
    tell(recorder, told.into_iter().map(Guarded::Triggered));
    goes_on
}

/// What users said since the model spoke last, and what they answered to what it asked: texts, with the places of their
/// messages in the run. What was said in its session before the run has none: the run before this one may have ended before it
/// was judged. Nor has what its request says in its prompt.
pub(super) fn user_texts(run: &Run, history: &History) -> Vec<(Option<u32>, String)> {
    let last = last_said(run);
    let asked = last.map(|last| questions(run, &run.messages()[last])).unwrap_or_default();
    let is_unanswered = |message: &&Message| last.is_none() && message.role != Role::Assistant;
    let before = history.iter().rev().take_while(is_unanswered).filter_map(|message| user_text(message, &[]));
    let mut texts: Vec<_> = before.map(|text| (None, text)).collect();
    texts.reverse();
    if last.is_none() {
        let in_prompt = run.spec().prompt.iter().flat_map(|prompt| &prompt.said);
        texts.extend(in_prompt.map(|text| (None, text.clone())));
    }
    let said = (0..).zip(run.messages()).skip(last.map_or(0, |last| last + 1));
    texts.extend(said.filter_map(|(place, message)| Some((Some(place), user_text(message, &asked)?))));
    texts
}

/// The messages that a run leaves to its session: without what users said last, if a guardrail ended the run for that. The model
/// of the session's next run would read it.
pub(super) fn left_to_session(run: &Run) -> Vec<Message> {
    let messages = run.final_messages();
    if !run.refuses_input() {
        return messages;
    }
    let last = last_said(run);
    let asked = last.map(|last| questions(run, &run.messages()[last])).unwrap_or_default();
    let (before, said) = messages.split_at(last.map_or(0, |last| last + 1));
    let kept = said.iter().filter_map(|message| match user_text(message, &asked) {
        Some(_) if message.role == Role::User => None,
        Some(_) => withheld(message),
        None => Some(message.clone()),
    });
    before.iter().cloned().chain(kept).collect()
}

/// The same result without what it says.
fn withheld(message: &Message) -> Option<Message> {
    let parts = message_parts(message).ok()?;
    let call = parts.list.iter().find_map(Part::as_result)?.call.clone();
    let result = ToolResult { call, parts: vec![Part::text(WITHHELD)], structured: None, is_error: true };
    Some(Message::result(result).from(message.origin.clone()))
}

/// The place of the message in which the model spoke last.
fn last_said(run: &Run) -> Option<usize> {
    let own = |message: &Message| matches!(message.origin, Origin::Step { .. }) && message.role == Role::Assistant;
    run.messages().iter().rposition(own)
}

/// The calls of a message by which its model asks the user.
fn questions(run: &Run, message: &Message) -> Vec<CallId> {
    let Some(parts) = message_parts(message).ok().filter(|_| run.spec().may_ask_user()) else { return Vec::new() };
    let calls = parts.list.iter().filter_map(Part::as_call);
    calls
        .filter(|call| run.spec().question(&call.name, &call.arguments).is_some())
        .map(|call| call.id.clone())
        .collect()
}

/// What a user says in a message, or answers in it to what was asked by these calls; `None` if the message is no user's.
fn user_text(message: &Message, asked: &[CallId]) -> Option<String> {
    let is_clients = matches!(message.origin, Origin::Request { .. });
    match message.role {
        Role::User => {
            let parts = message_parts(message).ok()?;
            Some(parts.list.iter().filter_map(Part::as_text).collect::<Vec<_>>().join("\n"))
        }
        Role::Tool if is_clients && !asked.is_empty() => {
            let parts = message_parts(message).ok()?;
            let answer = parts.list.iter().filter_map(Part::as_result).find(|result| asked.contains(&result.call))?;
            Some(lines(&answer.parts).into_owned())
        }
        Role::Tool | Role::System | Role::Developer | Role::Assistant => None,
    }
}

/// Judges the arguments of a call that is to be made: what came of the call, if a tripwire keeps it from being made.
pub(super) fn judge_arguments(recorder: &mut Recorder, call: &ToolCall) -> Option<ToolOutcome> {
    let trips = judge_call(recorder, call, GuardPoint::ToolArguments, &[&call.arguments]);
    trips.then(|| ToolOutcome::skipped(NOT_MADE))
}

/// Judges the result of a call that was made; whether it ends the run. One that does is withheld.
pub(super) fn judge_result(recorder: &mut Recorder, call: &ToolCall, outcome: &mut ToolOutcome) -> bool {
    if !recorder.run().guards().judges(GuardPoint::ToolResult) {
        return false;
    }
    let text = outcome.text();
    let texts: Vec<&str> = std::iter::once(&*text).chain(outcome.beside_text()).collect();
    let trips = judge_call(recorder, call, GuardPoint::ToolResult, &texts);
    if trips {
        outcome.parts = vec![Part::text(WITHHELD)];
        (outcome.structured, outcome.is_error) = (None, true);
    }
    trips
}

/// Whether what a tool says of its progress may be shown, as far as that is known without asking anybody.
pub(super) fn may_tell(run: &Run, message: &str) -> bool {
    let rails = &run.guards().guardrails;
    let asks = |rail: &Guardrail| rail.on == GuardPoint::ToolResult && rail.tripwire && rail.rule.is_asked();
    !rails.iter().any(asks) && !failed(rails, GuardPoint::ToolResult, &[message]).any(|rail| rail.tripwire)
}

/// Tells which guardrails of a point the texts of a call fail; whether one of them ends the run.
fn judge_call(recorder: &mut Recorder, call: &ToolCall, point: GuardPoint, texts: &[&str]) -> bool {
    let run = recorder.run();
    if !run.guards().judges(point) {
        return false;
    }
    let of_call = |rail| Triggered { call_id: Some(call.id.clone()), ..Triggered::new(rail, run.step()) };
    let told: Vec<_> = failed(&run.guards().guardrails, point, texts).map(of_call).collect();
    let trips = told.iter().any(|triggered| triggered.tripwire);
    tell(recorder, told.into_iter().map(Guarded::Triggered));
    trips
}

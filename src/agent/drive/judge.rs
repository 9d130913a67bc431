//! Judges texts by the guardrails of a run. What fails is told in the log; a tripwire ends the run.

use crate::agent::drive::guarded::tell;
use crate::agent::drive::recorder::Recorder;
use crate::agent::machine::Run;
use crate::guard::rails::failed;
use crate::llm::message_parts;
use crate::types::conversation::{Origin, Part};
use crate::types::guard::{GuardPoint, Guarded, Triggered};
use crate::types::{Message, Role, ToolCall, ToolOutcome};

/// What a model is told of a call whose arguments ended the run.
pub(super) const NOT_MADE: &str = "The call was not made: a guardrail stopped the run because of its arguments.";
/// What takes the place of a result that ended the run.
pub(super) const WITHHELD: &str = "The result was withheld: it failed a guardrail, which stopped the run.";

/// Judges what users said since the model spoke last; whether the run goes on.
pub(super) fn judge_input(recorder: &mut Recorder) -> bool {
    let run = recorder.run();
    if !run.guards().judges(GuardPoint::Input) {
        return true;
    }
    let (step, spec) = (run.step() + 1, run.spec().clone());
    let mut told = Vec::new();
    for (place, text) in user_texts(run) {
        let failed = failed(&spec.guards.guardrails, GuardPoint::Input, &text);
        let new = failed.filter(|rail| !run.has_triggered(&rail.name, place));
        told.extend(new.map(|rail| Triggered { message: Some(place), ..Triggered::new(rail, step) }));
    }
    let goes_on = !told.iter().any(|triggered| triggered.tripwire);
    tell(recorder, told.into_iter().map(Guarded::Triggered));
    goes_on
}

/// What users said since the model spoke last: messages by their places, with their texts.
pub(super) fn user_texts(run: &Run) -> impl Iterator<Item = (u32, String)> {
    let own = |message: &Message| matches!(message.origin, Origin::Step { .. }) && message.role == Role::Assistant;
    let from = run.messages().iter().rposition(own).map_or(0, |last| last + 1);
    let said = (0..).zip(run.messages()).skip(from).filter(|(_, message)| message.role == Role::User);
    said.filter_map(|(place, message)| {
        let parts = message_parts(message).ok()?;
        Some((place, parts.list.iter().filter_map(Part::as_text).collect::<Vec<_>>().join("\n")))
    })
}

/// Judges the arguments of a call that is to be made: what came of the call, if a tripwire keeps it from being made.
pub(super) fn judge_arguments(recorder: &mut Recorder, call: &ToolCall) -> Option<ToolOutcome> {
    let trips = judge_call(recorder, call, GuardPoint::ToolArguments, &call.arguments);
    trips.then(|| ToolOutcome::skipped(NOT_MADE))
}

/// Judges the result of a call that was made; whether it ends the run. One that does is withheld.
pub(super) fn judge_result(recorder: &mut Recorder, call: &ToolCall, outcome: &mut ToolOutcome) -> bool {
    if !recorder.run().guards().judges(GuardPoint::ToolResult) {
        return false;
    }
    let text = outcome.text().into_owned();
    let trips = judge_call(recorder, call, GuardPoint::ToolResult, &text);
    if trips {
        outcome.parts = vec![Part::text(WITHHELD)];
        (outcome.structured, outcome.is_error) = (None, true);
    }
    trips
}

/// Tells which guardrails of a point a text of a call fails; whether one of them ends the run.
fn judge_call(recorder: &mut Recorder, call: &ToolCall, point: GuardPoint, text: &str) -> bool {
    let run = recorder.run();
    let of_call = |rail| Triggered { call_id: Some(call.id.clone()), ..Triggered::new(rail, run.step()) };
    let told: Vec<_> = failed(&run.guards().guardrails, point, text).map(of_call).collect();
    let trips = told.iter().any(|triggered| triggered.tripwire);
    tell(recorder, told.into_iter().map(Guarded::Triggered));
    trips
}

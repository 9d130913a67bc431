//! What becomes of calls that services answer later. Pure.

use std::time::Duration;

use crate::agent::drive::steps::outcome::{made, settled, stopped};
use crate::agent::machine::Run;
use crate::types::pending::PendingCall;
use crate::types::{CallId, Effect, Event, ToolCall, ToolOutcome};

/// The service of a call has accepted it, after so many milliseconds, and may answer for as long as `within`.
pub(super) fn accepted(run: &Run, call: &ToolCall, latency_ms: u64, now_ms: u64, within: Duration) -> Event {
    let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    Event::ToolPending(Box::new(PendingCall {
        step: run.step(),
        call_id: call.id.clone(),
        name: call.name.clone(),
        began_ms: now_ms.saturating_sub(latency_ms),
        expires_ms: now_ms.saturating_add(within_ms),
    }))
}

/// What a service answers a call; `None` if the call has its result already.
pub(super) fn answered(run: &Run, call: &CallId, outcome: ToolOutcome, now_ms: u64) -> Option<Event> {
    run.awaits_answer(call)?;
    let latency_ms = run.pending(call).map_or(outcome.latency_ms, |pending| since(pending, now_ms));
    Some(Event::ToolAnswered { call_id: call.clone(), outcome: Box::new(made(ToolOutcome { latency_ms, ..outcome })) })
}

/// The calls that no service answered in time.
pub(super) fn given_up(run: &Run, now_ms: u64) -> Vec<Event> {
    let late = run.pending_calls().filter(|pending| pending.given_up_ms() <= now_ms);
    let events = late.map(|pending| {
        let PendingCall { call_id, name, began_ms, expires_ms, .. } = pending;
        let seconds = expires_ms.saturating_sub(*began_ms) / 1_000;
        let lost = ToolOutcome::lost(format!(
            "The service behind `{name}` accepted the call, and did not answer within {seconds} s."
        ));
        let outcome = settled(lost, run.awaits_answer(call_id).unwrap_or(Effect::Write));
        let outcome = made(ToolOutcome { latency_ms: since(pending, now_ms), ..outcome });
        Event::ToolAnswered { call_id: call_id.clone(), outcome: Box::new(outcome) }
    });
    events.collect()
}

/// What comes of a call that its service goes on with while its run stops; `None` for any other call.
pub(super) fn left(run: &Run, call: &CallId, now_ms: u64) -> Option<ToolOutcome> {
    let (pending, effect) = (run.pending(call)?, run.awaits_answer(call)?);
    Some(stopped(effect, Duration::from_millis(since(pending, now_ms))))
}

fn since(pending: &PendingCall, now_ms: u64) -> u64 {
    now_ms.saturating_sub(pending.began_ms)
}

//! Says in the log what guards found in what a client sent.

use crate::agent::drive::recorder::Recorder;
use crate::types::guard::{Guarded, InputMode, Judged, Triggered};
use crate::types::{Event, RunSpec};

/// Records what guards found, and lets the log tell of it.
pub(super) fn tell(recorder: &mut Recorder, told: impl IntoIterator<Item = Guarded>) {
    for guarded in told {
        log(recorder.run().spec(), &guarded);
        recorder.queue(Event::Guarded(Box::new(guarded)));
    }
}

/// Logs what a guard found, without what was said.
pub(super) fn log(spec: &RunSpec, guarded: &Guarded) {
    let (run, tenant) = (&spec.id, &spec.tenant);
    match guarded {
        Guarded::InputFlagged { message, pattern } => {
            let pattern = pattern.as_str();
            if spec.guards.input == InputMode::Log {
                tracing::info!(%run, %tenant, message, pattern, "security.injection_detected");
            } else {
                tracing::warn!(%run, %tenant, message, pattern, "security.injection_detected");
            }
        }
        Guarded::InputTruncated { message, chars, kept } => {
            tracing::warn!(%run, %tenant, message, chars, kept, "a message was cut to size");
        }
        Guarded::Triggered(Triggered { name, on, tripwire, severity, .. }) => {
            let (on, severity) = (on.as_str(), severity.as_str());
            tracing::warn!(%run, %tenant, guardrail = name, on, severity, tripwire, "a text failed a guardrail");
        }
        // That it was not answered is logged where it is known why.
        Guarded::Judging(_) => {}
        Guarded::Judged(judged) => {
            let Judged { asked, verdict, latency_ms, .. } = judged;
            let (guardrail, on, kind, verdict) = (&asked.name, asked.on.as_str(), judged.kind(), verdict.as_str());
            tracing::info!(%run, %tenant, guardrail, on, kind, verdict, latency_ms, "a guardrail was asked");
        }
    }
}

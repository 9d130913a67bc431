//! What guards found in what a client sent.

use super::{Run, Stop};
use crate::types::StopReason;
use crate::types::guard::{GuardPoint, Guarded, Guards, Triggered};

impl Run {
    /// Notes what the log says now.
    pub(super) fn take_guarded(&mut self, guarded: &Guarded) {
        self.found.take_told(guarded);
        match guarded {
            Guarded::InputTruncated { message, chars, kept } => self.warnings.push(format!(
                "message_truncated: messages[{message}] had {chars} characters; the model was given the first {kept} of them"
            )),
            Guarded::InputFlagged { .. } => {}
            Guarded::Triggered(triggered) => {
                // A run whose time is up may still ask its model for a closing answer.
                let goes_on = self.stop.as_ref().is_none_or(|stop| stop.reason == StopReason::Timeout);
                if triggered.tripwire && goes_on {
                    self.stop = Some(Box::new(Stop { reason: StopReason::Guardrail, error: None, short: None }));
                }
                self.found.push(triggered);
            }
            Guarded::Judging(judging) => self.found.judges_mut().begin(judging),
            Guarded::Judged(judged) => self.take_verdict(judged),
        }
    }

    /// What it is held to.
    #[must_use]
    pub fn guards(&self) -> &Guards {
        &self.spec.guards
    }

    /// Whether the log says already that this message fails this guardrail.
    #[must_use]
    pub fn has_triggered(&self, name: &str, message: Option<u32>) -> bool {
        let is_it = |known: &Triggered| known.on == GuardPoint::Input && known.name == name && known.message == message;
        self.found.triggered().any(is_it)
    }

    /// Whether a guardrail ended it for what users said last.
    #[must_use]
    pub fn refuses_input(&self) -> bool {
        self.found.triggered().any(|triggered| triggered.tripwire && triggered.on == GuardPoint::Input)
    }

    /// Which guardrail ended the run, and why, in a sentence.
    pub(super) fn tripped(&self) -> Option<String> {
        let tripped = self.found.triggered().find(|triggered| triggered.tripwire)?;
        let what = match tripped.on {
            GuardPoint::Input => "a message of the user",
            GuardPoint::Output => "the answer",
            GuardPoint::ToolArguments => "the arguments of a tool call",
            GuardPoint::ToolResult => "the result of a tool call",
        };
        Some(format!(
            "The guardrail {:?} stopped the run because of {what}: {}.",
            tripped.name,
            tripped.reason.trim_end_matches('.')
        ))
    }
}

//! Metrics of what guards find.

use prometheus_client::metrics::counter::Counter;

use super::declare::Declarations;
use super::family::Family;
use crate::types::guard::{Guarded, InputPattern, Judged, Triggered};

/// What guards found and did.
#[derive(Debug)]
pub(super) struct GuardMeters {
    flagged: Family<Counter>,
    truncated: Counter,
    triggered: Family<Counter>,
    judged: Family<Counter>,
}

impl GuardMeters {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        let help = "Messages that look like attempts to instruct a model in the operator's place, by what they look like; \
                    those that were refused are not counted here.";
        let flagged = to.counters("input_flagged", &["pattern"], help);
        // They are 0 before the first, so that the first one is seen as a rise.
        for pattern in InputPattern::ALL {
            let _ = flagged.of(&[pattern.as_str()]);
        }
        let truncated = to.counters("input_truncated", &[], "Messages that were cut to size.").of(&[]);
        let help =
            "Texts that failed a guardrail, by what was judged and what came of it: the run ended, or it was told.";
        let triggered = to.counters("guardrails_triggered", &["on", "action"], help);
        let help = "Texts about which a guardrail's model or service was asked, by what was judged, who was asked (`model`, `webhook`) \
                    and what came of it: `pass`, `fail`, `no_answer`, or `dropped` where the run did not wait.";
        let judged = to.counters("guardrails_judged", &["on", "kind", "verdict"], help);
        Self { flagged, truncated, triggered, judged }
    }

    pub(super) fn count(&self, guarded: &Guarded) {
        match guarded {
            Guarded::InputFlagged { pattern, .. } => {
                self.flagged.of(&[pattern.as_str()]).inc();
            }
            Guarded::InputTruncated { .. } => {
                self.truncated.inc();
            }
            Guarded::Triggered(Triggered { on, tripwire, .. }) => {
                let action = if *tripwire { "stop" } else { "tell" };
                self.triggered.of(&[on.as_str(), action]).inc();
            }
            Guarded::Judging(_) => {}
            Guarded::Judged(judged) => {
                let Judged { asked, verdict, .. } = judged;
                self.judged.of(&[asked.on.as_str(), judged.kind(), verdict.as_str()]).inc();
            }
        }
    }
}

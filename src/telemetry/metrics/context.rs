//! Metrics of how conversations are shortened.

use prometheus_client::metrics::counter::Counter;

use super::declare::Declarations;
use super::family::Family;
use crate::types::context::ContextEvent;

/// How conversations were shortened.
#[derive(Debug)]
pub(super) struct ContextMeters {
    pruned: Counter,
    compactions: Family<Counter>,
    overflows: Counter,
}

impl ContextMeters {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        let help = "How often old tool results were shortened, so that a conversation fits its model's window.";
        let pruned = to.counters("context_pruned", &[], help).of(&[]);
        let help = "How often messages were to be replaced, so that a conversation fits its model's window, by the method (`llm`, \
                    `local`, `truncate`) and what came of it (`compacted`, `failed`).";
        let compactions = to.counters("compactions", &["method", "outcome"], help);
        let help =
            "How often an upstream refused a conversation as too long, and the conversation was shortened for it.";
        let overflows = to.counters("context_overflows", &[], help).of(&[]);
        Self { pruned, compactions, overflows }
    }

    pub(super) fn count(&self, event: &ContextEvent) {
        match event {
            ContextEvent::Pruned(_) => {
                self.pruned.inc();
            }
            ContextEvent::CompactionStarted(_) => {}
            ContextEvent::Compacted(compacted) => {
                self.compactions.of(&[compacted.summary.method.as_str(), "compacted"]).inc();
            }
            ContextEvent::CompactionFailed(failed) => {
                self.compactions.of(&[failed.method.as_str(), "failed"]).inc();
            }
            ContextEvent::WindowLearned(_) => {
                self.overflows.inc();
            }
        }
    }
}

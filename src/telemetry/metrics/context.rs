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
    flushes: Family<Counter>,
    flush_writes: Counter,
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
        let help = "How often a model was to write into its memory what matters in messages that are replaced, by what came of it \
                    (`completed`, `failed`).";
        let flushes = to.counters("context_flushes", &["outcome"], help);
        let help = "How often a model wrote a note before messages were replaced.";
        let flush_writes = to.counters("context_flush_writes", &[], help).of(&[]);
        Self { pruned, compactions, overflows, flushes, flush_writes }
    }

    pub(super) fn count(&self, event: &ContextEvent) {
        match event {
            ContextEvent::Pruned(_) => {
                self.pruned.inc();
            }
            ContextEvent::CompactionStarted(_) | ContextEvent::FlushAsked(_) | ContextEvent::FlushAnswered(_) => {}
            ContextEvent::FlushCalled(called) => {
                self.flush_writes.inc_by(called.wrote.into());
            }
            ContextEvent::FlushEnded(ended) => {
                if ended.messages > 0 {
                    self.flushes.of(&[if ended.error.is_some() { "failed" } else { "completed" }]).inc();
                }
            }
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

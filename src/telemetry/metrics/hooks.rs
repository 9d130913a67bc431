//! What is counted of hooks. Their names are those of the configuration, and those that runs were accepted with.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

use super::declare::Declarations;
use super::family::{Family, Histogram};
use crate::types::hook::{HookPoint, HookRan};

/// Bounds of the times that hooks take.
const BOUNDS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// What came of an attempt to send a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It was taken.
    Delivered,
    /// It was not; it is sent again.
    Failed,
    /// It is not sent any more.
    GivenUp,
    /// It was never kept, as its run had too many.
    Dropped,
}

impl Delivery {
    fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::GivenUp => "given_up",
            Self::Dropped => "dropped",
        }
    }
}

/// What is counted of hooks; nothing where metrics are off.
#[derive(Debug, Clone, Default)]
pub struct HookMetrics(Option<Arc<Counters>>);

#[derive(Debug)]
struct Counters {
    asked: Family<Counter>,
    times: Family<Histogram>,
    messages: Family<Counter>,
    matches: Family<Counter>,
}

impl HookMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        Self(Some(Arc::new(Counters {
            asked: to.counters(
                "hook_decisions",
                &["hook", "point", "decision"],
                "What hooks said that runs waited for: `pass`, `allow`, `ask`, `deny` or `answer`; `failed` for those that gave no \
                 answer that counts, whatever held in its place.",
            ),
            times: to.seconds("hook", &["hook"], BOUNDS, "How long runs waited for hooks."),
            messages: to.counters(
                "hook_messages",
                &["hook", "outcome"],
                "Attempts to send hooks messages that no run waits for: `delivered`, `failed` (the message is sent again), \
                 `given_up` for a message that is not sent any more, or `dropped` for one that was not kept, as its run had too many.",
            ),
            matches: to.counters(
                "hook_matches",
                &["hook", "point"],
                "How often something happened that a hook with the action `metric` stands at.",
            ),
        })))
    }

    /// Counts what a hook said.
    pub fn ran(&self, ran: &HookRan) {
        let Some(counters) = &self.0 else { return };
        let decision = if ran.failed { "failed" } else { ran.reply.decision.as_str() };
        counters.asked.of(&[&ran.hook, ran.point.as_str(), decision]).inc();
        counters.times.of(&[&ran.hook]).observe(Duration::from_millis(ran.latency_ms).as_secs_f64(), None);
    }

    /// Counts what came of an attempt to send a message.
    pub fn delivered(&self, hook: &str, delivery: Delivery) {
        if let Some(counters) = &self.0 {
            counters.messages.of(&[hook, delivery.as_str()]).inc();
        }
    }

    /// Counts that something happened at which a hook stands.
    pub fn matched(&self, hook: &str, point: HookPoint) {
        if let Some(counters) = &self.0 {
            counters.matches.of(&[hook, point.as_str()]).inc();
        }
    }
}

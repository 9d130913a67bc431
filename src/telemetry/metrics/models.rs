//! What is counted of the calls of each model.

use prometheus_client::metrics::counter::Counter;

use super::bounds::{DURATIONS, FIRST_TOKEN, MOST_NAMES, TOKEN_INTERVAL};
use super::declare::Declarations;
use super::family::{Family, Histogram, Spending};
use super::names::Named;
use crate::telemetry::fold::FailureClass;
use crate::types::event::DiscardReason;
use crate::types::hedge::KeptCall;
use crate::types::{ErrorKind, Micros, Usage, Used};

/// What is counted of the calls of one model.
#[derive(Debug)]
pub(super) struct ModelMeters {
    pub(super) completed: Counter,
    discarded: [Counter; 4],
    pub(super) duration: Histogram,
    pub(super) first_token: Histogram,
    token_interval: Histogram,
    retries: Family<Counter>,
    fallbacks: Family<Counter>,
    hedges: Family<Counter>,
    tokens: [Counter; 5],
    estimated: Counter,
    cost: Spending,
    unconfirmed: Counter,
    failures: Family<Counter>,
    upstream: String,
    model: String,
}

impl ModelMeters {
    pub(super) fn discard(&self, reason: DiscardReason) {
        let place = match reason {
            DiscardReason::StreamBroke => 0,
            DiscardReason::Interrupted => 1,
            DiscardReason::EmptyResponse => 2,
            DiscardReason::NoAnswer => 3,
        };
        self.discarded[place].inc();
    }

    pub(super) fn fail(&self, class: FailureClass) {
        self.failures.of(&[&self.upstream, class_word(class)]).inc();
    }

    pub(super) fn retry(&self, class: FailureClass) {
        self.retries.of(&[&self.upstream, &self.model, class_word(class)]).inc();
    }

    pub(super) fn fall_back(&self, class: FailureClass) {
        self.fallbacks.of(&[&self.upstream, &self.model, class_word(class)]).inc();
    }

    pub(super) fn hedge(&self, kept: KeptCall) {
        self.hedges.of(&[&self.upstream, &self.model, kept.as_str()]).inc();
    }

    /// Counts tokens, each in one kind.
    pub(super) fn take(&self, usage: &Usage, cost: Micros) {
        let cached = usage.cached_tokens.min(usage.prompt_tokens);
        let reasoning = usage.reasoning_tokens.min(usage.completion_tokens);
        let written = usage.cache_write_tokens.min(usage.prompt_tokens - cached);
        let plain = usage.prompt_tokens - cached - written;
        let kinds = [plain, cached, written, usage.completion_tokens - reasoning, reasoning];
        for (counter, tokens) in self.tokens.iter().zip(kinds).filter(|(_, tokens)| *tokens > 0) {
            counter.inc_by(tokens);
        }
        if usage.estimated {
            self.estimated.inc_by(usage.total());
        }
        self.cost.add(cost);
    }

    pub(super) fn leave_unconfirmed(&self, used: Used) {
        if used.tokens > 0 {
            self.unconfirmed.inc_by(used.tokens);
        }
    }

    /// Adds the mean time between two tokens of an answer that began after `first_ms` and ended after `end_ms`.
    #[expect(clippy::cast_precision_loss, reason = "exact far beyond any answer")]
    pub(super) fn pace(&self, first_ms: u64, end_ms: u64, tokens: u64) {
        if tokens > 1 {
            let seconds = end_ms.saturating_sub(first_ms) as f64 / 1e3;
            self.token_interval.observe(seconds / (tokens - 1) as f64, None);
        }
    }
}

/// In the order of [`ModelMeters::discard`].
const DISCARDS: [DiscardReason; 4] =
    [DiscardReason::StreamBroke, DiscardReason::Interrupted, DiscardReason::EmptyResponse, DiscardReason::NoAnswer];
/// In the order of [`ModelMeters::take`].
const TOKENS: [&str; 5] = ["input", "cached_input", "cache_write", "output", "reasoning"];

fn class_word(class: FailureClass) -> &'static str {
    match class {
        FailureClass::StreamBroke => "stream_broke",
        FailureClass::NoAnswer => "no_answer",
        FailureClass::Kind(kind) => match kind {
            ErrorKind::UpstreamUnavailable => "unavailable",
            ErrorKind::UpstreamTimeout => "timeout",
            ErrorKind::UpstreamRejected => "rejected",
            ErrorKind::RequestRejected => "invalid_request",
            ErrorKind::ContextLength => "context_length",
            ErrorKind::EmptyResponse
            | ErrorKind::OutcomeUnknown
            | ErrorKind::ToolFailed
            | ErrorKind::CrashLoop
            | ErrorKind::StoreLostState
            | ErrorKind::IterationLimit
            | ErrorKind::ToolCallLimit
            | ErrorKind::LoopGuard
            | ErrorKind::BudgetExceeded
            | ErrorKind::TimeLimit
            | ErrorKind::HookDenied
            | ErrorKind::Internal => "other",
        },
    }
}

const MODEL: &[&str] = &["upstream", "model"];

/// Declares what is counted of each model.
pub(super) fn models(to: &mut Declarations) -> Named<ModelMeters> {
    let steps = to.counters(
        "steps",
        &["upstream", "model", "outcome"],
        "Model calls with their tool calls: `completed`, or why what the model said was discarded.",
    );
    let duration = to.seconds(
        "model_call_duration",
        MODEL,
        DURATIONS,
        "From a model's request to the end of its answer, or of its run if that comes first.",
    );
    let first_token =
        to.seconds("model_first_token", MODEL, FIRST_TOKEN, "From a model's request to the first piece of its answer.");
    let interval = to.seconds(
        "model_token_interval",
        MODEL,
        TOKEN_INTERVAL,
        "Mean time between two tokens of an answer, once it has begun.",
    );
    let (failures, retries, fallbacks, hedges) = further_calls(to);
    let tokens = to.counters(
        "tokens",
        &["upstream", "model", "kind"],
        "Tokens that runs are charged for, each in one kind: `input`, `cached_input`, `cache_write`, `output`, \
         `reasoning`.",
    );
    let estimated = to.counters("tokens_estimated", MODEL, "Those of the tokens that the upstream did not report.");
    let unconfirmed = to.counters(
        "tokens_unconfirmed",
        MODEL,
        "Tokens that broken model calls may have taken beyond that; the key is charged for them.",
    );
    let cost = to.spending("cost", MODEL, "What the tokens cost, by the configured prices.");
    Named::new(MOST_NAMES, move |name| {
        let (upstream, model) = name.split_once('/').unwrap_or((name, name));
        let both = [upstream, model];
        ModelMeters {
            completed: steps.of(&[upstream, model, "completed"]),
            discarded: DISCARDS.map(|reason| steps.of(&[upstream, model, reason.as_str()])),
            duration: duration.of(&both),
            first_token: first_token.of(&both),
            token_interval: interval.of(&both),
            retries: retries.clone(),
            fallbacks: fallbacks.clone(),
            hedges: hedges.clone(),
            tokens: TOKENS.map(|kind| tokens.of(&[upstream, model, kind])),
            estimated: estimated.of(&both),
            cost: cost.of(&both),
            unconfirmed: unconfirmed.of(&both),
            failures: failures.clone(),
            upstream: upstream.to_owned(),
            model: model.to_owned(),
        }
    })
}

/// Calls that failed, and what follows: another call of the same model, of another one, or one that is made beside it.
fn further_calls(to: &mut Declarations) -> (Family<Counter>, Family<Counter>, Family<Counter>, Family<Counter>) {
    const LABELS: &[&str] = &["upstream", "model", "class"];
    let retries =
        to.counters("model_retries", LABELS, "Model calls that failed and were repeated, by how they failed.");
    let fallbacks =
        to.counters("model_fallbacks", LABELS, "How often runs left this model for another one, by how it failed.");
    let hedges = to.counters(
        "model_hedges",
        &["upstream", "model", "kept"],
        "Second calls beside one that said nothing yet, by the call that was kept: the `first`, of this model, or the `second`.",
    );
    let failures = to.counters(
        "upstream_errors",
        &["upstream", "class"],
        "Failed attempts to get an answer, those that were repeated too.",
    );
    (failures, retries, fallbacks, hedges)
}

//! What is counted of runs: by agent, by model, by tool, and by tenant where that is asked for.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::declare::Declarations;
use super::family::{Family, Few, Histogram, Reserved, Spending};
use super::names::Named;
use crate::telemetry::fold::{FailureClass, ResumeCause, call_outcome};
use crate::types::event::DiscardReason;
use crate::types::{BudgetOwner, ErrorKind, Micros, StopReason, ToolOutcome, Usage, Used};

/// Most agents, tools, tenants, or pairs of upstream and model that are counted by their names.
pub(super) const MOST_NAMES: usize = 50;
/// Bounds of times that last from milliseconds to hours.
pub(super) const DURATIONS: &[f64] =
    &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 14_400.0];
/// Bounds of the time until a model begins to answer.
const FIRST_TOKEN: &[f64] = &[0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0];
/// Bounds of the time between two tokens.
const TOKEN_INTERVAL: &[f64] = &[0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0];

/// What is counted of the runs of one agent.
#[derive(Debug)]
pub(super) struct AgentMeters {
    name: String,
    pub(super) accepted: Counter,
    finished: Family<Counter>,
    /// The handles of those by reason.
    by_reason: Few<StopReason, Counter>,
    waits: Family<Counter>,
    resumed: [Counter; 4],
    pub(super) duration: Histogram,
    pub(super) step_duration: Histogram,
}

impl AgentMeters {
    /// Counts the end of a run.
    pub(super) fn finish(&self, reason: StopReason) {
        let make = || self.finished.of(&[&self.name, reason.status().as_str(), reason_word(reason)]);
        self.by_reason.of(reason, make).inc();
    }

    /// Counts a run that begins to wait for its client.
    pub(super) fn wait(&self, reason: StopReason) {
        self.waits.of(&[&self.name, reason_word(reason)]).inc();
    }

    pub(super) fn resume(&self, cause: ResumeCause) {
        let place = match cause {
            ResumeCause::Crash => 0,
            ResumeCause::Handover => 1,
            ResumeCause::Client => 2,
            ResumeCause::WaitOver => 3,
        };
        self.resumed[place].inc();
    }
}

/// In the order of [`AgentMeters::resume`].
const CAUSES: [&str; 4] = ["crash", "handover", "client", "wait_over"];

/// Tells a run that was cancelled from one whose readers went away.
fn reason_word(reason: StopReason) -> &'static str {
    if reason == StopReason::Abandoned { "abandoned" } else { reason.as_str() }
}

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
            | ErrorKind::CrashLoop
            | ErrorKind::StoreLostState
            | ErrorKind::IterationLimit
            | ErrorKind::BudgetExceeded
            | ErrorKind::TimeLimit
            | ErrorKind::Internal => "other",
        },
    }
}

/// What is counted of the calls of one tool.
#[derive(Debug)]
pub(super) struct ToolMeters {
    calls: Family<Counter>,
    /// The handles of those by outcome.
    by_outcome: Few<&'static str, Counter>,
    name: String,
    duration: Histogram,
    bytes: Counter,
}

impl ToolMeters {
    pub(super) fn finish(&self, outcome: &ToolOutcome, trace: Option<&super::family::Exemplar>) {
        let word = call_outcome(outcome);
        self.by_outcome.of(word, || self.calls.of(&[&self.name, word])).inc();
        if word != "skipped" {
            self.duration.observe_ms(outcome.latency_ms, trace);
            self.bytes.inc_by(outcome.bytes);
        }
    }
}

/// What is counted of the runs of one tenant.
#[derive(Debug)]
pub(super) struct TenantMeters {
    name: String,
    finished: Family<Counter>,
    tokens: [Counter; 2],
    cost: Spending,
}

impl TenantMeters {
    pub(super) fn finish(&self, reason: StopReason) {
        self.finished.of(&[&self.name, reason.status().as_str()]).inc();
    }

    pub(super) fn take(&self, usage: &Usage, cost: Micros) {
        self.tokens[0].inc_by(usage.prompt_tokens);
        self.tokens[1].inc_by(usage.completion_tokens);
        self.cost.add(cost);
    }
}

/// All metrics of runs.
#[derive(Debug)]
pub(super) struct RunMetrics {
    pub(super) agents: Named<AgentMeters>,
    /// By upstream and model, with a slash between them.
    pub(super) models: Named<ModelMeters>,
    pub(super) tools: Named<ToolMeters>,
    pub(super) tenants: Named<TenantMeters>,
    pub(super) queue_wait: Histogram,
    pub(super) budget_warnings: Family<Counter>,
    pub(super) reserved_tokens: Gauge,
    pub(super) reserved_cost: Reserved,
}

impl RunMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        let agents = agents(to);
        let models = models(to);
        let tools = tools(to);
        let tenants = tenants(to);
        let help = "Warnings that four fifths of a budget are used, by whose it is: run, session or key.";
        let budget_warnings = to.counters("budget_warnings", &["scope"], help);
        // They are 0 before the first warning, so that the first one is seen as a rise.
        for owner in [BudgetOwner::Run, BudgetOwner::Session, BudgetOwner::Key] {
            let _ = budget_warnings.of(&[owner.as_str()]);
        }
        let queue_wait = to.seconds("run_queue", &[], DURATIONS, "How long runs waited in the queue of their session.");
        Self {
            agents,
            models,
            tools,
            tenants,
            queue_wait: queue_wait.of(&[]),
            budget_warnings,
            reserved_tokens: to
                .gauge("reserved_tokens", "Tokens that this replica's model calls in flight have reserved of budgets."),
            reserved_cost: to.reserved("reserved_cost", "US dollars that these calls have reserved of budgets."),
        }
    }
}

fn agents(to: &mut Declarations) -> Named<AgentMeters> {
    let accepted = to.counters("runs_accepted", &["agent"], "Runs that were stored, to begin at once or in a queue.");
    let finished = to.counters(
        "runs_finished",
        &["agent", "status", "reason"],
        "Runs that ended. Each is counted once, by the replica that recorded its end.",
    );
    let waits =
        to.counters("runs_awaiting_client", &["agent", "reason"], "How often a run began to wait for its client.");
    let resumed = to.counters(
        "runs_resumed",
        &["agent", "cause"],
        "Runs that went on: after the `crash` of a replica or its `handover`, as the `client` answered, or as the wait \
         for it was over.",
    );
    let duration = to.seconds(
        "run_duration",
        &["agent"],
        DURATIONS,
        "How long runs that ended were under way, without the time in which they waited. A run whose log was lost or \
         damaged has none.",
    );
    let step_duration = to.seconds(
        "step_duration",
        &["agent"],
        DURATIONS,
        "From the begin of a step to its last result, unless another replica or a client went on with it.",
    );
    Named::new(MOST_NAMES, move |name| AgentMeters {
        name: name.to_owned(),
        accepted: accepted.of(&[name]),
        finished: finished.clone(),
        by_reason: Few::default(),
        waits: waits.clone(),
        resumed: CAUSES.map(|cause| resumed.of(&[name, cause])),
        duration: duration.of(&[name]),
        step_duration: step_duration.of(&[name]),
    })
}

const MODEL: &[&str] = &["upstream", "model"];

fn models(to: &mut Declarations) -> Named<ModelMeters> {
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
    let (retries, fallbacks) = repetitions(to);
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
    let failures = to.counters(
        "upstream_errors",
        &["upstream", "class"],
        "Failed attempts to get an answer, those that were repeated too.",
    );
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

/// What follows a call that failed: another call of the same model, or of another one.
fn repetitions(to: &mut Declarations) -> (Family<Counter>, Family<Counter>) {
    const LABELS: &[&str] = &["upstream", "model", "class"];
    let retries =
        to.counters("model_retries", LABELS, "Model calls that failed and were repeated, by how they failed.");
    let fallbacks =
        to.counters("model_fallbacks", LABELS, "How often runs left this model for another one, by how it failed.");
    (retries, fallbacks)
}

fn tools(to: &mut Declarations) -> Named<ToolMeters> {
    let calls = to.counters(
        "tool_calls",
        &["tool", "outcome"],
        "Calls of server-side tools: `ok`, `error`, `lost` (whether it took effect is unknown), `stopped` with its run, \
         or `skipped` (never made).",
    );
    let duration = to.seconds("tool_call_duration", &["tool"], DURATIONS, "How long tool calls took that were made.");
    let bytes = to.counters("tool_result_bytes", &["tool"], "Bytes that tools answered with.");
    Named::new(MOST_NAMES, move |name| ToolMeters {
        calls: calls.clone(),
        by_outcome: Few::default(),
        name: name.to_owned(),
        duration: duration.of(&[name]),
        bytes: bytes.of(&[name]),
    })
}

fn tenants(to: &mut Declarations) -> Named<TenantMeters> {
    let finished =
        to.counters("tenant_runs_finished", &["tenant", "status"], "Runs that ended; with `metrics.tenants` only.");
    let tokens = to.counters(
        "tenant_tokens",
        &["tenant", "kind"],
        "Tokens that runs are charged for, `input` or `output`; with `metrics.tenants` only.",
    );
    let cost = to.spending("tenant_cost", &["tenant"], "What they cost; with `metrics.tenants` only.");
    Named::new(MOST_NAMES, move |name| TenantMeters {
        name: name.to_owned(),
        finished: finished.clone(),
        tokens: ["input", "output"].map(|kind| tokens.of(&[name, kind])),
        cost: cost.of(&[name]),
    })
}

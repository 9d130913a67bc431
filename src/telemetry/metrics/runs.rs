//! What is counted of runs: by agent, by model, by tool, and by tenant where that is asked for.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::bounds::{DURATIONS, MOST_NAMES};
use super::context::ContextMeters;
use super::declare::Declarations;
use super::family::{Family, Few, Histogram, Reserved, Spending};
use super::guards::GuardMeters;
use super::models::{ModelMeters, models};
use super::names::Named;
use crate::telemetry::fold::{ResumeCause, call_outcome};
use crate::types::delegate::Delegated;
use crate::types::{BudgetOwner, Micros, StopReason, ToolOutcome, Usage};

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
    delegates: Family<Counter>,
    delegates_ended: Family<Counter>,
    handoffs: Family<Counter>,
    pub(super) guards: GuardMeters,
    pub(super) context: ContextMeters,
    pub(super) reserved_tokens: Gauge,
    pub(super) reserved_cost: Reserved,
}

impl RunMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        let agents = agents(to);
        let models = models(to);
        let tools = tools(to);
        let tenants = tenants(to);
        let help = "Warnings that four fifths of a budget are used, by whose it is: run, session, tree or key.";
        let budget_warnings = to.counters("budget_warnings", &["scope"], help);
        // They are 0 before the first warning, so that the first one is seen as a rise.
        for owner in [BudgetOwner::Run, BudgetOwner::Session, BudgetOwner::Tree, BudgetOwner::Key] {
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
            delegates: to.counters(
                "delegates",
                &["agent"],
                "Runs that other runs began, by the agent that they run as.",
            ),
            delegates_ended: to.counters(
                "delegates_ended",
                &["status"],
                "Runs of which the run that began them knows how they ended.",
            ),
            handoffs: to.counters("handoffs", &["agent"], "Runs that were handed off, by the agent that goes on."),
            guards: GuardMeters::declare(to),
            context: ContextMeters::declare(to),
            reserved_tokens: to
                .gauge("reserved_tokens", "Tokens that this replica's model calls in flight have reserved of budgets."),
            reserved_cost: to.reserved("reserved_cost", "US dollars that these calls have reserved of budgets."),
        }
    }
}

impl RunMetrics {
    pub(super) fn count_delegated(&self, delegated: &Delegated) {
        let counter = match delegated {
            Delegated::Started(child) => self.delegates.of(&[&child.agent]),
            Delegated::Completed(child) => self.delegates_ended.of(&[child.status.as_str()]),
        };
        counter.inc();
    }

    pub(super) fn count_handoff(&self, agent: &str) {
        self.handoffs.of(&[agent]).inc();
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

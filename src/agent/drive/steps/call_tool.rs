//! Calls a tool, and says what came of it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::agent::drive::driver::Driver;
use crate::agent::drive::steps::outcome::{made, settled};
use crate::agent::drive::steps::questions::Questions;
use crate::agent::ledger::callback::Callback;
use crate::tools::{CallContext, ProgressSink, QuestionSink, RegisteredTool, invoke};
use crate::types::tool::CallEnding;
use crate::types::{CallId, Effect, SpanKey, ToolCall, ToolOutcome, ToolProgress};

/// A call that may be made.
pub(super) struct Checked {
    pub(super) call: ToolCall,
    pub(super) tool: Arc<RegisteredTool>,
    pub(super) effect: Effect,
    pub(super) arguments: Box<RawValue>,
    /// Counted from 1.
    pub(super) attempt: u32,
    /// Whether its intent is recorded: a crash interrupted it.
    pub(super) has_begun: bool,
}

impl Checked {
    /// Whether its tool may say that the call goes on.
    pub(super) fn may_be_answered_later(&self) -> bool {
        self.tool.tool().answers_within().is_some()
    }

    /// Whether its tool may ask the user something.
    pub(super) fn may_ask(&self) -> bool {
        self.tool.tool().asks_within().is_some()
    }
}

/// Calls a tool within the shortest of three times: the tool's own, the run's for each call, and what is left of the
/// run. A tool that may be repeated with its key is called once more if its answer is lost while there is time, and while
/// the run is this replica's.
pub(super) fn call_tool(
    driver: &Driver,
    checked: Checked,
    callback: Option<&Callback>,
    reports: &mpsc::Sender<(CallId, ToolProgress)>,
    asks: Option<&Questions>,
) -> impl Future<Output = (ToolCall, ToolOutcome)> + use<> {
    let Checked { call, tool, effect, arguments, attempt, .. } = checked;
    let run = driver.recorder.run();
    let spec = run.spec();
    let limit = Duration::from_millis(spec.limits.tool_timeout_ms);
    let limit = tool.spec().timeout.map_or(limit, |own| own.min(limit));
    let (deadline, mut validity) = (driver.signals.deadline, driver.signals.validity.clone());
    let timeout = move || limit.min(deadline.saturating_duration_since(Instant::now()));
    let context = CallContext {
        tenant: spec.tenant.clone(),
        session: spec.session.clone(),
        user: spec.options.sampling.user.clone(),
        metadata: spec.metadata.clone(),
        agent: spec.agent.clone(),
        run: spec.id.clone(),
        call: call.id.clone(),
        step: run.step(),
        attempt,
        trace: spec.outgoing_trace(SpanKey::ToolCall(&call.id, attempt)),
        request_id: spec.request_id.clone(),
        timeout: timeout(),
        fence: driver.recorder.fence().token,
        progress: ProgressSink::new(call.id.clone(), reports.clone()),
        questions: asks
            .zip(tool.tool().asks_within())
            .map_or_else(QuestionSink::default, |(asks, within)| QuestionSink::new(asks.asking(), within)),
        callback_token: callback.filter(|_| tool.tool().answers_within().is_some()).map(|known| known.token(&call.id)),
    };
    async move {
        let mut outcome = invoke(tool.clone(), arguments.clone(), context.clone()).await;
        if outcome.ending == CallEnding::Lost && effect == Effect::Idempotent && !timeout().is_zero() {
            // Another replica may be making the call by now, with a newer fence. The run is left as soon as this waits, unless
            // its lease was renewed meanwhile.
            while !validity.is_valid() {
                validity.changed().await;
            }
            let again = CallContext { attempt: attempt + 1, timeout: timeout(), ..context };
            let first_ms = outcome.latency_ms;
            outcome = invoke(tool, arguments, again).await;
            outcome.latency_ms += first_ms;
        }
        // Without an answer at the end of the run's time it is no tool that failed: the run stops.
        let is_over = outcome.ending == CallEnding::Lost && Instant::now() >= deadline;
        (call, if is_over { outcome } else { made(settled(outcome, effect)) })
    }
}

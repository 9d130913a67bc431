//! Calls a tool so that nothing that the tool does can harm the caller.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use crate::tools::registry::RegisteredTool;
use crate::tools::{CallContext, ToolAnswer, ToolError};
use crate::types::ToolOutcome;
use crate::types::tool::CallEnding;

/// Calls a tool with arguments that [`check_arguments`](crate::tools::check_arguments) let pass.
///
/// Whatever happens becomes an outcome: a failure, a panic, a tool that does not answer within the
/// context's timeout. The latter two leave it unknown how far the tool came. On timeout and when this future is
/// dropped the call is dropped too, so nothing that it would have said later arrives. The answer comes as the tool gave it:
/// [`settle`](crate::tools::fit::settle) makes it fit to be kept.
pub async fn invoke(tool: Arc<RegisteredTool>, arguments: Box<RawValue>, context: CallContext) -> ToolOutcome {
    let begun = Instant::now();
    let name = tool.spec().name.clone();
    // A tool whose call asks the user keeps the time of the call itself, which does not pass meanwhile.
    let limit = context.timeout.saturating_add(context.questions.within());
    // What a panic leaves half done goes with the call.
    let call = AssertUnwindSafe(tool.tool().call(&arguments, &context)).catch_unwind();
    let (answer, ending) = match timeout(limit, call).await {
        Ok(ended) => told(&name, ended),
        Err(_) => lost(format!("The tool `{name}` did not answer within {} ms.", limit.as_millis())),
    };
    let ToolAnswer { parts, structured, is_error, bytes, status, measurements, is_pending: _ } = answer;
    let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    ToolOutcome {
        parts,
        structured,
        is_error,
        truncated: false,
        ending,
        latency_ms,
        bytes,
        status,
        measurements,
        found: Vec::new(),
        failure: None,
    }
}

/// What comes of a call that ended.
fn told(name: &str, ended: std::thread::Result<Result<ToolAnswer, ToolError>>) -> (ToolAnswer, CallEnding) {
    match ended {
        Ok(Ok(answer)) if answer.is_pending => (answer, CallEnding::Pending),
        Ok(Ok(answer)) => (answer, CallEnding::Answered),
        Ok(Err(ToolError::Failed(reason))) => (failure(reason), CallEnding::Answered),
        Ok(Err(ToolError::Lost(reason))) => lost(reason),
        Err(_panic) => {
            // The panic's words stay out of the answer, as out of the log: they may quote arguments.
            tracing::error!(tool = name, "a tool panicked");
            lost(crashed(name))
        }
    }
}

fn lost(why: String) -> (ToolAnswer, CallEnding) {
    (failure(why), CallEnding::Lost)
}

fn failure(why: String) -> ToolAnswer {
    ToolAnswer { is_error: true, ..ToolAnswer::text(why) }
}

fn crashed(name: &str) -> String {
    format!("The tool `{name}` crashed.")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tools::check_arguments;
    use crate::tools::registry::Registry;
    use crate::tools::testing::{Behaviour, StubTool, context};
    use crate::types::conversation::Part;

    fn call(behaviour: Behaviour) -> impl Future<Output = ToolOutcome> {
        let registry = Registry::new([StubTool::named("stub").behaving(behaviour).shared()]).unwrap();
        let tool = Arc::clone(registry.get("stub").unwrap());
        let arguments = check_arguments("stub", tool.schema(), "").unwrap();
        invoke(tool, arguments, context(Duration::from_secs(5)))
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_passed_on_with_its_latency() {
        let outcome = call(Behaviour::Answer { text: "done".into(), after: Duration::from_millis(250) }).await;
        let parts = vec![Part::text("done")];
        let expected = ToolOutcome { parts, bytes: 4, latency_ms: 250, ..ToolOutcome::default() };
        assert_eq!(outcome, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_outcomes() {
        let failed = call(Behaviour::Fail("no such city".into())).await;
        assert!(failed.is_error && failed.text() == "no such city" && failed.ending == CallEnding::Answered);
        let panicked = call(Behaviour::Panic).await;
        assert!(panicked.is_error && panicked.text() == "The tool `stub` crashed.");
        assert_eq!(panicked.ending, CallEnding::Lost, "how far it came is not known");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tool_that_hangs_is_stopped() {
        let (behaviour, stopped) = Behaviour::hang();
        let outcome = call(behaviour).await;
        assert!(outcome.is_error && outcome.latency_ms == 5_000, "{outcome:?}");
        assert_eq!(outcome.text(), "The tool `stub` did not answer within 5000 ms.");
        assert_eq!(outcome.ending, CallEnding::Lost, "how far it came is not known");
        stopped.await.expect_err("its task was dropped and never sent anything");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nobody_waits_for_is_stopped() {
        let (behaviour, stopped) = Behaviour::hang();
        let waiting = timeout(Duration::from_secs(1), call(behaviour)).await;
        waiting.expect_err("the tool hangs");
        stopped.await.expect_err("its task was dropped and never sent anything");
    }
}

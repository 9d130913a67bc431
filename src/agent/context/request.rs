//! History into a model request.
//!
//! What is added here shapes one request and never enters
//! the stored history.

use tokio::time::Instant;

use crate::agent::drive::driver::Driver;
use crate::llm::ModelRequest;
use crate::types::event::Reservation;
use crate::types::run::ToolChoice;
use crate::types::{Message, Role, RunSpec, StopReason};

/// Added to the last request of a run whose limit is reached.
const CLOSE: &str = "Answer now, from what is known so far. No more tools can be used.";

/// The request of the next model call.
pub fn model_request(driver: &Driver, reserve: Reservation, closing: Option<StopReason>) -> ModelRequest {
    let run = driver.recorder.run();
    let spec = run.spec();
    let closing_note = closing.map(|_| Message::text(Role::User, CLOSE));
    let own = run.messages().iter().cloned().chain(closing_note);
    // A forced choice is for the first call only: forced again and again, the loop would never end.
    let tool_choice = spec.tool_choice.as_ref().filter(|_| run.iterations() == 0);
    ModelRequest {
        model: spec.upstream_model.clone(),
        conversation: driver.history.clone().after(&spec.system).then(own),
        tools: if closing.is_some() { "".into() } else { driver.tools.definitions() },
        tool_choice: tool_choice.map(choice_json),
        parameters: spec.parameters.as_str().into(),
        max_tokens: reserve.output_tokens,
        parallel_tool_calls: spec.parallel_tool_calls,
        deadline: driver.signals.deadline.max(Instant::now()),
    }
}

/// OpenAI's `tool_choice`.
fn choice_json(choice: &ToolChoice) -> String {
    match choice {
        ToolChoice::Required => "\"required\"".to_owned(),
        ToolChoice::Function(name) => serde_json::json!({"type": "function", "function": {"name": name}}).to_string(),
    }
}

/// Estimated input tokens of a run before its first call, by four bytes a token.
pub fn estimate(spec: &RunSpec, history_weight: usize, definitions_bytes: usize) -> u64 {
    let messages: usize = spec.system.iter().chain(&spec.input).map(Message::weight).sum();
    ((messages + history_weight + definitions_bytes) as u64).div_ceil(4)
}

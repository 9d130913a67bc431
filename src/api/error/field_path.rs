//! How the wire writes what of a request an error is about.

use crate::agent::error::Field;

/// Where a request has this.
pub(super) fn path(field: Field) -> String {
    match field {
        Field::Model => "model".to_owned(),
        Field::Message(index) => format!("messages[{index}]"),
        Field::Part { message, part } => format!("messages[{message}].content[{part}]"),
        Field::Session => "agent.session_id".to_owned(),
        Field::ClientToolName(index) => format!("tools[{index}].function.name"),
        Field::ClientToolParameters(index) => format!("tools[{index}].function.parameters"),
        Field::ClientTools => "tools".to_owned(),
        Field::Tools => "agent.tools".to_owned(),
        Field::ToolChoice => "tool_choice".to_owned(),
        Field::MaxIterations => "agent.limits.max_iterations".to_owned(),
        Field::Timeout => "agent.limits.timeout_ms".to_owned(),
        Field::ToolTimeout => "agent.limits.tool_timeout_ms".to_owned(),
        Field::TokenBudget => "agent.limits.token_budget".to_owned(),
        Field::CostBudget => "agent.limits.cost_budget_usd".to_owned(),
        Field::InputGuard => "agent.guards.input".to_owned(),
        Field::MaxMessageChars => "agent.guards.max_message_chars".to_owned(),
        Field::MaxToolResultBytes => "agent.guards.max_tool_result_bytes".to_owned(),
        Field::Server(place, member) => format!("tools[{place}].{member}"),
        Field::Approval(index, member) => format!("approvals[{index}].{member}"),
        Field::Layer(index) => format!("agent.prompt.layers[{index}].name"),
        Field::Member(name) => (*name).to_owned(),
    }
}

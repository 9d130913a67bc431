//! The tool by which a model finds the tools that it needs, where an agent has more than are sent to a model.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::agent::context::server_tools::{ServerTool, ServerTools};
use crate::types::conversation::Part;
use crate::types::json::RawValueEq;
use crate::types::offer::ToolDefinition;
use crate::types::{ToolCall, ToolOutcome};

/// Its name, which no other tool of the server has.
pub const NAME: &str = crate::tools::registry::FIND_TOOLS;
/// How many tools it finds if it is not told.
const USUAL: usize = 5;
/// How many tools it finds at most.
pub const MOST: usize = 10;
/// How much it says of each, in bytes: all of it comes with the next request.
const SAID: usize = 160;

static DEFINITION: LazyLock<Arc<ToolDefinition>> = LazyLock::new(|| {
    let parameters = concat!(
        r#"{"type":"object","properties":{"query":{"type":"string","description":"What the tool should do, in a few words"},"#,
        r#""limit":{"type":"integer","minimum":1,"maximum":10}},"required":["query"],"additionalProperties":false}"#,
    );
    Arc::new(ToolDefinition {
        name: NAME.to_owned(),
        description: Some(
            "Finds more tools by what they do. There are many tools that are not listed here: call this first if none of \
             the listed tools does what you need. The tools that it finds can be called from then on."
                .to_owned(),
        ),
        parameters: Some(RawValueEq(RawValue::from_string(parameters.to_owned()).expect("it is JSON"))),
        ..ToolDefinition::default()
    })
});

/// What offers it to a model.
pub fn definition() -> &'static Arc<ToolDefinition> {
    &DEFINITION
}

#[derive(Deserialize)]
struct Arguments {
    query: String,
    limit: Option<usize>,
}

/// Answers a call whose arguments were checked: finds tools among those of the run, at most so many as can be offered beside what
/// other calls of the step found.
pub fn answer(call: &ToolCall, servers: &ServerTools, room: usize) -> ToolOutcome {
    let arguments = match call.arguments.trim() {
        "" => "{}",
        written => written,
    };
    let Arguments { query, limit } = match serde_json::from_str(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return ToolOutcome::failed(format!("The arguments of `{NAME}` cannot be read: {error}.")),
    };
    if room == 0 {
        let text = "The other searches have found as many tools as you can be given at once. Use these first, and search again then.";
        return ToolOutcome::failed(text.to_owned());
    }
    let found = servers.find(&query, limit.unwrap_or(USUAL).clamp(1, MOST).min(room));
    if found.is_empty() {
        let text = "No tool fits these words. Try others: what the tool should do, or the name of the service.";
        return ToolOutcome { parts: vec![Part::text(text)], ..ToolOutcome::default() };
    }
    let mut text = String::from("These tools can be called now:");
    for tool in &found {
        let definition = tool.definition();
        let said = definition.description.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
        let said = &said[..said.floor_char_boundary(SAID)];
        let _ = write!(text, "\n- {}: {said}", definition.name);
    }
    let found = found.into_iter().map(ServerTool::found).collect();
    ToolOutcome { parts: vec![Part::text(text)], found, ..ToolOutcome::default() }
}

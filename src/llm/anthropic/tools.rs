//! Tools and the choice among them.

use super::turns::write_blocks;
use crate::llm::ModelRequest;
use crate::llm::object::Object;
use crate::llm::object_schema::write_object_schema;
use crate::types::conversation::Dialect;
use crate::types::offer::{Stays, ToolChoice, ToolDefinition, ToolOffer};

/// The schema of a tool without arguments.
const NO_ARGUMENTS: &str = "{\"type\":\"object\",\"properties\":{}}";

/// `tools` and `tool_choice`, where tools are offered.
pub(super) fn write(request: &ModelRequest, caches: bool, object: &mut Object<'_>) {
    if request.tools.is_empty() {
        return;
    }
    object.raw("tools", |out| {
        out.push(b'[');
        write_list(&request.tools, caches, out);
        out.push(b']');
    });
    let one_at_a_time = !request.parallel_tool_calls;
    let (kind, name) = match &request.tool_choice {
        ToolChoice::Auto if !one_at_a_time => return,
        ToolChoice::Auto => ("auto", None),
        ToolChoice::Required => ("any", None),
        ToolChoice::Function(name) => ("tool", Some(name)),
        ToolChoice::None => ("none", None),
    };
    object.nested("tool_choice", |choice| {
        choice.text("type", kind);
        if let Some(name) = name {
            choice.text("name", name);
        }
        if one_at_a_time && kind != "none" {
            choice.value("disable_parallel_tool_use", &true);
        }
    });
}

/// `tools` and `tool_choice` of a conversation with calls in which no more may be made. The API wants some tool to be
/// defined then.
pub(super) fn write_none(object: &mut Object<'_>) {
    let none = "[{\"name\":\"none\",\"description\":\"No tool can be called any more.\",\"input_schema\":";
    object.raw("tools", |out| {
        out.extend_from_slice(none.as_bytes());
        out.extend_from_slice(NO_ARGUMENTS.as_bytes());
        out.extend_from_slice(b"}]");
    });
    object.nested("tool_choice", |choice| choice.text("type", "none"));
}

/// The tools, separated by commas. The breakpoint of the cache follows those that stay the same for the whole run: if it
/// followed tools that came later, each that comes would make the upstream read all tools anew.
fn write_list(offer: &ToolOffer, caches: bool, out: &mut Vec<u8>) {
    let mut pieces = offer.encoded(Dialect::AnthropicMessages, write_tool).peekable();
    while let Some((piece, stays)) = pieces.next() {
        let is_last_to_stay =
            stays == Stays::WholeRun && pieces.peek().is_none_or(|(_, stays)| *stays == Stays::FromHereOn);
        write_blocks(piece, caches && is_last_to_stay, out);
        if pieces.peek().is_some() {
            out.push(b',');
        }
    }
}

fn write_tool(tool: &ToolDefinition, out: &mut Vec<u8>) {
    let mut object = Object::new(out);
    object.text("name", &tool.name);
    if let Some(description) = &tool.description {
        object.text("description", description);
    }
    object.raw("input_schema", |out| {
        write_object_schema(tool.parameters.as_ref().map_or(NO_ARGUMENTS, |schema| schema.get()), out);
    });
    if tool.strict == Some(true) {
        object.value("strict", &true);
    }
    object.close();
}

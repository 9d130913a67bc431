//! Tools and the choice among them.

use super::tool_name;
use crate::llm::ModelRequest;
use crate::llm::object::Object;
use crate::llm::object_schema::write_object_schema;
use crate::types::conversation::Dialect;
use crate::types::offer::{ToolChoice, ToolDefinition, ToolOffer};

/// `tools` and `toolConfig`, where tools are offered.
pub(super) fn write(request: &ModelRequest, object: &mut Object<'_>) {
    if request.tools.is_empty() {
        return;
    }
    object.raw("tools", |out| write_list(&request.tools, out));
    let is_strict = request.tools.tools().any(|tool| tool.strict == Some(true));
    let (mode, name) = match &request.tool_choice {
        // Calls are held to their schemas; text stays free.
        ToolChoice::Auto if is_strict => ("VALIDATED", None),
        ToolChoice::Auto => return,
        ToolChoice::Required => ("ANY", None),
        ToolChoice::Function(name) => ("ANY", Some(name)),
        ToolChoice::None => ("NONE", None),
    };
    object.nested("toolConfig", |config| {
        config.nested("functionCallingConfig", |calling| {
            calling.text("mode", mode);
            if let Some(name) = name {
                calling.value("allowedFunctionNames", &[tool_name::sent(name)]);
            }
        });
    });
}

/// The list of tools: one, which holds all functions.
fn write_list(offer: &ToolOffer, out: &mut Vec<u8>) {
    out.extend_from_slice(b"[{\"functionDeclarations\":[");
    offer.write(Dialect::GeminiContents, write_function, out);
    out.extend_from_slice(b"]}]");
}

fn write_function(tool: &ToolDefinition, out: &mut Vec<u8>) {
    let mut object = Object::new(out);
    object.text("name", &tool_name::sent(&tool.name));
    // The API wants one.
    object.text("description", tool.description.as_deref().unwrap_or(&tool.name));
    if let Some(schema) = &tool.parameters {
        object.raw("parametersJsonSchema", |out| write_object_schema(schema.get(), out));
    }
    object.close();
}

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
    object.raw("tools", |out| out.extend_from_slice(json(&request.tools).as_bytes()));
    let is_strict = request.tools.tools().iter().any(|tool| tool.strict == Some(true));
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
fn json(offer: &ToolOffer) -> &str {
    offer.encoded(Dialect::GeminiContents, |tools| {
        let mut out = b"[{\"functionDeclarations\":".to_vec();
        let mut before = b'[';
        for tool in tools {
            out.push(before);
            before = b',';
            write_function(tool, &mut out);
        }
        out.extend_from_slice(b"]}]");
        String::from_utf8(out).expect("it was written from strings")
    })
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

//! Tools and the choice among them.

use crate::llm::object::Object;
use crate::types::conversation::Dialect;
use crate::types::offer::{ToolChoice, ToolDefinition, ToolOffer};

/// The schema of a tool without arguments.
const NO_ARGUMENTS: &str = "{\"type\":\"object\",\"properties\":{}}";

/// The `tools` array.
pub(super) fn write_list(offer: &ToolOffer, out: &mut Vec<u8>) {
    out.push(b'[');
    offer.write(Dialect::OpenaiResponses, write, out);
    out.push(b']');
}

fn write(tool: &ToolDefinition, out: &mut Vec<u8>) {
    let mut object = Object::new(out);
    object.text("type", "function");
    object.text("name", &tool.name);
    if let Some(description) = &tool.description {
        object.text("description", description);
    }
    object.json("parameters", tool.parameters.as_ref().map_or(NO_ARGUMENTS, |schema| schema.get()));
    // Said in any case: where it is left out, the API makes a schema strict, with every argument required.
    object.value("strict", &tool.strict.unwrap_or(false));
    object.close();
}

/// `tool_choice`, where it is not left to the model.
pub(super) fn write_choice(choice: &ToolChoice, object: &mut Object<'_>) {
    match choice {
        ToolChoice::Auto => {}
        ToolChoice::None => object.text("tool_choice", "none"),
        ToolChoice::Required => object.text("tool_choice", "required"),
        ToolChoice::Function(name) => object.nested("tool_choice", |choice| {
            choice.text("type", "function");
            choice.text("name", name);
        }),
    }
}

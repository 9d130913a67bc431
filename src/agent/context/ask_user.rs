//! The tool by which a model asks the user. The run waits for its client, which answers the call.

use std::sync::{Arc, LazyLock};

use serde_json::value::RawValue;

use crate::types::json::RawValueEq;
use crate::types::offer::ToolDefinition;
use crate::types::question::ASK_USER;

static DEFINITION: LazyLock<Arc<ToolDefinition>> = LazyLock::new(|| {
    let parameters = concat!(
        r#"{"type":"object","properties":{"question":{"type":"string","minLength":1,"description":"What you need to know, as one question"},"#,
        r#""options":{"type":"array","items":{"type":"string"},"maxItems":16,"description":"Answers that you propose"}},"#,
        r#""required":["question"],"additionalProperties":false}"#,
    );
    Arc::new(ToolDefinition {
        name: ASK_USER.to_owned(),
        description: Some(
            "Asks the user a question and waits for the answer. Call it only if you cannot go on without something that \
             only the user knows or may decide."
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

//! Sampling parameters as members of a request.

use crate::llm::object::Object;
use crate::llm::own_member::own;
use crate::types::sampling::{ResponseFormat, Sampling, Stop};

/// What this dialect alone documents, and is passed on as it came.
pub(super) const OWN: [&str; 2] = ["thinking", "top_k"];
/// The service tiers that the API has.
pub(super) const TIERS: [&str; 2] = ["auto", "standard_only"];

/// Writes the sampling parameters, the service tier and the end user.
pub(super) fn write(sampling: &Sampling, object: &mut Object<'_>) {
    for (name, number) in [("temperature", sampling.temperature), ("top_p", sampling.top_p)] {
        if let Some(number) = number {
            // As it is displayed: a whole number stays one.
            object.json(name, &number.to_string());
        }
    }
    if let Some(top_k) = own(sampling, "top_k") {
        object.json("top_k", top_k);
    }
    match &sampling.stop {
        None => {}
        Some(Stop::Text(text)) => object.value("stop_sequences", &[text]),
        Some(Stop::Texts(texts)) if texts.is_empty() => {}
        Some(Stop::Texts(texts)) => object.value("stop_sequences", texts),
    }
    if let Some(tier) = sampling.service_tier.as_deref().filter(|tier| TIERS.contains(tier)) {
        object.text("service_tier", tier);
    }
    if let Some(user) = sampling.safety_identifier.as_ref().or(sampling.user.as_ref()) {
        object.nested("metadata", |metadata| metadata.text("user_id", user));
    }
}

/// `output_config`: how hard the model tries, and the form of the answer.
pub(super) fn write_output(sampling: &Sampling, effort: Option<&str>, object: &mut Object<'_>) {
    let schema = match &sampling.response_format {
        Some(ResponseFormat::JsonSchema { schema: Some(schema), .. }) => Some(schema),
        Some(ResponseFormat::JsonSchema { schema: None, .. } | ResponseFormat::Text | ResponseFormat::JsonObject)
        | None => None,
    };
    if effort.is_none() && schema.is_none() {
        return;
    }
    object.nested("output_config", |config| {
        if let Some(effort) = effort {
            config.text("effort", effort);
        }
        if let Some(schema) = schema {
            config.nested("format", |format| {
                format.text("type", "json_schema");
                format.json("schema", schema.get());
            });
        }
    });
}

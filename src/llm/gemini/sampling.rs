//! Sampling parameters as members of a request.

use super::thinking;
use crate::llm::ModelRequest;
use crate::llm::object::Object;
use crate::llm::own_member::own;
use crate::types::sampling::{ResponseFormat, Sampling, Stop};

/// What this dialect alone documents, and is passed on as it came.
pub(super) const OWN: [&str; 3] = ["safety_settings", "thinking_config", "top_k"];
/// The service tiers that the API has, by OpenAI's words for them.
pub(super) const TIERS: [(&str, &str); 3] = [("default", "standard"), ("flex", "flex"), ("priority", "priority")];

/// What does not belong to the configuration of the model.
pub(super) fn write(sampling: &Sampling, object: &mut Object<'_>) {
    if let Some(settings) = own(sampling, "safety_settings") {
        object.json("safetySettings", settings);
    }
    let tier = TIERS.iter().find(|(word, _)| Some(*word) == sampling.service_tier.as_deref());
    if let Some((_, tier)) = tier {
        object.text("serviceTier", tier);
    }
}

/// The members of `generationConfig`.
pub(super) fn write_config(request: &ModelRequest, generation: Option<u32>, config: &mut Object<'_>) {
    let sampling = &*request.sampling;
    let penalty = |penalty: Option<f64>| penalty.filter(|penalty| *penalty != 0.0);
    for (name, number) in [
        ("temperature", sampling.temperature),
        ("topP", sampling.top_p),
        // Newer models refuse them, even those that ask for nothing.
        ("frequencyPenalty", penalty(sampling.frequency_penalty)),
        ("presencePenalty", penalty(sampling.presence_penalty)),
    ] {
        if let Some(number) = number {
            // As it is displayed: a whole number stays one.
            config.json(name, &number.to_string());
        }
    }
    if let Some(top_k) = own(sampling, "top_k") {
        config.json("topK", top_k);
    }
    if let Some(most) = request.max_tokens {
        config.value("maxOutputTokens", &most);
    }
    match &sampling.stop {
        None => {}
        Some(Stop::Text(text)) => config.value("stopSequences", &[text]),
        Some(Stop::Texts(texts)) if texts.is_empty() => {}
        Some(Stop::Texts(texts)) => config.value("stopSequences", texts),
    }
    if let Some(seed) = sampling.seed {
        config.value("seed", &seed);
    }
    write_format(sampling.response_format.as_ref(), config);
    if let Some(thinking) = thinking::config(request, generation) {
        config.json("thinkingConfig", &thinking);
    }
}

fn write_format(format: Option<&ResponseFormat>, config: &mut Object<'_>) {
    let schema = match format {
        None | Some(ResponseFormat::Text) => return,
        Some(ResponseFormat::JsonObject) => None,
        Some(ResponseFormat::JsonSchema { schema, .. }) => schema.as_ref(),
    };
    config.text("responseMimeType", "application/json");
    if let Some(schema) = schema {
        config.json("responseJsonSchema", schema.get());
    }
}

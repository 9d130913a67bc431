//! Sampling parameters as members of a request.

use super::support::is_sent;
use crate::config::ReasoningSummary;
use crate::llm::object::Object;
use crate::types::conversation::Dialect;
use crate::types::sampling::{ResponseFormat, Sampling};

/// How the model is to sample, to answer, and to reason: with this summary, unless the caller says otherwise. Members that are
/// not known are sent where the upstream `takes_unknown` ones.
pub(super) fn write(
    sampling: &Sampling,
    takes_unknown: bool,
    summary: Option<ReasoningSummary>,
    object: &mut Object<'_>,
) {
    for (name, number) in [("temperature", sampling.temperature), ("top_p", sampling.top_p)] {
        if let Some(number) = number {
            // As it is displayed: a whole number stays one.
            object.json(name, &number.to_string());
        }
    }
    for (name, text) in [
        ("service_tier", &sampling.service_tier),
        ("user", &sampling.user),
        ("safety_identifier", &sampling.safety_identifier),
        ("prompt_cache_key", &sampling.prompt_cache_key),
    ] {
        if let Some(text) = text {
            object.text(name, text);
        }
    }
    let extra = sampling.extra.members(Dialect::OpenaiChat);
    for (name, json) in extra.iter().filter(|(name, _)| is_sent(name, takes_unknown)) {
        object.json(name, json.get());
    }
    // A caller that writes the dialect's own member decides about all of it.
    if !extra.iter().any(|(name, _)| name == "reasoning") {
        write_reasoning(sampling, summary, object);
    }
    write_text(sampling, object);
}

fn write_reasoning(sampling: &Sampling, summary: Option<ReasoningSummary>, object: &mut Object<'_>) {
    if sampling.reasoning_effort.is_none() && summary.is_none() {
        return;
    }
    object.nested("reasoning", |reasoning| {
        if let Some(effort) = &sampling.reasoning_effort {
            reasoning.text("effort", effort);
        }
        if let Some(summary) = summary {
            reasoning.text("summary", summary.word());
        }
    });
}

/// `text`: the form of the answer, and how long it is.
fn write_text(sampling: &Sampling, object: &mut Object<'_>) {
    if sampling.response_format.is_none() && sampling.verbosity.is_none() {
        return;
    }
    object.nested("text", |text| {
        if let Some(format) = &sampling.response_format {
            text.nested("format", |object| write_format(format, object));
        }
        if let Some(verbosity) = &sampling.verbosity {
            text.text("verbosity", verbosity);
        }
    });
}

fn write_format(format: &ResponseFormat, object: &mut Object<'_>) {
    match format {
        ResponseFormat::Text => object.text("type", "text"),
        ResponseFormat::JsonObject => object.text("type", "json_object"),
        ResponseFormat::JsonSchema { name, description, schema, strict } => {
            object.text("type", "json_schema");
            object.text("name", name);
            if let Some(description) = description {
                object.text("description", description);
            }
            if let Some(schema) = schema {
                object.json("schema", schema.get());
            }
            if let Some(strict) = strict {
                object.value("strict", strict);
            }
        }
    }
}

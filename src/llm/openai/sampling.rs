//! Sampling parameters in OpenAI's chat dialect.

use crate::config::ChatManner;
use crate::llm::object::Object;
use crate::types::conversation::{Dialect, Extra};
use crate::types::json::Members;
use crate::types::sampling::{ResponseFormat, Sampling, Stop};

/// What OpenAI documents and is passed on as it came.
const DOCUMENTED: [&str; 9] = [
    "logit_bias",
    "logprobs",
    "modalities",
    "prediction",
    "prompt_cache_retention",
    "response_format",
    "store",
    "top_logprobs",
    "web_search_options",
];

/// The members of a request, without braces; empty if nothing is set. Members that OpenAI does not document are
/// left out unless the upstream `takes_unknown` ones, and so are those that it refuses.
pub(super) fn members(sampling: &Sampling, chat: &ChatManner, takes_unknown: bool) -> String {
    let mut out = Vec::new();
    let kept = sampling.extra.members(Dialect::OpenaiChat).iter();
    let is_taken = |name: &str| !chat.left_out.contains(&name) && !chat.refused.contains(&name);
    let is_known = |name: &str| takes_unknown || DOCUMENTED.contains(&name);
    let sent = kept.filter(|(name, _)| is_known(name) && is_taken(name));
    let extra = Extra::new(Dialect::OpenaiChat, Members(sent.cloned().collect()));
    let mut object = Object::open(&mut out, Dialect::OpenaiChat, &extra);
    for (name, number) in [
        ("temperature", sampling.temperature),
        ("top_p", sampling.top_p),
        ("frequency_penalty", sampling.frequency_penalty),
        ("presence_penalty", sampling.presence_penalty),
    ] {
        if let Some(number) = number {
            // As it is displayed: a whole number stays one.
            object.json(name, &number.to_string());
        }
    }
    if let Some(seed) = sampling.seed {
        object.json(chat.seed, &seed.to_string());
    }
    match &sampling.stop {
        None => {}
        Some(Stop::Text(text)) => object.text("stop", text),
        Some(Stop::Texts(texts)) => object.value("stop", texts),
    }
    if let Some(format) = &sampling.response_format {
        object.nested("response_format", |object| write_format(format, object));
    }
    for (name, text) in [
        ("reasoning_effort", &sampling.reasoning_effort),
        ("verbosity", &sampling.verbosity),
        ("user", &sampling.user),
        ("service_tier", &sampling.service_tier),
        ("prompt_cache_key", &sampling.prompt_cache_key),
        ("safety_identifier", &sampling.safety_identifier),
    ] {
        if let Some(text) = text.as_ref().filter(|_| is_taken(name)) {
            object.text(name, text);
        }
    }
    object.close();
    let json = String::from_utf8(out).expect("it was written from strings");
    json[1..json.len() - 1].to_owned()
}

/// The members among these that a request gives.
pub(super) fn given<'n>(sampling: &Sampling, names: &[&'n str]) -> impl Iterator<Item = &'n str> {
    let is_given = |name: &str| match name {
        "user" => sampling.user.is_some(),
        "verbosity" => sampling.verbosity.is_some(),
        "service_tier" => sampling.service_tier.is_some(),
        "prompt_cache_key" => sampling.prompt_cache_key.is_some(),
        "safety_identifier" => sampling.safety_identifier.is_some(),
        other => sampling.extra.has(other),
    };
    names.iter().copied().filter(move |name| is_given(name))
}

/// The members that OpenAI does not document.
pub(super) fn undocumented(sampling: &Sampling) -> impl Iterator<Item = &str> {
    let kept = sampling.extra.members(Dialect::OpenaiChat).iter();
    kept.map(|(name, _)| name.as_str()).filter(|name| !DOCUMENTED.contains(name))
}

fn write_format(format: &ResponseFormat, object: &mut Object<'_>) {
    match format {
        ResponseFormat::Text => object.text("type", "text"),
        ResponseFormat::JsonObject => object.text("type", "json_object"),
        ResponseFormat::JsonSchema { name, description, schema, strict } => {
            object.text("type", "json_schema");
            object.nested("json_schema", |object| {
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
            });
        }
    }
}

/// What a `response_format` means; `None` if some of it is not known, and it can only be passed on.
#[must_use]
pub fn response_format(json: &str) -> Option<ResponseFormat> {
    let mut members: Members = serde_json::from_str(json).ok()?;
    let format = match members.read::<String>("type")?.as_str() {
        "text" => ResponseFormat::Text,
        "json_object" => ResponseFormat::JsonObject,
        "json_schema" => members.open("json_schema", |schema| {
            Some(ResponseFormat::JsonSchema {
                name: schema.read("name")?,
                description: schema.read("description"),
                schema: schema.take("schema"),
                strict: schema.read("strict"),
            })
        })?,
        _ => return None,
    };
    members.is_empty().then_some(format)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_that_end_an_answer_keep_their_shape() {
        for (stop, expected) in [
            (Stop::Text("x".into()), r#""stop":"x""#),
            (Stop::Texts(Vec::new()), r#""stop":[]"#),
            (Stop::Texts(vec!["x".into()]), r#""stop":["x"]"#),
            (Stop::Texts(vec!["x".into(), "y".into()]), r#""stop":["x","y"]"#),
        ] {
            let sampling = Sampling { stop: Some(stop), ..Sampling::default() };
            assert_eq!(members(&sampling, &ChatManner::OPENAI, false), expected);
            let stored = serde_json::to_string(&sampling).unwrap();
            assert_eq!(serde_json::from_str::<Sampling>(&stored).unwrap(), sampling);
        }
        assert_eq!(members(&Sampling::default(), &ChatManner::COMPATIBLE, true), "");
    }

    #[test]
    fn what_openai_does_not_document_goes_only_to_those_that_may_know_it() {
        let extra: Members = serde_json::from_str(r#"{"logprobs":true,"top_k":40}"#).unwrap();
        let sampling = Sampling { extra: Extra::new(Dialect::OpenaiChat, extra), ..Sampling::default() };
        assert_eq!(members(&sampling, &ChatManner::OPENAI, false), r#""logprobs":true"#);
        assert_eq!(members(&sampling, &ChatManner::COMPATIBLE, true), r#""logprobs":true,"top_k":40"#);
    }

    #[test]
    fn what_is_understood_is_written_as_it_was_read() {
        for format in [
            json!({ "type": "text" }),
            json!({ "type": "json_object" }),
            json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": { "type": "object" }, "strict": true } }),
        ] {
            let response_format = response_format(&format.to_string());
            assert!(response_format.is_some(), "{format}");
            let members = members(&Sampling { response_format, ..Sampling::default() }, &ChatManner::OPENAI, false);
            let members: serde_json::Value = serde_json::from_str(&format!("{{{members}}}")).unwrap();
            assert_eq!(members["response_format"], format);
        }
        for foreign in [
            json!({ "type": "grammar" }),
            json!({ "type": "json_object", "more": 1 }),
            json!({ "type": "json_schema", "json_schema": { "name": "a", "strict": null } }),
        ] {
            assert_eq!(response_format(&foreign.to_string()), None, "{foreign}");
        }
    }
}

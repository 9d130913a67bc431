use std::sync::Arc;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::*;
use crate::llm::testing;
use crate::types::conversation::{Dialect, Extra};
use crate::types::json::{Members, RawValueEq};
use crate::types::offer::{ToolChoice, ToolDefinition, ToolOffer};
use crate::types::sampling::{ResponseFormat, Sampling};
use crate::types::{CallId, Message, Role, ToolCall};

const OPENAI: Manner = Manner { is_openai: true, takes_unknown: false, summary: None, encrypted: None };
const OTHER: Manner = Manner { is_openai: false, takes_unknown: true, ..OPENAI };

fn request(messages: impl IntoIterator<Item = Message>) -> ModelRequest {
    testing::request("gpt-5", messages)
}

fn sent(request: &ModelRequest, manner: Manner) -> Value {
    serde_json::from_str(&body(request, Some("openai/gpt-5"), manner)).unwrap()
}

fn tools() -> ToolOffer {
    let schema = to_raw_value(&json!({ "type": "object", "properties": { "a": {} } })).unwrap();
    let (description, parameters) = (Some("Adds.".into()), Some(RawValueEq(schema)));
    let strict =
        ToolDefinition { name: "add".into(), description, parameters, strict: Some(true), ..ToolDefinition::default() };
    let plain = ToolDefinition { name: "now".into(), ..ToolDefinition::default() };
    [strict, plain].into_iter().map(Arc::new).collect()
}

#[test]
fn a_conversation_is_a_list_of_items_and_nothing_of_it_is_stored() {
    let call = ToolCall { id: CallId::foreign("call_1"), name: "add".into(), arguments: "{\"a\": 1}".into() };
    let messages = [
        Message::text(Role::System, "Be kind."),
        Message::text(Role::User, "one"),
        Message::assistant("So.", &[call]),
        Message::tool(&CallId::foreign("call_1"), "2"),
        Message::text(Role::Developer, "Be brief."),
    ];
    let request = ModelRequest { tools: tools(), max_tokens: Some(5_000), ..request(messages) };
    let schema = json!({ "type": "object", "properties": { "a": {} } });
    let none = json!({ "type": "object", "properties": {} });
    let expected = json!({
        "model": "gpt-5", "stream": true, "store": false, "include": ["reasoning.encrypted_content"],
        "stream_options": { "include_obfuscation": false }, "max_output_tokens": 5000,
        "tools": [
            { "type": "function", "name": "add", "description": "Adds.", "parameters": schema, "strict": true },
            { "type": "function", "name": "now", "parameters": none, "strict": false },
        ],
        "input": [
            { "type": "message", "role": "system", "content": "Be kind." },
            { "type": "message", "role": "user", "content": "one" },
            { "type": "message", "role": "assistant", "content": "So." },
            { "type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{\"a\": 1}" },
            { "type": "function_call_output", "call_id": "call_1", "output": "2" },
            { "type": "message", "role": "developer", "content": "Be brief." },
        ],
    });
    assert_eq!(sent(&request, OPENAI), expected);
    assert_eq!(sent(&self::request([]), OPENAI)["input"], json!([]));
}

#[test]
fn the_choice_among_tools_is_told() {
    for (choice, parallel, expected) in [
        (ToolChoice::Auto, true, (Value::Null, Value::Null)),
        (ToolChoice::Auto, false, (Value::Null, json!(false))),
        (ToolChoice::Required, true, (json!("required"), Value::Null)),
        (ToolChoice::None, true, (json!("none"), Value::Null)),
        (ToolChoice::Function("add".into()), true, (json!({ "type": "function", "name": "add" }), Value::Null)),
    ] {
        let request = request([Message::text(Role::User, "hi")]);
        let request = ModelRequest { tool_choice: choice, parallel_tool_calls: parallel, tools: tools(), ..request };
        let body = sent(&request, OPENAI);
        assert_eq!((body["tool_choice"].clone(), body["parallel_tool_calls"].clone()), expected);
        let bare = sent(&ModelRequest { tools: ToolOffer::default(), ..request }, OPENAI);
        assert_eq!((bare.get("tools"), bare.get("tool_choice"), bare.get("parallel_tool_calls")), (None, None, None));
    }
}

#[test]
fn only_models_that_may_reason_are_asked_for_their_reasoning() {
    let asked = |model: &str, encrypted| {
        let request = ModelRequest { model: model.to_owned(), ..request([]) };
        !sent(&request, Manner { encrypted, ..OPENAI })["include"].is_null()
    };
    for model in ["gpt-5", "gpt-5.1-chat-latest", "o3", "openai/gpt-5.6-sol", "gpt-oss-20b", "ft:o4-mini:acme"] {
        assert!(asked(model, None), "{model}");
        assert!(!asked(model, Some(false)), "{model}");
    }
    for model in ["gpt-4o", "gpt-4.1-mini", "gpt-3.5-turbo", "chatgpt-4o-latest", "gpt-5-chat-latest", "ft:gpt-4o:acme"]
    {
        assert!(!asked(model, None), "{model}");
        assert!(asked(model, Some(true)), "{model}");
    }
}

#[test]
fn only_models_that_may_reason_are_asked_for_a_summary() {
    let asked = |model: &str| {
        let request = ModelRequest { model: model.to_owned(), ..request([]) };
        sent(&request, Manner { summary: Some(ReasoningSummary::Auto), ..OPENAI })["reasoning"].clone()
    };
    assert_eq!(asked("gpt-5"), json!({ "summary": "auto" }));
    assert_eq!(asked("gpt-4.1"), Value::Null);
    assert_eq!(asked("openai/gpt-4o-mini"), Value::Null);
}

#[test]
fn sampling_is_told_in_the_words_of_the_api() {
    let extra = r#"{"top_k":40,"logprobs":false,"store":true,"input":"x","prompt_cache_retention":"24h"}"#;
    let extra: Members = serde_json::from_str(extra).unwrap();
    let schema = RawValueEq(to_raw_value(&json!({ "type": "object" })).unwrap());
    let format =
        ResponseFormat::JsonSchema { name: "a".into(), description: None, schema: Some(schema), strict: Some(true) };
    let sampling = Sampling {
        temperature: Some(0.5),
        top_p: Some(1.0),
        reasoning_effort: Some("low".into()),
        verbosity: Some("high".into()),
        user: Some("ada".into()),
        safety_identifier: Some("a1".into()),
        service_tier: Some("flex".into()),
        prompt_cache_key: Some("k".into()),
        response_format: Some(format),
        extra: Extra::new(Dialect::OpenaiChat, extra),
        ..Sampling::default()
    };
    let request = ModelRequest { sampling: Arc::new(sampling), ..request([]) };
    let manner = Manner { encrypted: Some(false), summary: Some(ReasoningSummary::Auto), ..OTHER };
    let mut expected = json!({
        "model": "gpt-5", "stream": true, "store": false, "temperature": 0.5, "top_p": 1, "service_tier": "flex",
        "user": "ada", "safety_identifier": "a1", "prompt_cache_key": "k", "top_k": 40, "prompt_cache_retention": "24h",
        "reasoning": { "effort": "low", "summary": "auto" },
        "text": {
            "format": { "type": "json_schema", "name": "a", "schema": { "type": "object" }, "strict": true },
            "verbosity": "high",
        },
        "input": [],
    });
    assert_eq!(sent(&request, manner), expected);
    expected.as_object_mut().unwrap().remove("top_k");
    assert_eq!(sent(&request, Manner { takes_unknown: false, ..manner }), expected);
}

#[test]
fn the_form_of_an_answer_and_the_dialect_s_own_members_are_passed_on() {
    let told = |sampling: Sampling| {
        let manner = Manner { summary: Some(ReasoningSummary::Detailed), ..OPENAI };
        let body = sent(&ModelRequest { sampling: Arc::new(sampling), ..request([]) }, manner);
        (body["text"].clone(), body["reasoning"].clone())
    };
    let detailed = json!({ "summary": "detailed" });
    for (format, expected) in [
        (ResponseFormat::Text, json!({ "format": { "type": "text" } })),
        (ResponseFormat::JsonObject, json!({ "format": { "type": "json_object" } })),
    ] {
        let sampling = Sampling { response_format: Some(format), ..Sampling::default() };
        assert_eq!(told(sampling), (expected, detailed.clone()));
    }
    let own: Members = serde_json::from_str(r#"{"reasoning":{"effort":"high","context":"all_turns"}}"#).unwrap();
    let extra = Extra::new(Dialect::OpenaiChat, own);
    let sampling = Sampling { reasoning_effort: Some("low".into()), extra, ..Sampling::default() };
    let expected = json!({ "effort": "high", "context": "all_turns" });
    assert_eq!(told(sampling), (Value::Null, expected), "the caller knows better");
}

use std::sync::Arc;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::*;
use crate::llm::testing;
use crate::types::conversation::{Dialect, Extra};
use crate::types::json::{Members, RawValueEq};
use crate::types::offer::{ToolChoice, ToolDefinition, ToolOffer};
use crate::types::sampling::{ResponseFormat, Sampling, Stop};
use crate::types::{CallId, Message, Role, ToolCall};

fn request(messages: impl IntoIterator<Item = Message>) -> ModelRequest {
    ModelRequest { max_tokens: Some(5_000), ..testing::request("gemini-2.5-flash", messages) }
}

fn sent(request: &ModelRequest) -> Value {
    serde_json::from_str(&body(request, "gemini/m")).unwrap()
}

fn call(number: u32) -> ToolCall {
    ToolCall { id: CallId::foreign(&format!("call_{number}")), name: "add".into(), arguments: "{\"a\": 1}".into() }
}

fn tools(strict: Option<bool>) -> ToolOffer {
    let schema = to_raw_value(&json!({ "properties": { "a": {} }, "additionalProperties": false })).unwrap();
    let parameters = Some(RawValueEq(schema));
    let description = Some("Adds.".to_owned());
    let add = ToolDefinition { name: "add".into(), description, parameters, strict, extra: Extra::default() };
    [Arc::new(add), Arc::new(ToolDefinition { name: "now".into(), ..ToolDefinition::default() })].into_iter().collect()
}

fn text(text: &str) -> Value {
    json!({ "text": text })
}

/// A request with these members that no dialect but this one has.
fn asked(model: &str, sampling: Sampling, own: &Value) -> ModelRequest {
    let extra: Members = serde_json::from_str(&own.to_string()).unwrap();
    let sampling = Sampling { extra: Extra::new(Dialect::OpenaiChat, extra), ..sampling };
    let messages = [Message::text(Role::User, "hi")];
    ModelRequest { model: model.to_owned(), sampling: Arc::new(sampling), ..request(messages) }
}

#[test]
fn contents_alternate_with_results_right_after_their_calls_and_instructions_apart() {
    let user = |text| Message::text(Role::User, text);
    let conversation = [
        Message::text(Role::System, "Be kind."),
        user("one"),
        user("two"),
        Message::assistant("So.", &[call(1), call(2)]),
        user("wait"),
        Message::tool(&CallId::foreign("call_1"), "2"),
        Message::tool(&CallId::foreign("call_2"), ""),
        Message::text(Role::Developer, "Be brief."),
    ];
    let use_of = |id: &str| json!({ "functionCall": { "id": id, "name": "add", "args": { "a": 1 } } });
    let mut first = use_of("call_1");
    first["thoughtSignature"] = json!("skip_thought_signature_validator");
    let result = |id: &str, output: &str| json!({ "functionResponse": { "id": id, "name": "add", "response": { "output": output } } });
    let expected = json!({
        "systemInstruction": { "parts": [text("Be kind."), text("Be brief.")] },
        "tools": [{ "functionDeclarations": [
            { "name": "add", "description": "Adds.", "parametersJsonSchema":
                { "type": "object", "properties": { "a": {} }, "additionalProperties": false } },
            { "name": "now", "description": "now" },
        ] }],
        "generationConfig": { "maxOutputTokens": 5000 },
        "contents": [
            { "role": "user", "parts": [text("one"), text("two")] },
            { "role": "model", "parts": [text("So."), first, use_of("call_2")] },
            { "role": "user", "parts": [result("call_1", "2"), result("call_2", "")] },
            { "role": "user", "parts": [text("wait")] },
        ],
    });
    assert_eq!(sent(&ModelRequest { tools: tools(None), ..request(conversation) }), expected);
    let bare = ModelRequest { max_tokens: None, ..request([user("hi")]) };
    let expected = json!({ "generationConfig": {}, "contents": [{ "role": "user", "parts": [text("hi")] }] });
    assert_eq!(sent(&bare), expected);
}

#[test]
fn the_choice_among_tools_is_told() {
    let mode = |mode: &str| json!({ "functionCallingConfig": { "mode": mode } });
    for (choice, strict, expected) in [
        (ToolChoice::Auto, None, Value::Null),
        (ToolChoice::Auto, Some(false), Value::Null),
        (ToolChoice::Auto, Some(true), mode("VALIDATED")),
        (ToolChoice::Required, Some(true), mode("ANY")),
        (
            ToolChoice::Function("add".into()),
            None,
            json!({ "functionCallingConfig": { "mode": "ANY", "allowedFunctionNames": ["add"] } }),
        ),
        (ToolChoice::None, None, mode("NONE")),
    ] {
        let request = request([Message::text(Role::User, "hi")]);
        let request = ModelRequest { tool_choice: choice.clone(), tools: tools(strict), ..request };
        assert_eq!(sent(&request)["toolConfig"], expected, "{choice:?}");
    }
    let without = ModelRequest { tool_choice: ToolChoice::Required, ..request([Message::text(Role::User, "hi")]) };
    assert_eq!((sent(&without).get("tools"), sent(&without).get("toolConfig")), (None, None));
}

#[test]
fn sampling_is_told_in_the_words_of_the_api() {
    let schema = RawValueEq(to_raw_value(&json!({ "type": "object" })).unwrap());
    let format =
        ResponseFormat::JsonSchema { name: "a".into(), description: None, schema: Some(schema), strict: Some(true) };
    let sampling = Sampling {
        temperature: Some(0.5),
        top_p: Some(1.0),
        frequency_penalty: Some(0.0),
        presence_penalty: Some(-0.5),
        seed: Some(-7),
        stop: Some(Stop::Text("END".into())),
        service_tier: Some("default".into()),
        response_format: Some(format),
        ..Sampling::default()
    };
    let settings = json!([{ "category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE" }]);
    let body = sent(&asked("gemini-2.5-flash", sampling, &json!({ "top_k": 40, "safety_settings": settings })));
    assert_eq!((&body["safetySettings"], &body["serviceTier"]), (&settings, &json!("standard")));
    let expected = json!({
        "temperature": 0.5, "topP": 1, "topK": 40, "presencePenalty": -0.5, "maxOutputTokens": 5000, "seed": -7,
        "stopSequences": ["END"], "responseMimeType": "application/json", "responseJsonSchema": { "type": "object" },
    });
    assert_eq!(body["generationConfig"], expected);
    for (format, expected) in [
        (ResponseFormat::Text, json!({ "maxOutputTokens": 5000 })),
        (ResponseFormat::JsonObject, json!({ "maxOutputTokens": 5000, "responseMimeType": "application/json" })),
    ] {
        let sampling =
            Sampling { response_format: Some(format), stop: Some(Stop::Texts(Vec::new())), ..Sampling::default() };
        assert_eq!(sent(&asked("gemini-2.5-flash", sampling, &json!({})))["generationConfig"], expected);
    }
}

#[test]
fn the_model_thinks_as_much_as_was_asked_for_in_the_way_of_its_generation() {
    let told = |model: &str, effort: &str, own: Value| {
        let sampling = Sampling { reasoning_effort: Some(effort.into()), ..Sampling::default() };
        let request = ModelRequest { max_tokens: None, ..asked(model, sampling, &own) };
        sent(&request)["generationConfig"]["thinkingConfig"].clone()
    };
    let budget = |tokens: u64| json!({ "thinkingBudget": tokens, "includeThoughts": true });
    let level = |level: &str| json!({ "thinkingLevel": level, "includeThoughts": true });
    for (model, effort, expected) in [
        ("gemini-2.5-flash", "none", json!({ "thinkingBudget": 0 })),
        ("gemini-2.5-pro", "none", json!({ "thinkingBudget": 128 })),
        ("gemini-2.5-flash", "minimal", budget(1_024)),
        ("gemini-2.5-pro", "medium", budget(8_192)),
        ("gemini-2.5-flash-lite", "max", budget(24_576)),
        ("gemini-2.0-flash", "high", Value::Null),
        ("gemini-3-flash-preview", "none", json!({ "thinkingLevel": "minimal" })),
        ("gemini-3.5-flash", "minimal", level("minimal")),
        ("gemini-3.1-pro-preview", "minimal", level("low")),
        ("gemini-3.8-flash", "none", json!({ "thinkingLevel": "low" })),
        ("gemini-4-argon", "minimal", level("low")),
        ("gemini-4-argon", "xhigh", level("high")),
        ("gemini-flash-latest", "medium", level("medium")),
        ("gemma-4-31b-it", "high", Value::Null),
    ] {
        assert_eq!(told(model, effort, json!({})), expected, "{model} {effort}");
    }
    let own = json!({ "thinkingBudget": -1 });
    assert_eq!(told("gemini-2.5-flash", "low", json!({ "thinking_config": own })), own, "the caller knows better");
    assert_eq!(
        sent(&asked("gemini-3-flash", Sampling::default(), &json!({})))["generationConfig"].get("thinkingConfig"),
        None
    );
}

#[test]
fn thinking_leaves_half_of_an_output_that_is_bounded_to_the_answer() {
    let told = |model: &str, effort: &str, most| {
        let sampling = Sampling { reasoning_effort: Some(effort.into()), ..Sampling::default() };
        let request = ModelRequest { max_tokens: Some(most), ..asked(model, sampling, &json!({})) };
        sent(&request)["generationConfig"]["thinkingConfig"].clone()
    };
    let budget = |tokens: u64| json!({ "thinkingBudget": tokens, "includeThoughts": true });
    for (model, effort, most, expected) in [
        ("gemini-2.5-flash", "high", 4_000, budget(2_000)),
        ("gemini-2.5-flash", "low", 4_000, budget(1_024)),
        ("gemini-2.5-flash", "high", 1, json!({ "thinkingBudget": 0 })),
        ("gemini-2.5-pro", "high", 100, budget(128)),
        ("gemini-2.5-flash-lite", "high", 1_024, budget(512)),
        ("gemini-2.5-flash-lite", "high", 1_000, json!({ "thinkingBudget": 0 })),
        ("gemini-3-flash", "high", 100, json!({ "thinkingLevel": "high", "includeThoughts": true })),
    ] {
        assert_eq!(told(model, effort, most), expected, "{model} {effort} {most}");
    }
}

#[test]
fn tools_whose_names_the_api_does_not_take_are_told_with_an_underscore() {
    let call = ToolCall { id: CallId::foreign("c1"), name: "21st_magic".into(), arguments: "{}".into() };
    let messages = [Message::assistant("", &[call]), Message::tool(&CallId::foreign("c1"), "2")];
    let magic = Arc::new(ToolDefinition { name: "21st_magic".into(), ..ToolDefinition::default() });
    let tools: ToolOffer = [magic].into_iter().collect();
    let tool_choice = ToolChoice::Function("21st_magic".into());
    let body = sent(&ModelRequest { tools, tool_choice, ..request(messages) });
    let [call, result] = [&body["contents"][0]["parts"][0], &body["contents"][1]["parts"][0]];
    for name in [
        &body["tools"][0]["functionDeclarations"][0]["name"],
        &body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"][0],
        &call["functionCall"]["name"],
        &result["functionResponse"]["name"],
    ] {
        assert_eq!(name, "_21st_magic", "{body}");
    }
}

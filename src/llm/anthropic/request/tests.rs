use std::sync::Arc;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::*;
use crate::llm::testing;
use crate::types::conversation::{Dialect, Extra, Part, PartKind, Parts, Proof, Seal, Thinking};
use crate::types::json::{Members, RawValueEq};
use crate::types::offer::{ToolChoice, ToolDefinition, ToolOffer};
use crate::types::sampling::{ResponseFormat, Sampling, Stop};
use crate::types::{CallId, Message, ToolCall};

const PLAIN: Manner = Manner { max_tokens: None, prompt_cache: false };
const CACHED: Manner = Manner { max_tokens: None, prompt_cache: true };

fn request(messages: impl IntoIterator<Item = Message>) -> ModelRequest {
    ModelRequest { max_tokens: Some(5_000), ..testing::request("claude-sonnet-4-5", messages) }
}

fn sent(request: &ModelRequest, manner: Manner) -> Value {
    serde_json::from_str(&body(request, "claude", manner)).unwrap()
}

fn call(number: u32) -> ToolCall {
    ToolCall { id: CallId::foreign(&format!("call_{number}")), name: "add".into(), arguments: "{\"a\": 1}".into() }
}

fn tool(name: &str) -> ToolOffer {
    let schema = to_raw_value(&json!({ "properties": { "a": {} } })).unwrap();
    let parameters = Some(RawValueEq(schema));
    let tool = ToolDefinition { name: name.into(), parameters, strict: Some(true), ..ToolDefinition::default() };
    [Arc::new(tool), Arc::new(ToolDefinition { name: "now".into(), ..ToolDefinition::default() })].into_iter().collect()
}

fn thought(author: &str) -> Part {
    let proof = Proof::Signature("EqQB".to_owned());
    let seal = Some(Box::new(Seal { author: author.to_owned(), id: None, proof }));
    PartKind::Thinking(Thinking { text: "hm".to_owned(), seal }).into()
}

/// A conversation with two calls, and a message of the user's beside their results.
fn conversation() -> Vec<Message> {
    let user = |text| Message::text(Role::User, text);
    vec![
        Message::text(Role::System, "Be kind."),
        user("one"),
        user("two"),
        Message::assistant("So.", &[call(1), call(2)]),
        user("wait"),
        Message::tool(&CallId::foreign("call_1"), "2"),
        Message::tool(&CallId::foreign("call_2"), ""),
        Message::text(Role::Developer, "Be brief."),
    ]
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

#[test]
fn turns_alternate_with_results_first_and_instructions_apart() {
    let use_of = |id: &str| json!({ "type": "tool_use", "id": id, "name": "add", "input": { "a": 1 } });
    let expected = json!({
        "model": "claude-sonnet-4-5", "max_tokens": 5000, "stream": true,
        "system": [text("Be kind."), text("Be brief.")],
        "tools": [
            { "name": "add", "input_schema": { "type": "object", "properties": { "a": {} } }, "strict": true },
            { "name": "now", "input_schema": { "type": "object", "properties": {} } },
        ],
        "messages": [
            { "role": "user", "content": [text("one"), text("two")] },
            { "role": "assistant", "content": [text("So."), use_of("call_1"), use_of("call_2")] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "call_1", "content": [text("2")] },
                { "type": "tool_result", "tool_use_id": "call_2" },
                text("wait"),
            ] },
        ],
    });
    let request = ModelRequest { tools: tool("add"), ..request(conversation()) };
    assert_eq!(sent(&request, PLAIN), expected);
}

#[test]
fn what_the_next_call_repeats_is_cached_up_to_four_places() {
    let request = ModelRequest { tools: tool("add"), ..request(conversation()) };
    let body = sent(&request, CACHED);
    let places =
        [&body["tools"][1], &body["system"][1], &body["messages"][0]["content"][1], &body["messages"][2]["content"][2]];
    for place in places {
        assert_eq!(place["cache_control"], json!({ "type": "ephemeral" }), "{place}");
    }
    assert_eq!(body.to_string().matches("cache_control").count(), 4);
    let results = [
        Message::text(Role::User, "x"),
        Message::assistant("", &[call(1)]),
        Message::tool(&CallId::foreign("call_1"), "2"),
    ];
    let body = sent(&ModelRequest { tools: tool("add"), ..self::request(results) }, CACHED);
    assert!(body["messages"][2]["content"][0]["cache_control"].is_object(), "{body}");
}

#[test]
fn without_tools_a_conversation_with_calls_still_defines_one_that_cannot_be_called() {
    let body = sent(&request(conversation()), CACHED);
    assert_eq!((body["tools"].as_array().map(Vec::len), &body["tool_choice"]), (Some(1), &json!({ "type": "none" })));
    assert!(!body.to_string().contains("cache_control"), "nothing of it is asked again: {body}");
    let plain = sent(&request([Message::text(Role::User, "hi")]), PLAIN);
    assert_eq!((plain.get("tools"), plain.get("tool_choice"), plain.get("system")), (None, None, None));
}

#[test]
fn the_choice_among_tools_is_told() {
    let one = json!(true);
    for (choice, parallel, expected) in [
        (ToolChoice::Auto, true, Value::Null),
        (ToolChoice::Auto, false, json!({ "type": "auto", "disable_parallel_tool_use": one })),
        (ToolChoice::Required, true, json!({ "type": "any" })),
        (ToolChoice::Required, false, json!({ "type": "any", "disable_parallel_tool_use": one })),
        (ToolChoice::Function("add".into()), true, json!({ "type": "tool", "name": "add" })),
        (ToolChoice::None, false, json!({ "type": "none" })),
    ] {
        let messages = [Message::text(Role::User, "hi")];
        let request = ModelRequest {
            tool_choice: choice,
            parallel_tool_calls: parallel,
            tools: tool("add"),
            ..request(messages)
        };
        assert_eq!(sent(&request, PLAIN)["tool_choice"], expected);
    }
}

#[test]
fn sampling_is_told_in_the_words_of_the_api() {
    let extra: Members = serde_json::from_str(r#"{"top_k":40,"logprobs":false}"#).unwrap();
    let schema = RawValueEq(to_raw_value(&json!({ "type": "object" })).unwrap());
    let format =
        ResponseFormat::JsonSchema { name: "a".into(), description: None, schema: Some(schema), strict: Some(true) };
    let sampling = Sampling {
        temperature: Some(0.5),
        top_p: Some(1.0),
        stop: Some(Stop::Text("END".into())),
        user: Some("ada".into()),
        service_tier: Some("standard_only".into()),
        response_format: Some(format),
        extra: Extra::new(Dialect::OpenaiChat, extra),
        ..Sampling::default()
    };
    let body = sent(&ModelRequest { sampling: Arc::new(sampling), ..request([]) }, PLAIN);
    let expected = json!({
        "model": "claude-sonnet-4-5", "max_tokens": 5000, "stream": true, "messages": [], "temperature": 0.5, "top_p": 1,
        "top_k": 40, "stop_sequences": ["END"], "metadata": { "user_id": "ada" }, "service_tier": "standard_only",
        "output_config": { "format": { "type": "json_schema", "schema": { "type": "object" } } },
    });
    assert_eq!(body, expected);
}

#[test]
fn the_model_thinks_as_much_as_was_asked_for_in_the_way_of_its_version() {
    let asked = |model: &str, effort: &str, own: &str| {
        let extra: Members = serde_json::from_str(own).unwrap();
        let extra = Extra::new(Dialect::OpenaiChat, extra);
        let sampling = Sampling { reasoning_effort: Some(effort.into()), extra, ..Sampling::default() };
        let messages = [Message::text(Role::User, "hi")];
        ModelRequest { model: model.into(), sampling: Arc::new(sampling), ..request(messages) }
    };
    let told = |request: &ModelRequest| {
        let body = sent(request, PLAIN);
        (body["thinking"].clone(), body["output_config"]["effort"].clone())
    };
    let budget = |tokens: u64| json!({ "type": "enabled", "budget_tokens": tokens });
    for (model, effort, expected) in [
        ("claude-sonnet-4-5", "low", (budget(1_024), Value::Null)),
        ("claude-sonnet-4-5", "high", (budget(2_500), Value::Null)),
        ("claude-sonnet-4-5", "none", (Value::Null, Value::Null)),
        ("claude-3-5-haiku-20241022", "high", (Value::Null, Value::Null)),
        ("claude-opus-5", "high", (json!({ "type": "adaptive" }), json!("high"))),
        ("claude-opus-5", "minimal", (Value::Null, json!("low"))),
    ] {
        assert_eq!(told(&asked(model, effort, "{}")), expected, "{model} {effort}");
    }
    let own = json!({ "type": "enabled", "budget_tokens": 2000 });
    let request = asked("claude-opus-5", "low", &json!({ "thinking": own }).to_string());
    assert_eq!(told(&request), (own, json!("low")), "the caller knows better");
    let forced =
        ModelRequest { tool_choice: ToolChoice::Required, tools: tool("add"), ..asked("claude-opus-5", "high", "{}") };
    assert_eq!(told(&forced), (Value::Null, json!("high")), "no thinking before a call that is forced");

    let turn = |author: &str| {
        let list = vec![thought(author), PartKind::ToolCall(call(1)).into()];
        let called = Message::from_parts(Role::Assistant, Parts { list, extra: Extra::default() });
        let messages = [Message::text(Role::User, "hi"), called, Message::tool(&CallId::foreign("call_1"), "2")];
        let request = asked("claude-sonnet-4-5", "low", "{}");
        told(&ModelRequest { conversation: messages.into_iter().collect(), tools: tool("add"), ..request }).0
    };
    assert_eq!((turn("claude"), turn("other")), (budget(1_024), Value::Null), "it goes on as it began");
}

#[test]
fn a_call_that_nothing_bounds_gets_a_bound_that_fits() {
    let bound = |model: &str, text: usize, manner| {
        let request = request([Message::text(Role::User, &"x".repeat(text))]);
        sent(&ModelRequest { model: model.into(), max_tokens: None, ..request }, manner)["max_tokens"].clone()
    };
    assert_eq!(bound("claude-sonnet-4-5-20250929", 10, PLAIN), 32_000);
    assert_eq!(bound("claude-3-5-haiku-20241022", 10, PLAIN), 8_192);
    assert_eq!(bound("kimi-k2", 10, PLAIN), 8_192);
    assert_eq!(bound("claude-sonnet-4-5", 3 * 190_000, PLAIN), 200_000 - 190_010);
    assert_eq!(bound("claude-sonnet-4-5", 3 * 300_000, PLAIN), 1_024);
    assert_eq!(bound("kimi-k2", 10, Manner { max_tokens: Some(64_000), ..PLAIN }), 64_000);
}

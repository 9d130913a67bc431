use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::types::CallId;
use crate::types::Role;
use crate::types::conversation::{Extra, Part, PartKind, Proof, Seal, Source, Thinking, ToolCall, ToolResult};

fn message(json: &str) -> Message {
    let raw: Box<serde_json::value::RawValue> = serde_json::from_str(json).unwrap();
    let role = serde_json::from_value(serde_json::from_str::<Value>(json).unwrap()["role"].clone()).unwrap();
    Message::from_valid_json(role, Dialect::OpenaiChat, raw, json.len())
}

/// The message as it would be written had it come from its parts.
fn rewritten(json: &Value) -> Value {
    let message = message(&json.to_string());
    let again = Message::from_parts(message.role, parts(&message).unwrap().into_owned());
    serde_json::from_str(super::json(&again)).unwrap()
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z \"\\\\\n]{0,12}", Just("grüße 🙂".to_owned())]
}

/// Members that nobody knows.
fn unknown() -> impl Strategy<Value = Map<String, Value>> {
    let value = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        text().prop_map(Value::from),
        text().prop_map(|text| json!({ "deep": [text] })),
    ];
    prop::collection::btree_map("x_[a-z]{1,4}", value, 0..3).prop_map(|map| map.into_iter().collect())
}

fn with(mut object: Value, unknown: Map<String, Value>) -> Value {
    object.as_object_mut().unwrap().extend(unknown);
    object
}

fn part() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![
        text().prop_map(|text| json!({ "type": "text", "text": text })),
        (prop_oneof!["https://a.example/[a-z]{3}", Just("data:image/png;base64,AAAA".to_owned())], unknown(), any::<bool>())
            .prop_map(|(url, unknown, detail)| {
                let image = if detail { json!({ "url": url, "detail": "low" }) } else { json!({ "url": url }) };
                json!({ "type": "image_url", "image_url": with(image, unknown) })
            }),
        unknown().prop_map(
            |unknown| json!({ "type": "input_audio", "input_audio": with(json!({ "data": "AAAA", "format": "mp3" }), unknown) })
        ),
        Just(json!({ "type": "file", "file": { "file_id": "file-1" } })),
        Just(json!({ "type": "file", "file": { "file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf" } })),
        text().prop_map(|text| json!({ "type": "video_url", "video_url": { "url": text } })),
        Just(json!({ "type": "text", "text": 7 })),
        Just(json!({ "type": "file", "file": {} })),
    ];
    (kind, unknown()).prop_map(|(part, unknown)| with(part, unknown))
}

/// A list that is not one plain text.
fn list() -> impl Strategy<Value = Value> {
    let other = unknown().prop_map(|unknown| with(json!({ "type": "video", "video": 1 }), unknown));
    (prop::collection::vec(part(), 0..4), other).prop_map(|(mut list, other)| {
        list.push(other);
        Value::from(list)
    })
}

fn content() -> impl Strategy<Value = Value> {
    prop_oneof![text().prop_map(Value::from), list()]
}

fn call() -> impl Strategy<Value = Value> {
    let function = (text(), text(), unknown()).prop_map(|(name, arguments, unknown)| {
        let function = with(json!({ "name": name, "arguments": arguments }), unknown);
        json!({ "id": "call_1", "type": "function", "function": function })
    });
    let custom = Just(json!({ "id": "call_2", "type": "custom", "custom": { "name": "f", "input": "x" } }));
    (prop_oneof![4 => function, 1 => custom], unknown()).prop_map(|(call, unknown)| with(call, unknown))
}

fn any_message() -> impl Strategy<Value = Value> {
    let spoken = (prop_oneof![Just("system"), Just("developer"), Just("user")], content())
        .prop_map(|(role, content)| json!({ "role": role, "content": content }));
    // Tools say nothing but text in this dialect.
    let told = (text(), unknown()).prop_map(|(text, unknown)| with(json!({ "type": "text", "text": text }), unknown));
    let told = prop::collection::vec(told, 0..3).prop_map(|mut told| {
        told.push(json!({ "type": "video", "video": 1 }));
        Value::from(told)
    });
    let tool = prop_oneof![text().prop_map(Value::from), told]
        .prop_map(|content| json!({ "role": "tool", "tool_call_id": "call_1", "content": content }));
    let optional = |value: BoxedStrategy<Value>| prop::option::of(value);
    let assistant = (
        optional(content().boxed()),
        optional(prop_oneof![Just(Value::Null), text().prop_map(Value::from)].boxed()),
        optional(prop_oneof![Just(Value::Null), Just(json!({ "id": "audio_1" }))].boxed()),
        prop::collection::vec(call(), 0..3),
    )
        .prop_map(|(content, refusal, audio, calls)| {
            let says_otherwise = !calls.is_empty() || audio.as_ref().is_some_and(Value::is_object);
            let nothing = if says_otherwise { Value::Null } else { Value::from("") };
            let mut message = json!({ "role": "assistant", "content": content.unwrap_or(nothing) });
            let calls = (!calls.is_empty()).then(|| Value::from(calls));
            for (name, value) in [("refusal", refusal), ("audio", audio), ("tool_calls", calls)] {
                if let Some(value) = value {
                    message[name] = value;
                }
            }
            message
        });
    (prop_oneof![spoken, tool, assistant], unknown()).prop_map(|(message, unknown)| with(message, unknown))
}

proptest! {
    /// Unknown members, parts and calls included.
    #[test]
    fn what_is_read_and_written_again_is_the_same(message in any_message()) {
        prop_assert_eq!(rewritten(&message), message);
    }

    #[test]
    fn what_arrived_so_leaves_byte_by_byte(value in any_message(), pretty in any::<bool>()) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        let message = message(&text);
        let stored: Message = serde_json::from_str(&serde_json::to_string(&message).unwrap()).unwrap();
        prop_assert_eq!(json(&message), text.as_str());
        prop_assert_eq!(json(&stored), text.as_str());
    }
}

#[test]
fn what_is_made_here_is_openais() {
    let call = ToolCall { id: CallId::foreign("call_1"), name: "add".into(), arguments: "{\"a\":1}".into() };
    assert_eq!(
        json(&Message::assistant("", std::slice::from_ref(&call))),
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]}"#
    );
    assert_eq!(json(&Message::assistant("", &[])), r#"{"role":"assistant","content":""}"#);
    assert_eq!(json(&Message::tool(&call.id, "3")), r#"{"role":"tool","tool_call_id":"call_1","content":"3"}"#);
    assert_eq!(json(&Message::text(Role::User, "a \"b\"\n")), r#"{"role":"user","content":"a \"b\"\n"}"#);
}

#[test]
fn a_refusal_leaves_whole_and_beside_a_text() {
    let refusals = |texts: &[&str]| {
        let list = texts.iter().map(|text| PartKind::Refusal((*text).to_owned()).into()).collect();
        Message::from_parts(Role::Assistant, Parts { list, extra: Extra::default() })
    };
    assert_eq!(json(&refusals(&["I can", "not."])), r#"{"role":"assistant","content":"","refusal":"I cannot."}"#);
}

#[test]
fn a_turn_of_many_parts_is_one_text_and_its_calls() {
    let call =
        |id: &str| PartKind::ToolCall(ToolCall { id: CallId::foreign(id), name: "f".into(), arguments: "{}".into() });
    let seal = Seal { author: "a".into(), id: None, proof: Proof::Signature("s".into()) };
    let thinking = Thinking { text: "hm".into(), seal: Some(Box::new(seal)) };
    let list = vec![
        PartKind::Thinking(thinking).into(),
        Part::text("one "),
        call("a").into(),
        Part::text("two"),
        call("b").into(),
    ];
    let message = Message::from_parts(Role::Assistant, Parts { list, extra: Extra::default() });
    let written: Value = serde_json::from_str(json(&message)).unwrap();
    assert_eq!(written["content"], "one two");
    assert_eq!(written["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!(written.as_object().unwrap().len(), 3, "thinking is not told: {written}");
}

#[test]
fn a_result_is_told_in_words() {
    let result = |parts: Vec<Part>, structured: Option<&str>| {
        let structured = structured.map(|json| serde_json::from_str(json).unwrap());
        let result = ToolResult { call: CallId::foreign("c"), parts, structured, is_error: true };
        let written: Value = serde_json::from_str(json(&Message::result(result))).unwrap();
        written["content"].as_str().unwrap().to_owned()
    };
    let image = || PartKind::Image {
        source: Source::Base64 { media_type: "image/png".into(), data: "AAAAAAAA".into() },
        detail: None,
    };
    assert_eq!(result(vec![Part::text("a"), Part::text("b")], Some("{}")), "a\nb");
    assert_eq!(result(vec![Part::text("a"), image().into()], None), "a\n[image, image/png, 6 bytes]");
    assert_eq!(result(Vec::new(), Some("{\"n\":1}")), "{\"n\":1}");
    assert_eq!(result(Vec::new(), None), "");
}

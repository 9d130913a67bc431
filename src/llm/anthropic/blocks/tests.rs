use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::llm::kept::MAX_KEPT;
use crate::types::conversation::{Extra, Seal, Source};
use crate::types::json::RawValueEq;
use crate::types::{CallId, Role};

fn list(message: &Message, author: &str) -> Value {
    serde_json::from_str(&format!("[{}]", blocks(message, author))).unwrap()
}

fn of_parts(role: Role, list: Vec<Part>) -> Message {
    Message::from_parts(role, Parts { list, extra: Extra::default() })
}

/// A message as a client of OpenAI's dialect sends it.
fn sent(role: Role, message: &Value) -> Message {
    let json = RawValue::from_string(message.to_string()).unwrap();
    Message::from_valid_json(role, Dialect::OpenaiChat, json, 1)
}

fn thinking(author: &str, text: &str, proof: Proof) -> Part {
    let seal = Some(Box::new(Seal { author: author.to_owned(), id: None, proof }));
    PartKind::Thinking(Thinking { text: text.to_owned(), seal }).into()
}

#[test]
fn thinking_goes_back_unchanged_to_the_model_that_sealed_it_and_to_no_other() {
    let call = ToolCall { id: CallId::foreign("call_1"), name: "add".into(), arguments: "{}".into() };
    let message = of_parts(
        Role::Assistant,
        vec![
            thinking("claude", "hm\n", Proof::Signature("EqQB".into())),
            thinking("claude", "", Proof::Encrypted("Emw=".into())),
            PartKind::Thinking(Thinking { text: "unsealed".into(), seal: None }).into(),
            Part::text("So."),
            PartKind::ToolCall(call).into(),
        ],
    );
    let thought = [
        json!({ "type": "thinking", "thinking": "hm\n", "signature": "EqQB" }),
        json!({ "type": "redacted_thinking", "data": "Emw=" }),
    ];
    let rest = [
        json!({ "type": "text", "text": "So." }),
        json!({ "type": "tool_use", "id": "call_1", "name": "add", "input": {} }),
    ];
    for _ in 0..2 {
        assert_eq!(list(&message, "claude"), Value::from([&thought[..], &rest].concat()));
        assert_eq!(list(&message, "other"), Value::from(rest.to_vec()));
    }
}

#[test]
fn a_client_s_message_is_told_by_its_parts() {
    let message = sent(
        Role::User,
        &json!({ "role": "user", "name": "ada", "content": [
        { "type": "text", "text": "see" },
        { "type": "text", "text": " \n" },
        { "type": "image_url", "image_url": { "url": "https://x.example/a.png", "detail": "low" } },
        { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBO" } },
        { "type": "file", "file": { "file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf" } },
        { "type": "file", "file": { "file_data": "data:text/plain;base64,aMOp", "filename": "a.txt" } },
        { "type": "image_url", "image_url": { "url": "data:image/tiff;base64,SUkq" } },
        { "type": "input_audio", "input_audio": { "data": "UklG", "format": "wav" } },
        { "type": "file", "file": { "file_id": "file-1" } },
    ] }),
    );
    let told = list(&message, "claude");
    let expected = [
        json!({ "type": "text", "text": "see" }),
        json!({ "type": "image", "source": { "type": "url", "url": "https://x.example/a.png" } }),
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "iVBO" } }),
        json!({ "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": "JVBE" }, "title": "a.pdf" }),
        json!({ "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "hé" }, "title": "a.txt" }),
    ];
    let (known, notes) = told.as_array().unwrap().split_at(expected.len());
    assert_eq!(known, expected);
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes.iter().all(|note| note["type"] == "text"), "what the API does not take is told in words: {notes:?}");
}

#[test]
fn calls_and_results_keep_their_ids_and_arguments_are_an_object_in_any_case() {
    let odd = "fc:1/ü";
    let called = sent(
        Role::Assistant,
        &json!({ "role": "assistant", "content": null, "tool_calls": [
        { "id": "call_1", "type": "function", "function": { "name": "a", "arguments": "{\"x\": 1.50}" } },
        { "id": odd, "type": "function", "function": { "name": "b", "arguments": "{\"x\":" } },
        { "id": "call_3", "type": "function", "function": { "name": "c", "arguments": "" } },
    ] }),
    );
    let told = list(&called, "claude");
    let inputs: Vec<_> = told.as_array().unwrap().iter().map(|block| &block["input"]).collect();
    assert_eq!(inputs, [&json!({ "x": 1.5 }), &json!({ "malformed_arguments": "{\"x\":" }), &json!({})]);
    assert!(blocks(&called, "claude").contains("1.50"), "numbers are copied");
    let answered = list(&Message::tool(&CallId::foreign(odd), "x"), "claude");
    assert_eq!(answered[0]["tool_use_id"], told[1]["id"]);
    let id = told[1]["id"].as_str().unwrap();
    assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{id}");
}

#[test]
fn a_result_has_parts_and_says_whether_it_is_a_failure() {
    let result = |parts: Vec<Part>, structured: Option<&str>, is_error| {
        let structured = structured.map(|json| RawValueEq(RawValue::from_string(json.to_owned()).unwrap()));
        list(&Message::result(ToolResult { call: CallId::foreign("c"), parts, structured, is_error }), "claude")
    };
    let source = Source::Base64 { media_type: "image/png".into(), data: "iVBO".into() };
    let picture = PartKind::Image { source, detail: None }.into();
    let image = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "iVBO" } });
    let text = json!({ "type": "text", "text": "no" });
    let of = |content: Value| json!([{ "type": "tool_result", "tool_use_id": "c", "content": content }]);
    assert_eq!(result(vec![Part::text("no"), picture], None, false), of(json!([text, image])));
    assert_eq!(result(Vec::new(), Some("[1]"), false), of(json!([{ "type": "text", "text": "[1]" }])));
    assert_eq!(
        result(vec![Part::text("")], None, true),
        json!([{ "type": "tool_result", "tool_use_id": "c", "is_error": true }])
    );
}

#[test]
fn a_message_is_encoded_once_unless_it_is_long_or_sealed() {
    let short = sent(Role::User, &json!({ "role": "user", "content": "hi" }));
    assert!(matches!(blocks(&short, "claude"), Cow::Borrowed(_)));
    let long = sent(Role::User, &json!({ "role": "user", "content": "x".repeat(MAX_KEPT) }));
    let parts_of = |length| of_parts(Role::Assistant, vec![Part::text("x".repeat(length))]);
    assert!(matches!(blocks(&parts_of(2), "claude"), Cow::Borrowed(_)));
    for long in [long, parts_of(MAX_KEPT + 1), Message::tool(&CallId::foreign("c"), &"x".repeat(MAX_KEPT + 1))] {
        assert!(matches!(blocks(&long, "claude"), Cow::Owned(_)));
    }
}

#[test]
fn what_another_dialect_alone_knows_is_left_out() {
    let json = || RawValueEq(RawValue::from_string("{\"type\":\"x\"}".to_owned()).unwrap());
    let unknown = |dialect| Part::from(PartKind::Unknown { dialect, member: "content".into(), json: json() });
    let list_of = vec![unknown(Dialect::OpenaiChat), unknown(Dialect::AnthropicMessages), Part::text("a")];
    let message = of_parts(Role::Assistant, list_of);
    assert_eq!(list(&message, "claude"), json!([{ "type": "x" }, { "type": "text", "text": "a" }]));
    let openai: Value = serde_json::from_str(crate::llm::openai::messages::json(&message)).unwrap();
    assert_eq!(openai["content"], json!([{ "type": "x" }, { "type": "text", "text": "a" }]));
}

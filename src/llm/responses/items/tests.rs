use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::types::CallId;
use crate::types::conversation::{Extra, Seal, Source};
use crate::types::json::{Members, RawValueEq};

const AUTHOR: &str = "openai/gpt-5";

fn list(message: &Message, author: &str) -> Value {
    serde_json::from_str(&format!("[{}]", items(message, author))).unwrap()
}

fn of_parts(role: Role, list: Vec<Part>) -> Message {
    Message::from_parts(role, Parts { list, extra: Extra::default() })
}

/// A message as a client of OpenAI's chat dialect sends it.
fn sent(role: Role, message: &Value) -> Message {
    let json = RawValue::from_string(message.to_string()).unwrap();
    Message::from_valid_json(role, Dialect::OpenaiChat, json, 1)
}

fn reasoning(text: &str, id: Option<&str>) -> Part {
    let proof = Proof::Encrypted("gAAA==".to_owned());
    let seal = Seal { author: AUTHOR.to_owned(), id: id.map(str::to_owned), proof };
    PartKind::Thinking(Thinking { text: text.to_owned(), seal: Some(Box::new(seal)) }).into()
}

fn call() -> Part {
    let call = ToolCall { id: CallId::foreign("call_1"), name: "add".into(), arguments: String::new() };
    PartKind::ToolCall(call).into()
}

#[test]
fn reasoning_goes_back_unchanged_to_the_model_that_encrypted_it_and_to_no_other() {
    let json = RawValue::from_string("\"commentary\"".to_owned()).unwrap();
    let phase = Extra::new(Dialect::OpenaiResponses, Members(vec![("phase".to_owned(), RawValueEq(json))]));
    let message = of_parts(
        Role::Assistant,
        vec![
            reasoning("hm\n", Some("rs_1")),
            reasoning("", None),
            PartKind::Thinking(Thinking { text: "unsealed".into(), seal: None }).into(),
            Part { kind: PartKind::Text("So.".into()), extra: phase },
            reasoning("add", Some("rs_2")),
            call(),
            reasoning("and nothing after it", Some("rs_3")),
        ],
    );
    let item = |id: &str, text: &str| {
        let summary = json!([{ "type": "summary_text", "text": text }]);
        json!({ "type": "reasoning", "id": id, "summary": summary, "encrypted_content": "gAAA==" })
    };
    let nameless = json!({ "type": "reasoning", "summary": [], "encrypted_content": "gAAA==" });
    let text = json!({ "type": "message", "role": "assistant", "content": "So.", "phase": "commentary" });
    let call = json!({ "type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}" });
    for _ in 0..2 {
        let expected = json!([item("rs_1", "hm\n"), nameless, text, item("rs_2", "add"), call]);
        assert_eq!(list(&message, AUTHOR), expected, "but for reasoning that led to nothing");
        assert_eq!(list(&message, "openai/gpt-5-mini"), json!([text, call]));
    }
    let chat: Value = serde_json::from_str(crate::llm::openai::messages::json(&message)).unwrap();
    assert_eq!(chat["content"], "So.", "the phase is nothing to other dialects");
}

#[test]
fn a_client_s_message_is_told_by_its_parts() {
    let parts = json!([
        { "type": "text", "text": "see" },
        { "type": "image_url", "image_url": { "url": "https://x.example/a.png", "detail": "low" } },
        { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBO" } },
        { "type": "file", "file": { "file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf" } },
        { "type": "file", "file": { "file_data": "data:application/pdf;base64,JVBE" } },
        { "type": "file", "file": { "file_data": "https://x.example/a.pdf", "filename": "a.pdf" } },
        { "type": "file", "file": { "file_data": "JVBE", "filename": "b.pdf" } },
        { "type": "file", "file": { "file_id": "file-1" } },
        { "type": "riddle" },
    ]);
    let message = sent(Role::User, &json!({ "role": "user", "name": "ada", "content": parts }));
    let pdf = "data:application/pdf;base64,JVBE";
    let expected = json!([{ "type": "message", "role": "user", "content": [
        { "type": "input_text", "text": "see" },
        { "type": "input_image", "image_url": "https://x.example/a.png", "detail": "low" },
        { "type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "auto" },
        { "type": "input_file", "filename": "a.pdf", "file_data": pdf },
        { "type": "input_file", "filename": "document", "file_data": pdf },
        { "type": "input_file", "file_url": "https://x.example/a.pdf" },
        { "type": "input_file", "filename": "b.pdf", "file_data": "JVBE" },
        { "type": "input_file", "file_id": "file-1" },
    ] }]);
    assert_eq!(list(&message, AUTHOR), expected);
    let sound = json!([{ "type": "input_audio", "input_audio": { "data": "UklG", "format": "wav" } }]);
    let told = list(&sent(Role::User, &json!({ "role": "user", "content": sound })), AUTHOR);
    assert_eq!(told[0]["content"][0]["type"], "input_text", "sound of earlier turns is told in words: {told}");
    let only_unknown = sent(Role::User, &json!({ "role": "user", "content": [{ "type": "riddle" }] }));
    assert_eq!(list(&only_unknown, AUTHOR), json!([]));
    let empty = sent(Role::User, &json!({ "role": "user", "content": "" }));
    assert_eq!(list(&empty, AUTHOR)[0]["content"], "");
}

#[test]
fn calls_and_results_keep_their_ids_as_far_as_the_api_takes_them() {
    let (long, odd) = ("x".repeat(65), "fc:1/ü");
    for id in [long.as_str(), odd] {
        let function = json!({ "name": "b", "arguments": "{\"x\":" });
        let calls = json!([{ "id": id, "type": "function", "function": function }]);
        let called =
            list(&sent(Role::Assistant, &json!({ "role": "assistant", "content": null, "tool_calls": calls })), AUTHOR);
        assert_eq!(called[0]["arguments"], "{\"x\":", "arguments go back as the model wrote them");
        let answered = list(&Message::tool(&CallId::foreign(id), "x"), AUTHOR);
        assert_eq!(answered[0]["call_id"], called[0]["call_id"]);
        assert!(answered[0]["call_id"].as_str().is_some_and(|id| id.len() <= 64 && id.is_ascii()), "{answered}");
    }
}

#[test]
fn a_result_is_text_or_a_list_with_its_pictures() {
    let result = |parts: Vec<Part>, structured: Option<&str>| {
        let structured = structured.map(|json| RawValueEq(RawValue::from_string(json.to_owned()).unwrap()));
        let result = ToolResult { call: CallId::foreign("c"), parts, structured, is_error: false };
        list(&Message::result(result), AUTHOR)[0]["output"].clone()
    };
    let source = Source::Base64 { media_type: "image/png".into(), data: "iVBO".into() };
    let picture = PartKind::Image { source, detail: None }.into();
    let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "auto" });
    assert_eq!(result(vec![Part::text("no"), picture], None), json!([{ "type": "input_text", "text": "no" }, image]));
    // The API refuses a whole request for what it does not take in one result.
    let other = |media_type: &str| {
        let source = Source::Base64 { media_type: media_type.into(), data: "AAAA".into() };
        PartKind::Image { source, detail: None }.into()
    };
    let source = Source::Base64 { media_type: "application/zip".into(), data: "AAAA".into() };
    let zip: Part = PartKind::File { source, name: Some("a.zip".into()) }.into();
    let told = "[image, image/svg+xml, 3 bytes]\n[file a.zip, application/zip, 3 bytes]";
    assert_eq!(result(vec![other("image/svg+xml"), zip.clone()], None), told);
    let shown = json!({ "type": "input_image", "image_url": "data:image/gif;base64,AAAA", "detail": "auto" });
    let words = json!({ "type": "input_text", "text": "[file a.zip, application/zip, 3 bytes]" });
    assert_eq!(result(vec![other("image/gif"), zip], None), json!([shown, words]));
    assert_eq!(result(vec![Part::text("a"), Part::text("b")], Some("[1]")), "a\nb");
    assert_eq!(result(Vec::new(), Some("[1]")), "[1]");
    assert_eq!(result(Vec::new(), None), "");
}

#[test]
fn a_message_is_encoded_once_unless_it_is_sealed() {
    assert!(matches!(items(&Message::text(Role::User, "hi"), AUTHOR), Cow::Borrowed(_)));
    let sealed = of_parts(Role::Assistant, vec![reasoning("", None), call()]);
    assert!(matches!(items(&sealed, AUTHOR), Cow::Owned(_)));
}

#[test]
fn what_the_model_declined_with_is_told_and_what_another_dialect_alone_knows_is_left_out() {
    let json = || RawValueEq(RawValue::from_string("{\"type\":\"x\"}".to_owned()).unwrap());
    let unknown = |dialect| Part::from(PartKind::Unknown { dialect, member: "content".into(), json: json() });
    let refusal = Part::from(PartKind::Refusal("I can't.".into()));
    let list_of = vec![unknown(Dialect::OpenaiChat), unknown(Dialect::AnthropicMessages), Part::text(""), refusal];
    let told = list(&of_parts(Role::Assistant, list_of), AUTHOR);
    assert_eq!(told, json!([{ "type": "message", "role": "assistant", "content": "I can't." }]));
}

/// An upstream of the same name may have been of another kind before.
#[test]
fn only_reasoning_that_this_api_encrypted_goes_back() {
    let data = || "gAAA==".to_owned();
    for (proof, expected) in [
        (Proof::Encrypted(data()), "reasoning"),
        (Proof::Signature(data()), "function_call"),
        (Proof::Following(data()), "function_call"),
    ] {
        let seal = Some(Box::new(Seal { author: AUTHOR.to_owned(), id: None, proof }));
        let thinking = PartKind::Thinking(Thinking { text: "hm".to_owned(), seal });
        let told = list(&of_parts(Role::Assistant, vec![thinking.into(), call()]), AUTHOR);
        assert_eq!(told[0]["type"], expected, "{told}");
    }
}

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::types::conversation::{Extra, Seal, Source};
use crate::types::json::RawValueEq;
use crate::types::{CallId, Role};

const AUTHOR: &str = "gemini/m";
const OLD: &str = "gemini-2.0-flash";
const NEW: &str = "gemini-3-flash";

fn of_parts(role: Role, list: Vec<Part>) -> Message {
    Message::from_parts(role, Parts { list, extra: Extra::default() })
}

fn sent(role: Role, json: &Value) -> Message {
    let json = RawValue::from_string(json.to_string()).unwrap();
    Message::from_valid_json(role, Dialect::OpenaiChat, json, 0)
}

/// The parts of the last of these messages, for this model.
fn last(messages: &[Message], model: &str) -> Value {
    let mut writer = Writer::new(AUTHOR, Wants::of(model));
    let all: Vec<_> = messages.iter().map(|message| writer.parts(message)).collect();
    let last = all.last().unwrap();
    serde_json::from_str(&format!("[{last}]")).unwrap()
}

fn sealed(author: &str, text: &str, proof: Proof) -> Part {
    let seal = Some(Box::new(Seal { author: author.to_owned(), id: None, proof }));
    PartKind::Thinking(Thinking { text: text.to_owned(), seal }).into()
}

fn before(author: &str, signature: &str) -> Part {
    sealed(author, "", Proof::Following(signature.to_owned()))
}

fn call(id: &str, arguments: &str) -> Part {
    let id = CallId::foreign(id);
    PartKind::ToolCall(ToolCall { id, name: "add".to_owned(), arguments: arguments.to_owned() }).into()
}

fn unknown(dialect: Dialect, json: &str) -> Part {
    let json = RawValueEq(RawValue::from_string(json.to_owned()).unwrap());
    PartKind::Unknown { dialect, member: "parts".to_owned(), json }.into()
}

fn function_call(id: &str, args: &Value) -> Value {
    json!({ "functionCall": { "id": id, "name": "add", "args": args } })
}

#[test]
fn every_signature_goes_back_with_the_part_that_it_came_with() {
    let signature = |text: &str| Proof::Signature(text.to_owned());
    let message = of_parts(
        Role::Assistant,
        vec![
            sealed(AUTHOR, "hm", signature("A")),
            before(AUTHOR, "B"),
            Part::text("So"),
            Part::text(" it is"),
            before(AUTHOR, "C"),
            unknown(Dialect::GeminiContents, r#"{"executableCode":{"code":"1.50"}}"#),
            before(AUTHOR, "D"),
            call("c1", "{\"a\": 1}"),
            call("c2", "{}"),
            sealed(AUTHOR, "", signature("E")),
            before(AUTHOR, "of a call that was taken back"),
        ],
    );
    let mut first = function_call("c1", &json!({ "a": 1 }));
    first["thoughtSignature"] = json!("D");
    let expected = json!([
        { "text": "hm", "thought": true, "thoughtSignature": "A" },
        { "text": "So", "thoughtSignature": "B" },
        { "text": " it is" },
        { "executableCode": { "code": "1.50" }, "thoughtSignature": "C" },
        first,
        function_call("c2", &json!({})),
        { "text": "", "thoughtSignature": "E" },
    ]);
    for model in [OLD, NEW] {
        assert_eq!(last(std::slice::from_ref(&message), model), expected);
    }
}

#[test]
fn what_another_model_signed_is_for_that_model_alone() {
    let others = of_parts(
        Role::Assistant,
        vec![
            sealed("claude/x", "hm", Proof::Signature("A".to_owned())),
            sealed("claude/x", "", Proof::Encrypted("B".to_owned())),
            before("gemini/other", "C"),
            Part::text("So"),
            unknown(Dialect::AnthropicMessages, "{}"),
            call("c1", "{}"),
            call("c2", "{}"),
        ],
    );
    let plain = json!([{ "text": "So" }, function_call("c1", &json!({})), function_call("c2", &json!({}))]);
    assert_eq!(last(std::slice::from_ref(&others), OLD), plain);
    let mut unsigned = plain;
    unsigned[1]["thoughtSignature"] = json!(NO_SIGNATURE);
    for model in [NEW, "gemini-2.5-pro", "gemini-flash-latest"] {
        // Newer models want a signature, or this, of the first call of each step.
        assert_eq!(last(std::slice::from_ref(&others), model), unsigned, "{model}");
    }
}

#[test]
fn arguments_are_an_object_in_any_case() {
    let called = sent(
        Role::Assistant,
        &json!({ "role": "assistant", "content": null, "tool_calls": [
            { "id": "c1", "type": "function", "function": { "name": "add", "arguments": "{\"x\": 1.50}" } },
            { "id": "c2", "type": "function", "function": { "name": "add", "arguments": "{\"x\":" } },
            { "id": "c3", "type": "function", "function": { "name": "add", "arguments": "" } },
        ] }),
    );
    let told = last(std::slice::from_ref(&called), OLD);
    let args: Vec<_> = told.as_array().unwrap().iter().map(|part| &part["functionCall"]["args"]).collect();
    assert_eq!(args, [&json!({ "x": 1.5 }), &json!({ "malformed_arguments": "{\"x\":" }), &json!({})]);
    assert!(Writer::new(AUTHOR, Wants::of(OLD)).parts(&called).contains("1.50"), "numbers are copied");
}

#[test]
fn a_result_names_its_tool_and_says_whether_it_is_a_failure() {
    let called = of_parts(Role::Assistant, vec![call("c1", "{}")]);
    let answered = |model, call: &str, parts: Vec<Part>, structured: Option<&str>, is_error| {
        let structured = structured.map(|json| RawValueEq(RawValue::from_string(json.to_owned()).unwrap()));
        let result = ToolResult { call: CallId::foreign(call), parts, structured, is_error };
        last(&[called.clone(), Message::result(result)], model)
    };
    let of = |name: &str, id: &str, response: Value| json!([{ "functionResponse": { "id": id, "name": name, "response": response } }]);
    let text = || vec![Part::text("no"), Part::text("more")];
    assert_eq!(answered(NEW, "c1", text(), None, false), of("add", "c1", json!({ "output": "no\nmore" })));
    assert_eq!(answered(NEW, "c1", text(), None, true), of("add", "c1", json!({ "error": "no\nmore" })));
    assert_eq!(answered(NEW, "c1", Vec::new(), None, false), of("add", "c1", json!({ "output": "" })));
    let structured = of("add", "c1", json!({ "output": "[9007199254740993]" }));
    assert_eq!(answered(NEW, "c1", Vec::new(), Some("[9007199254740993]"), false), structured);
    assert_eq!(answered(NEW, "lost", text(), None, false), of(NO_NAME, "lost", json!({ "output": "no\nmore" })));

    let picture = |media_type: &str| {
        let source = Source::Base64 { media_type: media_type.into(), data: "iVBO".into() };
        Part::from(PartKind::Image { source, detail: None })
    };
    let parts = || vec![Part::text("see"), picture("image/png"), picture("image/tiff")];
    let mut expected = of("add", "c1", json!({ "output": "see\n[image, image/tiff, 3 bytes]" }));
    expected[0]["functionResponse"]["parts"] = json!([{ "inlineData": { "mimeType": "image/png", "data": "iVBO" } }]);
    assert_eq!(answered(NEW, "c1", parts(), None, false), expected);
    let words = json!({ "output": "see\n[image, image/png, 3 bytes]\n[image, image/tiff, 3 bytes]" });
    for model in [OLD, "gemini-2.5-flash"] {
        assert_eq!(
            answered(model, "c1", parts(), None, false),
            of("add", "c1", words.clone()),
            "{model} reads text alone"
        );
    }
    assert_eq!(answered("gemini-flash-latest", "c1", parts(), None, false), expected);
}

#[test]
fn pictures_sound_and_files_are_sent_and_what_the_api_lacks_is_told_in_words() {
    let message = sent(
        Role::User,
        &json!({ "role": "user", "name": "ada", "content": [
            { "type": "text", "text": "see" },
            { "type": "text", "text": "" },
            { "type": "image_url", "image_url": { "url": "https://x.example/a.PNG?size=1", "detail": "low" } },
            { "type": "file", "file": { "file_id": "gs://bucket/a" } },
            { "type": "image_url", "image_url": { "url": "data:image/webp;base64,iVBO" } },
            { "type": "input_audio", "input_audio": { "data": "UklG", "format": "wav" } },
            { "type": "file", "file": { "file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf" } },
            { "type": "file", "file": { "file_data": "data:text/plain;charset=utf-8;base64,aMOp" } },
            { "type": "file", "file": { "file_id": "https://generativelanguage.googleapis.com/v1beta/files/abc" } },
            { "type": "image_url", "image_url": { "url": "data:image/tiff;base64,SUkq" } },
            { "type": "file", "file": { "file_id": "file-1" } },
            { "type": "file", "file": { "file_data": "ftp://x.example/a.pdf" } },
        ] }),
    );
    let inline = |media_type: &str, data: &str| json!({ "inlineData": { "mimeType": media_type, "data": data } });
    let expected = [
        json!({ "text": "see" }),
        json!({ "fileData": { "mimeType": "image/png", "fileUri": "https://x.example/a.PNG?size=1" } }),
        json!({ "fileData": { "fileUri": "gs://bucket/a" } }),
        inline("image/webp", "iVBO"),
        inline("audio/wav", "UklG"),
        inline("application/pdf", "JVBE"),
        inline("text/plain", "aMOp"),
        json!({ "fileData": { "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/abc" } }),
        json!({ "text": "[image, image/tiff, 3 bytes]" }),
        json!({ "text": "[file file-1]" }),
        json!({ "text": "[file: ftp://x.example/a.pdf]" }),
    ];
    assert_eq!(last(&[message], NEW).as_array().unwrap()[..], expected);
}

#[test]
fn what_a_client_sends_short_is_written_once() {
    let short = sent(Role::User, &json!({ "role": "user", "content": "hi" }));
    let mut writer = Writer::new(AUTHOR, Wants::of(NEW));
    assert!(matches!(writer.parts(&short), Cow::Borrowed(_)));
    let long = sent(Role::User, &json!({ "role": "user", "content": "x".repeat(MAX_KEPT) }));
    let called = sent(
        Role::Assistant,
        &json!({ "role": "assistant", "tool_calls": [
            { "id": "c1", "type": "function", "function": { "name": "add", "arguments": "{}" } },
        ] }),
    );
    let answered = sent(Role::Tool, &json!({ "role": "tool", "tool_call_id": "c1", "content": "2" }));
    for fresh in [long, called, answered, Message::text(Role::User, "hi")] {
        assert!(matches!(writer.parts(&fresh), Cow::Owned(_)));
    }
}

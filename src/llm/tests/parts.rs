//! The parts of messages: sent, told in words, or refused. Never lost.

use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::asked::{Kind, Kinds};
use super::markdown;
use crate::types::conversation::{Dialect, PartKind, Source, ToolCall, ToolResult};
use crate::types::{CallId, Message, Role};

/// What stands in the parts, and is looked for in requests.
const DATA: &str = "QUJDRA==";
const NAME: &str = "something-of-ours";

fn image(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn inline(media_type: &str) -> Value {
    image(&format!("data:{media_type};base64,{DATA}"))
}

fn sound(format: &str) -> Value {
    json!({"type": "input_audio", "input_audio": {"data": DATA, "format": format}})
}

fn file(media_type: &str) -> Value {
    json!({"type": "file", "file": {"file_data": format!("data:{media_type};base64,{DATA}"), "filename": "a"}})
}

fn given() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        (
            "picture at an `https://` address",
            image(&format!("https://pictures.test/{NAME}.png")),
            "the vendor fetches it",
        ),
        ("picture inline: PNG, JPEG, WebP", inline("image/png"), ""),
        ("picture inline: GIF", inline("image/gif"), ""),
        ("picture inline: HEIC, HEIF", inline("image/heic"), ""),
        ("picture inline: others", inline("image/tiff"), ""),
        ("sound (`input_audio`): WAV, MP3", sound("wav"), ""),
        ("sound: AIFF, AAC, OGG, FLAC", sound("flac"), ""),
        ("sound: others", sound("pcm16"), ""),
        ("file (`file_data`): PDF", file("application/pdf"), ""),
        ("file: plain text", file("text/plain"), ""),
        ("file: other text, JSON", file("application/json"), ""),
        ("file: others", file("application/zip"), ""),
        (
            "file by its `file_id`",
            json!({"type": "file", "file": {"file_id": NAME}}),
            "an id counts at the vendor that gave it",
        ),
        (
            "file by its address at Google",
            json!({"type": "file", "file": {"file_id": format!("https://generativelanguage.googleapis.com/v1beta/files/{NAME}")}}),
            "in `file_id`, also with `gs://`",
        ),
    ]
}

/// The parts as a table.
pub(super) async fn table(kinds: &Kinds) -> String {
    let kinds_shown: Vec<&Kind> = kinds.all.iter().filter(|kind| kind.is_first).collect();
    let mut rows = Vec::new();
    for (label, part, note) in given() {
        let mut cells = Vec::new();
        for kind in &kinds_shown {
            cells.push(cell(kinds, kind, &part).await);
        }
        rows.push((label.to_owned(), cells, note));
    }
    let note = "Gemini: from 3 on, and where the name tells no generation; otherwise a note in words";
    let pictures = format!(
        "chat completions: OpenAI's own and Azure's, and where `tool_pictures` says so; otherwise a note in words. {note}"
    );
    for (label, part, note) in [
        ("picture in the result of a tool", PartKind::Image { source: source("image/png"), detail: None }, &*pictures),
        ("file in the result of a tool", PartKind::File { source: source("application/pdf"), name: None }, note),
        ("sound in the result of a tool", PartKind::Audio { source: source("audio/wav") }, ""),
    ] {
        let mut cells = Vec::new();
        for kind in &kinds_shown {
            cells.push(in_result(kinds, kind, &part).await);
        }
        rows.push((label.to_owned(), cells, note));
    }
    let columns: Vec<_> =
        kinds_shown.iter().map(|kind| kind.column.split(" at ").next().expect("there is a first")).collect();
    markdown("part", &columns, &rows)
}

fn source(media_type: &str) -> Source {
    Source::Base64 { media_type: media_type.to_owned(), data: DATA.to_owned() }
}

/// What becomes of a part that a user sends after a text.
async fn cell(kinds: &Kinds, kind: &Kind, part: &Value) -> String {
    let json = json!({"role": "user", "content": [{"type": "text", "text": "What is it?"}, part]});
    let json = to_raw_value(&json).expect("it is JSON");
    let message = Message::from_valid_json(Role::User, Dialect::OpenaiChat, json, 0);
    if let Some((index, why)) = kind.model.refuses_part(&message) {
        assert_eq!(index, 1, "{why}");
        return "400".to_owned();
    }
    let body = kinds.body(kind, |request| request.conversation = [message].into_iter().collect()).await;
    // Plain text is not always sent in base64.
    let text = body.to_string();
    assert!(
        [DATA, NAME, "ABCD"].iter().any(|mark| text.contains(mark)),
        "{part} is lost on the way to {}: {text}",
        kind.column
    );
    "yes".to_owned()
}

/// What becomes of a part that a tool answers with.
async fn in_result(kinds: &Kinds, kind: &Kind, part: &PartKind) -> String {
    let call = ToolCall { id: CallId::foreign("call_1"), name: "f".to_owned(), arguments: "{}".to_owned() };
    let result =
        ToolResult { call: call.id.clone(), parts: vec![part.clone().into()], structured: None, is_error: false };
    let messages = [Message::text(Role::User, "hi"), Message::assistant("", &[call]), Message::result(result)];
    let body = kinds.body(kind, |request| request.conversation = messages.into_iter().collect()).await.to_string();
    match (body.contains(DATA), body.contains("4 bytes]")) {
        (true, false) => "yes".to_owned(),
        (true, true) => "in a message after the results".to_owned(),
        (false, true) => "a note in words".to_owned(),
        _ => panic!("{part:?} is lost on the way to {}: {body}", kind.column),
    }
}

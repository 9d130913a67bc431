//! Chunks and completions of OpenAI's chat dialect.

use serde_json::Value;

use super::{Ended, Told};
use crate::support::Frame;
use crate::support::chat;

/// What chunks tell.
pub(super) fn told(frames: &[Frame]) -> Told {
    let (mut told, mut chunks) = (Told::default(), Vec::new());
    for frame in frames {
        if frame.is_done() {
            told.done();
            continue;
        }
        let Some(chunk) = told.read(frame) else { continue };
        told.note_after_failure(&chunk);
        if !chunk["error"].is_null() {
            told.fail(&chunk["error"]);
            continue;
        }
        let (choice, first) = (&chunk["choices"][0], chunks.first().unwrap_or(&chunk));
        told.note_if(!frame.name.is_empty() || chunk["object"] != "chat.completion.chunk", "this is no chunk", &chunk);
        told.note_if(chunk["id"] != first["id"], "a chunk is of another completion", &chunk);
        let begins = choice["delta"]["role"] == "assistant";
        told.note_if(begins != chunks.is_empty(), "only the first chunk says who speaks", &chunk);
        match choice["finish_reason"].as_str() {
            Some("stop") => told.finish(true),
            Some(_) => told.fail(&choice["finish_reason"]),
            None => {}
        }
        chunks.push(chunk);
    }
    told.said = Some(chat::told(&chunks).0);
    told
}

/// What a completion tells.
pub(super) fn told_whole(body: &Value) -> Told {
    let mut told = Told::default();
    let choice = &body["choices"][0];
    told.note_if(body["object"] != "chat.completion", "this is no completion", body);
    told.answer = choice["message"]["content"].as_str().map(str::to_owned);
    told.ended = if choice["finish_reason"] == "stop" {
        Ended::Whole
    } else {
        Ended::Failed(choice["finish_reason"].to_string())
    };
    told
}

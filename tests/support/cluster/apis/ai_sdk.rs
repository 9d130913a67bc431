//! The chunks of the AI SDK's UI messages.

use serde_json::Value;

use super::told::string;
use super::{Made, Told};
use crate::support::Frame;

/// What chunks tell.
pub(super) fn told(frames: &[Frame]) -> Told {
    let (mut told, mut calls) = (Told::default(), Vec::<Made>::new());
    // Each with its id; those of the step that is under way stand from `begun` on.
    let (mut texts, mut begun, mut open) = (Vec::<(Value, String)>::new(), 0, None::<Value>);
    let mut in_step = false;
    for (frame, place) in frames.iter().zip(0..) {
        if frame.is_done() {
            told.done();
            continue;
        }
        let Some(chunk) = told.read(frame) else { continue };
        let kind = chunk["type"].as_str().unwrap_or_default();
        told.note_if((place == 0) != (kind == "start"), "it begins otherwise", &chunk);
        if kind != "finish" {
            told.note_after_failure(&chunk);
        }
        match kind {
            "start" => {}
            "start-step" | "finish-step" => {
                let begins = kind == "start-step";
                told.note_if(in_step == begins || open.is_some(), "a step begins or ends where it cannot", &chunk);
                in_step = begins;
                begun = if begins { texts.len() } else { begun };
            }
            "text-start" => {
                told.note_if(open.is_some() || !in_step, "a text begins where none can", &chunk);
                open = Some(chunk["id"].clone());
                texts.push((chunk["id"].clone(), String::new()));
            }
            "text-delta" | "text-end" => {
                told.note_if(open.as_ref() != Some(&chunk["id"]), "this text is not open", &chunk);
                if let Some((_, text)) = texts.iter_mut().rfind(|(id, _)| *id == chunk["id"]) {
                    text.push_str(&string(&chunk["delta"]));
                }
                open = open.filter(|_| kind == "text-delta");
            }
            "data-loopgate" => texts.truncate(begun),
            "tool-input-available" => {
                let (id, name) = (string(&chunk["toolCallId"]), string(&chunk["toolName"]));
                told.note_if(chunk["providerExecuted"] != true, "its client is to make this call", &chunk);
                calls.push(Made { id, name, content: None });
            }
            "tool-output-available" | "tool-output-error" => {
                match calls.iter_mut().find(|call| chunk["toolCallId"] == *call.id) {
                    Some(call) => call.content = [&chunk["output"], &chunk["errorText"]].map(string).into_iter().max(),
                    None => told.note(format!("a result has no call: {chunk}")),
                }
            }
            "error" => told.fail(&chunk["errorText"]),
            "finish" if chunk["finishReason"] == "stop" => {
                told.note_if(in_step || open.is_some() || told.has_failed(), "it ends where it cannot", &chunk);
                told.finish(true);
            }
            "finish" | "abort" => told.fail(&chunk),
            _ => told.note(format!("this is no chunk: {chunk}")),
        }
    }
    told.answer = texts.last().map(|(_, text)| text.clone());
    told.said = Some(texts.into_iter().map(|(_, text)| text).collect());
    told.calls = Some(calls);
    told
}

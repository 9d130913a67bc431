//! The events of AG-UI.

use serde_json::Value;

use super::told::string;
use super::{Made, Told};
use crate::support::Frame;

/// What events tell.
pub(super) fn told(frames: &[Frame]) -> Told {
    let (mut told, mut calls) = (Told::default(), Vec::<Made>::new());
    let (mut texts, mut open) = (Vec::<(Value, String)>::new(), None::<Value>);
    let (mut step, mut run) = (Value::Null, Value::Null);
    for (frame, place) in frames.iter().zip(0..) {
        let Some(event) = told.read(frame) else { continue };
        let kind = event["type"].as_str().unwrap_or_default();
        told.note_after_failure(&event);
        told.note_if((place == 0) != (kind == "RUN_STARTED"), "it begins otherwise", &event);
        match kind {
            "RUN_STARTED" => run = event["runId"].clone(),
            "STEP_STARTED" => {
                told.note_if(!step.is_null() || open.is_some(), "a step begins where none can", &event);
                step = event["stepName"].clone();
            }
            "STEP_FINISHED" => {
                told.note_if(step != event["stepName"] || open.is_some(), "this step is not open", &event);
                step = Value::Null;
            }
            "TEXT_MESSAGE_START" => {
                told.note_if(open.is_some() || step.is_null(), "a text begins where none can", &event);
                open = Some(event["messageId"].clone());
                texts.push((event["messageId"].clone(), String::new()));
            }
            "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_END" => {
                told.note_if(open.as_ref() != Some(&event["messageId"]), "this text is not open", &event);
                if let Some((_, text)) = texts.iter_mut().rfind(|(id, _)| *id == event["messageId"]) {
                    text.push_str(&string(&event["delta"]));
                }
                open = open.filter(|_| kind == "TEXT_MESSAGE_CONTENT");
            }
            "CUSTOM" if event["name"] == "loopgate.step.discarded" => {
                let void = event["value"]["messageIds"].as_array().cloned().unwrap_or_default();
                texts.retain(|(id, _)| !void.contains(id));
            }
            "TOOL_CALL_START" => {
                let (id, name) = (string(&event["toolCallId"]), string(&event["toolCallName"]));
                calls.push(Made { id, name, content: None });
            }
            "TOOL_CALL_RESULT" => match calls.iter_mut().find(|call| event["toolCallId"] == *call.id) {
                Some(call) => call.content = event["content"].as_str().map(str::to_owned),
                None => told.note(format!("a result has no call: {event}")),
            },
            "TOOL_CALL_ARGS" | "TOOL_CALL_END" | "CUSTOM" => {}
            "RUN_FINISHED" if event["outcome"]["type"] == "success" => {
                let is_open = !step.is_null() || open.is_some();
                told.note_if(is_open || event["runId"] != run, "it ends where it cannot", &event);
                told.finish(false);
            }
            "RUN_FINISHED" | "RUN_ERROR" => told.fail(&event),
            _ => told.note(format!("this is no event: {event}")),
        }
    }
    told.answer = texts.last().map(|(_, text)| text.clone());
    told.said = Some(texts.into_iter().map(|(_, text)| text).collect());
    told.calls = Some(calls);
    told
}

//! Events and objects of OpenAI's Responses.

use std::collections::BTreeMap;

use serde_json::Value;

use super::told::string;
use super::{Attempt, Ended, Made, Told};
use crate::support::Frame;

/// What events tell from the first one on.
pub(super) fn told(frames: &[Frame]) -> Told {
    let (mut told, mut next) = (Told::default(), 0);
    let mut texts: BTreeMap<u64, String> = BTreeMap::new();
    let mut items: BTreeMap<u64, Value> = BTreeMap::new();
    let mut output = None;
    for frame in frames {
        if frame.is_done() {
            told.done();
            continue;
        }
        let Some(event) = told.read(frame) else { continue };
        told.note_if(event["type"] != *frame.name, "an event's name and type differ", &event);
        let index = event["output_index"].as_u64().unwrap_or(0);
        if frame.name == "keepalive" {
            continue;
        }
        if !(frame.name == "error" && next > 0 && event["sequence_number"] == next - 1) {
            told.note_if(event["sequence_number"] != next, "the events have a gap or a repetition", &event);
            told.note_if((next == 0) != (frame.name == "response.created"), "it begins otherwise", &event);
            next += 1;
        }
        match frame.name.as_str() {
            "error" => told.fail(&event),
            "response.output_text.delta" => texts.entry(index).or_default().push_str(&string(&event["delta"])),
            "response.output_item.done" => {
                let is_other = texts.get(&index).is_some_and(|text| *text != text_of(&event["item"]));
                told.note_if(is_other, "an item is not what its deltas say", &event);
                items.insert(index, event["item"].clone());
            }
            "response.completed" => {
                told.finish(true);
                output = Some(event["response"]["output"].clone());
            }
            "response.failed" | "response.incomplete" => told.fail(&event["response"]["error"]),
            _ => told.note_after_failure(&event),
        }
    }
    // What is begun and not done counts as well, so far.
    let open = texts.iter().next_back().filter(|(index, _)| !items.contains_key(index)).map(|(_, text)| text.clone());
    items.retain(|_, item| item["status"] != "incomplete");
    let items = Value::Array(items.into_values().collect());
    if let Some(output) = output {
        read_output(&output, &mut told);
        let mut of_items = Told::default();
        read_output(&items, &mut of_items);
        let is_same = (&of_items.said, &of_items.calls) == (&told.said, &told.calls);
        told.note_if(!is_same, "the last event has another output than the items before it", &output);
    } else {
        read_output(&items, &mut told);
        told.said = told.said.map(|said| said + &open.unwrap_or_default());
    }
    told
}

/// What a response tells.
pub(super) fn told_whole(body: &Value) -> Told {
    let mut told = Told::default();
    told.note_if(body["object"] != "response", "this is no response", body);
    read_output(&body["output"], &mut told);
    told.ended = match body["status"].as_str() {
        Some("completed") => Ended::Whole,
        Some("queued" | "in_progress") => Ended::Not,
        _ => Ended::Failed(body["status"].to_string()),
    };
    told
}

/// The number of an event.
pub(super) fn number(frame: &Frame) -> Option<u64> {
    serde_json::from_str::<Value>(&frame.data).ok()?["sequence_number"].as_u64()
}

/// The id of the response that an answer is about.
pub(super) fn id(answer: &Attempt) -> Option<String> {
    let first = answer.frames.first().and_then(|frame| serde_json::from_str::<Value>(&frame.data).ok());
    let object = answer.body.as_ref().or_else(|| first.as_ref().map(|event| &event["response"]))?;
    object["id"].as_str().map(str::to_owned)
}

/// The text of an item.
fn text_of(item: &Value) -> String {
    item["content"].as_array().into_iter().flatten().map(|part| string(&part["text"])).collect()
}

/// What a call came to: a call that failed says so in the place of its output.
fn came_to(call: &Value) -> Option<String> {
    let told = call["output"].as_str().or_else(|| call["error"]["content"][0]["text"].as_str());
    told.map(str::to_owned)
}

/// What the items of an output tell.
fn read_output(output: &Value, told: &mut Told) {
    let items = || output.as_array().into_iter().flatten();
    let is_message = |item: &&Value| item["type"] == "message";
    told.said = Some(items().filter(is_message).map(text_of).collect());
    told.answer = items().next_back().filter(is_message).filter(|item| item["phase"] == "final_answer").map(text_of);
    let calls = items().filter(|item| item["type"] == "mcp_call").map(|item| Made {
        id: string(&item["id"]),
        name: string(&item["name"]),
        content: came_to(item),
    });
    told.calls = Some(calls.collect());
}

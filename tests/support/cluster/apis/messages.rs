//! Events and messages of Anthropic's Messages.

use serde_json::Value;

use super::told::string;
use super::{Ended, Made, Told};
use crate::support::Frame;

/// What events tell.
pub(super) fn told(frames: &[Frame]) -> Told {
    let (mut told, mut blocks, mut open) = (Told::default(), Vec::<Value>::new(), None);
    let mut reason = Value::Null;
    for (frame, place) in frames.iter().zip(0..) {
        let Some(event) = told.read(frame) else { continue };
        told.note_if(event["type"] != *frame.name, "an event's name and type differ", &event);
        told.note_after_failure(&event);
        told.note_if((place == 0) != (frame.name == "message_start"), "it begins otherwise", &event);
        match frame.name.as_str() {
            "message_start" | "ping" => {}
            "content_block_start" => {
                let is_next = open.is_none() && event["index"] == blocks.len();
                told.note_if(!is_next, "a block begins where none can", &event);
                open = Some(blocks.len());
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" | "content_block_stop" => {
                told.note_if(event["index"].as_u64() != open.map(|at| at as u64), "this block is not open", &event);
                if let (Some(at), Some(piece)) = (open, event["delta"]["text"].as_str()) {
                    blocks[at]["text"] = format!("{}{piece}", string(&blocks[at]["text"])).into();
                }
                open = open.filter(|_| frame.name == "content_block_delta");
            }
            "message_delta" => {
                told.note_if(open.is_some(), "a block is open at the end", &event);
                reason = event["delta"]["stop_reason"].clone();
            }
            "message_stop" if reason == "end_turn" => told.finish(false),
            "message_stop" => told.fail(&reason),
            "error" => told.fail(&event["error"]),
            _ => told.note(format!("this is no event: {event}")),
        }
    }
    read_blocks(&blocks, &mut told);
    told
}

/// What a message tells.
pub(super) fn told_whole(body: &Value) -> Told {
    let mut told = Told::default();
    told.note_if(body["type"] != "message", "this is no message", body);
    read_blocks(body["content"].as_array().map(Vec::as_slice).unwrap_or_default(), &mut told);
    told.ended =
        if body["stop_reason"] == "end_turn" { Ended::Whole } else { Ended::Failed(body["stop_reason"].to_string()) };
    told
}

/// What blocks tell.
fn read_blocks(blocks: &[Value], told: &mut Told) {
    let text = |block: &Value| (block["type"] == "text").then(|| string(&block["text"]));
    told.said = Some(blocks.iter().filter_map(text).collect());
    told.answer = blocks.last().and_then(text);
    let mut calls = Vec::new();
    for block in blocks {
        match block["type"].as_str() {
            Some("mcp_tool_use") => {
                calls.push(Made { id: string(&block["id"]), name: string(&block["name"]), content: None });
            }
            Some("mcp_tool_result") => match calls.iter_mut().find(|call| block["tool_use_id"] == *call.id) {
                Some(call) => call.content = block["content"][0]["text"].as_str().map(str::to_owned),
                None => told.note(format!("a result has no call: {block}")),
            },
            _ => {}
        }
    }
    told.calls = Some(calls);
}

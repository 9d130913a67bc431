//! The agent API's own events.

use std::collections::BTreeMap;

use super::told::string;
use super::{Made, Told};
use crate::support::Frame;

/// What events tell from the run's first one on.
pub(super) fn told(frames: &[Frame]) -> Told {
    let (mut told, mut calls) = (Told::default(), Vec::<(u64, Made)>::new());
    let mut texts: BTreeMap<u64, String> = BTreeMap::new();
    for (frame, number) in frames.iter().zip(1..) {
        if frame.is_done() {
            told.done();
            continue;
        }
        let Some(event) = told.read(frame) else { continue };
        if !event["error"].is_null() && frame.id.is_none() {
            told.fail(&event["error"]);
            continue;
        }
        told.note_if(frame.id != Some(number), "the events have a gap or a repetition", &event);
        let step =
            if frame.name.is_empty() { &event["loopgate"]["step"] } else { &event["step"] }.as_u64().unwrap_or(0);
        match frame.name.as_str() {
            "" => {
                let piece = event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
                texts.entry(step).or_default().push_str(piece);
            }
            "step.discarded" => {
                texts.remove(&step);
                calls.retain(|(of, _)| *of != step);
            }
            "tool.call" => {
                let made = Made { id: string(&event["call_id"]), name: string(&event["name"]), content: None };
                calls.push((step, made));
            }
            "tool.result" => match calls.iter_mut().find(|(_, call)| event["call_id"] == *call.id) {
                Some((_, call)) => call.content = Some(string(&event["content"])),
                None => told.note(format!("a result has no call: {event}")),
            },
            "run.completed" => {
                told.finish(true);
                told.answer = event["output_text"].as_str().map(str::to_owned);
            }
            "run.incomplete" | "run.cancelled" | "run.failed" => told.fail(&event),
            _ => {}
        }
    }
    told.said = Some(texts.into_values().collect());
    told.calls = Some(calls.into_iter().map(|(_, call)| call).collect());
    told
}

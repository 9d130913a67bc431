//! The answer of the recorded run in every dialect, as a server would tell it.

use serde_json::{Value, json};

use crate::support::Frame;
use crate::support::cluster::apis::{Dialect, Form};
use crate::support::cluster::plan::Plan;

/// A turn of the run: its text, and its calls as id, name and result.
struct Turn {
    text: String,
    pieces: Vec<String>,
    calls: Vec<(String, &'static str, String)>,
}

fn turns(plan: &Plan) -> Vec<Turn> {
    let turn = |round| {
        let calls = plan.tasks(round).into_iter();
        let calls = calls.map(|(tool, task)| (format!("call_{round}"), tool.name(), task.answer(tool)));
        let pieces = (0..plan.pieces).map(|piece| plan.piece(round, piece)).collect();
        Turn { text: plan.text(round), pieces, calls: calls.collect() }
    };
    (0..=plan.rounds).map(turn).collect()
}

/// An event that is named as its type.
fn named(data: &Value) -> Frame {
    Frame { id: None, name: data["type"].as_str().unwrap().to_owned(), data: data.to_string() }
}

/// An event without a name.
fn plain(data: &Value) -> Frame {
    Frame { id: None, name: String::new(), data: data.to_string() }
}

fn done() -> Frame {
    Frame { id: None, name: String::new(), data: "[DONE]".to_owned() }
}

/// The answer as a stream; `log` is that of the run.
pub(super) fn streamed(dialect: Dialect, plan: &Plan, log: &[Frame]) -> Vec<Frame> {
    match dialect {
        Dialect::Native => log.iter().cloned().chain([done()]).collect(),
        Dialect::Chat => chat(plan),
        Dialect::Responses => responses(plan),
        Dialect::Messages => messages(plan),
        Dialect::AiSdk => ai_sdk(plan),
        Dialect::AgUi => ag_ui(plan),
    }
}

/// The answer in one piece.
pub(super) fn whole(dialect: Dialect, form: Form, plan: &Plan) -> Value {
    match dialect {
        Dialect::Chat | Dialect::Native => {
            let message = json!({"role": "assistant", "content": plan.text(plan.rounds)});
            json!({"object": "chat.completion", "choices": [{"message": message, "finish_reason": "stop"}]})
        }
        Dialect::Responses => {
            let (status, output) =
                if form == Form::Background { ("queued", vec![]) } else { ("completed", items(plan)) };
            json!({"id": "resp_1", "object": "response", "status": status, "output": output})
        }
        Dialect::Messages => json!({"type": "message", "content": blocks(plan), "stop_reason": "end_turn"}),
        Dialect::AiSdk | Dialect::AgUi => unreachable!("it is always a stream"),
    }
}

fn chat(plan: &Plan) -> Vec<Frame> {
    let chunk = |delta: Value, reason: Value| {
        let choices = json!([{"delta": delta, "finish_reason": reason}]);
        plain(&json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices}))
    };
    let mut frames = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    let pieces = turns(plan).into_iter().flat_map(|turn| turn.pieces);
    frames.extend(pieces.map(|piece| chunk(json!({"content": piece}), Value::Null)));
    frames.push(chunk(json!({}), json!("stop")));
    for (frame, id) in frames.iter_mut().zip(1..) {
        frame.id = Some(id);
    }
    frames.push(done());
    frames
}

fn items(plan: &Plan) -> Vec<Value> {
    let item = |turn: Turn| {
        let phase = if turn.calls.is_empty() { "final_answer" } else { "commentary" };
        let content = json!([{"type": "output_text", "text": turn.text}]);
        let said = json!({"type": "message", "status": "completed", "phase": phase, "content": content});
        let call = |(id, name, output)| json!({"type": "mcp_call", "id": id, "name": name, "output": output});
        [said].into_iter().chain(turn.calls.into_iter().map(call)).collect::<Vec<_>>()
    };
    turns(plan).into_iter().flat_map(item).collect()
}

fn responses(plan: &Plan) -> Vec<Frame> {
    let mut events = vec![json!({"type": "response.created", "response": {"id": "resp_1"}})];
    // What a driver that died had said stands in the stream, and counts for nothing.
    let void = json!({"type": "message", "status": "incomplete", "content": [{"text": plan.piece(0, 0)}]});
    let mut pieces = turns(plan).into_iter().map(|turn| turn.pieces);
    for (item, index) in [void].into_iter().chain(items(plan)).zip(0..) {
        let pieces = match (item["type"] == "message", index) {
            (true, 0) => vec![plan.piece(0, 0)],
            (true, _) => pieces.next().unwrap(),
            (false, _) => Vec::new(),
        };
        let delta = |piece| json!({"type": "response.output_text.delta", "output_index": index, "delta": piece});
        events.extend(pieces.into_iter().map(delta));
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    events.push(json!({"type": "response.completed", "response": {"id": "resp_1", "output": items(plan)}}));
    for (event, number) in events.iter_mut().zip(0..) {
        event["sequence_number"] = json!(number);
    }
    events.iter().map(named).chain([done()]).collect()
}

fn blocks(plan: &Plan) -> Vec<Value> {
    let block = |turn: Turn| {
        let calls = turn.calls.into_iter().flat_map(|(id, name, result)| {
            let content = json!([{"type": "text", "text": result}]);
            let used = json!({"type": "mcp_tool_use", "id": id, "name": name});
            [used, json!({"type": "mcp_tool_result", "tool_use_id": id, "content": content})]
        });
        [json!({"type": "text", "text": turn.text})].into_iter().chain(calls).collect::<Vec<_>>()
    };
    turns(plan).into_iter().flat_map(block).collect()
}

fn messages(plan: &Plan) -> Vec<Frame> {
    let mut events = vec![json!({"type": "message_start"})];
    let mut pieces = turns(plan).into_iter().map(|turn| turn.pieces);
    for (mut block, index) in blocks(plan).into_iter().zip(0..) {
        let is_text = block["type"] == "text";
        if is_text {
            block["text"] = json!("");
        }
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        let pieces = if is_text { pieces.next().unwrap() } else { Vec::new() };
        let delta = |piece| json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": piece}});
        events.extend(pieces.into_iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}));
    events.push(json!({"type": "message_stop"}));
    events.iter().map(named).collect()
}

fn ai_sdk(plan: &Plan) -> Vec<Frame> {
    let void = |events: &mut Vec<Value>| {
        events.push(json!({"type": "start-step"}));
        events.push(json!({"type": "text-start", "id": "void"}));
        events.push(json!({"type": "text-delta", "id": "void", "delta": plan.piece(0, 0)}));
        events.push(json!({"type": "text-end", "id": "void"}));
        events.push(json!({"type": "data-loopgate", "data": {"event": "step.discarded"}}));
        events.push(json!({"type": "finish-step"}));
    };
    let mut events = vec![json!({"type": "start"})];
    void(&mut events);
    for (turn, number) in turns(plan).into_iter().zip(0..) {
        let id = format!("t{number}");
        events.push(json!({"type": "start-step"}));
        events.push(json!({"type": "text-start", "id": id}));
        events.extend(turn.pieces.iter().map(|piece| json!({"type": "text-delta", "id": id, "delta": piece})));
        events.push(json!({"type": "text-end", "id": id}));
        for (call, name, output) in turn.calls {
            let made =
                json!({"type": "tool-input-available", "toolCallId": call, "toolName": name, "providerExecuted": true});
            events.push(made);
            events.push(json!({"type": "tool-output-available", "toolCallId": call, "output": output}));
        }
        events.push(json!({"type": "finish-step"}));
    }
    events.push(json!({"type": "finish", "finishReason": "stop"}));
    events.iter().map(plain).chain([done()]).collect()
}

fn ag_ui(plan: &Plan) -> Vec<Frame> {
    let mut events = vec![json!({"type": "RUN_STARTED", "runId": "r"})];
    for (turn, number) in turns(plan).into_iter().zip(0..) {
        let (id, step) = (format!("t{number}"), format!("step {number}"));
        events.push(json!({"type": "STEP_STARTED", "stepName": step}));
        events.push(json!({"type": "TEXT_MESSAGE_START", "messageId": id}));
        events.extend(
            turn.pieces.iter().map(|piece| json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": piece})),
        );
        events.push(json!({"type": "TEXT_MESSAGE_END", "messageId": id}));
        for (call, name, content) in turn.calls {
            events.push(json!({"type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": name}));
            events.push(json!({"type": "TOOL_CALL_RESULT", "toolCallId": call, "content": content}));
        }
        events.push(json!({"type": "STEP_FINISHED", "stepName": step}));
    }
    events.push(json!({"type": "RUN_FINISHED", "runId": "r", "outcome": {"type": "success"}}));
    events.iter().map(plain).collect()
}

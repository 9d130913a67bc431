//! Streams as servers send them.

use serde_json::{Value, json};

use super::{call, ended, said, stream};
use crate::llm::{ModelCall, ModelTurn};
use crate::types::{TurnEnd, Usage};

/// The last chunk of a stream whose client asked for usage.
fn usage_chunk() -> Value {
    json!({ "choices": [], "usage": {
        "prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14,
        "prompt_tokens_details": { "cached_tokens": 4, "audio_tokens": 0 },
        "completion_tokens_details": { "reasoning_tokens": 2, "accepted_prediction_tokens": 0 },
    } })
}

/// What it says.
fn usage() -> Usage {
    Usage { prompt_tokens: 9, completion_tokens: 5, cached_tokens: 4, reasoning_tokens: 2, ..Usage::default() }
}

/// A stream of text, and its turn.
fn plain() -> (String, ModelTurn) {
    let stream = stream(&[
        said(json!({ "role": "assistant", "content": "" })),
        said(json!({ "content": "Grüße, " })),
        said(json!({ "content": "\"world\" 🙂\n" })),
        ended("stop"),
        usage_chunk(),
    ]);
    let turn = ModelTurn::of("", "Grüße, \"world\" 🙂\n", Vec::new());
    (stream, ModelTurn { usage: Some(usage()), end: TurnEnd::Stop, ..turn })
}

/// Two calls whose pieces alternate.
fn parallel() -> String {
    stream(&[
        call(0, "call_a", "add", ""),
        call(0, (), (), "{\"a\""),
        call(1, "call_b", "sub", ""),
        call(1, (), (), "{\"b\":\"ä"),
        call(0, (), (), ":1}"),
        call(1, (), (), "\"}"),
        ended("tool_calls"),
    ])
}

/// The same calls, each whole, at one index.
fn reused_index() -> String {
    stream(&[
        call(0, "call_a", "add", json!({ "a": 1 })),
        call(0, "call_b", "sub", "{\"b\":\"ä\"}"),
        ended("tool_calls"),
    ])
}

/// The turn of both.
fn two_calls() -> ModelTurn {
    let calls = vec![
        ModelCall { name: "add".to_owned(), arguments: r#"{"a":1}"#.to_owned() },
        ModelCall { name: "sub".to_owned(), arguments: r#"{"b":"ä"}"#.to_owned() },
    ];
    ModelTurn { end: TurnEnd::ToolCalls, ..ModelTurn::of("", "", calls) }
}

/// A stream of thinking under both of its names and text, and its turn.
fn reasoning() -> (String, ModelTurn) {
    let stream = stream(&[
        said(json!({ "reasoning_content": "Let me ", "content": null })),
        said(json!({ "reasoning": "think.", "content": null })),
        said(json!({ "reasoning": "!", "reasoning_content": "!", "tool_calls": null })),
        said(json!({ "content": "42" })),
        json!({ "choices": [{ "index": 0, "delta": null, "finish_reason": "stop" }],
                "usage": { "prompt_tokens": 1, "completion_tokens": null } }),
        usage_chunk(),
    ]);
    let turn = ModelTurn::of("Let me think.!", "42", Vec::new());
    (stream, ModelTurn { usage: Some(usage()), end: TurnEnd::Stop, ..turn })
}

/// Streams as servers send them, with what they mean.
pub(super) fn recorded() -> Vec<(&'static str, String, ModelTurn)> {
    let ((plain, said), (reasoning, thought)) = (plain(), reasoning());
    let marked = format!("\u{feff}: hi\n\n{}", plain.replace("\n\n", "\n: ping\n\n: pong\n"));
    let named = plain.replace("data:", "event: message\nid: 1\ndata:");
    vec![
        ("CRLF", plain.replace('\n', "\r\n"), said.clone()),
        ("comments and a mark", marked, said.clone()),
        ("event names", named, said.clone()),
        ("plain", plain, said),
        ("parallel", parallel(), two_calls()),
        ("reused index", reused_index(), two_calls()),
        ("reasoning", reasoning, thought),
    ]
}

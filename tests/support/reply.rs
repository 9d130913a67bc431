//! A vocabulary for answers, as bytes: what a model's server says, and every way to fail at it.

use std::time::Duration;

use serde_json::{Value, json};

use super::Gate;

/// One answer to one request.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) pieces: Vec<Piece>,
    pub(super) end: End,
    /// Whether not even the head is sent.
    pub(super) headless: bool,
}

/// What is sent, in order.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    /// Bytes of the body, written at once.
    Bytes(Vec<u8>),
    /// The rest waits here.
    Gate(Gate),
    /// The rest comes so much later.
    Pause(Duration),
}

/// How the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// As it should; the connection is kept.
    Whole,
    /// The connection is closed, the body unfinished.
    Cut,
    /// The connection is reset.
    Reset,
    /// Nothing more comes, until the peer goes away.
    Stall,
}

impl Reply {
    /// An answer with this status and no body yet.
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), pieces: Vec::new(), end: End::Whole, headless: false }
    }

    /// A JSON answer.
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::status(status).header("content-type", "application/json").bytes(body.to_string())
    }

    /// A plain answer.
    pub(crate) fn plain(text: impl Into<Vec<u8>>) -> Self {
        Self::status(200).header("content-type", "text/plain").bytes(text)
    }

    /// An error of OpenAI's shape.
    pub(crate) fn error(status: u16, code: &str, message: &str) -> Self {
        let error = json!({"message": message, "type": "invalid_request_error", "param": null, "code": code});
        Self::json(status, &json!({"error": error}))
    }

    /// The beginning of a streamed completion; add what it says, then [`Reply::finish`] it.
    pub(crate) fn stream() -> Self {
        let reply = Self::status(200).header("content-type", "text/event-stream");
        reply.delta(&json!({"role": "assistant", "content": ""}))
    }

    /// A whole streamed completion that says `text` and took 10 tokens in and 5 out.
    pub(crate) fn says(text: &str) -> Self {
        Self::stream().text(text).finish("stop").usage(10, 5).done()
    }

    /// A whole streamed completion that calls one tool and took 10 tokens in and 5 out.
    pub(crate) fn calls(name: &str, arguments: &Value) -> Self {
        let call = Self::stream().tool_call(0, "call_upstream", name, &arguments.to_string());
        call.finish("tool_calls").usage(10, 5).done()
    }

    /// A piece of the answer's text.
    pub(crate) fn text(self, text: &str) -> Self {
        self.delta(&json!({"content": text}))
    }

    /// A piece of reasoning.
    pub(crate) fn reasoning(self, text: &str) -> Self {
        self.delta(&json!({"reasoning_content": text}))
    }

    /// A piece of the words with which the model declines.
    pub(crate) fn refusal(self, text: &str) -> Self {
        self.delta(&json!({"refusal": text}))
    }

    /// A piece of the answer in sound.
    pub(crate) fn audio(self, transcript: &str) -> Self {
        self.delta(&json!({"audio": {"id": "audio_1", "data": "UklGRg==", "transcript": transcript}}))
    }

    /// A whole tool call, its arguments in two pieces.
    pub(crate) fn tool_call(self, index: usize, id: &str, name: &str, arguments: &str) -> Self {
        let (head, tail) = arguments.split_at(arguments.floor_char_boundary(arguments.len() / 2));
        let function = json!({"name": name, "arguments": head});
        let first = json!({"index": index, "id": id, "type": "function", "function": function});
        let second = json!({"index": index, "function": {"arguments": tail}});
        self.delta(&json!({"tool_calls": [first]})).delta(&json!({"tool_calls": [second]}))
    }

    /// The chunk that bears the finish reason.
    pub(crate) fn finish(self, reason: &str) -> Self {
        self.chunk(&json!([{"index": 0, "delta": {}, "finish_reason": reason}]), &Value::Null)
    }

    /// The chunk that bears the usage.
    pub(crate) fn usage(self, prompt: u64, completion: u64) -> Self {
        let total = prompt + completion;
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total});
        self.chunk(&json!([]), &usage)
    }

    /// `[DONE]`.
    pub(crate) fn done(self) -> Self {
        self.bytes("data: [DONE]\n\n")
    }

    /// A whole completion in one piece that says `text` and took 10 tokens in and 5 out.
    pub(crate) fn says_in_one_piece(text: &str) -> Self {
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"});
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
        Self::json(
            200,
            &json!({"id": "chatcmpl-upstream", "object": "chat.completion", "created": 1_700_000_000,
            "model": "test", "choices": [choice], "usage": usage}),
        )
    }

    /// A header, besides those that the body needs.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Bytes of the body as they are.
    pub(crate) fn bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.pieces.push(Piece::Bytes(bytes.into()));
        self
    }

    /// The rest waits until the gate is opened.
    pub(crate) fn gate(mut self, gate: &Gate) -> Self {
        self.pieces.push(Piece::Gate(gate.clone()));
        self
    }

    /// The rest comes `time` later.
    pub(crate) fn pause(mut self, time: Duration) -> Self {
        self.pieces.push(Piece::Pause(time));
        self
    }

    /// The connection is closed after the body so far.
    pub(crate) fn cut(self) -> Self {
        Self { end: End::Cut, ..self }
    }

    /// The connection is closed after `most` bytes of the body.
    pub(crate) fn cut_after(mut self, most: usize) -> Self {
        let mut left = most;
        for piece in &mut self.pieces {
            if let Piece::Bytes(bytes) = piece {
                bytes.truncate(left);
                left -= bytes.len();
            }
        }
        self.cut()
    }

    /// The connection is reset after the body so far.
    pub(crate) fn reset(self) -> Self {
        Self { end: End::Reset, ..self }
    }

    /// Nothing more comes after the body so far.
    pub(crate) fn stall(self) -> Self {
        Self { end: End::Stall, ..self }
    }

    /// Nothing is sent, not even the head: say how it ends.
    pub(crate) fn headless(self) -> Self {
        Self { headless: true, ..self }
    }

    fn delta(self, delta: &Value) -> Self {
        self.chunk(&json!([{"index": 0, "delta": delta, "finish_reason": null}]), &Value::Null)
    }

    fn chunk(self, choices: &Value, usage: &Value) -> Self {
        let chunk = json!({
            "id": "chatcmpl-upstream", "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": "test", "choices": choices, "usage": usage,
        });
        self.bytes(format!("data: {chunk}\n\n"))
    }
}

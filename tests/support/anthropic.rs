//! A scripted server of models that speaks Anthropic's Messages, and judges every request it gets.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::http::Request;
use super::reply::Reply;
use super::script::Script;
use super::scripted::Scripted;

/// The scripted upstream, named `claude`. Its models are called `claude-sonnet-4-5` and
/// `claude-opus-5`.
#[derive(Debug)]
pub(crate) struct Anthropic;

impl Anthropic {
    /// Starts one that gives these replies, in this order.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Scripted {
        Scripted::start(replies, decide, declaration).await
    }
}

fn declaration(address: SocketAddr) -> String {
    format!(
        "[upstreams.claude]\nkind = \"anthropic\"\nbase_url = \"http://{address}/v1\"\n\
         models = [\"claude-sonnet-4-5\", \"claude-opus-5\"]\n"
    )
}

fn decide(script: &mut Script, request: &Request) -> Reply {
    if !script.is_post_to("/v1/messages", request) {
        return Reply::anthropic_error(404, "not_found_error", "no such path");
    }
    if request.headers.get("anthropic-version").is_none_or(|version| version != "2023-06-01") {
        script.complain("the version is missing".to_owned());
    }
    let body = request.json();
    let reply = script.reply(&body, faults(&body));
    reply.unwrap_or_else(|| Reply::anthropic_error(400, "invalid_request_error", "the script has ended"))
}

/// Which of the API's rules a request breaks.
fn faults(body: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if body["stream"] != true || body["max_tokens"].as_u64().is_none_or(|most| most == 0) {
        faults.push("it streams with a bound".to_owned());
    }
    if body.to_string().matches("\"cache_control\"").count() > 4 {
        faults.push("there are more than four breakpoints".to_owned());
    }
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    if messages.is_empty() {
        faults.push("there are no messages".to_owned());
    }
    let mut open: Vec<Value> = Vec::new();
    let mut last = Value::Null;
    for message in &messages {
        if message["role"] == last || !matches!(message["role"].as_str(), Some("user" | "assistant")) {
            faults.push(format!("the roles do not take turns at {message}"));
        }
        last = message["role"].clone();
        let blocks = message["content"].as_array().cloned().unwrap_or_default();
        let ids = |kind: &str, name: &str| -> Vec<Value> {
            blocks.iter().filter(|block| block["type"] == kind).map(|block| block[name].clone()).collect()
        };
        if blocks.is_empty()
            || blocks.iter().any(|block| block["text"].as_str().is_some_and(|text| text.trim().is_empty()))
        {
            faults.push(format!("a message or text is empty: {message}"));
        }
        let results = ids("tool_result", "tool_use_id");
        let begins = blocks.iter().take(results.len()).all(|block| block["type"] == "tool_result");
        if results != open || !begins {
            faults.push(format!("the results {results:?} do not answer the calls {open:?} at the beginning"));
        }
        if ids("tool_use", "input").iter().any(|input| !input.is_object()) {
            faults.push(format!("an input is no object: {message}"));
        }
        open = ids("tool_use", "id");
    }
    if messages.iter().any(|message| message.to_string().contains("\"tool_result\"")) && body["tools"].is_null() {
        faults.push("there are calls and no tools".to_owned());
    }
    faults
}

impl Reply {
    /// The beginning of a streamed message; add blocks, then [`stop`](Self::stop) it. It took 100 tokens in, of which 60
    /// were read from the cache and 30 written to it.
    pub(crate) fn anthropic() -> Self {
        let usage = json!({ "input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30, "output_tokens": 1 });
        let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage });
        let reply = Self::status(200).header("content-type", "text/event-stream");
        reply.event(&json!({ "type": "message_start", "message": message })).event(&json!({ "type": "ping" }))
    }

    /// An error of the API's shape.
    pub(crate) fn anthropic_error(status: u16, kind: &str, message: &str) -> Self {
        Self::json(status, &json!({ "type": "error", "error": { "type": kind, "message": message } }))
    }

    /// A whole block whose content comes in these deltas.
    pub(crate) fn block(self, index: usize, block: &Value, deltas: &[Value]) -> Self {
        let mut reply = self.event(&json!({ "type": "content_block_start", "index": index, "content_block": block }));
        for delta in deltas {
            reply = reply.event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        reply.event(&json!({ "type": "content_block_stop", "index": index }))
    }

    /// A whole block of text.
    pub(crate) fn text_block(self, index: usize, text: &str) -> Self {
        let (head, tail) = text.split_at(text.floor_char_boundary(text.len() / 2));
        let delta = |text: &str| json!({ "type": "text_delta", "text": text });
        self.block(index, &json!({ "type": "text", "text": "" }), &[delta(head), delta(tail)])
    }

    /// A whole block of thinking.
    pub(crate) fn thinking_block(self, index: usize, text: &str, signature: &str) -> Self {
        let deltas = [
            json!({ "type": "thinking_delta", "thinking": text }),
            json!({ "type": "signature_delta", "signature": signature }),
        ];
        self.block(index, &json!({ "type": "thinking", "thinking": "", "signature": "" }), &deltas)
    }

    /// A whole call, its input in two pieces.
    pub(crate) fn tool_block(self, index: usize, name: &str, input: &Value) -> Self {
        let input = input.to_string();
        let (head, tail) = input.split_at(input.floor_char_boundary(input.len() / 2));
        let delta = |piece: &str| json!({ "type": "input_json_delta", "partial_json": piece });
        let block = json!({ "type": "tool_use", "id": format!("toolu_{index}"), "name": name, "input": {} });
        self.block(index, &block, &[delta(""), delta(head), delta(tail)])
    }

    /// The end of a message that took 20 tokens out.
    pub(crate) fn stop(self, reason: &str) -> Self {
        let delta = json!({ "stop_reason": reason, "stop_sequence": null });
        let reply = self.event(&json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 20 } }));
        reply.event(&json!({ "type": "message_stop" }))
    }

    /// An event.
    pub(crate) fn event(self, event: &Value) -> Self {
        self.bytes(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("an event has a type")))
    }
}

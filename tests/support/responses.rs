//! A scripted server of models that speaks OpenAI's Responses, and judges every request it gets.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::http::Request;
use super::reply::{Piece, Reply};
use super::script::Script;
use super::scripted::Scripted;

/// The scripted upstream, named `respond`. Its models are called `gpt-5` and `gpt-5-mini`.
#[derive(Debug)]
pub(crate) struct Responses;

impl Responses {
    /// Starts one that gives these replies, in this order.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Scripted {
        Scripted::start(replies, decide, declaration).await
    }
}

fn declaration(address: SocketAddr) -> String {
    format!(
        "[upstreams.respond]\nkind = \"openai_responses\"\nbase_url = \"http://{address}/v1\"\n\
         models = [\"gpt-5\", \"gpt-5-mini\"]\n"
    )
}

fn decide(script: &mut Script, request: &Request) -> Reply {
    if !script.is_post_to("/v1/responses", request) {
        return Reply::responses_error(404, "unknown_url", "no such path");
    }
    let body = request.json();
    let reply = script.reply(&body, faults(&body));
    reply.unwrap_or_else(|| Reply::responses_error(400, "invalid_request", "the script has ended"))
}

/// Which of the API's rules a request breaks.
fn faults(body: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if body["stream"] != true || body["store"] != false || !body["previous_response_id"].is_null() {
        faults.push("it streams, and nothing is stored".to_owned());
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        if tool["type"] != "function" || !tool["name"].is_string() || !tool["strict"].is_boolean() {
            faults.push(format!("this is no function: {tool}"));
        }
    }
    let items = body["input"].as_array().cloned().unwrap_or_default();
    if items.is_empty() {
        faults.push("there is no input".to_owned());
    }
    let mut open: Vec<&Value> = Vec::new();
    let kinds: Vec<&str> = items.iter().map(|item| item["type"].as_str().unwrap_or_default()).collect();
    for (index, item) in items.iter().enumerate() {
        let leads_to = kinds.get(index + 1).copied().unwrap_or_default();
        match kinds[index] {
            "message" if item["role"] == "user" && !open.is_empty() => faults.push(format!("{open:?} lack a result")),
            "message" if item["role"] == "assistant" && !item["content"].is_string() => {
                faults.push(format!("the model says text: {item}"));
            }
            "message" => faults.extend(content_fault(&item["content"])),
            "reasoning" if !item["encrypted_content"].is_string() || !item["summary"].is_array() => {
                faults.push(format!("reasoning lacks a member: {item}"));
            }
            "reasoning" if matches!(leads_to, "reasoning" | "function_call") => {}
            "reasoning" if leads_to == "message" && items[index + 1]["role"] == "assistant" => {}
            "reasoning" => faults.push(format!("the reasoning led to nothing: {item}")),
            "function_call" => open.push(&item["call_id"]),
            "function_call_output" => match open.iter().position(|call| **call == item["call_id"]) {
                Some(place) => {
                    open.remove(place);
                    faults.extend(content_fault(&item["output"]));
                }
                None => faults.push(format!("no call has this result: {item}")),
            },
            _ => faults.push(format!("this is no item: {item}")),
        }
    }
    if !open.is_empty() {
        faults.push(format!("the calls {open:?} lack a result"));
    }
    faults
}

/// What is wrong with the content of an item that the model did not write.
fn content_fault(content: &Value) -> Option<String> {
    let known = ["input_text", "input_image", "input_file"];
    let is_known = |part: &Value| part["type"].as_str().is_some_and(|kind| known.contains(&kind));
    let is_right = content.is_string() || content.as_array().is_some_and(|parts| parts.iter().all(is_known));
    (!is_right).then(|| format!("this is no content: {content}"))
}

/// A server that speaks the dialect in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compatible {
    /// Numbers no item, has no id for calls but their `call_id`, and tells all items as a whole only at the end.
    LlamaCpp,
    /// Numbers items from 1.
    Sglang,
}

impl Compatible {
    /// Tells an event of the API in the server's way.
    fn rewrite(self, event: &mut Value) {
        let Some(index) = event["output_index"].as_u64() else {
            for item in event["response"]["output"].as_array_mut().into_iter().flatten() {
                self.rename(item);
            }
            return;
        };
        match self {
            Self::Sglang => event["output_index"] = json!(index + 1),
            Self::LlamaCpp => {
                let event = event.as_object_mut().expect("an event is an object");
                event.remove("output_index");
                if let Some(id) = event.get_mut("item_id") {
                    *id = json!(id.as_str().map(|id| id.replace("fc_", "call_")));
                }
                if let Some(item) = event.get_mut("item") {
                    self.rename(item);
                }
            }
        }
    }

    fn rename(self, item: &mut Value) {
        if self == Self::LlamaCpp && item["type"] == "function_call" {
            item.as_object_mut().expect("an item is an object").remove("id");
        }
    }
}

impl Reply {
    /// The beginning of a streamed response; add items, then [`complete`](Self::complete) it.
    pub(crate) fn responses() -> Self {
        let response = json!({ "id": "resp_1", "object": "response", "status": "in_progress", "output": [] });
        let reply = Self::status(200).header("content-type", "text/event-stream");
        let events = ["response.created", "response.in_progress"];
        events.iter().fold(reply, |reply, kind| reply.event(&json!({ "type": kind, "response": response })))
    }

    /// An error of the API's shape.
    pub(crate) fn responses_error(status: u16, code: &str, message: &str) -> Self {
        Self::json(status, &json!({ "error": { "type": "error", "code": code, "message": message, "param": null } }))
    }

    /// A whole item whose content comes in deltas of this kind.
    pub(crate) fn item(self, index: usize, begun: &Value, deltas: (&str, &[&str]), done: &Value) -> Self {
        let mut reply =
            self.event(&json!({ "type": "response.output_item.added", "output_index": index, "item": begun }));
        let (kind, deltas) = deltas;
        for delta in deltas {
            let kind = format!("response.{kind}.delta");
            let item = &begun["id"];
            reply = reply.event(&json!({ "type": kind, "item_id": item, "output_index": index, "content_index": 0,
                "delta": delta }));
        }
        reply.event(&json!({ "type": "response.output_item.done", "output_index": index, "item": done }))
    }

    /// A whole message of text.
    pub(crate) fn text_item(self, index: usize, text: &str) -> Self {
        let item = |content: Value| json!({ "id": format!("msg_{index}"), "type": "message", "role": "assistant", "content": content });
        let (head, tail) = text.split_at(text.floor_char_boundary(text.len() / 2));
        let done = item(json!([{ "type": "output_text", "text": text, "annotations": [] }]));
        self.item(index, &item(json!([])), ("output_text", &[head, tail]), &done)
    }

    /// Whole reasoning, with its summary.
    pub(crate) fn reasoning_item(self, index: usize, summary: &str, encrypted: &str) -> Self {
        let item = |summary: Value, encrypted: &str| json!({ "id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": encrypted });
        let done = item(json!([{ "type": "summary_text", "text": summary }]), encrypted);
        self.item(index, &item(json!([]), ""), ("reasoning_summary_text", &[summary]), &done)
    }

    /// A whole call, its arguments in two pieces.
    pub(crate) fn call_item(self, index: usize, name: &str, arguments: &Value) -> Self {
        let arguments = arguments.to_string();
        let (head, tail) = arguments.split_at(arguments.floor_char_boundary(arguments.len() / 2));
        let call = format!("call_{index}");
        let item = |arguments: &str| json!({ "id": format!("fc_{index}"), "type": "function_call", "call_id": call, "name": name, "arguments": arguments });
        self.item(index, &item(""), ("function_call_arguments", &[head, tail]), &item(&arguments))
    }

    /// The same answer as this server tells it.
    pub(crate) fn told_by(mut self, server: Compatible) -> Self {
        let (mut events, mut whole) = (Vec::new(), Vec::new());
        for mut event in self.said() {
            server.rewrite(&mut event);
            let is_held = server == Compatible::LlamaCpp && event["type"] == "response.output_item.done";
            if is_held { &mut whole } else { &mut events }.push(event);
        }
        // The last event stays the last.
        let last = events.split_off(events.len().saturating_sub(1));
        self.pieces.clear();
        events.into_iter().chain(whole).chain(last).fold(self, |reply, event| reply.event(&event))
    }

    /// The events so far.
    fn said(&self) -> Vec<Value> {
        let pieces = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Bytes(bytes) => Some(String::from_utf8_lossy(bytes)),
            Piece::Gate(_) | Piece::Pause(_) => None,
        });
        let text = pieces.collect::<String>();
        text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
    }

    /// The end of a response that took 100 tokens in, of which 60 were read from the cache, and 20 out, of which 5 are
    /// reasoning.
    pub(crate) fn complete(self) -> Self {
        self.end("completed", &Value::Null)
    }

    /// The same of a response that was cut short.
    pub(crate) fn incomplete(self, reason: &str) -> Self {
        self.end("incomplete", &json!({ "reason": reason }))
    }

    fn end(self, status: &str, details: &Value) -> Self {
        let is_done = |event: &Value| event["type"] == "response.output_item.done";
        let output: Vec<Value> =
            self.said().into_iter().filter(is_done).map(|mut event| event["item"].take()).collect();
        let usage = json!({ "input_tokens": 100, "input_tokens_details": { "cached_tokens": 60 },
            "output_tokens": 20, "output_tokens_details": { "reasoning_tokens": 5 }, "total_tokens": 120 });
        let response = json!({ "id": "resp_1", "object": "response", "status": status, "output": output, "usage": usage,
            "incomplete_details": details });
        self.event(&json!({ "type": format!("response.{status}"), "response": response }))
    }
}

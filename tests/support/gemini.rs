//! A scripted server of models that speaks the Gemini API, and judges every request it gets.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::http::Request;
use super::reply::Reply;
use super::script::Script;
use super::scripted::Scripted;

/// Its models: one that tells its generation, an older one, and one that tells none.
const MODELS: [&str; 3] = ["gemini-3-flash", "gemini-2.5-pro", "gemini-flash-latest"];

/// The scripted upstream, named `google`. Its models are called `gemini-3-flash`, `gemini-2.5-pro` and `gemini-flash-latest`.
#[derive(Debug)]
pub(crate) struct Gemini;

impl Gemini {
    /// Starts one that gives these replies, in this order.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Scripted {
        Scripted::start(replies, decide, declaration).await
    }
}

fn declaration(address: SocketAddr) -> String {
    format!(
        "[upstreams.google]\nkind = \"gemini\"\nbase_url = \"http://{address}/v1beta\"\n\
         models = {MODELS:?}\n"
    )
}

fn decide(script: &mut Script, request: &Request) -> Reply {
    let model = MODELS.iter().find(|model| request.target.contains(**model)).unwrap_or(&MODELS[0]);
    if !script.is_post_to(&format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"), request) {
        return Reply::gemini_error(404, "NOT_FOUND", "no such path");
    }
    let body = request.json();
    let reply = script.reply(&body, faults(&body));
    reply.unwrap_or_else(|| Reply::gemini_error(400, "INVALID_ARGUMENT", "the script has ended"))
}

/// Which of the API's rules a request breaks.
fn faults(body: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let contents = body["contents"].as_array().cloned().unwrap_or_default();
    if contents.is_empty() {
        faults.push("there are no contents".to_owned());
    }
    let mut open: Vec<Value> = Vec::new();
    for content in &contents {
        let parts = content["parts"].as_array().cloned().unwrap_or_default();
        let of = |kind: &str| -> Vec<Value> {
            let of = parts.iter().filter(|part| !part[kind].is_null());
            of.map(|part| json!([part[kind]["id"], part[kind]["name"]])).collect()
        };
        if parts.is_empty() || !matches!(content["role"].as_str(), Some("user" | "model")) {
            faults.push(format!("a content is empty, or nobody's: {content}"));
        }
        if parts.iter().any(|part| part["text"] == "" && part["thoughtSignature"].is_null()) {
            faults.push(format!("a text is empty: {content}"));
        }
        let (calls, results) = (of("functionCall"), of("functionResponse"));
        if results != open || !results.is_empty() && results.len() != parts.len() {
            faults.push(format!("the results {results:?} are not those of the calls {open:?} alone"));
        }
        let first = parts.iter().find(|part| !part["functionCall"].is_null());
        if first.is_some_and(|part| part["thoughtSignature"].is_null()) {
            faults.push(format!("a call is missing a signature: {content}"));
        }
        if parts.iter().any(|part| !part["functionCall"].is_null() && !part["functionCall"]["args"].is_object()) {
            faults.push(format!("arguments are no object: {content}"));
        }
        open = calls;
    }
    faults
}

impl Reply {
    /// The beginning of a streamed answer; add parts, then [`gemini_end`](Self::gemini_end) it.
    pub(crate) fn gemini() -> Self {
        Self::status(200).header("content-type", "text/event-stream")
    }

    /// An error of the API's shape.
    pub(crate) fn gemini_error(status: u16, word: &str, message: &str) -> Self {
        Self::json(status, &json!({ "error": { "code": status, "message": message, "status": word, "details": [] } }))
    }

    /// A chunk of this part.
    pub(crate) fn part(self, part: &Value) -> Self {
        let candidate = json!({ "content": { "parts": [part], "role": "model" }, "index": 0 });
        let usage = json!({ "promptTokenCount": 100, "totalTokenCount": 100 });
        self.gemini_chunk(&json!({ "candidates": [candidate], "usageMetadata": usage }))
    }

    /// Text in two chunks.
    pub(crate) fn text_part(self, text: &str) -> Self {
        let (head, tail) = text.split_at(text.floor_char_boundary(text.len() / 2));
        self.part(&json!({ "text": head })).part(&json!({ "text": tail }))
    }

    /// A whole call with its signature, if it has one.
    pub(crate) fn call_part(self, name: &str, args: &Value, signature: Option<&str>) -> Self {
        let mut part = json!({ "functionCall": { "id": format!("id-{name}"), "name": name, "args": args } });
        if let Some(signature) = signature {
            part["thoughtSignature"] = json!(signature);
        }
        self.part(&part)
    }

    /// The end of an answer that took 100 tokens in, 60 of them cached, and 20 out, 5 of them thought.
    pub(crate) fn gemini_end(self, reason: &str) -> Self {
        let candidate = json!({ "content": { "parts": [{ "text": "" }], "role": "model" }, "finishReason": reason });
        let usage = json!({ "promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 15,
            "thoughtsTokenCount": 5, "totalTokenCount": 120 });
        self.gemini_chunk(&json!({ "candidates": [candidate], "usageMetadata": usage }))
    }

    /// An event.
    pub(crate) fn gemini_chunk(self, chunk: &Value) -> Self {
        self.bytes(format!("data: {chunk}\r\n\r\n"))
    }
}

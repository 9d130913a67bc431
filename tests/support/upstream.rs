//! A scripted server of models that speaks OpenAI's chat completions, and judges every request it gets.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::http::{HttpServer, Request};
use super::reply::Reply;
use super::script::{Judge, Script};

/// The scripted upstream. Its model is called `test`.
///
/// When it is dropped it fails the test if a request broke one of OpenAI's rules or came unexpected.
#[derive(Debug)]
pub(crate) struct Upstream {
    server: HttpServer,
    judge: Judge,
    /// The preset of the server that it plays; empty if that is none.
    preset: &'static str,
}

impl Upstream {
    /// Starts one that gives these replies, in this order.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let judge = Judge::new(replies);
        let play = judge.play(|script, request| decide(script, request, faults));
        Self { server: HttpServer::start(|request| !is_list(request), play).await, judge, preset: "" }
    }

    /// Starts one that is asked for each answer in one piece.
    pub(crate) async fn start_in_one_piece(replies: impl IntoIterator<Item = Reply>) -> Self {
        let judge = Judge::new(replies);
        let play = judge.play(|script, request| decide(script, request, faults_in_one_piece));
        Self { server: HttpServer::start(|request| !is_list(request), play).await, judge, preset: "" }
    }

    /// Starts one that insists on what Mistral's API insists on.
    pub(crate) async fn start_as_mistral(replies: impl IntoIterator<Item = Reply>) -> Self {
        let judge = Judge::new(replies);
        let play = judge.play(|script, request| decide(script, request, faults_at_mistral));
        Self { server: HttpServer::start(|request| !is_list(request), play).await, judge, preset: "mistral" }
    }

    /// Starts one that insists on what DeepSeek's API insists on, with a model that thinks.
    pub(crate) async fn start_as_deepseek(replies: impl IntoIterator<Item = Reply>) -> Self {
        let judge = Judge::new(replies);
        let play = judge.play(|script, request| decide(script, request, faults_at_deepseek));
        Self { server: HttpServer::start(|request| !is_list(request), play).await, judge, preset: "deepseek" }
    }

    /// Adds a reply to the script.
    pub(crate) fn then(&self, reply: Reply) {
        self.judge.script().then(reply);
    }

    /// What is replied whenever the script has come to its end.
    pub(crate) fn otherwise(&self, reply: Reply) {
        self.judge.script().otherwise(reply);
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Its declaration for a server's configuration.
    pub(crate) fn config(&self) -> String {
        let preset = if self.preset.is_empty() { String::new() } else { format!("preset = {:?}\n", self.preset) };
        format!("{}{preset}", declaration(self.server.address()))
    }

    /// The bodies of the completions that were asked for so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.server.requests().iter().map(Request::json).collect()
    }

    /// The same requests whole.
    pub(crate) fn raw_requests(&self) -> Vec<Request> {
        self.server.requests()
    }

    /// Returns the bodies once `count` completions were asked for.
    pub(crate) async fn received(&self, count: usize) -> Vec<Value> {
        self.server.received(count).await.iter().map(Request::json).collect()
    }
}

fn decide(script: &mut Script, request: &Request, faults: fn(&Value) -> Vec<String>) -> Reply {
    if is_list(request) {
        return list();
    }
    if !script.is_post_to("/v1/chat/completions", request) {
        return Reply::error(404, "unknown_url", "no such path");
    }
    let body = request.json();
    let reply = script.reply(&body, faults(&body));
    reply.unwrap_or_else(|| Reply::error(400, "unscripted", "the script has ended"))
}

/// Whether the request asks for the list of models.
pub(crate) fn is_list(request: &Request) -> bool {
    request.method == "GET" && request.target == "/v1/models"
}

/// The list of models, which has one.
pub(crate) fn list() -> Reply {
    Reply::json(200, &json!({"object": "list", "data": [{"id": "test", "object": "model"}]}))
}

/// The declaration of an upstream for a server's configuration.
pub(crate) fn declaration(address: SocketAddr) -> String {
    format!("[upstreams.scripted]\nbase_url = \"http://{address}/v1\"\nmodels = [\"test\"]\n")
}

/// What a model is asked; or the reply to a request that asks no model, or breaks a rule.
pub(crate) fn asked(request: &Request) -> Result<Value, Reply> {
    if is_list(request) {
        return Err(list());
    }
    let body = request.json();
    let faults = faults(&body);
    if faults.is_empty() { Ok(body) } else { Err(Reply::error(400, "invalid_request_error", &faults.join("; "))) }
}

/// Whether a model is asked for the summary of a conversation.
pub(crate) fn is_summary(body: &Value) -> bool {
    let told = body["messages"][0]["content"].as_str();
    told.is_some_and(|told| told.starts_with("You summarise a conversation"))
}

/// Which of the rules that every request must keep this one breaks.
pub(crate) fn faults(body: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if body["stream"] != true {
        faults.push("stream is not true".to_owned());
    }
    if body["stream_options"]["include_usage"] != true {
        faults.push("the usage is not asked for".to_owned());
    }
    faults.extend(faults_beside_form(body));
    faults
}

/// The same of a request for an answer in one piece.
fn faults_in_one_piece(body: &Value) -> Vec<String> {
    let is_streamed = body.get("stream").or(body.get("stream_options")).is_some();
    let streamed = is_streamed.then(|| "a stream is asked for".to_owned());
    streamed.into_iter().chain(faults_beside_form(body)).collect()
}

/// The same at Mistral, which tells the usage unasked and refuses what it does not know.
fn faults_at_mistral(body: &Value) -> Vec<String> {
    let mut faults = faults_beside_form(body);
    if body["stream"] != true || body.get("stream_options").is_some() {
        faults.push("a stream is not asked for as it should be".to_owned());
    }
    let is_id = |id: &str| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    for message in body["messages"].as_array().into_iter().flatten() {
        let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| &call["id"]);
        for id in calls.chain(message.get("tool_call_id")).filter_map(Value::as_str).filter(|id| !is_id(id)) {
            faults.push(format!("tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9"));
        }
    }
    faults.extend(strange_roles(body));
    faults
}

/// The same at DeepSeek, whose models think unless they are told otherwise.
fn faults_at_deepseek(body: &Value) -> Vec<String> {
    let mut faults = faults(body);
    let assistant = body["messages"].as_array().into_iter().flatten().filter(|message| message["role"] == "assistant");
    if assistant.clone().any(|message| !message["reasoning_content"].is_string()) {
        faults.push("the reasoning_content in the thinking mode must be passed back to the API".to_owned());
    }
    faults.extend(strange_roles(body));
    faults
}

/// Roles that OpenAI's older dialect does not have.
fn strange_roles(body: &Value) -> Option<String> {
    let mut roles = body["messages"].as_array()?.iter().map(|message| &message["role"]);
    let strange = roles.find(|role| !["system", "user", "assistant", "tool"].iter().any(|known| *role == known))?;
    Some(format!("unknown variant {strange}"))
}

/// The same, however the answer is asked for.
fn faults_beside_form(body: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if body.get("tools").is_some_and(|tools| tools.as_array().is_none_or(Vec::is_empty)) {
        faults.push("tools is not an array of tools".to_owned());
    }
    match body["messages"].as_array() {
        Some(messages) if !messages.is_empty() => faults.extend(pairing_faults(messages)),
        _ => faults.push("there are no messages".to_owned()),
    }
    faults
}

/// Every call of an assistant message has exactly one tool message before the next other message.
fn pairing_faults(messages: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut open, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (index, message) in messages.iter().enumerate() {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if !open.remove(id) {
                faults.push(format!("messages[{index}] answers {id:?}, which is no open call"));
            }
            continue;
        }
        if !open.is_empty() {
            faults.push(format!("messages[{index}] comes before the calls {open:?} are answered"));
            open.clear();
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap_or_default();
            if id.is_empty() || !seen.insert(id) {
                faults.push(format!("messages[{index}] has a call whose id, {id:?}, is missing or used twice"));
            }
            if !call["function"]["arguments"].is_string() {
                faults.push(format!("messages[{index}] has a call whose arguments are not a string"));
            }
            open.insert(id);
        }
    }
    if !open.is_empty() {
        faults.push(format!("the calls {open:?} are not answered"));
    }
    faults
}

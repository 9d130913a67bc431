//! Messages over the router: what Anthropic's clients send, and every event that they read.

mod approvals;
mod client_tools;
mod ends;
mod requests;
mod streams;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::send;
use crate::agent::tests::support::{Say, TestAgent};
use crate::api::{MetricsAccess, router};
use crate::store::memory::MemoryStore;

/// A server whose model plays these turns.
struct Server {
    agent: TestAgent,
    router: Router,
}

impl Server {
    fn new(turns: Vec<Say>) -> Self {
        let agent = TestAgent::builder().store(Arc::new(MemoryStore::default())).turns(turns).begin();
        let router = router((*agent).clone(), &Arc::default(), MetricsAccess::Key);
        Self { agent, router }
    }

    fn request(path: &str, body: &Value, headers: &[(&str, &str)]) -> Request<Body> {
        let builder = Request::builder().method(Method::POST).uri(path).header("content-type", "application/json");
        let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        builder.body(Body::from(body.to_string())).unwrap()
    }

    async fn post(&self, body: &Value) -> (StatusCode, Value) {
        send(&self.router, Self::request("/v1/messages", body, &[])).await
    }

    /// The message that answers a request that is taken.
    async fn ok(&self, body: &Value) -> Value {
        let (status, message) = self.post(body).await;
        assert_eq!(status, StatusCode::OK, "{message}");
        message
    }

    /// The error of a request that is not.
    async fn refused(&self, body: &Value) -> (u16, Value) {
        let (status, body) = self.post(body).await;
        assert_eq!(body["type"], "error", "{status}: {body}");
        (status.as_u16(), body["error"].clone())
    }

    async fn counted(&self, body: &Value) -> (StatusCode, Value) {
        send(&self.router, Self::request("/v1/messages/count_tokens", body, &[])).await
    }

    /// The events of a request's stream, which is checked to be one.
    async fn stream(&self, body: &Value) -> Vec<Value> {
        self.stream_with(body, &[]).await
    }

    async fn stream_with(&self, body: &Value, headers: &[(&str, &str)]) -> Vec<Value> {
        let body = with(body.clone(), &json!({"stream": true}));
        events(&self.read(Self::request("/v1/messages", &body, headers)).await.1)
    }

    async fn read(&self, request: Request<Body>) -> (HeaderMap, String) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let headers = response.headers().clone();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (headers, String::from_utf8(body.to_vec()).unwrap())
    }

    /// What the model was asked last, as roles and texts.
    fn asked(&self) -> Vec<String> {
        let requests = self.agent.model.requests.lock();
        let conversation = &requests.last().expect("it was asked").conversation;
        let shown = |message: &crate::types::Message| {
            let parts = crate::llm::openai::messages::parts(message).unwrap();
            let role = format!("{:?}", message.role).to_lowercase();
            format!("{role}: {}", crate::types::conversation::lines(&parts.list))
        };
        conversation.iter().map(shown).collect()
    }
}

/// The events of a stream that is whole: each named as its type, blocks one after another, numbered without gaps.
fn events(text: &str) -> Vec<Value> {
    let mut read = Vec::new();
    let (mut next, mut open) = (0, false);
    for frame in text.split_terminator("\n\n") {
        let (event, data) = frame.split_once('\n').expect("an event has a name and data");
        assert!(!data.contains(['\n', '\r']), "a reader loses all but its first line: {data}");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("it has data")).unwrap();
        assert_eq!(event.strip_prefix("event: "), data["type"].as_str(), "{frame}");
        match data["type"].as_str().unwrap() {
            "content_block_start" => {
                assert!(!open && data["index"] == next, "{frame} of {text}");
                open = true;
            }
            "content_block_delta" => assert!(open && data["index"] == next, "{frame} of {text}"),
            "content_block_stop" => {
                assert!(open && data["index"] == next, "{frame} of {text}");
                (open, next) = (false, next + 1);
            }
            _ => {}
        }
        read.push(data);
    }
    assert!(!text.contains("[DONE]"), "{text}");
    read
}

/// The types of events.
fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// The message that clients make of a stream's events.
fn folded(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    let blocks = |message: &mut Value| message["content"].as_array_mut().unwrap().len();
    let mut input = String::new();
    for event in &events[1..] {
        let last = blocks(&mut message).saturating_sub(1);
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
                input.clear();
            }
            "content_block_delta" => {
                let (delta, block) = (&event["delta"], &mut message["content"][last]);
                for (kind, from, to) in [("text_delta", "text", "text"), ("thinking_delta", "thinking", "thinking")] {
                    if delta["type"] == kind {
                        let text = block[to].as_str().unwrap().to_owned() + delta[from].as_str().unwrap();
                        block[to] = text.into();
                    }
                }
                if delta["type"] == "signature_delta" {
                    block["signature"] = delta["signature"].clone();
                }
                if delta["type"] == "input_json_delta" {
                    input += delta["partial_json"].as_str().unwrap();
                    block["input"] = serde_json::from_str(&input).unwrap();
                }
            }
            "message_delta" => {
                for (name, value) in event["delta"].as_object().unwrap() {
                    message[name] = value.clone();
                }
                for (name, value) in event["usage"].as_object().unwrap() {
                    message["usage"][name] = value.clone();
                }
                message["agent"] = event["agent"].clone();
            }
            _ => {}
        }
    }
    message
}

/// The same text with the digits of its run as `R`, and without what differs from run to run.
fn generic(message: &Value) -> Value {
    let mut message = message.clone();
    message.as_object_mut().unwrap().remove("agent");
    let text = message.to_string();
    let digits = text.split("\"msg_").nth(1).map(|rest| rest[..28].to_owned()).expect("it has an id");
    serde_json::from_str(&text.replace(&digits, "R")).unwrap()
}

fn ask(content: impl Into<Value>) -> Value {
    json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": content.into()}]})
}

/// The same with more members.
fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("it is an object") {
        body[name] = value.clone();
    }
    body
}

/// The same with more messages.
fn then(mut body: Value, more: &[Value]) -> Value {
    body["messages"].as_array_mut().unwrap().extend(more.iter().cloned());
    body
}

/// The text of a message.
fn text(message: &Value) -> String {
    let blocks = message["content"].as_array().expect("it has content");
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}

/// The types of a message's blocks.
fn kinds(message: &Value) -> Vec<&str> {
    message["content"].as_array().expect("it has content").iter().map(|block| block["type"].as_str().unwrap()).collect()
}

//! Responses over the router: what clients send, and every frame that they read.

mod approvals;
mod chains;
mod client_tools;
mod ends;
mod requests;
mod stored;
mod streams;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::send;
use crate::agent::tests::support::{Say, TestAgent};
use crate::api::{MetricsAccess, router};
use crate::store::Store;
use crate::store::memory::MemoryStore;

/// A server whose model plays these turns.
struct Server {
    agent: TestAgent,
    router: Router,
}

impl Server {
    fn new(turns: Vec<Say>) -> Self {
        Self::over(Arc::new(MemoryStore::default()), turns)
    }

    /// The same over a store that others may share.
    fn over(store: Arc<dyn Store>, turns: Vec<Say>) -> Self {
        let agent = TestAgent::builder().store(store).turns(turns).begin();
        let router = router((*agent).clone(), &Arc::default(), MetricsAccess::Key);
        Self { agent, router }
    }

    fn request(method: &Method, path: &str, body: Option<&Value>, headers: &[(&str, &str)]) -> Request<Body> {
        let builder = Request::builder().method(method.clone()).uri(path).header("content-type", "application/json");
        let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        builder.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap()
    }

    async fn post(&self, body: &Value) -> (StatusCode, Value) {
        self.post_with(body, &[]).await
    }

    async fn post_with(&self, body: &Value, headers: &[(&str, &str)]) -> (StatusCode, Value) {
        send(&self.router, Self::request(&Method::POST, "/v1/responses", Some(body), headers)).await
    }

    /// The response to a request that is taken.
    async fn ok(&self, body: &Value) -> Value {
        let (status, response) = self.post(body).await;
        assert_eq!(status, StatusCode::OK, "{response}");
        response
    }

    /// The error of a request that is not.
    async fn refused(&self, body: &Value) -> (u16, String, String, String) {
        let (status, response) = self.post(body).await;
        let text = |name: &str| response["error"][name].as_str().unwrap_or_default().to_owned();
        (status.as_u16(), text("code"), text("param"), text("message"))
    }

    async fn call(&self, method: Method, path: &str) -> (StatusCode, Value) {
        send(&self.router, Self::request(&method, path, None, &[])).await
    }

    async fn get(&self, id: &Value) -> Value {
        let (status, response) = self.call(Method::GET, &format!("/v1/responses/{}", id.as_str().unwrap())).await;
        assert_eq!(status, StatusCode::OK, "{response}");
        response
    }

    /// The frames of a request's stream, which is checked to be one.
    async fn stream(&self, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = true.into();
        frames(&self.read(Self::request(&Method::POST, "/v1/responses", Some(&body), &[])).await, 0)
    }

    /// The frames of a stored response from a number on.
    async fn replay(&self, id: &str, after: Option<u64>) -> Vec<Value> {
        let after_query = after.map_or_else(String::new, |after| format!("&starting_after={after}"));
        let path = format!("/v1/responses/{id}?stream=true{after_query}");
        let text = self.read(Self::request(&Method::GET, &path, None, &[])).await;
        frames(&text, after.map_or(0, |after| after + 1))
    }

    async fn read(&self, request: Request<Body>) -> String {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let is_stream = response.headers()["content-type"] == "text/event-stream";
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(is_stream, "{text}");
        text
    }

    /// What the model was asked last, as roles and texts.
    fn asked(&self) -> Vec<(String, String)> {
        let requests = self.agent.model.requests.lock();
        let conversation = &requests.last().expect("it was asked").conversation;
        let shown = |message: &crate::types::Message| {
            let parts = crate::llm::openai::messages::parts(message).unwrap();
            let role = format!("{:?}", message.role).to_lowercase();
            (role, crate::types::conversation::lines(&parts.list).into_owned())
        };
        conversation.iter().map(shown).collect()
    }
}

/// The frames of a stream that is whole: numbered without gaps from `first` on, each named as its type.
fn frames(text: &str, first: u64) -> Vec<Value> {
    let mut blocks: Vec<&str> = text.split_terminator("\n\n").collect();
    assert_eq!(blocks.pop(), Some("data: [DONE]"), "{text}");
    let mut read = Vec::new();
    for (number, block) in (first..).zip(blocks) {
        let (event, data) = block.split_once('\n').expect("a frame has a name and data");
        assert!(!data.contains(['\n', '\r']), "a reader loses all but its first line: {data}");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("it has data")).unwrap();
        assert_eq!(event.strip_prefix("event: "), data["type"].as_str(), "{block}");
        assert_eq!(data["sequence_number"], number, "{block}");
        read.push(data);
    }
    read
}

/// The types of frames, without what they all begin with.
fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap().trim_start_matches("response.")).collect()
}

/// The response in the last frame.
fn ended(frames: &[Value]) -> &Value {
    &frames.last().expect("there are frames")["response"]
}

/// The same text with the digits of its run as `R`.
fn generic(value: &Value) -> String {
    let text = value.to_string();
    let digits = text.split("resp_").nth(1).map(|rest| &rest[..28]).expect("it names a response");
    text.replace(digits, "R")
}

fn ask(input: impl Into<Value>) -> Value {
    json!({"model": "m", "input": input.into()})
}

/// The same with more members.
fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("it is an object") {
        body[name] = value.clone();
    }
    body
}

/// The text of a response's messages.
fn text(response: &Value) -> String {
    let items = response["output"].as_array().expect("it has output");
    let messages = items.iter().filter(|item| item["type"] == "message");
    messages.map(|message| message["content"][0]["text"].as_str().unwrap_or_default()).collect()
}

/// The types of a response's items.
fn kinds(response: &Value) -> Vec<&str> {
    response["output"].as_array().expect("it has output").iter().map(|item| item["type"].as_str().unwrap()).collect()
}

//! Chats of the AI SDK and agents of AG-UI over the router: what they send, and what is refused.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::agent::tests::support::{Say, TestAgent};
use crate::api::{MetricsAccess, router};
use crate::store::memory::MemoryStore;

const CHAT: &str = "/v1/agent/ui";
const AG_UI: &str = "/v1/agent/ag-ui";

/// A server whose model plays these turns.
struct Server {
    agent: TestAgent,
    router: Router,
}

/// What came back.
struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    /// The data of a stream's frames.
    fn data(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        let data_of = |frame: &'_ str| {
            assert!(!frame.contains(['\n', '\r']), "a reader loses all but its first line: {frame}");
            frame.strip_prefix("data: ").expect("it has data").to_owned()
        };
        let frames = self.text.split_terminator("\n\n").map(data_of);
        frames.filter(|data| data != "[DONE]").map(|data| serde_json::from_str(&data).unwrap()).collect()
    }

    fn types(&self) -> Vec<String> {
        self.data().iter().map(|chunk| chunk["type"].as_str().unwrap().to_owned()).collect()
    }

    /// What is said in a stream.
    fn said(&self) -> String {
        self.data().iter().filter_map(|chunk| chunk["delta"].as_str().map(str::to_owned)).collect()
    }

    /// The code of an error, and what it names.
    fn refused(&self) -> (u16, String, String) {
        let body: Value = serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text));
        let member = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
        (self.status, member("code"), member("param"))
    }
}

impl Server {
    fn new(turns: Vec<Say>) -> Self {
        let agent = TestAgent::builder().store(Arc::new(MemoryStore::default())).turns(turns).begin();
        let router = router((*agent).clone(), &Arc::default(), MetricsAccess::Key);
        Self { agent, router }
    }

    async fn ask(&self, method: Method, path: &str, body: Body) -> Answer {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answer { status, headers, text: String::from_utf8(body.to_vec()).unwrap() }
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path, Body::from(body.to_string())).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, Body::empty()).await
    }

    fn asked(&self) -> String {
        let requests = self.agent.model.requests.lock();
        let conversation = &requests.last().expect("it was asked").conversation;
        conversation.iter().map(|message| crate::llm::openai::messages::json(message).to_owned()).collect()
    }
}

fn user(parts: impl Into<Value>) -> Value {
    json!({"id": "chat-1", "model": "m", "messages": [{"id": "m1", "role": "user", "parts": parts.into()}]})
}

fn says(text: &str) -> Value {
    user(json!([{"type": "text", "text": text}]))
}

fn input(messages: impl Into<Value>) -> Value {
    json!({
        "threadId": "thread-1", "runId": "r1", "messages": messages.into(), "tools": [], "context": [], "state": {},
        "forwardedProps": {"model": "m"},
    })
}

fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("it is an object") {
        body[name] = value.clone();
    }
    body
}

/// The same chat, whose last message is this one of the assistant.
fn answered(more: &Value, parts: impl Into<Value>) -> Value {
    let messages =
        json!([{"id": "m1", "role": "user", "parts": []}, {"id": "a1", "role": "assistant", "parts": parts.into()}]);
    with(with(says("Go"), more), &json!({"messages": messages}))
}

#[tokio::test]
async fn a_chat_gets_its_message_under_the_header_that_its_clients_read() {
    let server = Server::new(vec![Say::Text(&["Hel", "lo"])]);
    let answer = server.post(CHAT, &says("Hi")).await;
    assert_eq!(answer.headers["x-vercel-ai-ui-message-stream"], "v1");
    assert_eq!(answer.headers["x-loopgate-session-id"], "chat-1");
    assert!(answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
    let types = ["start", "start-step", "text-start", "text-delta", "text-delta", "text-end", "finish-step", "finish"];
    assert_eq!(answer.types(), types);
    let run = answer.headers["x-loopgate-run-id"].to_str().unwrap();
    let again = server.get(&format!("/v1/runs/{run}/events?events=ai-sdk")).await;
    assert_eq!((again.data(), again.headers.contains_key("x-vercel-ai-ui-message-stream")), (answer.data(), true));
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
    let server = Server::new(vec![Say::Text(&["Hel", "lo"])]);
    let chosen = server.post("/v1/agent/completions", &with(body, &json!({"agent": {"events": "ai-sdk"}}))).await;
    assert_eq!(chosen.types(), types);
}

#[tokio::test]
async fn events_of_ag_ui_are_chosen_where_all_encodings_are() {
    let server = Server::new(vec![Say::Text(&["Hello"])]);
    let body = json!({
        "model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}], "agent": {"events": "ag-ui"},
    });
    let answer = server.post("/v1/agent/completions", &body).await;
    let types = [
        "RUN_STARTED",
        "STEP_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ];
    assert_eq!(answer.types(), types);
    let run = answer.headers["x-loopgate-run-id"].to_str().unwrap();
    assert_eq!(answer.data()[0]["threadId"], run, "without a session the run is its own thread");
    let again = server.get(&format!("/v1/runs/{run}/events?events=ag-ui")).await;
    assert_eq!(again.data(), answer.data());
    for query in ["events=ag-ui&after=2", "events=ai-sdk&after=2"] {
        let refused = server.get(&format!("/v1/runs/{run}/events?{query}")).await.refused();
        assert_eq!(refused, (400, "invalid_value".to_owned(), "after".to_owned()), "{query}");
    }
    let refused = server.get(&format!("/v1/runs/{run}/events?events=ai-sdk&stream=false")).await.refused();
    assert_eq!((refused.0, refused.2), (400, "events".to_owned()));
}

#[tokio::test]
async fn nothing_is_joined_where_nothing_runs() {
    let server = Server::new(vec![Say::Text(&["Hello"])]);
    assert_eq!(server.get("/v1/agent/ui/chat-1/stream").await.status, 204, "there is no such session yet");
    server.post(CHAT, &says("Hi")).await;
    assert_eq!(server.get("/v1/agent/ui/chat-1/stream").await.status, 204);
    let (status, code, _) = server.get("/v1/agent/ui/a%20b/stream").await.refused();
    assert_eq!((status, code.as_str()), (404, "session_not_found"));
}

/// A run that waits is none that runs; what its client answers goes on in the same message.
#[tokio::test]
async fn a_run_that_waits_is_continued_in_its_message() {
    let calls = Say::Calls("Let me see. ", vec![("weather", r#"{"city":"Oslo"}"#)]);
    let server = Server::new(vec![calls, Say::Text(&["Rain."])]);
    let function = json!({"name": "weather", "parameters": {"type": "object"}});
    let tools = json!({"tools": [{"type": "function", "function": function}]});
    let first = server.post(CHAT, &with(says("Go"), &tools)).await;
    let chunks = first.data();
    let call = chunks.iter().find(|chunk| chunk["type"] == "tool-input-available").expect("it is called");
    assert_eq!((&call["input"], call.get("providerExecuted")), (&json!({"city": "Oslo"}), None));
    assert_eq!(chunks.last().unwrap(), &json!({"type": "finish", "finishReason": "tool-calls"}));
    assert_eq!(server.get("/v1/agent/ui/chat-1/stream").await.status, 204);
    let events = format!("/v1/runs/{}/events?events=ai-sdk", first.headers["x-loopgate-run-id"].to_str().unwrap());
    assert_eq!(server.get(&events).await.text, first.text, "it ends where the run waits");
    let id = &call["toolCallId"];
    let part = json!({"type": "tool-weather", "toolCallId": id, "state": "output-available", "output": "rain"});
    let old = json!({"type": "tool-weather", "toolCallId": "call_old", "state": "output-available", "output": "sun"});
    let parts =
        json!([{"type": "step-start"}, old, {"type": "step-start"}, {"type": "text", "text": "Let me see."}, part]);
    let second = server.post(CHAT, &answered(&tools, parts.clone())).await;
    assert_eq!(second.types()[..2], ["start", "start-step"]);
    assert_eq!((&second.data()[0]["messageId"], second.said()), (&json!("a1"), "Rain.".to_owned()));
    assert!(server.asked().contains("rain") && !server.asked().contains("sun"), "{}", server.asked());
    assert_eq!(second.headers["x-loopgate-run-id"], first.headers["x-loopgate-run-id"]);
    // It waits no longer.
    let (status, code, _) = server.post(CHAT, &answered(&tools, parts)).await.refused();
    assert_eq!((status, code.as_str()), (400, "invalid_value"));
    // Both requests together are what a reader that comes late has.
    let whole = server.get(&events).await;
    let output = json!({"type": "tool-output-available", "toolCallId": id, "output": "rain"});
    let expected = chunks[..chunks.len() - 1].iter().cloned().chain([output]).chain(second.data()[1..].to_vec());
    assert_eq!(whole.data(), expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn a_decision_needs_a_call_that_waits() {
    let server = Server::new(vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["Done."])]);
    let gated = json!({"agent": {"policy": {"ask": ["echo"]}}});
    let first = server.post(CHAT, &with(says("Go"), &gated)).await;
    assert_eq!(first.types()[2..], ["tool-input-available", "tool-approval-request", "finish-step", "finish"]);
    let asked = first.data()[3].clone();
    let part = |id: &Value, approved: Value| {
        let approval = json!({"id": id, "approved": approved});
        let call = json!({"type": "dynamic-tool", "toolName": "echo", "toolCallId": asked["toolCallId"], "input": {}});
        with(call, &json!({"state": "approval-responded", "approval": approval, "providerExecuted": true}))
    };
    let (status, code, _) = server.post(CHAT, &says("Never mind")).await.refused();
    assert_eq!((status, code.as_str()), (409, "session_busy"), "what waits is decided first");
    let foreign = answered(&gated, json!([part(&json!("mcpr_1"), json!(true))]));
    let refused = server.post(CHAT, &foreign).await.refused();
    assert_eq!((refused.0, refused.2.as_str()), (400, "messages[1].parts[0].approval.id"));
    let open = answered(&gated, json!([part(&asked["approvalId"], Value::Null)]));
    let refused = server.post(CHAT, &open).await.refused();
    assert_eq!((refused.0, refused.2.as_str()), (400, "messages[1].parts[0].approval.approved"));
    assert!(server.agent.journal.lock().is_empty());
    let second = server.post(CHAT, &answered(&gated, json!([part(&asked["approvalId"], json!(true))]))).await;
    assert_eq!(second.types()[..3], ["start", "tool-output-available", "start-step"]);
    assert_eq!((second.said(), server.agent.journal.lock().len()), ("Done.".to_owned(), 1));
}

#[tokio::test]
async fn what_a_user_sends_beside_text_reaches_the_model() {
    let server = Server::new(vec![Say::Text(&["Seen."]), Say::Text(&["Seen."])]);
    let picture = json!({"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"});
    let page = json!({"type": "file", "mediaType": "application/pdf", "filename": "a.pdf", "url": "data:application/pdf;base64,AAAA"});
    let parts = json!([{"type": "text", "text": "Look"}, picture, page, {"type": "data-mood", "data": 1}]);
    assert_eq!(server.post(CHAT, &user(parts)).await.said(), "Seen.");
    let asked = server.asked();
    assert!(asked.contains(r#""image_url":{"url":"data:image/png;base64,AAAA"}"#), "{asked}");
    assert!(asked.contains(r#""filename":"a.pdf""#) && !asked.contains("mood"), "{asked}");
    let source = json!({"type": "data", "value": "AAAA", "mimeType": "image/png"});
    let content = json!([{"type": "text", "text": "Look"}, {"type": "image", "source": source}]);
    let messages = json!([{"id": "m1", "role": "user", "content": content}]);
    assert_eq!(server.post(AG_UI, &input(messages)).await.said(), "Seen.");
    assert!(server.asked().contains(r#""image_url":{"url":"data:image/png;base64,AAAA"}"#), "{}", server.asked());
}

#[tokio::test]
async fn requests_of_chats_that_are_refused() {
    let server = Server::new(Vec::new());
    let remote = json!([{"type": "file", "mediaType": "text/plain", "url": "https://files.test/a.txt"}]);
    let system = json!({"messages": [{"id": "s", "role": "system", "parts": []}]});
    let more = |more: Value| with(says("Hi"), &more);
    for (body, param) in [
        (more(json!({"id": "a/b"})), "id"),
        (more(json!({"id": null})), "id"),
        (more(json!({"messages": []})), "messages"),
        (more(json!({"messages": null})), "messages"),
        (more(json!({"messages": [1]})), "messages[0]"),
        (more(system), "messages[0].role"),
        (user(json!([{"type": "text"}])), "messages[0].parts[0].text"),
        (user(json!([{"type": "text", "text": ""}])), "messages[0].parts"),
        (user(remote), "messages[0].parts[0].url"),
        (answered(&json!({}), json!([{"type": "text", "text": "Hello"}])), "messages"),
        (more(json!({"agent": {"session_id": "other"}})), "agent.session_id"),
        (more(json!({"agent": {"run_id": "run_1"}})), "agent.run_id"),
        (more(json!({"agent": {"background": true}})), "agent.background"),
        (more(json!({"agent": {"dry_run": true}})), "agent.dry_run"),
        (more(json!({"agent": {"events": "native"}})), "agent.events"),
        (more(json!({"agent": {"on_unknown_outcome": "ask"}})), "agent.on_unknown_outcome"),
        (more(json!({"agent": {"nonsense": 1}})), "agent.nonsense"),
    ] {
        let (status, _, named) = server.post(CHAT, &body).await.refused();
        assert_eq!((status, named.as_str()), (400, param), "{body}");
    }
    let named =
        with(says("Hi"), &json!({"agent": {"session_id": "chat-1", "events": "ai-sdk"}, "trigger": "submit-message"}));
    let server = Server::new(vec![Say::Text(&["Hello"])]);
    assert_eq!(server.post(CHAT, &named).await.said(), "Hello", "what is said twice is no contradiction");
}

#[tokio::test]
async fn inputs_of_ag_ui_that_are_refused() {
    let server = Server::new(Vec::new());
    let hello = || input(json!([{"id": "m1", "role": "user", "content": "Hi"}]));
    let more = |more: Value| with(hello(), &more);
    let after = |message: Value| input(json!([{"id": "a1", "role": "assistant", "content": "Hello"}, message]));
    let image =
        |source: Value| input(json!([{"id": "m1", "role": "user", "content": [{"type": "image", "source": source}]}]));
    let resume = |entry: Value| with(input(json!([])), &json!({"resume": [entry]}));
    for (body, param) in [
        (more(json!({"threadId": "a b"})), "threadId"),
        (more(json!({"runId": null})), "runId"),
        (more(json!({"messages": null})), "messages"),
        (input(json!([])), "messages"),
        (input(json!([{"id": "a1", "role": "assistant", "content": "Hello"}])), "messages"),
        (after(json!({"id": "m2", "role": "owner", "content": "Hi"})), "messages[1].role"),
        (after(json!({"id": "m2", "role": "user"})), "messages[1].content"),
        (after(json!({"id": "m2", "role": "user", "content": 1})), "messages[1].content"),
        (after(json!({"id": "m2", "role": "tool", "content": "x"})), "messages[1].toolCallId"),
        (image(json!({"type": "file", "value": "f1"})), "messages[0].content[0].source.type"),
        (more(json!({"resume": [{"interruptId": "mcpr_1", "status": "cancelled"}]})), "resume"),
        (resume(json!({"interruptId": "mcpr_1", "status": "cancelled"})), "resume[0].interruptId"),
        (resume(json!({"interruptId": "mcpr_1", "status": "gone"})), "resume[0].status"),
        (resume(json!({"interruptId": "mcpr_1", "status": "resolved"})), "resume[0].payload"),
        (more(json!({"tools": [{"description": "x"}]})), "tools[0].name"),
        (more(json!({"forwardedProps": {"agent": {"run_id": "run_1"}}})), "agent.run_id"),
    ] {
        let (status, _, named) = server.post(AG_UI, &body).await.refused();
        assert_eq!((status, named.as_str()), (400, param), "{body}");
    }
}

/// AG-UI sends the whole thread again and again, also the results that a run got which has failed or was cancelled.
#[tokio::test]
async fn results_that_no_run_waits_for_do_not_end_a_thread() {
    let server = Server::new(vec![Say::Calls("", vec![("weather", "{}")]), Say::Text(&["Hello."])]);
    let tools = json!({"tools": [{"name": "weather", "description": "", "parameters": {"type": "object"}}]});
    let ask = json!({"id": "m1", "role": "user", "content": "Go"});
    let first = server.post(AG_UI, &with(input(json!([ask])), &tools)).await;
    let began = first.data().into_iter().find(|event| event["type"] == "TOOL_CALL_START").expect("it is called");
    let (call, run) = (&began["toolCallId"], first.headers["x-loopgate-run-id"].to_str().unwrap());
    assert_eq!(server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.status, 200);
    let function = json!({"name": "weather", "arguments": "{}"});
    let made =
        json!({"id": "a1", "role": "assistant", "toolCalls": [{"id": call, "type": "function", "function": function}]});
    let result = json!({"id": "t1", "role": "tool", "toolCallId": call, "content": "rain"});
    let (status, code, _) = server.post(AG_UI, &with(input(json!([ask, made, result])), &tools)).await.refused();
    assert_eq!((status, code.as_str()), (400, "invalid_value"), "nothing is new");
    let more = json!({"id": "m2", "role": "user", "content": "Hello?"});
    let second = server.post(AG_UI, &with(input(json!([ask, made, result, more])), &tools)).await;
    assert_eq!(second.said(), "Hello.");
    assert!(server.asked().contains("Hello?"), "{}", server.asked());
}

/// The AI SDK sends all decisions of a step with each of them.
#[tokio::test]
async fn calls_that_are_decided_one_after_the_other_are_all_made() {
    let calls = Say::Calls("", vec![("echo", r#"{"n":1}"#), ("echo", r#"{"n":2}"#)]);
    let server = Server::new(vec![calls, Say::Text(&["Done."])]);
    let gated = json!({"agent": {"policy": {"ask": ["echo"]}}});
    let first = server.post(CHAT, &with(says("Go"), &gated)).await;
    let asked: Vec<_> = first.data().into_iter().filter(|chunk| chunk["type"] == "tool-approval-request").collect();
    assert_eq!(asked.len(), 2);
    let part = |asked: &Value| {
        let approval = json!({"id": asked["approvalId"], "approved": true});
        let call = json!({"type": "dynamic-tool", "toolName": "echo", "toolCallId": asked["toolCallId"], "input": {}});
        with(call, &json!({"state": "approval-responded", "approval": approval, "providerExecuted": true}))
    };
    let one = server.post(CHAT, &answered(&gated, json!([part(&asked[0])]))).await;
    assert_eq!(one.status, 200, "{}", one.text);
    let both = json!([part(&asked[0]), part(&asked[1])]);
    let two = server.post(CHAT, &answered(&gated, both.clone())).await;
    assert_eq!((two.said(), server.agent.journal.lock().len()), ("Done.".to_owned(), 2));
    let (status, code, _) = server.post(CHAT, &answered(&gated, both)).await.refused();
    assert_eq!((status, code.as_str()), (409, "run_not_waiting"), "nothing is left to decide");
}

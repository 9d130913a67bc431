//! One run, whichever API is spoken: what is begun through one of them is followed, approved, cancelled and continued
//! through each of the others.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::support::{Gate, Reply, TestServer, Upstream, within};

/// An API by which runs are begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    Chat,
    Agent,
    Responses,
    Messages,
    AiSdk,
    AgUi,
}

const ALL: [Api; 6] = [Api::Chat, Api::Agent, Api::Responses, Api::Messages, Api::AiSdk, Api::AgUi];

impl Api {
    fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Agent => "/v1/agent/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::AiSdk => "/v1/agent/ui",
            Self::AgUi => "/v1/agent/ag-ui",
        }
    }

    /// A streamed request that says this in a session.
    fn says(self, session: &str, text: &str) -> Value {
        let messages = json!([{"role": "user", "content": text}]);
        let agent = json!({"session_id": session, "on_disconnect": "continue"});
        match self {
            Self::Chat | Self::Agent => json!({"model": "test", "messages": messages, "stream": true, "agent": agent}),
            Self::Responses => json!({"model": "test", "input": text, "stream": true, "agent": agent}),
            Self::Messages => {
                json!({"model": "test", "max_tokens": 100, "messages": messages, "stream": true, "agent": agent})
            }
            Self::AiSdk => {
                let parts = json!([{"type": "text", "text": text}]);
                json!({"id": session, "model": "test", "messages": [{"id": "m1", "role": "user", "parts": parts}]})
            }
            Self::AgUi => of_ag_ui(session, &json!({"messages": [{"id": "m1", "role": "user", "content": text}]})),
        }
    }
}

fn of_ag_ui(session: &str, more: &Value) -> Value {
    let mut input = json!({
        "threadId": session, "runId": "r1", "messages": [], "tools": [], "context": [], "state": {},
        "forwardedProps": {"model": "test"},
    });
    for (name, value) in more.as_object().expect("it is an object") {
        input[name] = value.clone();
    }
    input
}

/// A run that was begun, and its answer so far.
struct Begun {
    run: String,
    answer: Response,
}

async fn begin(server: &TestServer, api: Api, session: &str, text: &str) -> Begun {
    let answer = server.respond(server.json(api.path(), &api.says(session, text))).await;
    let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().expect("it is a text").to_owned());
    assert_eq!((answer.status().as_u16(), header("x-loopgate-session-id").as_deref()), (200, Some(session)), "{api:?}");
    Begun { run: header("x-loopgate-run-id").expect("it is named"), answer }
}

/// The id of a run's first response.
fn response_of(run: &str) -> String {
    format!("resp_{}0000", &run["run_".len()..run.len() - 4])
}

async fn rest(answer: Response) -> String {
    within("the rest of a stream", answer.text()).await.expect("it is whole")
}

/// All that the frames of a stream say, whichever of these APIs it is of.
fn said(stream: &str) -> String {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let said = data.map(|data| {
        let event: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
        let places = [&event["delta"], &event["delta"]["text"], &event["choices"][0]["delta"]["content"]];
        places.iter().find_map(|place| place.as_str()).unwrap_or_default().to_owned()
    });
    said.collect()
}

async fn get(server: &TestServer, path: &str) -> String {
    let answer = server.respond(server.request(Method::GET, path)).await;
    assert_eq!(answer.status(), 200, "{path}");
    rest(answer).await
}

#[tokio::test]
async fn a_run_of_each_is_followed_in_every_encoding() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    for api in ALL {
        let gate = Gate::new();
        let reply = Reply::stream().text("One ").gate(&gate).text("run.");
        upstream.then(reply.finish("stop").usage(10, 5).done());
        let session = format!("followed-{api:?}");
        let begun = begin(&server, api, &session, "Hello").await;
        gate.reached().await;
        let encodings = ["native", "extension", "none", "ai-sdk", "ag-ui"];
        let mut paths = encodings.map(|encoding| format!("/v1/runs/{}/events?events={encoding}", begun.run)).to_vec();
        paths.push(format!("/v1/agent/ui/{session}/stream"));
        if api == Api::Responses {
            paths.push(format!("/v1/responses/{}?stream=true", response_of(&begun.run)));
        }
        let mut followed = Vec::new();
        for path in &paths {
            let stream = server.respond(server.request(Method::GET, path)).await;
            assert_eq!(stream.status(), 200, "{api:?} by {path}");
            followed.push(stream);
        }
        gate.open();
        assert_eq!(said(&rest(begun.answer).await), "One run.", "{api:?}");
        for (path, stream) in paths.iter().zip(followed) {
            assert_eq!(said(&rest(stream).await), "One run.", "{api:?} by {path}");
        }
        let report = server.get(&format!("/v1/runs/{}", begun.run)).await.ok();
        assert_eq!((&report["status"], &report["output_text"]), (&json!("completed"), &json!("One run.")), "{report}");
    }
}

#[tokio::test]
async fn a_call_of_each_is_approved_through_each() {
    let upstream = Upstream::start([]).await;
    let gated = "[agents.default]\ntools = [\"calculator\"]\n[agents.default.policy]\nask = [\"calculator\"]\n";
    let server = TestServer::start(&[&upstream.config(), gated].concat()).await;
    for api in ALL {
        for by in [Api::Agent, Api::Responses, Api::AiSdk, Api::AgUi] {
            let which = format!("{api:?}, approved by {by:?}");
            upstream.then(Reply::calls("calculator", &json!({"expression": "6 * 7"})));
            upstream.then(Reply::says("It is 42."));
            let session = format!("approved-{api:?}-{by:?}");
            let begun = begin(&server, api, &session, "What is 6 * 7?").await;
            rest(begun.answer).await;
            let path = format!("/v1/runs/{}", begun.run);
            let waiting = server.get(&path).await.ok();
            assert_eq!(waiting["status"], "requires_action", "{which}: {waiting}");
            let request = approval(&server, by, &begun.run, &session, &waiting).await;
            let decided = server.respond(request).await;
            let status = decided.status();
            let answer = rest(decided).await;
            assert!(status.is_success() && answer.contains("42"), "{which}: {status} {answer}");
            let report = server.get(&path).await.ok();
            assert_eq!(
                (&report["status"], &report["output_text"]),
                (&json!("completed"), &json!("It is 42.")),
                "{which}"
            );
        }
    }
}

/// The request by which a client of this API approves the call with which a run waits, from what that API shows of it.
async fn approval(server: &TestServer, by: Api, run: &str, session: &str, waiting: &Value) -> reqwest::RequestBuilder {
    let call = waiting["agent"]["required_action"]["calls"][0]["call_id"].as_str().expect("a call waits");
    let shown = async |encoding: &str, kind: &str| -> Value {
        let stream = get(server, &format!("/v1/runs/{run}/events?events={encoding}")).await;
        let data = stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        let mut events = data.map(|data| serde_json::from_str::<Value>(data).expect("it is JSON"));
        events.find(|event| event["type"] == kind).unwrap_or_else(|| panic!("{kind} is not in {stream}"))
    };
    match by {
        Api::Chat | Api::Agent | Api::Messages => {
            let decision = json!({"approvals": [{"call_id": call, "decision": "approve"}]});
            server.json(&format!("/v1/runs/{run}/approvals"), &decision)
        }
        Api::Responses => {
            let id = call.replace("call_", "mcpr_");
            let decision = json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": true});
            server.json(by.path(), &json!({"model": "test", "conversation": session, "input": [decision]}))
        }
        Api::AiSdk => {
            let asked = shown("ai-sdk", "tool-approval-request").await;
            let approval = json!({"id": asked["approvalId"], "approved": true});
            let part = json!({
                "type": "dynamic-tool", "toolName": "calculator", "toolCallId": asked["toolCallId"], "input": {},
                "state": "approval-responded", "approval": approval, "providerExecuted": true,
            });
            let messages = json!([{"id": "a1", "role": "assistant", "parts": [part]}]);
            server.json(by.path(), &json!({"id": session, "model": "test", "messages": messages}))
        }
        Api::AgUi => {
            let finished = shown("ag-ui", "RUN_FINISHED").await;
            let id = &finished["outcome"]["interrupts"][0]["id"];
            let yes = json!({"interruptId": id, "status": "resolved", "payload": {"approved": true}});
            server.json(by.path(), &of_ag_ui(session, &json!({"resume": [yes]})))
        }
    }
}

#[tokio::test]
async fn a_run_of_each_is_cancelled_by_its_id_and_by_its_session() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    for api in ALL {
        // Only what was asked for as a response is one.
        let ways: &[_] = if api == Api::Responses { &["runs", "sessions", "responses"] } else { &["runs", "sessions"] };
        for of in ways {
            let gate = Gate::new();
            upstream.then(Reply::stream().text("One ").gate(&gate).text("run.").finish("stop").done());
            let session = format!("cancelled-{api:?}-{of}");
            let begun = begin(&server, api, &session, "Hello").await;
            gate.reached().await;
            let id = match *of {
                "runs" => begun.run.clone(),
                "sessions" => session,
                _ => response_of(&begun.run),
            };
            server.post(&format!("/v1/{of}/{id}/cancel"), &json!({})).await.ok();
            let answer = rest(begun.answer).await;
            assert_eq!(said(&answer), "One ", "{api:?} by {of}: {answer}");
            let report = server.get(&format!("/v1/runs/{}", begun.run)).await.ok();
            assert_eq!(report["status"], "cancelled", "{api:?} by {of}: {report}");
            gate.open();
        }
    }
}

#[tokio::test]
async fn a_session_of_each_goes_on_through_each() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    for first in ALL {
        for second in ALL {
            let session = format!("goes-on-{first:?}-{second:?}");
            upstream.then(Reply::says("I am here."));
            rest(begin(&server, first, &session, "Where are you?").await.answer).await;
            upstream.then(Reply::says("Still."));
            let answer = rest(begin(&server, second, &session, "And now?").await.answer).await;
            assert_eq!(said(&answer), "Still.", "{first:?}, then {second:?}");
            let asked = upstream.requests().pop().expect("it was asked");
            let texts: Vec<_> =
                asked["messages"].as_array().expect("they are a list").iter().map(|m| &m["content"]).collect();
            assert_eq!(texts, ["Where are you?", "I am here.", "And now?"], "{first:?}, then {second:?}");
        }
    }
}

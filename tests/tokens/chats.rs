//! Chat interfaces whose page has a token: the AI SDK's and AG-UI's.

use reqwest::Method;
use serde_json::{Value, json};

use super::{config, get, in_session, is, post, send, start, token, with};
use crate::support::sse::read_to;
use crate::support::{Gate, Reply, TestServer, ToolServer, Upstream, within};

const UI: &str = "/v1/agent/ui";
const AG_UI: &str = "/v1/agent/ag-ui";

const POLICY: &str = r#"
    [agents.booker]
    model = "test"
    tools = ["book"]

    [agents.booker.policy]
    ask = ["book"]
"#;

fn chat(id: &str, text: &str) -> Value {
    json!({"id": id, "model": "test",
           "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": text}]}]})
}

fn thread(id: &str, text: &str) -> Value {
    json!({"threadId": id, "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": text}],
           "forwardedProps": {"model": "test"}})
}

/// The text of a stream that was answered with 200.
async fn streamed(server: &TestServer, shown: &str, path: &str, body: &Value) -> String {
    let response = server.respond(server.json(path, body).bearer_auth(shown)).await;
    assert_eq!(response.status(), 200);
    within("the whole stream", response.text()).await.expect("the stream is whole")
}

#[tokio::test]
async fn a_chat_of_a_token_is_its_session_for_its_user_and_no_other() {
    let upstream = Upstream::start([Reply::says("One."), Reply::says("Two.")]).await;
    let server = start(&config(&upstream), None).await;
    let asked = with(in_session("mine", &["follow", "start"]), &json!({"user": "ada"}));
    let (token, _) = token(&server, &asked).await;
    assert!(streamed(&server, &token, UI, &chat("mine", "Hi")).await.contains("One."));
    assert!(streamed(&server, &token, AG_UI, &thread("mine", "And?")).await.contains("Two."));
    let users = upstream.requests().iter().map(|request| request["user"].clone()).collect::<Vec<_>>();
    assert_eq!(users, ["ada", "ada"], "the token says for whom a run is");
    let messages = get(&server, &token, "/v1/sessions/mine/messages").await.ok();
    assert_eq!(messages["data"].as_array().map(Vec::len), Some(4), "both are one conversation: {messages}");

    is(&post(&server, &token, UI, &chat("other", "Hi")).await, 403, "forbidden");
    is(&post(&server, &token, AG_UI, &thread("other", "Hi")).await, 403, "forbidden");
    is(&get(&server, &token, "/v1/agent/ui/other/stream").await, 404, "session_not_found");
    assert_eq!(get(&server, &token, "/v1/agent/ui/mine/stream").await.status, 204);
    assert_eq!(upstream.requests().len(), 2, "what was refused was not asked");
}

#[tokio::test]
async fn a_chat_of_a_token_asks_for_nothing_that_only_a_key_decides() {
    let upstream = Upstream::start([]).await;
    let server = start(&config(&upstream), None).await;
    let (token, _) = token(&server, &in_session("mine", &["start"])).await;
    for options in [
        json!({"policy": {"ask": []}}),
        json!({"limits": {"max_iterations": 99}}),
        json!({"prompt": {"layers": []}}),
        json!({"guards": {}}),
    ] {
        let name = options.as_object().and_then(|options| options.keys().next()).expect("there is one").clone();
        let refused = post(&server, &token, UI, &with(chat("mine", "Hi"), &json!({"agent": options}))).await;
        is(&refused, 403, "forbidden");
        assert_eq!(refused.body["error"]["param"], format!("agent.{name}"), "{}", refused.body);
        let props = json!({"forwardedProps": {"model": "test", "agent": options}});
        let refused = post(&server, &token, AG_UI, &with(thread("mine", "Hi"), &props)).await;
        is(&refused, 403, "forbidden");
        assert_eq!(refused.body["error"]["param"], format!("forwardedProps.agent.{name}"), "{}", refused.body);
    }
    let context = json!({"context": [{"description": "who", "value": "an admin"}]});
    is(&post(&server, &token, AG_UI, &with(thread("mine", "Hi"), &context)).await, 403, "forbidden");
    for (path, body) in [(UI, chat("mine", "Hi")), (AG_UI, thread("mine", "Hi"))] {
        let request = server.json(path, &body).bearer_auth(&token).header("x-loopgate-agent", r#"{"limits": {}}"#);
        is(&server.send(request).await, 403, "forbidden");
    }
    assert!(upstream.requests().is_empty());
}

/// What the AI SDK sends when its user decides.
#[tokio::test]
async fn a_chat_decides_calls_where_its_token_may_approve() {
    let upstream = Upstream::start([Reply::calls("book", &json!({"note": "7"})), Reply::says("Booked.")]).await;
    let tools = ToolServer::start([Reply::plain("done")]).await;
    let server = start(&[&config(&upstream), &tools.config("book", "write"), POLICY].concat(), None).await;
    let (starter, _) = token(&server, &in_session("mine", &["start"])).await;
    let (approver, _) = token(&server, &in_session("mine", &["start", "approve"])).await;
    let (other, _) = token(&server, &in_session("other", &["start", "approve"])).await;
    let ask = with(chat("mine", "Book it"), &json!({"model": "booker"}));
    let text = streamed(&server, &starter, UI, &ask).await;
    let chunks = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let request = chunks.into_iter().find(|chunk| chunk["type"] == "tool-approval-request").expect("it is asked for");
    let decided = |id: &str| {
        let part = json!({"type": "dynamic-tool", "toolName": "book", "toolCallId": request["toolCallId"],
                          "state": "approval-responded", "approval": {"id": request["approvalId"], "approved": true}});
        json!({"id": id, "model": "booker",
               "messages": [{"id": "m2", "role": "assistant", "parts": [{"type": "step-start"}, part]}]})
    };
    is(&post(&server, &starter, UI, &decided("mine")).await, 403, "forbidden");
    is(&post(&server, &other, UI, &decided("other")).await, 404, "run_not_found");
    assert_eq!(tools.calls().len(), 0, "nothing is done before it is approved");
    assert!(streamed(&server, &approver, UI, &decided("mine")).await.contains("Booked."));
    assert_eq!(tools.calls().len(), 1);
}

#[tokio::test]
async fn a_page_joins_the_run_of_its_chat_after_a_reload() {
    let gate = Gate::new();
    let held = Reply::stream().text("Half ").gate(&gate).text("whole.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held]).await;
    let server = start(&config(&upstream), None).await;
    let (follower, _) = token(&server, &in_session("mine", &["follow", "start"])).await;
    let (starter, _) = token(&server, &in_session("mine", &["start"])).await;
    let asking = server.respond(server.json(UI, &chat("mine", "Hi")).bearer_auth(&follower));
    let mut first = asking.await;
    read_to(&mut first, "Half ").await;
    drop(first);
    is(&get(&server, &starter, "/v1/agent/ui/mine/stream").await, 403, "forbidden");
    let joining = server.request(Method::GET, "/v1/agent/ui/mine/stream").bearer_auth(&follower);
    let mut joined = server.respond(joining).await;
    assert_eq!(joined.status(), 200);
    let half = read_to(&mut joined, "Half ").await;
    gate.open();
    let rest = within("the rest", joined.text()).await.expect("the stream is whole");
    assert!(half.contains("\"start\"") && rest.contains("whole.") && rest.contains("[DONE]"), "{half}{rest}");
}

/// AG-UI sends the whole thread with each message, also the result that a run got which failed and is kept no more.
#[tokio::test]
async fn a_thread_of_a_token_goes_on_after_its_runs_are_gone() {
    let weather = json!([{"name": "weather", "description": "", "parameters": {"type": "object"}}]);
    let upstream =
        Upstream::start([Reply::calls("weather", &json!({})), Reply::error(400, "no", "no"), Reply::says("Yes.")])
            .await;
    let server = start(&config(&upstream), None).await;
    let (token, _) = token(&server, &in_session("mine", &["start"])).await;
    let sends = |messages: &Value| with(thread("mine", "Go"), &json!({"tools": weather, "messages": messages}));
    let ask = json!({"id": "m1", "role": "user", "content": "Weather?"});
    let first = server.respond(server.json(AG_UI, &sends(&json!([ask]))).bearer_auth(&token)).await;
    let run = first.headers()["x-loopgate-run-id"].to_str().expect("it is plain").to_owned();
    let text = within("the whole stream", first.text()).await.expect("the stream is whole");
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let called = events.into_iter().find(|event| event["type"] == "TOOL_CALL_START").expect("it is called");
    let call =
        json!({"id": called["toolCallId"], "type": "function", "function": {"name": "weather", "arguments": "{}"}});
    let made = json!({"id": "a1", "role": "assistant", "toolCalls": [call]});
    let result = json!({"id": "t1", "role": "tool", "toolCallId": called["toolCallId"], "content": "rain"});
    assert!(streamed(&server, &token, AG_UI, &sends(&json!([ask, made, result]))).await.contains("RUN_ERROR"));

    // What is kept of a session expires with it, and so do its runs.
    let deleted = send(&server, "WEB", Method::DELETE, "/v1/sessions/mine", None).await;
    assert!((200..300).contains(&deleted.status), "{}", deleted.body);
    is(&get(&server, "WEB", &format!("/v1/runs/{run}")).await, 404, "run_not_found");
    let more = json!({"id": "m2", "role": "user", "content": "Still?"});
    let next = sends(&json!([ask, made, result, more]));
    assert!(streamed(&server, &token, AG_UI, &next).await.contains("Yes."));
}

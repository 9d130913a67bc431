//! The test bed itself keeps what it promises: a fault that it cannot make would test nothing.

#[cfg(test)]
mod proxy;

use reqwest::{Client, Response};
use serde_json::{Value, json};

use super::{Answer, Frame, Gate, Reply, ToolServer, Upstream, within};

async fn post(url: &str, body: &Value) -> reqwest::Result<Response> {
    let client = Client::builder().no_proxy().build()?;
    within("an answer", client.post(url).body(body.to_string()).send()).await
}

fn completions(upstream: &Upstream) -> String {
    let config = upstream.config();
    let base = config.split('"').nth(1).expect("it names its address").to_owned();
    format!("{base}/chat/completions")
}

fn request() -> Value {
    json!({
        "model": "test", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
    })
}

#[tokio::test]
async fn replies_come_in_order_and_whole() {
    let replies = [Reply::says("Hello"), Reply::error(429, "slow_down", "Slow down").header("retry-after", "1")];
    let upstream = Upstream::start(replies).await;
    upstream.then(Reply::calls("add", &json!({"a": 1})));
    let body = post(&completions(&upstream), &request()).await.unwrap().text().await.unwrap();
    assert!(body.contains(r#""content":"Hello""#) && body.ends_with("data: [DONE]\n\n"), "{body}");
    let refused = post(&completions(&upstream), &request()).await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    let refused = Answer::read(refused).await;
    assert_eq!((refused.status, &refused.body["error"]["code"]), (429, &json!("slow_down")));
    let body = post(&completions(&upstream), &request()).await.unwrap().text().await.unwrap();
    assert!(body.contains(r#""arguments":"{\"a""#) && body.contains(r#""arguments":"\":1}""#), "{body}");
    assert_eq!(upstream.received(3).await.len(), 3);
    assert_eq!(upstream.requests(), [request(), request(), request()]);
}

#[tokio::test]
async fn bodies_break_where_they_are_told_to() {
    let whole = Reply::says("Hello");
    let upstream = Upstream::start([whole.clone().cut_after(40), whole.reset()]).await;
    let mut cut = post(&completions(&upstream), &request()).await.unwrap();
    let mut body = Vec::new();
    let broken = loop {
        match cut.chunk().await {
            Ok(Some(bytes)) => body.extend_from_slice(&bytes),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert_eq!((body.len(), broken), (40, true));
    // How much of it still arrives before a reset is a matter of luck.
    let reset = async { post(&completions(&upstream), &request()).await?.text().await };
    reset.await.expect_err("the connection was reset");
}

#[tokio::test]
async fn a_gate_holds_the_rest_back() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().text("a").gate(&gate).reasoning("b").stall()]).await;
    let mut reply = post(&completions(&upstream), &request()).await.unwrap();
    gate.reached().await;
    let mut body = String::new();
    while !body.contains(r#""content":"a""#) {
        body.push_str(&String::from_utf8_lossy(&reply.chunk().await.unwrap().unwrap()));
    }
    assert!(!body.contains("reasoning"), "{body}");
    gate.open();
    let rest = reply.chunk().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&rest).contains(r#""reasoning_content":"b""#));
    let stalled = tokio::time::timeout(std::time::Duration::from_millis(50), reply.chunk()).await;
    stalled.expect_err("nothing more comes");
}

#[tokio::test]
async fn the_upstream_judges_requests() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let calls =
        |ids: &[&str]| json!({"role": "assistant", "tool_calls": ids.iter().map(|id| call(id)).collect::<Value>()});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
    let user = json!({"role": "user", "content": "hi"});
    let faults = |messages: Value| {
        let mut request = request();
        request["messages"] = messages;
        super::upstream::faults(&request)
    };
    assert!(faults(json!([user, calls(&["a", "b"]), result("b"), result("a"), user])).is_empty());
    for (messages, fault) in [
        (json!([]), "no messages"),
        (json!([user, calls(&["a"]), user]), "before the calls"),
        (json!([user, calls(&["a"])]), "not answered"),
        (json!([user, result("a")]), "no open call"),
        (json!([user, calls(&["a"]), result("a"), result("a")]), "no open call"),
        (json!([user, calls(&["a"]), result("a"), calls(&["a"]), result("a")]), "used twice"),
    ] {
        let found = faults(messages);
        assert!(found.len() == 1 && found[0].contains(fault), "{fault}: {found:?}");
    }
    let bare = super::upstream::faults(&json!({"messages": [user], "tools": []}));
    assert_eq!(bare.len(), 3, "{bare:?}");
}

#[tokio::test]
#[should_panic(expected = "no reply is left")]
async fn an_unscripted_request_fails_the_test() {
    let upstream = Upstream::start([]).await;
    let answer = Answer::read(post(&completions(&upstream), &request()).await.unwrap()).await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn tools_keep_a_journal() {
    let tools = ToolServer::start([Reply::plain("x".repeat(1 << 20))]).await;
    tools.then(Reply::status(500).stall());
    let config = tools.config("note", "write");
    let url = config.split('"').find(|part| part.starts_with("http")).expect("it names its address").to_owned();
    assert_eq!(post(&url, &json!({"note": "1"})).await.unwrap().text().await.unwrap().len(), 1 << 20);
    assert_eq!(post(&url, &json!({"note": "2"})).await.unwrap().status(), 500);
    assert_eq!(post(&url, &json!({"note": "3"})).await.unwrap().text().await.unwrap(), "ok");
    let calls = tools.called(3).await;
    let seen: Vec<_> = calls.iter().map(|call| (call.method.as_str(), call.target.as_str(), call.json())).collect();
    assert_eq!(seen[1], ("POST", "/note", json!({"note": "2"})));
    assert_eq!(tools.calls().len(), 3);
}

#[tokio::test]
async fn streams_are_read_strictly() {
    async fn read(body: &str) -> Vec<Frame> {
        let stream = Reply::status(200).header("content-type", "text/event-stream");
        let stream = stream.header("cache-control", "no-cache").header("x-accel-buffering", "no");
        let tools = ToolServer::start([stream.bytes(body)]).await;
        let url = tools.config("t", "read").split('"').find(|part| part.starts_with("http")).unwrap().to_owned();
        super::SseReader::new(post(&url, &Value::Null).await.unwrap()).rest().await
    }
    let whole = ": hi\n\nid: 1\nevent: a\ndata: {\"type\":\"a\",\"seq\":1}\n\nid: 2\ndata: \
                 {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";
    let frames = read(whole).await;
    assert_eq!(super::sse::outline(&frames), "a text");
    assert_eq!(super::sse::text_of(&frames), "x");
    for (bad, complaint) in [
        ("id: 1\ndata: {}\n\n", "broke off"),
        ("id: 1\ndata: {}\n\nid: 3\ndata: {}\n\ndata: [DONE]\n\n", "gap"),
        ("id: 1\nid: 1\ndata: {}\n\ndata: [DONE]\n\n", "twice"),
        ("id: 1\n\ndata: [DONE]\n\n", "without data"),
        ("data: {}\r\n\ndata: [DONE]\n\n", "CR"),
        ("retry: 1\n\ndata: [DONE]\n\n", "unknown field"),
        ("data:{}\n\ndata: [DONE]\n\n", "name: value"),
        ("event: a\ndata: {\"type\":\"b\"}\n\ndata: [DONE]\n\n", "differ"),
        ("data: [DONE]\n\ndata: {}\n\n", "follows [DONE]"),
    ] {
        let mut reading = tokio::task::JoinSet::new();
        reading.spawn(read(bad));
        let panic = reading.join_next().await.expect("it was spawned").expect_err(bad).into_panic();
        let message = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        assert!(message.is_some_and(|message| message.contains(complaint)), "{bad:?}: {message:?}");
    }
}

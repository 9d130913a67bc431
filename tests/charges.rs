//! What clients are told, and charged, when an upstream does not do what it was asked.

use serde_json::{Value, json};

use crate::support::{Frame, Reply, SseReader, TestServer, Upstream};

const DOORS: [&str; 2] = ["/v1/agent/completions", "/v1/chat/completions"];

fn ask() -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 300})
}

/// A model that may say far more than it does is allowed no more than one that may not, so that budgets have room for
/// others.
#[tokio::test]
async fn no_more_output_is_reserved_than_an_answer_has_unless_the_caller_asks_for_more() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let model = "[models.test]\nmax_output_tokens = 100000\ncontext_window = 400000\n";
    let server = TestServer::start(&format!("{}{model}", upstream.config())).await;
    for (asked, bound) in [(None, 8_192), (Some(20_000), 20_000), (Some(200_000), 100_000)] {
        let mut request = ask();
        request["max_tokens"] = json!(asked);
        request["agent"] = json!({"limits": {"token_budget": 1_000_000}});
        server.post(DOORS[0], &request).await.ok();
        let sent = upstream.requests().pop().expect("it was asked");
        let sent = sent["max_tokens"].as_u64().or(sent["max_completion_tokens"].as_u64());
        assert_eq!(sent, Some(bound), "asked for {asked:?}");
    }
}

/// Retries of the server's and of a client library's would multiply.
#[tokio::test]
async fn a_client_is_told_not_to_repeat_what_the_server_has_repeated() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::error(503, "busy", "later").header("retry-after-ms", "1"));
    for (asked, door) in DOORS.into_iter().enumerate() {
        // Another one each time, which does not know yet that the upstream is down.
        let server = TestServer::start(&upstream.config()).await;
        let answer = server.post(door, &ask()).await;
        assert_eq!((answer.status, answer.header("x-should-retry")), (502, "false"), "{}", answer.body);
        assert_eq!(upstream.requests().len(), 4 * (asked + 1));
    }
}

/// It cannot be passed on, and the same request would be answered, and paid for, alike.
#[tokio::test]
async fn an_answer_in_audio_alone_is_told_as_such_and_asked_for_once() {
    for door in DOORS {
        let upstream = Upstream::start([Reply::stream().audio("Hello").finish("stop").usage(10, 5).done()]).await;
        let server = TestServer::start(&upstream.config()).await;
        let answer = server.post(door, &ask()).await;
        assert_eq!((answer.status, answer.code()), (502, "provider_error"), "{}", answer.body);
        assert!(answer.body["error"]["message"].as_str().is_some_and(|why| why.contains("in audio alone")));
        assert_eq!((answer.header("x-should-retry"), upstream.requests().len()), ("false", 1));
    }
}

/// A client that adds up what it shows must not be led astray by a part that is more than the whole.
#[tokio::test]
async fn no_more_tokens_are_cached_or_thought_than_there_are() {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": u64::MAX},
        "completion_tokens_details": {"reasoning_tokens": u64::MAX}});
    let event = format!("data: {}\n\n", json!({"choices": [], "usage": usage}));
    let upstream = Upstream::start([Reply::stream().text("Hello").finish("stop").bytes(event).done()]).await;
    let server = TestServer::start(&upstream.config()).await;
    let mut request = ask();
    request["agent"] = json!({"session_id": "s"});
    let usage = server.post(DOORS[0], &request).await.ok()["usage"].clone();
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(10), &json!(5)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 10);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 5);
    let mut exported = server.get("/v1/sessions/s/export").await.ok();
    exported["id"] = "copy".into();
    assert_eq!(server.post("/v1/sessions/import", &exported).await.status, 201, "what was exported is imported");
}

/// A gateway that gives up has let its model work until then. Who asks again pays again.
#[tokio::test]
async fn what_an_upstream_may_have_worked_on_before_it_failed_is_charged_each_time() {
    for status in [500, 502, 504, 520, 524] {
        let failing = || Reply::error(status, "oops", "later").header("retry-after-ms", "1");
        let upstream = Upstream::start([failing(), Reply::says("Hello")]).await;
        let server = TestServer::start(&upstream.config()).await;
        let mended = server.post(DOORS[0], &ask()).await.ok();
        let prompt = |usage: &Value| usage["prompt_tokens"].as_u64().unwrap_or_default();
        let once = prompt(&mended["usage"]) - 10;
        assert!(once > 0, "{status}: the first attempt is charged its input: {mended}");
        assert_eq!(mended["usage"]["estimated"], true, "{status}: {mended}");

        upstream.otherwise(failing());
        let failed = server.post(DOORS[0], &ask()).await;
        assert_eq!((failed.status, failed.header("x-should-retry")), (502, "false"), "{status}: {}", failed.body);
        assert_eq!(upstream.requests().len(), 2 + 4, "{status}");
        let run = server.get(&format!("/v1/runs/{}", failed.header("x-loopgate-run-id"))).await.ok();
        assert_eq!(prompt(&run["usage"]), 4 * once, "{status}: {run}");
    }
}

/// So says the upstream: it has not worked on them.
#[tokio::test]
async fn what_an_upstream_refuses_to_work_on_is_not_charged() {
    for status in [400, 404, 429, 503, 529] {
        let refusal = Reply::error(status, "busy", "later").header("retry-after-ms", "1");
        let upstream = Upstream::start([]).await;
        upstream.otherwise(refusal);
        let server = TestServer::start(&upstream.config()).await;
        let failed = server.post(DOORS[0], &ask()).await;
        let run = server.get(&format!("/v1/runs/{}", failed.header("x-loopgate-run-id"))).await.ok();
        assert_eq!(run["usage"]["total_tokens"], 0, "{status}: {run}");
    }
}

#[tokio::test]
async fn an_upstream_that_works_longer_than_it_may_is_asked_once_and_its_input_is_charged() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::stream().stall());
    let config = upstream.config() + "first_byte_timeout = \"200ms\"\nidle_timeout = \"200ms\"\n";
    let server = TestServer::start(&config).await;
    let answer = server.post(DOORS[0], &ask()).await;
    assert_eq!((answer.status, answer.header("x-should-retry")), (504, "false"), "{}", answer.body);
    assert_eq!(upstream.requests().len(), 1);
    let run = server.get(&format!("/v1/runs/{}", answer.header("x-loopgate-run-id"))).await.body;
    assert!(run["usage"]["prompt_tokens"].as_u64() > Some(0), "{run}");
    assert_eq!(run["usage"]["estimated"], true, "{run}");
}

/// A model that answers `Paying.`, calls a tool of the client's, and takes that back with an error.
fn takes_its_call_back() -> Reply {
    let error = json!({"error": {"message": "blocked", "code": "server_error"}});
    let called = Reply::stream().text("Paying.").tool_call(0, "call_upstream", "pay", "{}").finish("tool_calls");
    called.bytes(format!("data: {error}\n\n"))
}

fn ask_for_a_payment() -> Value {
    let tool = json!({"type": "function", "function": {"name": "pay", "parameters": {"type": "object"}}});
    let mut request = ask();
    request["tools"] = json!([tool]);
    request["stream"] = json!(true);
    request
}

#[tokio::test]
async fn an_answer_that_fails_after_its_calls_is_charged_and_void_before_it_is_asked_for_again() {
    let upstream = Upstream::start([takes_its_call_back(), Reply::says("Hello")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let frames = server.stream(DOORS[0], &ask_for_a_payment()).await.rest().await;
    let said = frames.iter().filter_map(|frame| match (frame.name.as_str(), frame.text()) {
        ("step.discarded", _) => Some(frame.json()["reason"].as_str().expect("it has one").to_owned()),
        (_, text) => text.filter(|text| !text.is_empty()),
    });
    assert_eq!(said.collect::<Vec<_>>(), ["Paying.", "stream_broke", "Hello"], "{frames:?}");
    let end = frames.iter().find(|frame| frame.name == "run.completed").expect("it completes").json();
    assert!(end["usage"]["prompt_tokens"].as_u64() > Some(10), "the first answer's input is charged: {end}");
    assert_eq!(end["usage"]["estimated"], true, "{end}");
    assert!(end["agent"]["budget"]["unconfirmed"]["tokens"].as_u64() > Some(0), "{end}");
    assert_eq!(upstream.requests().len(), 2);
}

/// A client of the chat endpoint cannot be told that text is void.
#[tokio::test]
async fn an_answer_that_fails_after_its_calls_is_not_asked_for_again_where_its_text_was_shown() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(takes_its_call_back());
    let server = TestServer::start(&upstream.config()).await;
    let response = server.respond(server.json(DOORS[1], &ask_for_a_payment())).await;
    let run = response.headers()["x-loopgate-run-id"].to_str().expect("it is text").to_owned();
    let frames = SseReader::of_chunks(response).rest().await;
    assert_eq!(frames.iter().filter_map(Frame::text).collect::<String>(), "Paying.", "{frames:?}");
    assert_eq!(upstream.requests().len(), 1);
    let run = server.get(&format!("/v1/runs/{run}")).await.body;
    assert_eq!((&run["usage"]["completion_tokens"], &run["usage"]["estimated"]), (&json!(300), &json!(true)), "{run}");
}

#[tokio::test]
async fn a_run_that_is_cancelled_while_its_upstream_is_down_is_charged_nothing() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::error(503, "busy", "later").header("retry-after", "20"));
    let server = TestServer::start(&upstream.config()).await;
    let mut request = ask();
    request["stream"] = json!(true);
    let mut stream = server.stream(DOORS[0], &request).await;
    let frames = stream.until(|frame| frame.name == "provider.retry").await;
    let run = frames.iter().find(|frame| frame.name == "run.started").expect("it began").json();
    let run = run["run_id"].as_str().expect("it has an id").to_owned();
    server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
    stream.rest().await;
    let run = server.get(&format!("/v1/runs/{run}")).await.ok();
    assert_eq!((&run["status"], &run["usage"]["total_tokens"]), (&json!("cancelled"), &json!(0)), "{run}");
}

//! The model against real sockets, and a scripted upstream that can break every rule.

mod in_one_piece;
mod presets;
mod server;

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::Instant;

use self::server::*;
use super::*;
use crate::config::{HttpUpstream, Secret};
use crate::llm::http::http_client;
use crate::llm::http::list::MAX_LIST;
use crate::llm::http::upstream::MAX_MESSAGE;
use crate::llm::retry::{RetryPolicy, Retrying};
use crate::llm::testing::{self, always_asked};
use crate::llm::{Delta, Extent, ModelErrorKind, ModelTurn, Spent};
use crate::net::testing::nowhere;
use crate::types::tool::WrittenCalls;
use crate::types::{ErrorKind, TurnEnd};

const KEY: &str = "sk-very-secret";
/// A timeout that a test waits for.
const SHORT: Duration = Duration::from_millis(100);
/// One that must not be reached.
const LONG: Duration = Duration::from_secs(20);

fn request() -> ModelRequest {
    ModelRequest {
        max_tokens: Some(10),
        ..testing::request("m", [crate::types::Message::text(crate::types::Role::User, "hi")])
    }
}

/// All deltas of a call but the turn, and how it ended.
async fn ask_with(model: &impl Model, request: ModelRequest) -> (Vec<Delta>, Result<ModelTurn, ModelError>) {
    let (mut stream, mut deltas) = (model.stream(request), Vec::new());
    tokio::time::timeout(LONG, async move {
        loop {
            match stream.next().await {
                Some(Ok(Delta::Finished(turn))) => return (deltas, Ok(*turn)),
                Some(Ok(Delta::Begun)) => {}
                Some(Ok(delta)) => deltas.push(delta),
                Some(Err(error)) => return (deltas, Err(error)),
                None => panic!("the stream just ended after {deltas:?}"),
            }
        }
    })
    .await
    .expect("the model never came to an end")
}

/// Plays one act and asks once.
async fn ask(act: Act, first_byte: Duration, idle: Duration) -> (Vec<Delta>, Result<ModelTurn, ModelError>) {
    let (base_url, _requests) = serve(vec![act]).await;
    ask_with(&model(&base_url, first_byte, idle), request()).await
}

/// Plays one act that must fail: how, and after which text.
async fn fails(act: Act) -> (ModelErrorKind, String, String) {
    fails_within(act, LONG, LONG).await
}

async fn fails_within(act: Act, first_byte: Duration, idle: Duration) -> (ModelErrorKind, String, String) {
    let (deltas, turn) = ask(act, first_byte, idle).await;
    let said = deltas.into_iter().map(|delta| if let Delta::Text(text) = delta { text } else { panic!("{delta:?}") });
    let error = turn.unwrap_err();
    assert!(!error.message.contains(KEY), "{error}");
    (error.kind, error.message, said.collect())
}

#[tokio::test]
async fn an_answer_becomes_deltas_and_a_turn() {
    let (model, requests) = upstream(vec![full_stream()]).await;
    let (deltas, turn) = ask_with(&model, request()).await;
    assert_eq!(deltas, [Delta::Text("hi".to_owned())]);
    let expected = ModelTurn { end: TurnEnd::Stop, ..ModelTurn::of("", "hi", Vec::new()) };
    assert_eq!(turn, Ok(expected));
    assert_eq!(model.written_calls(), WrittenCalls::All);

    let request = requests.await.unwrap().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/chat/completions?v=1 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer sk-very-secret"), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["stream"], &body["max_tokens"]), (&json!(true), &json!(10)));
}

/// Time is paused, so the wait for the end of the body is over only once no task can do anything.
#[tokio::test(start_paused = true)]
async fn a_connection_serves_one_answer_after_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = model(&format!("http://{}/v1", listener.local_addr().unwrap()), LONG, LONG);
    let body = text("hi") + &stop() + "data: [DONE]\n\n";
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n",
        body.len()
    );
    let serve = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        for _ in 0..2 {
            read_request(&mut socket).await;
            socket.write_all(answer.as_bytes()).await.unwrap();
            // The model sees [DONE] before the end of the body is written.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            socket.write_all(b"0\r\n\r\n").await.unwrap();
        }
        socket
    };
    let both = async {
        for _ in 0..2 {
            assert!(ask_with(&model, request()).await.1.is_ok());
        }
    };
    tokio::join!(serve, both);
}

#[tokio::test]
async fn silence_is_a_timeout_wherever_it_falls() {
    let timeout =
        |message: &str, said: &str| (ModelErrorKind::Timeout, format!("upstream test {message}"), said.to_owned());
    let before = timeout("did not begin to answer in time", "");
    for said in [String::new(), stream_head()] {
        assert_eq!(fails_within(Act::Stall(said), SHORT, LONG).await, before, "a head is not an answer");
    }
    let within = timeout("fell silent in the middle of its answer", "hi");
    for act in [Act::Stall, babble] {
        let silent = fails_within(act(stream_head() + &text("hi")), LONG, SHORT).await;
        assert_eq!(silent, within, "comments and empty chunks say nothing");
    }
}

#[tokio::test]
async fn the_deadline_ends_even_a_talkative_answer() {
    let (model, _requests) = upstream(vec![Act::Stall(stream_head() + &text("hi"))]).await;
    let request = ModelRequest { deadline: Instant::now() + SHORT / 4, ..request() };
    let error = ask_with(&model, request).await.1.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert_eq!(error.message, "upstream test had not finished its answer when the time for it was up");
}

#[tokio::test]
async fn an_answer_that_breaks_off_has_failed() {
    for act in [bytes, Act::Reset] {
        let (kind, message, said) = fails(act(stream_head() + &text("hi"))).await;
        assert_eq!(kind, ModelErrorKind::Transient, "{message}");
        assert!(said.is_empty() || said == "hi", "{said}");
    }
    let (kind, message, _) = fails(bytes(stream_head() + &text("hi") + "data: [DONE]\n\n")).await;
    assert_eq!(
        (kind, message.as_str()),
        (ModelErrorKind::Transient, "upstream test ended its answer before it was finished")
    );
    assert_eq!(fails(Act::Reset(String::new())).await.0, ModelErrorKind::Transient);
    assert_eq!(fails(bytes("SSH-2.0-nonsense\r\n\r\n".to_owned())).await.0, ModelErrorKind::Transient);
}

#[tokio::test]
async fn after_the_finish_reason_nothing_can_spoil_the_turn() {
    let said = stream_head() + &text("hi") + &stop();
    let acts = [bytes(said.clone()), Act::Stall(said.clone()), babble(said.clone()), bytes(said + "data: x\n\n")];
    for act in acts {
        assert_eq!(ask(act, LONG, SHORT).await.1.map(|turn| turn.text().into_owned()), Ok("hi".to_owned()));
    }
}

#[tokio::test]
async fn an_error_after_the_finish_reason_takes_the_calls_back() {
    let call = json!({ "index": 0, "id": "a", "function": { "name": "pay", "arguments": "{}" } });
    let called = frame(&json!({ "choices": [{ "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }] }));
    let called = stream_head() + &called;
    let error = frame(&json!({ "error": { "message": "blocked", "code": "server_error" } }));
    for (after, message) in
        [(error.as_str(), "failed: blocked"), ("data: x\n\n", "sent something that is not a chat completion")]
    {
        let failed = ask(bytes(called.clone() + after), LONG, SHORT).await.1.unwrap_err();
        assert_eq!((failed.message, failed.spent), (format!("upstream test {message}"), Spent::Unknown));
    }
    // A connection that only ends says nothing.
    for act in [bytes(called.clone()), Act::Stall(called)] {
        assert_eq!(ask(act, LONG, SHORT).await.1.map(|turn| turn.calls().count()), Ok(1));
    }
}

#[tokio::test]
async fn malformed_data_within_a_stream_is_a_failure() {
    let said = stream_head() + &text("hi");
    let error = frame(&json!({ "error": { "message": format!("cannot use {KEY}"), "code": "server_error" } }));
    let failed = |message: &str| (ModelErrorKind::Transient, format!("upstream test {message}"), "hi".to_owned());
    assert_eq!(fails(bytes(said.clone() + &error)).await, failed("failed: cannot use [key]"));
    assert_eq!(
        fails(bytes(said.clone() + "data: nonsense\n\n")).await,
        failed("sent something that is not a chat completion")
    );
    let huge = Act::Stall(said + ": " + &"x".repeat(2 << 20));
    assert_eq!(fails(huge).await, failed("sent a line of more than 1 MiB"));
}

#[tokio::test]
async fn upstream_refusals_are_classified() {
    let limited = r#"{"error":{"message":"slow down","type":"tokens","code":"rate_limit_exceeded"}}"#;
    let error = ask(answer("429 Too Many Requests", "retry-after: 7\r\n", limited), LONG, LONG).await.1.unwrap_err();
    let expected = ModelError {
        kind: ModelErrorKind::Transient,
        message: "upstream test answered 429: slow down".to_owned(),
        status: Some(429),
        retry_after: Some(Duration::from_secs(7)),
        spent: Spent::Nothing,
        extent: Extent::Model,
        usage: None,
        refuses_reasoning: false,
        told: None,
    };
    assert_eq!(error, expected);

    let quoting = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}"#);
    let (kind, message, _) = fails(answer("401 Unauthorized", "", &quoting)).await;
    assert_eq!((kind, message.as_str()), (ModelErrorKind::Rejected, "upstream test refused our key"));
    let (kind, message, _) = fails(answer("400 Bad Request", "", &quoting)).await;
    let redacted = "upstream test answered 400: Incorrect API key provided: [key]";
    assert_eq!((kind, message.as_str()), (ModelErrorKind::Rejected, redacted));

    let long = format!(r#"{{"error":{{"message":"context window {}"}}}}"#, "ä".repeat(20_000));
    let (kind, message, _) = fails(answer("400 Bad Request", "", &long)).await;
    assert_eq!((kind, message.chars().count()), (ModelErrorKind::ContextLength, MAX_MESSAGE + 1));

    let (kind, message, _) = fails(answer("307 Temporary Redirect", "location: http://127.0.0.1:1/\r\n", "")).await;
    assert_eq!(kind, ModelErrorKind::Rejected, "{message}");
    let (kind, message, _) = fails(answer("200 OK", "content-type: text/html\r\n", "<html>")).await;
    assert_eq!(kind, ModelErrorKind::Rejected, "{message}");
    // A body that never comes does not keep the status from counting.
    let stalled = Act::Stall("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\n".to_owned());
    let expected = "upstream test answered 503 Service Unavailable";
    assert_eq!(fails(stalled).await, (ModelErrorKind::Transient, expected.to_owned(), String::new()));
}

#[tokio::test]
async fn an_unreachable_upstream_is_a_transient_failure() {
    let address = nowhere().await;
    let error = ask_with(&model(&format!("http://{address}/secret-path"), LONG, LONG), request()).await.1.unwrap_err();
    assert_eq!((error.kind, error.spent), (ModelErrorKind::Transient, Spent::Nothing));
    assert!(error.message.starts_with("upstream test cannot be reached: "), "{error}");
    assert!(!error.message.contains("secret-path"), "{error}");
}

#[tokio::test]
async fn a_failure_before_the_first_token_is_retried() {
    let broken = answer("503 Service Unavailable", "retry-after-ms: 1\r\n", "{\"error\":{\"message\":\"oops\"}}");
    let (model, requests) = upstream(vec![broken, full_stream()]).await;
    let (deltas, turn) =
        ask_with(&Retrying::new(Arc::new(model), RetryPolicy::default(), always_asked()), request()).await;
    let retry = Delta::Retry {
        attempt: 1,
        delay: Duration::from_millis(1),
        kind: ErrorKind::UpstreamUnavailable,
        cause: "upstream test answered 503: oops".to_owned(),
    };
    assert_eq!(deltas, [retry, Delta::Text("hi".to_owned())]);
    assert_eq!(turn.map(|turn| turn.text().into_owned()), Ok("hi".to_owned()));
    let requests = requests.await.unwrap();
    assert_eq!(requests[0], requests[1]);
}

#[tokio::test]
async fn an_upstream_that_does_not_stream_is_understood() {
    let completion = json!({
        "choices": [{ "message": { "role": "assistant", "content": "hi" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 2 },
    });
    let (deltas, turn) =
        ask(answer("200 OK", "content-type: application/json\r\n", &completion.to_string()), LONG, LONG).await;
    assert_eq!(deltas, [Delta::Text("hi".to_owned())]);
    assert_eq!(turn.unwrap().usage.map(|usage| usage.total()), Some(3));

    let (kind, message, _) = fails(answer("200 OK", "content-type: application/json\r\n", "{}")).await;
    assert_eq!(kind, ModelErrorKind::Transient, "{message}");
    let error = r#"{"error":{"message":"no","type":"invalid_request_error"}}"#;
    let (kind, _, _) = fails(answer("200 OK", "content-type: application/json\r\n", error)).await;
    assert_eq!(kind, ModelErrorKind::Rejected);
    let endless =
        Act::Stall(format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{}", " ".repeat(9 << 20)));
    assert_eq!(fails(endless).await.1, "upstream test said more than 8 MiB in one turn");
}

#[tokio::test]
async fn models_are_listed() {
    let list = |body: &'static str| async move {
        let (model, requests) = upstream(vec![answer("200 OK", "", body)]).await;
        let listed = model.list_models().await;
        let request = requests.await.unwrap().remove(0);
        assert!(request.starts_with("GET /v1/models?v=1 HTTP/1.1\r\n"), "{request}");
        listed
    };
    let listed = list(r#"{"object":"list","data":[{"id":"a","object":"model"},{"id":"b"}]}"#).await;
    assert_eq!(listed, Ok(vec!["a".into(), "b".into()]));
    assert_eq!(list(r#"[{"id":"a","type":"chat"},{"id":"b"}]"#).await, Ok(vec!["a".into(), "b".into()]));
    assert_eq!(list(r#"{"data":null}"#).await, Ok(vec![]));
    assert_eq!(list(r#"[{"name":"a"}]"#).await.unwrap_err().kind, ModelErrorKind::Rejected);
    assert_eq!(list("nonsense").await.unwrap_err().kind, ModelErrorKind::Rejected);

    let (model, _requests) = upstream(vec![answer("401 Unauthorized", "", "")]).await;
    assert_eq!(model.list_models().await.unwrap_err().message, "upstream test refused our key");
    let huge = "x".repeat(MAX_LIST + 1);
    let (model, _requests) = upstream(vec![answer("200 OK", "", &huge)]).await;
    assert_eq!(model.list_models().await.unwrap_err().message, "upstream test lists its models in more than 1 MiB");
}

#[test]
fn bad_settings_are_refused_and_the_key_is_not_shown() {
    let config = OpenAiUpstream {
        http: http("https://api.openai.com/v1"),
        written_calls: WrittenCalls::None,
        pass_unknown_members: false,
        ask_in_one_piece: false,
        chat: ChatManner::OPENAI,
        provider: None,
        key_header: None,
        api_version: None,
    };
    let at = |base_url: &str| OpenAiUpstream { http: http(base_url), ..config.clone() };
    let client = http_client(SHORT).unwrap();
    assert!(!format!("{config:?}").contains(KEY));
    let model = OpenAiModel::new("test", &config, client.clone()).unwrap();
    assert!(!format!("{model:?}").contains(KEY));

    assert_eq!(OpenAiModel::new("test", &at("ftp://x"), client.clone()).unwrap_err(), UpstreamError::BaseUrl);
    let mut keyed = config;
    keyed.http.api_keys = vec![Secret::new("a\nb")];
    assert_eq!(OpenAiModel::new("test", &keyed, client).unwrap_err(), UpstreamError::ApiKey);
}

#[tokio::test]
async fn what_a_failed_call_may_have_cost_is_known() {
    let spent = async |act| ask(act, SHORT, SHORT).await.1.unwrap_err().spent;
    assert_eq!(spent(answer("503 Service Unavailable", "", "")).await, Spent::Nothing);
    assert_eq!(spent(answer("504 Gateway Timeout", "", "")).await, Spent::Input);
    assert_eq!(spent(Act::Stall(String::new())).await, Spent::Input, "it did not begin to answer in time");
    assert_eq!(spent(bytes(String::new())).await, Spent::Input, "it closed the connection");
    let begun = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: hello\n\n".to_owned();
    assert_eq!(spent(Act::Stall(begun.clone())).await, Spent::Unknown);
    assert_eq!(spent(bytes(begun)).await, Spent::Unknown);
    assert_eq!(spent(answer("200 OK", "content-encoding: gzip\r\n", "x")).await, Spent::Unknown);
}

/// A server that closes a fresh connection without a word cannot be there yet: asked at once again and again, it would be
/// paid for an input each time and never come back meanwhile.
#[tokio::test]
async fn a_request_that_was_sent_is_not_repeated_here_but_at_once_by_the_caller_if_its_connection_had_been_kept() {
    let completion = json!({ "choices": [{ "message": { "content": "hi" }, "finish_reason": "stop" }] }).to_string();
    let whole = || answer("200 OK", "content-type: application/json\r\n", &completion);
    for (acts, is_at_once) in [(vec![bytes(String::new())], false), (vec![whole(), bytes(String::new())], true)] {
        let count = acts.len();
        let (address, requests) = crate::net::testing::serve([acts]).await;
        let model = model(&format!("http://{address}/v1"), LONG, LONG);
        let model = Retrying::new(Arc::new(model), RetryPolicy::default(), always_asked());
        for _ in 1..count {
            ask_with(&model, request()).await.1.unwrap();
        }
        let error = ask_with(&model, request()).await.1.unwrap_err();
        assert_eq!(error.retry_after.map(|pause| pause < SHORT), is_at_once.then_some(true), "{error:?}");
        assert_eq!((error.kind, error.spent), (ModelErrorKind::Transient, Spent::Input));
        assert_eq!(requests.await.unwrap().len(), count);
    }
}

//! What clients are told, and charged, when an upstream does not do what it was asked.

use serde_json::{Value, json};

use crate::support::{Reply, TestServer, Upstream};

const DOORS: [&str; 2] = ["/v1/agent/completions", "/v1/chat/completions"];

fn ask() -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 300})
}

/// Retries of the server's and of a client library's would multiply.
#[tokio::test]
async fn a_client_is_told_not_to_repeat_what_the_server_has_repeated() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::error(503, "busy", "later").header("retry-after-ms", "1"));
    let server = TestServer::start(&upstream.config()).await;
    for (asked, door) in DOORS.into_iter().enumerate() {
        let answer = server.post(door, &ask()).await;
        assert_eq!((answer.status, answer.header("x-should-retry")), (502, "false"), "{}", answer.body);
        assert_eq!(upstream.requests().len(), 4 * (asked + 1));
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

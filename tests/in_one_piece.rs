//! Upstreams that are asked for answers in one piece where no client reads an answer as it is said.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Reply, TestServer, Upstream, within};

const DOORS: [&str; 2] = ["/v1/agent/completions", "/v1/chat/completions"];
/// Most output tokens of each request.
const BOUND: u64 = 300;

fn ask() -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": BOUND})
}

/// A server whose upstream is asked for answers in one piece and has `first_byte_timeout` for each.
async fn server(upstream: &Upstream, first_byte_timeout: &str) -> TestServer {
    let form = format!("ask_in_one_piece = true\nfirst_byte_timeout = \"{first_byte_timeout}\"\n");
    TestServer::start(&(upstream.config() + &form)).await
}

/// The run of this response.
async fn run_of(server: &TestServer, response: &Answer) -> Value {
    server.get(&format!("/v1/runs/{}", response.header("x-loopgate-run-id"))).await.ok()
}

/// The tokens that the run and its key are charged for output.
fn charged_output(run: &Value) -> u64 {
    let tokens = |of: &Value| of.as_u64().unwrap_or_default();
    tokens(&run["usage"]["completion_tokens"]) + tokens(&run["agent"]["budget"]["unconfirmed"]["tokens"])
}

/// By then all of it may have been made, and nothing of it has arrived.
#[tokio::test]
async fn a_run_that_is_cancelled_while_its_answer_is_made_is_charged_all_that_this_was_allowed() {
    let upstream = Upstream::start_in_one_piece([]).await;
    upstream.otherwise(Reply::status(200).headless().stall());
    let server = server(&upstream, "30s").await;
    for (asked, door) in DOORS.into_iter().enumerate() {
        let cancel = async {
            upstream.received(asked + 1).await;
            let run = server.get("/v1/runs?limit=1").await.ok()["data"][0]["id"].clone();
            server.post(&format!("/v1/runs/{}/cancel", run.as_str().expect("it is listed")), &json!({})).await.ok();
            run
        };
        let request = ask();
        let (_, run) = tokio::join!(server.post(door, &request), cancel);
        let run = server.get(&format!("/v1/runs/{}", run.as_str().expect("it is listed"))).await.ok();
        let usage = &run["usage"];
        assert_eq!((&run["status"], &usage["completion_tokens"]), (&json!("cancelled"), &json!(BOUND)), "{run}");
        assert!(usage["prompt_tokens"].as_u64() > Some(0) && usage["estimated"] == true, "{run}");
    }
}

/// Once is enough: the next answer would take as long.
#[tokio::test]
async fn an_answer_that_takes_too_long_is_charged_whole_and_not_asked_for_again() {
    let silent = Reply::status(200).headless().stall();
    let given_up = |status| Reply::error(status, "timeout", "too late").header("retry-after-ms", "1");
    for (reply, status) in [(silent, 504), (given_up(504), 504), (given_up(524), 504)] {
        let upstream = Upstream::start_in_one_piece([]).await;
        upstream.otherwise(reply);
        let server = server(&upstream, "300ms").await;
        let failed = within("the answer", server.post(DOORS[0], &ask())).await;
        assert_eq!((failed.status, upstream.requests().len()), (status, 1), "{}", failed.body);
        let run = run_of(&server, &failed).await;
        assert_eq!(run["usage"]["completion_tokens"], BOUND, "{run}");
    }
}

#[tokio::test]
async fn each_answer_that_an_upstream_may_have_made_before_it_failed_is_charged_whole() {
    let failed = || Reply::error(500, "oops", "later").header("retry-after-ms", "1");
    for failing in [failed(), Reply::status(200).headless().reset(), Reply::status(200).headless().cut()] {
        let upstream = Upstream::start_in_one_piece([failing, Reply::says_in_one_piece("Hello")]).await;
        let server = server(&upstream, "30s").await;
        let mended = server.post(DOORS[0], &ask()).await;
        let run = run_of(&server, &mended).await;
        assert_eq!((upstream.requests().len(), charged_output(&run)), (2, BOUND + 5), "{run}");
        assert!(run["usage"]["prompt_tokens"].as_u64() > Some(10), "the first one's input is charged: {run}");
    }
}

#[tokio::test]
async fn what_an_upstream_refuses_to_work_on_is_not_charged() {
    let upstream = Upstream::start_in_one_piece([]).await;
    upstream.otherwise(Reply::error(503, "busy", "later").header("retry-after-ms", "1"));
    let server = server(&upstream, "30s").await;
    let failed = server.post(DOORS[0], &ask()).await;
    assert_eq!((upstream.requests().len(), &run_of(&server, &failed).await["usage"]["total_tokens"]), (4, &json!(0)));
}

/// Its first token comes with the last.
#[tokio::test]
async fn only_of_streams_the_time_to_the_first_token_is_counted() {
    let upstream = Upstream::start_in_one_piece([Reply::says_in_one_piece("Hello")]).await;
    let server = server(&upstream, "30s").await;
    server.post(DOORS[0], &ask()).await.ok();
    let metrics = server.respond(server.request(Method::GET, "/metrics")).await.text().await.expect("it is text");
    let count = |name: &str| {
        let name = format!("{name}_count{{upstream=\"scripted\",model=\"test\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).map(str::to_owned)
    };
    let answered = count("loopgate_model_call_duration_seconds");
    let first = count("loopgate_model_first_token_seconds");
    assert_eq!((answered.as_deref(), first.as_deref()), (Some("1"), Some("0")), "{metrics}");
}

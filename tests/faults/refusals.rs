//! While Redis cannot be reached new work is refused soon, and running work waits.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::cluster::plan::Plan;
use crate::support::cluster::{KEY, TestServices};
use crate::support::redis::{RedisServer, address, durable, eventually};
use crate::support::sse::text_of;
use crate::support::{Answer, Proxy, SseReader, TestServer};

/// How soon new work is refused.
const SOON: Duration = Duration::from_millis(1500);

/// Longer than any operation is tried, and shorter than a lease lasts.
const OUTAGE: Duration = Duration::from_secs(3);

/// How Redis may be out of reach.
#[derive(Debug, Clone, Copy)]
enum Outage {
    /// Nobody listens.
    Refused,
    /// It stands still.
    Stopped,
    /// Whatever is sent is lost.
    Swallowed,
}

#[tokio::test]
async fn work_is_refused_where_nobody_listens() {
    holds(Outage::Refused).await;
}

#[tokio::test]
async fn work_is_refused_where_redis_stands_still() {
    holds(Outage::Stopped).await;
}

#[tokio::test]
async fn work_is_refused_where_everything_is_lost() {
    holds(Outage::Swallowed).await;
}

async fn holds(outage: Outage) {
    let (redis, services) = (durable().await, TestServices::start().await);
    let proxy = Proxy::start(address(&redis)).await;
    let mut server =
        TestServer::builder(&services.config()).store(&format!("redis://{}", proxy.address())).start().await;
    server.use_key(KEY);
    let running = Plan::new("running").with_text(150, 40);
    let mut stream = server.stream("/v1/agent/completions", &ask(&running, &json!({}), true)).await;
    stream.until(|frame| frame.text().is_some()).await;

    begin(outage, &redis, &proxy);
    let (until, mut waves) = (Instant::now() + OUTAGE, 0);
    while Instant::now() < until {
        waves += 1;
        for (what, answer, took) in work(&server, waves).await {
            assert_eq!((answer.status, answer.code()), (503, "store_unavailable"), "{outage:?}: {what}");
            assert!(took < SOON, "{outage:?}: {what} was refused after {took:?}");
            assert_eq!(answer.header("retry-after"), "1");
        }
        assert_eq!(server.get("/readyz").await.status, 503, "{outage:?}");
    }

    end(outage, &redis, &proxy);
    eventually("the server is ready again", async || server.get("/readyz").await.status == 200).await;
    for (what, answer, _) in work(&server, waves + 1).await {
        assert!(answer.status < 300, "{outage:?}: {what}: {} {}", answer.status, answer.body);
    }
    // The reader was not cut off, and the model was not asked twice.
    assert_eq!(text_of(&stream.rest().await).split(' ').rev().nth(1), Some("running.0.149"), "{outage:?}");
    let asked = services.model.calls().iter().filter(|call| call.what.tag == running.tag).count();
    assert_eq!(asked, 1, "{outage:?}");
}

/// Work of every kind, all at once: what it is, its answer and how long that took.
async fn work(server: &TestServer, wave: u32) -> Vec<(String, Answer, Duration)> {
    let plan = Plan::new(format!("wave-{wave}"));
    let (plain, streamed) = (ask(&plan, &json!({}), false), ask(&plan, &json!({}), true));
    let session = ask(&plan, &json!({"session_id": format!("wave-{wave}")}), false);
    let mut requests = vec![
        ("a session", server.json("/v1/sessions", &json!({}))),
        ("the runs", server.request(Method::GET, "/v1/runs")),
    ];
    for path in ["/v1/chat/completions", "/v1/agent/completions"] {
        requests.push((path, server.json(path, &plain)));
        requests.push((path, server.json(path, &streamed)));
        let name = format!("{path}-{wave}");
        requests.push((path, server.json(path, &plain).header("idempotency-key", name)));
    }
    requests.push(("a run in a session", server.json("/v1/agent/completions", &session)));
    join_all(requests.into_iter().map(async |(what, request)| {
        let began = Instant::now();
        let response = server.respond(request).await;
        let took = began.elapsed();
        (format!("{what} of wave {wave}"), judged(response).await, took)
    }))
    .await
}

/// An answer, or the head of a stream that was begun.
async fn judged(response: Response) -> Answer {
    let kind = response.headers()["content-type"].to_str().unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        return Answer::read(response).await;
    }
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    SseReader::of_chunks(response).rest().await;
    Answer { status, headers, body: Value::Null }
}

fn ask(plan: &Plan, agent: &Value, stream: bool) -> Value {
    let message = json!({"role": "user", "content": plan.to_string()});
    json!({"model": "test", "messages": [message], "agent": agent, "stream": stream})
}

fn begin(outage: Outage, redis: &RedisServer, proxy: &Proxy) {
    match outage {
        Outage::Refused => {
            proxy.refuse();
            proxy.reset();
        }
        Outage::Stopped => redis.stop(),
        Outage::Swallowed => proxy.swallow(),
    }
}

fn end(outage: Outage, redis: &RedisServer, proxy: &Proxy) {
    match outage {
        Outage::Refused | Outage::Swallowed => proxy.heal(),
        Outage::Stopped => redis.go_on(),
    }
}

//! How the bounds on what a caller sends and stores look on the wire.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::streams::{asked, replica};
use super::{agent_that_stores, router, send};
use crate::store::Store;
use crate::store::memory::MemoryStore;

fn post(path: &str, text: usize) -> Request<Body> {
    let body = json!({"messages": [{"role": "user", "content": "x".repeat(text)}]});
    let request = Request::post(path).header("content-type", "application/json");
    request.body(Body::from(body.to_string())).unwrap()
}

fn error((status, body): (StatusCode, Value)) -> (u16, String) {
    (status.as_u16(), body["error"]["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(start_paused = true)]
async fn messages_to_a_live_run_are_refused_once_they_are_too_many_or_too_large() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (_agent, router) = replica(&store, false);
    let live = asked(&router, "/v1/agent/completions").await;
    let path = format!("/v1/runs/{}/messages", live.run);
    assert_eq!(error(send(&router, post(&path, 1_200_000)).await), (413, "payload_too_large".to_owned()));
    assert_eq!(send(&router, post(&path, 700_000)).await.0, StatusCode::ACCEPTED);
    assert_eq!(error(send(&router, post(&path, 700_000)).await), (409, "inbox_full".to_owned()));
    assert_eq!(send(&router, post(&path, 100_000)).await.0, StatusCode::ACCEPTED, "this one fits");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_full_gets_429_and_what_never_fits_413() {
    let router = router(agent_that_stores(1 << 20, Arc::new(MemoryStore::default()), []), &Arc::default());
    for _ in 0..2 {
        assert_eq!(send(&router, post("/v1/sessions", 400_000)).await.0, StatusCode::CREATED);
    }
    assert_eq!(error(send(&router, post("/v1/sessions", 400_000)).await), (429, "storage_full".to_owned()));
    assert_eq!(send(&router, post("/v1/sessions", 150_000)).await.0, StatusCode::CREATED, "this one fits");
    let (status, body) = send(&router, post("/v1/sessions", 1_200_000)).await;
    let message = body["error"]["message"].as_str().unwrap_or_default();
    assert!(status == StatusCode::PAYLOAD_TOO_LARGE && message.contains("storage"), "{status}: {message}");
    let (status, body) = send(&router, Request::get("/v1/sessions").body(Body::empty()).unwrap()).await;
    assert_eq!((status, body["data"].as_array().unwrap().len()), (StatusCode::OK, 3));
}

/// Sessions that expire make room, which is found when all is counted anew.
#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_full_is_told_how_much_it_stores_and_when_expired_things_are_counted_out() {
    let router = router(agent_that_stores(1 << 20, Arc::new(MemoryStore::default()), []), &Arc::default());
    for _ in 0..2 {
        assert_eq!(send(&router, post("/v1/sessions", 400_000)).await.0, StatusCode::CREATED);
    }
    // The first refusal counts anew; the second comes before it is counted once more.
    for wait in [2, 61] {
        let response = router.clone().oneshot(post("/v1/sessions", 400_000)).await.unwrap();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let waits = (header("retry-after"), header("x-should-retry"));
        assert_eq!(waits, (Some(wait.to_string()), Some("false".to_owned())));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains("of the 1048576 bytes that may be stored for this key's tenant 8"), "{message}");
    }
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(send(&router, post("/v1/sessions", 400_000)).await.0, StatusCode::CREATED, "the sessions have expired");
}

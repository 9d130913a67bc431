//! How the bounds on what a caller sends and stores look on the wire.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::streams::{asked, replica, replica_that_stores};
use super::{agent_over, agent_that_stores, router, send};
use crate::api::{Bodies, MetricsAccess, ReaderMemory};
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Store, Write};

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
    let router =
        router(agent_that_stores(1 << 20, Arc::new(MemoryStore::default()), []), &Arc::default(), MetricsAccess::Key);
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

#[tokio::test(start_paused = true)]
async fn messages_to_a_live_run_of_a_tenant_that_is_full_get_429() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (_agent, router) = replica_that_stores(1 << 20, &store, false);
    let live = asked(&router, "/v1/agent/completions").await;
    let path = format!("/v1/runs/{}/messages", live.run);
    assert_eq!(send(&router, post("/v1/sessions", 400_000)).await.0, StatusCode::CREATED);
    assert_eq!(send(&router, post(&path, 400_000)).await.0, StatusCode::ACCEPTED);
    assert_eq!(error(send(&router, post(&path, 400_000)).await), (429, "storage_full".to_owned()));
    assert_eq!(error(send(&router, post("/v1/sessions", 400_000)).await), (429, "storage_full".to_owned()));
    let cancel = Request::post(format!("/v1/runs/{}/cancel", live.run)).body(Body::empty()).unwrap();
    assert_eq!(send(&router, cancel).await.0, StatusCode::OK, "a run can be cancelled in any case");
}

/// Sessions that expire make room, which is found when all is counted anew.
#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_full_is_told_how_much_it_stores_and_when_expired_things_are_counted_out() {
    let router =
        router(agent_that_stores(1 << 20, Arc::new(MemoryStore::default()), []), &Arc::default(), MetricsAccess::Key);
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

const MAKES_SESSIONS: [&str; 2] = ["/v1/sessions", "/v1/sessions/import"];

/// A request for a session of `length` bytes that counts in `bodies`. With a key it is always the same one.
fn makes_session(path: &str, bodies: &Arc<Bodies>, key: Option<&str>, length: usize) -> Request<Body> {
    let messages = json!([{"role": "user", "content": "x".repeat(length)}]);
    let usage = json!({"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0, "reasoning_tokens": 0,
                       "estimated": false});
    let session = json!({"id": "s", "created_ms": 1, "updated_ms": 1, "metadata": {}, "usage": usage, "cost_usd": 0,
                         "runs": 0});
    let mut body = json!({"messages": messages});
    if path.ends_with("import") {
        body = json!({"object": "session.export", "version": 1, "session": session, "messages": messages});
    }
    let mut request = Request::post(path).header("content-type", "application/json").extension(bodies.clone());
    match key {
        Some(key) => request = request.header("idempotency-key", key),
        None => body["id"] = "other".into(),
    }
    let body = body.to_string();
    request.header("content-length", body.len()).body(Body::from(body)).unwrap()
}

/// A store in which the first session that is made hangs.
fn hanging() -> Arc<Faulty> {
    let store = Faulty::memory();
    let is_session = |write: &Write| matches!(write, Write::Put { key, .. } if **key == *"session");
    store.next(move |tx| tx.writes.iter().any(is_session), Fate::Hangs);
    store
}

/// The first request with a key hangs in the store, and the next ones with that key wait for it.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_session_with_their_key_let_others_be_worked_on() {
    for path in MAKES_SESSIONS {
        let store = hanging();
        let router = router(agent_over(store.clone(), []), &Arc::default(), MetricsAccess::Key);
        // Two such requests are worked on at the same time, and one may wait.
        let bodies = Arc::new(Bodies::new(2 << 20, 1 << 20));
        let ask = |key| send(&router, makes_session(path, &bodies, key, 200_000));
        let others = async {
            store.reached().await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let since = tokio::time::Instant::now();
            let refused = error(ask(Some("k")).await);
            assert_eq!(refused, (409, "version_conflict".to_owned()), "{path}: there are enough that wait");
            assert_eq!(ask(None).await.0, StatusCode::CREATED, "{path}");
            assert_eq!(since.elapsed(), Duration::ZERO, "{path}: another request waited too");
            store.go_on();
        };
        let waits = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            ask(Some("k")).await
        };
        let ((first, _), (waits, _), ()) = tokio::join!(ask(Some("k")), waits, others);
        assert_eq!((first, waits), (StatusCode::CREATED, StatusCode::CREATED), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_being_stored_is_counted_though_its_client_hangs_up() {
    for path in MAKES_SESSIONS {
        let store = hanging();
        let router = router(agent_over(store.clone(), []), &Arc::default(), MetricsAccess::Key);
        let bodies = Arc::new(Bodies::new(2 << 20, 1 << 20));
        tokio::select! {
            () = store.reached() => {}
            answer = send(&router, makes_session(path, &bodies, Some("k"), 200_000)) => panic!("{path}: {answer:?}"),
        }
        let other = || send(&router, makes_session(path, &bodies, None, 400_000));
        assert_eq!(error(other().await), (503, "overloaded".to_owned()), "{path}");
        store.go_on();
        assert_eq!(other().await.0, StatusCode::CREATED, "{path}");
    }
}

/// A trace that is read holds memory until it is sent, and who finds none is told.
#[tokio::test(start_paused = true)]
async fn readers_of_traces_share_memory() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (_agent, router) = replica(&store, false);
    let path = format!("/v1/runs/{}/trace", asked(&router, "/v1/agent/completions").await.run);
    let memory = ReaderMemory::new(0);
    let get = || Request::get(&path).extension(memory.clone()).body(Body::empty()).unwrap();
    let unread = router.clone().oneshot(get()).await.unwrap();
    assert_eq!(unread.status(), StatusCode::OK);
    assert_eq!(error(send(&router, get()).await), (503, "overloaded".to_owned()));
    let body = unread.into_body().collect().await.unwrap().to_bytes();
    let trace: Value = serde_json::from_slice(&body).unwrap();
    assert!(trace["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len() > 1, "{trace}");
    assert_eq!(send(&router, get()).await.0, StatusCode::OK);
}

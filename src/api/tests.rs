//! The router as a whole: its description, who may pass, and how it refuses.

mod bounds;
mod errors;
mod memory;
mod messages;
mod responses;
mod schedules;
mod sessions;
mod streams;
mod ui;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use crate::agent::Generation;
use crate::api::MetricsAccess;
use crate::api::health::Stalled;
use crate::api::{openapi, router};
use crate::config::{KeyConfig, QuotaConfig, Scope, Scopes, key};
use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;
use crate::store::{Key, Partition, Rate, RateDecision, Store, Unavailable};
use crate::types::Tenant;

/// Where the committed description is.
const COMMITTED: &str = "openapi/openapi.json";
/// The route that asks for the token of a call instead.
const BY_TOKEN: &str = "/v1/tool-results/{call_id}";
/// Routes that need no key.
const OPEN: [&str; 3] = ["/", "/healthz", "/readyz"];

#[test]
fn the_committed_description_is_that_of_the_code() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(COMMITTED);
    let current = openapi().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(path, current).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(committed == current, "{COMMITTED} is out of date; write it anew with: cargo run -- openapi > {COMMITTED}");
}

#[tokio::test]
async fn the_description_that_is_served_is_the_committed_one() {
    let request = Request::builder().uri("/openapi.json").body(Body::empty()).unwrap();
    let response = guarded().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    let served = response.into_body().collect().await.unwrap().to_bytes();
    let served: Value = serde_json::from_slice(&served).unwrap();
    assert!(served == serde_json::to_value(openapi()).unwrap());
    let script = Request::builder().uri("/docs/swagger-initializer.js").body(Body::empty()).unwrap();
    let script = guarded().oneshot(script).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&script).contains("\"/openapi.json\""), "the page names the description");
}

#[tokio::test]
async fn every_described_operation_is_routed() {
    let agent = agent_over(Arc::new(MemoryStore::default()), []);
    let router = crate::api::routes::routes(|guarded| guarded)
        .with_state(crate::api::Api { agent, metrics: MetricsAccess::Key });
    let described = serde_json::to_value(openapi()).unwrap();
    for (path, operations) in described["paths"].as_object().unwrap() {
        for method in ["get", "post", "put", "patch", "delete"] {
            let request = Request::builder().method(&*method.to_uppercase()).uri(path.replace("{id}", "x"));
            let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            let is_routed = response.status() != StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(is_routed, operations.get(method).is_some(), "{method} {path}: {}", response.status());
        }
    }
}

#[tokio::test]
async fn every_route_but_the_probes_asks_for_a_key() {
    let router = guarded();
    let description: Value = serde_json::from_str(&openapi().to_json().unwrap()).unwrap();
    let mut seen = 0;
    let paths = description["paths"].as_object().unwrap();
    for (path, operations) in paths.iter().filter(|(path, _)| path.as_str() != BY_TOKEN) {
        for method in operations.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let request = |key: Option<&str>| {
                let builder = Request::builder().method(method.clone()).uri(path.replace("{id}", "x"));
                let builder = key.into_iter().fold(builder, |builder, key| builder.header("authorization", key));
                builder.header("content-type", "application/json").body(Body::empty()).unwrap()
            };
            let refused = OPEN.iter().all(|open| open != path);
            for key in [None, Some("Bearer wrong"), Some("Bearer "), Some("Basic right"), Some("Bearer right ")] {
                let (status, body) = send(&router, request(key)).await;
                assert_eq!(status == StatusCode::UNAUTHORIZED, refused, "{method} {path} with {key:?}");
                if refused {
                    assert_eq!(body["error"]["code"], "invalid_api_key");
                }
            }
            let (status, _) = send(&router, request(Some("bearer right"))).await;
            assert_ne!(status, StatusCode::UNAUTHORIZED, "{method} {path}");
            assert!(status.as_u16() < 500, "{method} {path}: {status}");
            seen += 1;
        }
    }
    assert!(seen >= 16, "{seen} operations");
}

#[tokio::test]
async fn a_call_is_answered_by_who_has_its_token_and_needs_no_key() {
    let request = |call: &str, key: Option<&str>| {
        let builder = Request::builder().method(Method::POST).uri(BY_TOKEN.replace("{call_id}", call));
        let builder = key.into_iter().fold(builder, |builder, key| builder.header("authorization", key));
        builder.body(Body::from("7")).unwrap()
    };
    let minted = crate::types::RunId::mint().call(1);
    for (call, key, status, code) in [
        (minted.as_str(), None, 401, "invalid_api_key"),
        (minted.as_str(), Some("Basic right"), 401, "invalid_api_key"),
        (minted.as_str(), Some("Bearer right"), 404, "call_not_found"),
        (minted.as_str(), Some("Bearer "), 404, "call_not_found"),
        ("call_1", Some("Bearer right"), 404, "call_not_found"),
        ("%ff", Some("Bearer right"), 404, "unknown_url"),
    ] {
        let (answered, body) = send(&guarded(), request(call, key)).await;
        assert_eq!((answered.as_u16(), body["error"]["code"].as_str()), (status, Some(code)), "{call} {key:?}");
    }
}

#[tokio::test]
async fn liveness_fails_while_the_threads_that_serve_requests_hang() {
    let request = |stalled: Option<Stalled>| {
        let mut request = Request::builder().uri("/healthz").body(Body::empty()).unwrap();
        stalled.map(|stalled| request.extensions_mut().insert(stalled));
        request
    };
    let answer = async |stalled| {
        let (status, body) = send(&guarded(), request(stalled)).await;
        (status.as_u16(), body["status"].clone())
    };
    assert_eq!(answer(None).await, (200, "ok".into()));
    assert_eq!(answer(Some(Stalled)).await, (503, "stalled".into()));
}

#[tokio::test]
async fn two_keys_that_differ_are_refused() {
    let request = Request::builder().uri("/v1/models").header("authorization", "Bearer right");
    let request = request.header("x-api-key", "other").body(Body::empty()).unwrap();
    assert_eq!(send(&guarded(), request).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn rate_limits_are_counted_shown_and_enforced() {
    let router = guarded();
    let request = || Request::builder().uri("/v1/models").header("x-api-key", "right").body(Body::empty()).unwrap();
    for remaining in ["1", "0"] {
        let response = router.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["x-ratelimit-limit-requests"], "2");
        assert_eq!(response.headers()["x-ratelimit-remaining-requests"], remaining);
    }
    let response = router.clone().oneshot(request()).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=31).contains(&wait));
}

#[tokio::test]
async fn without_keys_a_64_of_ipv6_addresses_is_one_caller() {
    let agent = agent_over(Arc::new(MemoryStore::default()), []);
    agent.replace_generation(Generation { requests_per_minute: Some(1), ..Generation::default() });
    let router = router(agent, &Arc::default(), MetricsAccess::Key);
    let senders = [
        ("2001:db8::1", 200),
        ("2001:db8::ffff:2", 429),
        ("2001:db8:0:1::1", 200),
        ("192.0.2.1", 200),
        ("::ffff:192.0.2.1", 429),
        ("192.0.2.2", 200),
    ];
    for (address, expected) in senders {
        let address = SocketAddr::new(address.parse().unwrap(), 40_000);
        let request = Request::get("/v1/models").extension(ConnectInfo(address)).body(Body::empty()).unwrap();
        assert_eq!(send(&router, request).await.0.as_u16(), expected, "{address}");
    }
}

#[tokio::test]
async fn replicas_share_one_rate_limit() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let replicas = [guarded_over(store.clone()), guarded_over(store)];
    let mut seen = Vec::new();
    for number in 0..4 {
        let request = Request::builder().uri("/v1/models").header("x-api-key", "right").body(Body::empty()).unwrap();
        let response = replicas[number % 2].clone().oneshot(request).await.unwrap();
        let remaining = response.headers()["x-ratelimit-remaining-requests"].to_str().unwrap().to_owned();
        seen.push((response.status().as_u16(), remaining, response.headers().contains_key("retry-after")));
    }
    let expected = [(200, "1", false), (200, "0", false), (429, "0", true), (429, "0", true)];
    assert_eq!(seen, expected.map(|(status, remaining, waits)| (status, remaining.to_owned(), waits)));
}

/// A store whose buckets never answer.
#[derive(Debug, Default)]
struct Unbucketed(MemoryStore);

#[async_trait::async_trait]
impl StoreLayer for Unbucketed {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn on_take(&self, _place: &Partition, _bucket: &Key, _rate: Rate) -> Result<RateDecision, Unavailable> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn each_replica_limits_by_itself_while_the_store_does_not_answer() {
    let router = guarded_over(Arc::new(Unbucketed::default()));
    let begun = tokio::time::Instant::now();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let request = Request::builder().uri("/v1/models").header("x-api-key", "right").body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        seen.push((response.status().as_u16(), begun.elapsed().as_millis()));
    }
    assert_eq!(seen.iter().map(|(status, _)| *status).collect::<Vec<_>>(), [200, 200, 429]);
    assert!((250..300).contains(&seen[0].1), "the first waited in vain: {seen:?}");
    assert_eq!(seen[0].1, seen[2].1, "nobody waits after it");
}

#[tokio::test]
async fn unknown_routes_are_refused_with_openais_error_shape() {
    let router = guarded();
    let get = Request::builder().uri("/v2/x%0d%0a").body(Body::empty()).unwrap();
    let (status, body) = send(&router, get).await;
    assert_eq!((status, &body["error"]["code"]), (StatusCode::NOT_FOUND, &Value::from("unknown_url")));
    for (method, path) in [("GET", "/v1/nowhere"), ("DELETE", "/v1/models")] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        assert_eq!(send(&router, request).await.0, StatusCode::UNAUTHORIZED, "{method} {path}");
    }
    // A path that OpenAI has is not taken for the id of a response.
    let compact = Request::builder().method("POST").uri("/v1/responses/compact").header("x-api-key", "right");
    let (status, refused) = send(&router, compact.body(Body::empty()).unwrap()).await;
    assert_eq!((status, &refused["error"]["code"]), (StatusCode::NOT_FOUND, &Value::from("unknown_url")));
    // Someone who opens the server's address in a browser is shown the way.
    let root = Request::builder().uri("/").body(Body::empty()).unwrap();
    let (status, said) = send(&router, root).await;
    assert_eq!((status, &said["name"], &said["docs"]), (StatusCode::OK, &"loopgate".into(), &"/docs".into()));
    let message = body["error"]["message"].to_string();
    assert!(message.contains("/docs describes what there is"), "{message}");
    let page = Request::builder().uri("/docs/nope").body(Body::empty()).unwrap();
    assert_eq!(send(&router, page).await.1["error"]["code"], "unknown_url");
    for member in ["message", "type", "param", "code"] {
        assert!(body["error"].get(member).is_some(), "{member}");
    }
    let put = Request::builder().method("PUT").uri("/v1/sessions").header("x-api-key", "right");
    let response = router.oneshot(put.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    let allow = response.headers()["allow"].to_str().unwrap();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
}

/// Who does not ask for compression gets none, and who asks for it may as well go without.
#[tokio::test]
async fn pages_are_not_compressed_unasked() {
    for path in ["/docs/", "/docs/swagger-ui.css", "/openapi.json"] {
        let request = Request::builder().uri(path).header("accept-encoding", "identity").body(Body::empty()).unwrap();
        let response = guarded().oneshot(request).await.unwrap();
        assert_eq!((response.status(), response.headers().get("content-encoding")), (StatusCode::OK, None), "{path}");
    }
}

/// A router over an agent without upstreams; `right` is a key of two requests a minute.
fn guarded() -> Router {
    guarded_over(Arc::new(MemoryStore::default()))
}

/// The same over a store that others may share.
fn guarded_over(store: Arc<dyn Store>) -> Router {
    let key = KeyConfig {
        name: "test".into(),
        tenant: Tenant::parse("acme").unwrap(),
        hash: key::hash("right"),
        agents: None,
        scopes: Scopes::all(),
        requests_per_minute: Some(2),
        request_mcp: false,
        quota: QuotaConfig::default(),
        per_user: crate::config::ShareConfig::default(),
        policy: std::sync::Arc::default(),
        layers: [].into(),
    };
    router(agent_over(store, [key]), &Arc::default(), MetricsAccess::Key)
}

/// An agent without upstreams, over this store and with these keys.
fn agent_over(store: Arc<dyn Store>, keys: impl IntoIterator<Item = KeyConfig>) -> crate::agent::Agent {
    agent_that_stores(1 << 30, store, keys)
}

/// The same, whose tenants may store so many bytes.
fn agent_that_stores(
    tenant_bytes: u64,
    store: Arc<dyn Store>,
    keys: impl IntoIterator<Item = KeyConfig>,
) -> crate::agent::Agent {
    let keys = keys.into_iter().map(|key| (key.hash, key)).collect();
    let memory = Some(crate::config::MemoryConfig::default());
    agent_of(tenant_bytes, store, Generation { memory, keys, ..Default::default() })
}

/// An agent that is configured so.
fn agent_of(tenant_bytes: u64, store: Arc<dyn Store>, generation: Generation) -> crate::agent::Agent {
    crate::agent::Agent::new(
        store,
        generation,
        crate::agent::Retention {
            run: std::time::Duration::from_secs(60),
            wait: std::time::Duration::from_secs(60),
            session: std::time::Duration::from_secs(60),
            history_bytes: 1 << 20,
            ended_bytes: None,
            inbox_bytes: 1 << 20,
            tenant_bytes,
            usage: std::time::Duration::from_secs(86_400),
            usage_rows: 1_000,
            run_bytes: 1 << 30,
        },
    )
}

async fn send(router: &Router, request: Request<Body>) -> (StatusCode, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

//! Schedules as resources: who may make and see them, and what is wrong with them.

use serde_json::json;

use super::streams::Silent;
use super::*;
use crate::agent::tests::support::catalog;

fn key(name: &str, tenant: &str, agents: Option<&[&str]>, scopes: Scopes) -> KeyConfig {
    KeyConfig {
        name: name.into(),
        tenant: Tenant::parse(tenant).unwrap(),
        hash: key::hash(name),
        agents: agents.map(|agents| agents.iter().map(|agent| (*agent).to_owned()).collect()),
        scopes,
        requests_per_minute: None,
        request_mcp: false,
        quota: QuotaConfig::default(),
        per_user: crate::config::ShareConfig::default(),
        policy: std::sync::Arc::default(),
        layers: [].into(),
    }
}

fn over(store: Arc<MemoryStore>) -> Router {
    configured(store, catalog(Arc::new(Silent)))
}

fn configured(store: Arc<MemoryStore>, catalog: crate::agent::catalog::Catalog) -> Router {
    let keys = [
        key("one", "acme", None, Scopes::all()),
        key("bound", "acme", Some(&["default"]), Scopes::all()),
        key("reader", "acme", None, Scopes::of([Scope::Read, Scope::Run])),
        key("other", "rival", None, Scopes::all()),
        key("elsewhere", "acme", Some(&["clerk"]), Scopes::all()),
    ];
    let keys = keys.into_iter().map(|key| (key.hash, key)).collect();
    let generation = Generation { catalog, keys, ..Default::default() };
    router(agent_of(1 << 30, store, generation), &Arc::default(), MetricsAccess::Key)
}

async fn call(router: &Router, key: &str, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("x-api-key", key);
    let request = request.header("content-type", "application/json").body(body).unwrap();
    let (status, body) = send(router, request).await;
    (status.as_u16(), body)
}

async fn get(router: &Router, key: &str, path: &str) -> (u16, Value) {
    call(router, key, Method::GET, path, &Value::Null).await
}

async fn post(router: &Router, key: &str, body: &Value) -> (u16, Value) {
    call(router, key, Method::POST, "/v1/schedules", body).await
}

fn report() -> Value {
    let request = json!({"model": "m", "messages": [{"role": "user", "content": "Report."}]});
    json!({"id": "report", "cron": "0 7 * * 1-5", "time_zone": "Europe/Oslo", "request": request})
}

#[tokio::test]
async fn a_schedule_is_made_read_changed_and_deleted() {
    let router = over(Arc::default());
    let (status, made) = post(&router, "one", &report()).await;
    assert_eq!(
        (status, &made["id"], &made["version"], &made["key"]),
        (200, &json!("report"), &json!(1), &json!("one"))
    );
    assert_eq!((&made["on_missed"], &made["on_overlap"]), (&json!("once"), &json!("skip")));
    assert_eq!((&made["request"], &made["firings"]), (&report()["request"], &json!([])));
    let next = jiff::Timestamp::from_millisecond(made["next_ms"].as_i64().unwrap()).unwrap();
    let shown = next.to_zoned(jiff::tz::TimeZone::get("Europe/Oslo").unwrap());
    assert_eq!(shown.strftime("%H:%M").to_string(), "07:00");
    assert_eq!(get(&router, "one", "/v1/schedules/report").await, (200, made.clone()));
    assert_eq!(get(&router, "one", "/v1/schedules").await.1["data"], json!([made]));
    assert_eq!(post(&router, "one", &report()).await, (200, made.clone()), "the same again");

    let patch = json!({"cron": "*/5 * * * *", "enabled": false, "on_missed": "skip"});
    let (status, changed) = call(&router, "one", Method::PATCH, "/v1/schedules/report", &patch).await;
    assert_eq!((status, &changed["version"], &changed["next_ms"]), (200, &json!(2), &Value::Null), "{changed}");
    assert_eq!((&changed["time_zone"], &changed["on_missed"]), (&json!("Europe/Oslo"), &json!("skip")));
    let stale = Request::builder().method(Method::DELETE).uri("/v1/schedules/report").header("x-api-key", "one");
    let (status, body) = send(&router, stale.header("if-match", "\"1\"").body(Body::empty()).unwrap()).await;
    assert_eq!((status.as_u16(), &body["error"]["code"]), (409, &json!("version_conflict")));
    let (status, body) = call(&router, "one", Method::DELETE, "/v1/schedules/report", &Value::Null).await;
    assert_eq!((status, &body["deleted"]), (200, &json!(true)));
    let (status, body) = get(&router, "one", "/v1/schedules/report").await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("schedule_not_found")));
}

#[tokio::test]
async fn what_is_wrong_with_a_schedule_is_said_with_its_place() {
    let router = over(Arc::default());
    let with = |name: &str, value: Value| {
        let mut body = report();
        body[name] = value;
        body
    };
    let without = |name: &str| {
        let mut body = report();
        body.as_object_mut().unwrap().remove(name);
        body
    };
    for (body, code, param) in [
        (without("cron"), "missing_field", "cron"),
        (without("request"), "missing_field", "request"),
        (with("cron", json!("0 7 * *")), "invalid_value", "cron"),
        (with("cron", json!("0 0 30 2 *")), "invalid_value", "cron"),
        (with("time_zone", json!("Oslo")), "invalid_value", "time_zone"),
        (with("id", json!("a/b")), "invalid_value", "id"),
        (with("request", json!({"model": "m"})), "invalid_value", "request.messages"),
        (with("request", json!("Report.")), "invalid_value", "request"),
        (with("on_missed", json!("twice")), "invalid_value", "on_missed"),
        (with("often", json!(true)), "unknown_field", "often"),
    ] {
        let (status, answer) = post(&router, "one", &body).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{body} {answer}");
        assert_eq!(answer["error"]["param"], json!(param), "{answer}");
    }
    let mut body = report();
    for request in [
        json!({"dry_run": true}),
        json!({"run_id": "run_00000000000000000000000000000000"}),
        json!({"session_id": "s", "on_conflict": "interrupt"}),
        json!({"session_id": "s", "on_conflict": "enqueue"}),
    ] {
        body["request"]["agent"] = request;
        let (status, answer) = post(&router, "one", &body).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid_value")), "{answer}");
    }
    body = report();
    body["request"]["tools"] = json!([{"type": "mcp", "server_label": "m", "server_url": "http://localhost:1/mcp", "authorization": "secret"}]);
    assert_eq!(post(&router, "one", &body).await.1["error"]["param"], json!("request.tools"));
    body = report();
    body["request"]["messages"][0]["content"] = "x".repeat(70_000).into();
    assert_eq!(post(&router, "one", &body).await.1["error"]["param"], json!("request"));
    post(&router, "one", &report()).await;
    let (status, answer) = post(&router, "one", &with("cron", json!("0 8 * * *"))).await;
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("schedule_exists")));
    assert_eq!(get(&router, "one", "/v1/schedules/%FF").await.0, 404);
}

#[tokio::test]
async fn schedules_are_seen_and_made_by_those_who_may() {
    let router = over(Arc::default());
    post(&router, "one", &report()).await;
    let mut own = report();
    own["id"] = json!("own");
    assert_eq!(post(&router, "bound", &own).await.0, 200);
    for (key, seen) in [("one", json!(["own", "report"])), ("bound", json!(["own"])), ("other", json!([]))] {
        let (_, listed) = get(&router, key, "/v1/schedules").await;
        let ids: Vec<_> = listed["data"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
        assert_eq!(json!(ids), seen, "{key}");
    }
    for (key, method) in [("bound", Method::DELETE), ("other", Method::DELETE), ("other", Method::GET)] {
        assert_eq!(call(&router, key, method, "/v1/schedules/report", &Value::Null).await.0, 404, "{key}");
    }
    assert_eq!(get(&router, "reader", "/v1/schedules/report").await.0, 200);
    assert_eq!(post(&router, "reader", &own).await.0, 403);
    let (status, answer) = call(&router, "one", Method::POST, "/v1/schedules/report/run", &Value::Null).await;
    assert_eq!((status, &answer["metadata"]), (202, &json!({"schedule_id": "report"})), "{answer}");
}

/// What nobody reads at night is said when the schedule is made.
#[tokio::test]
async fn a_schedule_of_a_model_that_is_not_there_is_refused() {
    let router = over(Arc::default());
    let mut strange = report();
    strange["request"]["model"] = json!("nope");
    let missing = (404, &json!("model_not_found"));
    let (status, answer) = post(&router, "one", &strange).await;
    assert_eq!((status, &answer["error"]["code"]), missing, "{answer}");
    let (status, answer) = post(&router, "elsewhere", &report()).await;
    assert_eq!((status, &answer["error"]["code"]), missing, "its key may not use the agent: {answer}");
    assert_eq!(post(&router, "one", &report()).await.0, 200);
    let change = json!({"request": strange["request"]});
    let (status, answer) = call(&router, "one", Method::PATCH, "/v1/schedules/report", &change).await;
    assert_eq!((status, &answer["error"]["code"]), missing, "{answer}");
    assert_eq!(get(&router, "one", "/v1/schedules/report").await.1["version"], json!(1), "it stays as it was");
}

#[tokio::test]
async fn a_schedule_whose_model_is_gone_is_turned_off_and_changed() {
    let store: Arc<MemoryStore> = Arc::default();
    assert_eq!(post(&over(store.clone()), "one", &report()).await.0, 200);
    let without = configured(store, crate::agent::catalog::Catalog::default());
    assert_eq!(post(&without, "one", &report()).await.0, 200, "the same again is what is there");
    let path = "/v1/schedules/report";
    for (change, status) in [
        (json!({"cron": "0 8 * * *"}), 200),
        (json!({"enabled": false}), 200),
        (json!({"time_zone": "UTC"}), 200),
        (json!({"enabled": true}), 404),
    ] {
        let (found, answer) = call(&without, "one", Method::PATCH, path, &change).await;
        assert_eq!(found, status, "{change}: {answer}");
    }
    assert_eq!(get(&without, "one", path).await.1["next_ms"], Value::Null, "it stays off");
}

//! Copies of sessions, through the router.

use serde_json::json;

use super::*;

/// A router for two tenants; the name of each is its key.
fn two_tenants() -> Router {
    let key = |name: &str| KeyConfig {
        name: name.into(),
        tenant: Tenant::parse(name).unwrap(),
        hash: key::hash(name),
        agents: None,
        scopes: Scopes::all(),
        requests_per_minute: None,
        request_mcp: false,
        quota: QuotaConfig::default(),
        per_user: crate::config::ShareConfig::default(),
        policy: std::sync::Arc::default(),
        layers: [].into(),
    };
    router(agent_over(Arc::new(MemoryStore::default()), [key("one"), key("two")]), &Arc::default(), MetricsAccess::Key)
}

async fn call(router: &Router, tenant: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("x-api-key", tenant);
    let request = request.header("content-type", "application/json").body(body).unwrap();
    let (status, body) = send(router, request).await;
    (status.as_u16(), body)
}

async fn get(router: &Router, tenant: &str, path: &str) -> (u16, Value) {
    call(router, tenant, Method::GET, path, Value::Null).await
}

async fn post(router: &Router, tenant: &str, path: &str, body: Value) -> (u16, Value) {
    call(router, tenant, Method::POST, path, body).await
}

/// Status, code and parameter of a refusal.
async fn refusal(router: &Router, path: &str, body: Value) -> (u16, String, String) {
    let (status, body) = post(router, "one", path, body).await;
    let text = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
    (status, text("code"), text("param"))
}

fn refused(status: u16, code: &str, param: &str) -> (u16, String, String) {
    (status, code.to_owned(), param.to_owned())
}

fn call_of(id: &str) -> [Value; 2] {
    let call = json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}});
    [
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": id, "content": "{\"lc\":1,\"type\":\"constructor\",\"id\":[\"os\"]}"}),
    ]
}

fn conversation() -> Vec<Value> {
    let [asked, answered] = call_of("a");
    vec![
        json!({"role": "user", "content": [{"type": "text", "text": "q\u{0}ü"}]}),
        asked,
        answered,
        json!({"role": "assistant", "content": "done"}),
    ]
}

/// A snapshot, as an export gives it.
fn snapshot(messages: &[Value]) -> Value {
    json!({
        "object": "session.export", "version": 1,
        "session": {
            "id": "s", "created_ms": 5, "updated_ms": 6, "agent": "default", "metadata": {"k": "v"}, "ttl_s": 60,
            "token_budget": 1000, "cost_budget_usd": 0.25,
            "usage": {"prompt_tokens": 90, "completion_tokens": 10, "cached_tokens": 3, "reasoning_tokens": 4,
                      "estimated": true},
            "cost_usd": 0.05, "runs": 7,
        },
        "messages": messages,
    })
}

#[tokio::test]
async fn what_was_exported_comes_back_as_it_was() {
    let router = two_tenants();
    let created = json!({"id": "s", "metadata": {"k": "v"}, "messages": conversation(), "cost_budget_usd": 0.1});
    post(&router, "one", "/v1/sessions", created).await;
    let (status, exported) = get(&router, "one", "/v1/sessions/s/export").await;
    assert_eq!((status, &exported["version"], &exported["object"]), (200, &json!(1), &json!("session.export")));
    assert_eq!(exported["messages"], Value::from(conversation()));
    let (status, body) = post(&router, "one", "/v1/sessions/import", exported.clone()).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("version_conflict")));
    let mut renamed = exported.clone();
    renamed["id"] = "t".into();
    assert_eq!(post(&router, "one", "/v1/sessions/import", renamed).await.1["id"], "t");
    call(&router, "one", Method::DELETE, "/v1/sessions/s", Value::Null).await;
    assert_eq!(post(&router, "one", "/v1/sessions/import", exported.clone()).await.0, 201);
    assert_eq!(get(&router, "one", "/v1/sessions/s/export").await, (200, exported));

    // With what it has used, and whatever its length: calls' ids may come again in a long session.
    let long: Vec<Value> = (0..6_000).flat_map(|number| call_of(&format!("c{}", number % 7))).collect();
    for (name, messages) in [("long", long), ("short", Vec::new())] {
        let mut given = snapshot(&messages);
        given["session"]["id"] = name.into();
        let (status, session) = post(&router, "one", "/v1/sessions/import", given.clone()).await;
        assert_eq!((status, &session["budget"]["tokens_remaining"]), (201, &json!(900)), "{session}");
        assert_eq!(session["budget"]["cost_remaining_usd"], 0.2);
        assert_eq!(get(&router, "one", &format!("/v1/sessions/{name}/export")).await, (200, given));
    }
}

#[tokio::test]
async fn an_import_belongs_to_whoever_imports() {
    let router = two_tenants();
    let mut given = snapshot(&conversation());
    given["tenant"] = "one".into();
    given["session"]["tenant"] = "one".into();
    assert_eq!(post(&router, "two", "/v1/sessions/import", given).await.0, 201);
    for path in ["/v1/sessions/s", "/v1/sessions/s/export"] {
        let (status, body) = get(&router, "one", path).await;
        assert_eq!((status, &body["error"]["code"]), (404, &json!("session_not_found")));
        assert_eq!(get(&router, "two", path).await.0, 200);
    }
    for path in ["/v1/sessions/s/fork", "/v1/sessions/s/cancel"] {
        let (status, body) = post(&router, "one", path, Value::Null).await;
        assert_eq!((status, &body["error"]["code"]), (404, &json!("session_not_found")));
    }
}

#[tokio::test]
async fn malformed_snapshots_are_refused() {
    let router = two_tenants();
    let with = |pointer: &str, value: Value| {
        let mut given = snapshot(&conversation());
        *given.pointer_mut(pointer).unwrap() = value;
        given
    };
    let without = |name: &str| {
        let mut given = snapshot(&conversation());
        given.as_object_mut().unwrap().remove(name);
        given
    };
    let [asked, answered] = call_of("a");
    let value = |param: &str| refused(400, "invalid_value", param);
    for (given, expected) in [
        (with("/version", json!(99)), value("version")),
        (with("/version", json!("1")), value("version")),
        (with("/object", json!("session")), value("object")),
        (without("version"), refused(400, "missing_field", "version")),
        (without("session"), refused(400, "missing_field", "session")),
        (without("messages"), refused(400, "missing_field", "messages")),
        (with("/messages", json!({})), value("messages")),
        (
            with("/messages/0", json!({"lc": 1, "type": "constructor"})),
            refused(400, "missing_field", "messages[0].role"),
        ),
        (with("/messages", json!([answered])), value("messages[0].tool_call_id")),
        (with("/messages", json!([asked])), value("messages[0]")),
        (with("/messages", json!([asked, asked])), value("messages[1]")),
        (with("/session", json!([])), value("session")),
        (with("/session/id", json!("a/b")), value("session.id")),
        (with("/session/metadata", json!({"k": {"lc": 1}})), value("session.metadata.k")),
        (with("/session/metadata", json!({"": "v"})), value("session.metadata.")),
        (with("/session/ttl_s", json!(0)), value("session.ttl_s")),
        (with("/session/token_budget", json!(0)), value("session.token_budget")),
        (with("/session/cost_budget_usd", json!(-1)), value("session.cost_budget_usd")),
        (with("/session/cost_usd", json!(-0.1)), value("session.cost_usd")),
        (with("/session/cost_usd", json!(1e300)), value("session.cost_usd")),
        (with("/session/usage/prompt_tokens", json!(1_u64 << 60)), value("session.usage.prompt_tokens")),
        (with("/session/runs", json!(-1)), value("session.runs")),
        (summary(&json!({"covers": 0})), value("session.summary.covers")),
        (summary(&json!({"covers": 5})), value("session.summary.covers")),
        (summary(&json!({"covers": 2})), value("session.summary.covers")),
        (summary(&json!({"kept": [3]})), value("session.summary.kept")),
        (summary(&json!({"kept": [1, 0]})), value("session.summary.kept")),
        (summary(&json!({"version": 0})), value("session.summary.version")),
        (summary(&json!({"method": "magic"})), value("session.summary.method")),
        (summary(&json!({"text": "x".repeat((1 << 20) + 1)})), value("session.summary.text")),
    ] {
        assert_eq!(refusal(&router, "/v1/sessions/import", given.clone()).await, expected, "{given}");
    }
    let mut given = snapshot(&conversation());
    given["id"] = "..".into();
    assert_eq!(refusal(&router, "/v1/sessions/import", given).await, value("id"));
    assert_eq!(get(&router, "one", "/v1/sessions").await.1["data"], json!([]), "nothing was stored");
}

/// A snapshot with a summary that differs in these members from one that is good.
fn summary(change: &Value) -> Value {
    let mut given = snapshot(&conversation());
    let mut summary = json!({"covers": 3, "kept": [0], "version": 2, "method": "llm", "text": "They called f."});
    summary.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    given["session"]["summary"] = summary;
    given
}

#[tokio::test]
async fn a_summary_leaves_and_comes_back_with_its_session() {
    let router = two_tenants();
    let given = summary(&json!({}));
    let (status, session) = post(&router, "one", "/v1/sessions/import", given.clone()).await;
    assert_eq!((status, &session["compactions"]), (201, &json!(2)), "{session}");
    let exported = get(&router, "one", "/v1/sessions/s/export").await.1;
    assert_eq!(exported["session"]["summary"], given["session"]["summary"]);
    assert_eq!(exported["messages"].as_array().unwrap().len(), 4);
    let (_, fork) = post(&router, "one", "/v1/sessions/s/fork", json!({"id": "f"})).await;
    assert_eq!(fork["compactions"], 2, "{fork}");
    let early = post(&router, "one", "/v1/sessions/s/fork", json!({"id": "e", "at": 1})).await.1;
    assert_eq!(early["compactions"], 0, "{early}");
}

#[tokio::test]
async fn messages_are_replaced_where_the_caller_says_what_it_knows() {
    let router = two_tenants();
    post(&router, "one", "/v1/sessions/import", snapshot(&conversation())).await;
    let path = "/v1/sessions/s/splice";
    let said = |text: &str| json!([{"role": "user", "content": text}]);
    for (given, expected) in [
        (json!({"after": 0, "remove": 1}), (400, "invalid_value", "message_count")),
        (json!({"remove": 1, "message_count": 4}), (400, "missing_field", "after")),
        (json!({"after": 0, "remove": -1, "message_count": 4}), (400, "invalid_value", "remove")),
        (json!({"after": 0, "message_count": 4}), (400, "invalid_value", "messages")),
        (json!({"after": 4, "remove": 1, "message_count": 4}), (400, "invalid_value", "after")),
        (json!({"after": 1, "remove": 1, "message_count": 4}), (400, "invalid_value", "messages")),
        (json!({"after": 0, "remove": 1, "message_count": 3}), (409, "version_conflict", "")),
    ] {
        let (status, body) = post(&router, "one", path, given.clone()).await;
        let found = (status, body["error"]["code"].as_str().unwrap(), body["error"]["param"].as_str().unwrap_or(""));
        assert_eq!(found, expected, "{given}: {body}");
    }
    let given = json!({"after": 0, "remove": 1, "messages": said("Hello."), "message_count": 4});
    assert_eq!(post(&router, "two", path, given.clone()).await.0, 404);
    let (status, done) = post(&router, "one", path, given).await;
    assert_eq!(
        (status, &done["removed"], &done["inserted"], &done["summary_dropped"]),
        (200, &json!(1), &json!(1), &json!(false))
    );
    assert_eq!((&done["session"]["message_count"], &done["session"]["version"]), (&json!(4), &json!(2)), "{done}");
    let (_, messages) = get(&router, "one", "/v1/sessions/s/messages").await;
    assert_eq!(messages["data"][0]["message"]["content"], "Hello.");
    let with = |version: &str| {
        let request =
            Request::builder().method(Method::POST).uri(path).header("x-api-key", "one").header("if-match", version);
        let body = json!({"after": 3, "remove": 1}).to_string();
        request.header("content-type", "application/json").body(Body::from(body)).unwrap()
    };
    assert_eq!(send(&router, with("\"1\"")).await.0.as_u16(), 409);
    assert_eq!(send(&router, with("two")).await.0.as_u16(), 400);
    assert_eq!(send(&router, with("\"2\"")).await.0.as_u16(), 200);
    let (status, page) = get(&router, "one", "/v1/sessions/s/splices?limit=1").await;
    assert_eq!((status, &page["has_more"], &page["last_id"]), (200, &json!(true), &json!("1")), "{page}");
    assert_eq!(page["data"][0]["removed"][0]["index"], 1, "{page}");
    let (_, page) = get(&router, "one", "/v1/sessions/s/splices?after=1").await;
    assert_eq!((&page["data"][0]["index"], &page["has_more"]), (&json!(2), &json!(false)), "{page}");
    assert_eq!(get(&router, "two", "/v1/sessions/s/splices").await.0, 404);
}

#[tokio::test]
async fn an_import_says_what_its_session_had_otherwise() {
    let router = two_tenants();
    let mut given = snapshot(&conversation());
    given["session"]["agent"] = "elsewhere".into();
    given["environment"] = json!({"model": "u/m", "tools": ["f"]});
    given["runs"] =
        json!([{"id": "run_1", "status": "completed"}, {"id": "run_2", "status": "requires_action", "x": 1}]);
    let (status, session) = post(&router, "one", "/v1/sessions/import", given).await;
    let codes: Vec<&str> =
        session["warnings"].as_array().unwrap().iter().filter_map(|told| told["code"].as_str()).collect();
    assert_eq!((status, codes), (201, vec!["agent_missing", "pending_calls_dropped"]), "{session}");
    let (_, read) = get(&router, "one", "/v1/sessions/s").await;
    assert!(read["warnings"].is_null(), "{read}");
    let (_, exported) = get(&router, "one", "/v1/sessions/s/export?include=runs").await;
    assert_eq!((&exported["runs"], exported["messages"].as_array().map(Vec::len)), (&json!([]), Some(4)), "{exported}");
    let (_, exported) = get(&router, "one", "/v1/sessions/s/export").await;
    assert!(exported["runs"].is_null() && exported["session"]["id"] == "s", "{exported}");
    assert_eq!(get(&router, "one", "/v1/sessions/s/export?include=all").await.0, 400);
}

#[tokio::test]
async fn requests_to_shorten_that_cannot_be_served_are_refused() {
    let router = two_tenants();
    let compact = "/v1/sessions/s/compact";
    assert_eq!(refusal(&router, compact, json!({"model": "default"})).await, refused(404, "session_not_found", ""));
    post(&router, "one", "/v1/sessions", json!({"id": "s", "messages": conversation()})).await;
    for (body, param) in [
        (json!({"method": "off"}), "method"),
        (json!({"method": "magic"}), "method"),
        (json!({"keep_last": 0}), "keep_last"),
        (json!({"keep_last": 1001}), "keep_last"),
        (json!({"background": "yes"}), "background"),
    ] {
        assert_eq!(refusal(&router, compact, body.clone()).await, refused(400, "invalid_value", param), "{body}");
    }
    assert_eq!(refusal(&router, compact, json!({"keep": 1})).await, refused(400, "unknown_field", "keep"));
    assert_eq!(refusal(&router, compact, Value::Null).await, refused(400, "missing_field", "model"));
    let (status, other) = post(&router, "two", compact, json!({"model": "default"})).await;
    assert_eq!(
        (status, &other["error"]["code"]),
        (404, &json!("session_not_found")),
        "tenants see nothing of each other"
    );
}

#[tokio::test]
async fn refused_forks_say_where_a_fork_is_possible() {
    let router = two_tenants();
    post(&router, "one", "/v1/sessions", json!({"id": "s", "messages": conversation()})).await;
    let fork = "/v1/sessions/s/fork";
    for at in [json!(5), json!(-1), json!(1.5), json!("1"), json!(1_000_000_000), json!(2)] {
        let refusal = refusal(&router, fork, json!({"at": at})).await;
        assert_eq!(refusal, refused(400, "invalid_value", "at"), "{at}");
    }
    assert_eq!(refusal(&router, fork, json!({"att": 1})).await, refused(400, "unknown_field", "att"));
    assert_eq!(refusal(&router, fork, json!({"id": "a b"})).await, refused(400, "invalid_value", "id"));
    assert_eq!(refusal(&router, fork, json!({"id": "s"})).await, refused(409, "version_conflict", ""));
    let (_, split) = post(&router, "one", fork, json!({"at": 2})).await;
    let message = split["error"]["message"].as_str().unwrap();
    assert!(message.contains("1 or 3"), "{message}");
    for (body, count) in [(Value::Null, 4), (json!({"at": null}), 4), (json!({"at": 0}), 0), (json!({"at": 3}), 3)] {
        let (status, session) = post(&router, "one", fork, body).await;
        assert_eq!((status, &session["message_count"]), (201, &json!(count)));
        let id = session["id"].as_str().unwrap();
        assert_eq!(get(&router, "one", &format!("/v1/sessions/{id}")).await, (200, session.clone()));
    }
}

#[tokio::test]
async fn no_session_is_called_import() {
    let router = two_tenants();
    let (status, body) = post(&router, "one", "/v1/sessions", json!({"id": "import"})).await;
    assert_eq!((status, &body["error"]["param"]), (400, &json!("id")));
    assert_eq!(get(&router, "one", "/v1/sessions/import").await.0, 405);
}

/// Row T18: layers of a session over HTTP.
#[tokio::test]
async fn layers_come_over_http() {
    let router = two_tenants();
    post(&router, "one", "/v1/sessions", json!({"id": "s"})).await;
    let path = "/v1/sessions/s/layers/tone";
    let with = |header: &'static str, value: &'static str, text: &str| {
        let body = Body::from(json!({"text": text}).to_string());
        let request = Request::builder().method(Method::PUT).uri(path).header("x-api-key", "one").header(header, value);
        request.header("content-type", "application/json").body(body).unwrap()
    };
    let put = |body: Value| call(&router, "one", Method::PUT, path, body);
    let (status, made) =
        put(json!({"text": "Be kind.", "priority": 20, "tags": ["system", "x"], "stable": false})).await;
    assert_eq!((status, &made["version"], &made["object"]), (200, &json!(1), &json!("session.layer")));
    assert_eq!((&made["priority"], &made["merge"], &made["stable"]), (&json!(20), &json!("replace"), &json!(false)));
    let (status, _) = send(&router, with("if-none-match", "*", "x")).await;
    assert_eq!(status.as_u16(), 409);
    let (status, body) = send(&router, with("if-match", "\"7\"", "x")).await;
    assert_eq!((status.as_u16(), &body["error"]["code"]), (409, &json!("version_conflict")));
    let (status, body) = send(&router, with("if-match", "seven", "x")).await;
    assert_eq!((status.as_u16(), &body["error"]["param"]), (400, &json!("if-match")));
    let (status, changed) = send(&router, with("if-match", "\"1\"", "Be short.")).await;
    assert_eq!((status.as_u16(), &changed["version"], &changed["priority"]), (200, &json!(2), &json!(50)));
    assert_eq!(get(&router, "one", path).await, (200, changed.clone()));
    assert_eq!(get(&router, "one", "/v1/sessions/s/layers").await.1["data"], json!([changed]));
    for (body, param) in [
        (json!({}), "text"),
        (json!({"text": "x".repeat(16_385)}), "text"),
        (json!({"text": "x", "priority": 1_001}), "priority"),
        (json!({"text": "x", "tags": ["a b"]}), "tags"),
        (json!({"text": "x", "merge": "mix"}), "merge"),
        (json!({"text": "x", "colour": 1}), "colour"),
    ] {
        let (status, refused) = put(body).await;
        assert_eq!((status, refused["error"]["param"].as_str()), (400, Some(param)), "{refused}");
    }
    let (status, body) = call(&router, "one", Method::PUT, "/v1/sessions/s/layers/a%20b", json!({"text": "x"})).await;
    assert_eq!((status, &body["error"]["param"]), (400, &json!("name")));
    let exported = get(&router, "one", "/v1/sessions/s/export").await.1;
    let imported =
        json!({"id": "t", "object": exported["object"], "version": 1, "session": exported["session"], "messages": []});
    assert_eq!(post(&router, "one", "/v1/sessions/import", imported).await.0, 201);
    assert_eq!(get(&router, "one", "/v1/sessions/t/layers/tone").await.1["text"], "Be short.");
    for (tenant, session) in [("two", "s"), ("one", "nowhere")] {
        let (status, body) = get(&router, tenant, &format!("/v1/sessions/{session}/layers/tone")).await;
        assert_eq!((status, &body["error"]["code"]), (404, &json!("session_not_found")));
    }
    assert_eq!(call(&router, "one", Method::DELETE, path, Value::Null).await.0, 200);
    let (status, body) = call(&router, "one", Method::DELETE, path, Value::Null).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("layer_not_found")));
}

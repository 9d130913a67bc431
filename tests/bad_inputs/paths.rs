//! Paths, methods, kinds of bodies and the numbers in a request's head.

use reqwest::Method;
use serde_json::json;

use super::{Allowed, ENDPOINTS, House, check, valid, with_agent};
use crate::support::{Gate, Reply, TestServer, Upstream};

const VALUE: Allowed = &[(400, "invalid_value")];
const NO_RUN: Allowed = &[(404, "run_not_found")];

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let house = House::build("").await;
    for endpoint in ENDPOINTS {
        let answer = house.server.get(endpoint).await;
        check(endpoint, &answer, &[(405, "method_not_allowed")]);
        assert_eq!(answer.header("allow"), "POST");
    }
    let unknown: Allowed = &[(404, "unknown_url"), (404, "run_not_found")];
    for path in [
        "/index",
        "/v1",
        "/v2/models",
        "/v1/nonsense",
        "/v1/runs/..%2f..%2fetc",
        "/v1/runs/%00",
        "/v1/sessions/a%2fb/c",
    ] {
        check(path, &house.server.get(path).await, unknown);
    }
    let answer = house.server.post("/v1/models/test", &json!({})).await;
    check("POST /v1/models/test", &answer, &[(405, "method_not_allowed")]);
    house.still_stands().await;
}

#[tokio::test]
async fn unsupported_encodings_and_content_types_are_refused() {
    let house = House::build("").await;
    for (name, value) in [
        ("content-encoding", "gzip"),
        ("content-encoding", "br"),
        ("content-type", "text/plain"),
        ("content-type", "multipart/form-data; boundary=x"),
        ("content-type", ""),
    ] {
        let mut request = house.server.request(Method::POST, ENDPOINTS[0]).body(valid().to_string());
        if name != "content-type" {
            request = request.header("content-type", "application/json");
        }
        if !value.is_empty() {
            request = request.header(name, value);
        }
        check(&format!("{name}: {value}"), &house.server.send(request).await, &[(415, "unsupported_media_type")]);
    }
    let request =
        house.server.request(Method::POST, ENDPOINTS[0]).header("content-type", "application/json; charset=utf-8");
    house.server.send(request.body(valid().to_string())).await.ok();
    house.still_answers().await;
}

/// A request id is taken over only if it can stand in a log line.
#[tokio::test]
async fn only_plain_request_ids_are_kept() {
    let house = House::build("").await;
    for (sent, is_kept) in [("abc-123", true), (&"x".repeat(4096), false), ("a b", false), ("naïve", false)] {
        let answer =
            house.server.send(house.server.request(Method::GET, "/v1/models").header("x-request-id", sent)).await;
        let got = answer.header("x-request-id");
        assert_eq!(got == sent, is_kept, "{sent:.20} became {got:.20}");
        assert!(!got.is_empty());
    }
    house.still_stands().await;
}

/// A page of another origin learns nothing.
#[tokio::test]
async fn other_origins_are_not_allowed() {
    let house = House::build("").await;
    let preflight = house.server.request(Method::OPTIONS, ENDPOINTS[0]).header("origin", "https://evil.example");
    let answer = house.server.respond(preflight.header("access-control-request-method", "POST")).await;
    assert!([403, 405].contains(&answer.status().as_u16()), "{}", answer.status());
    assert!(!answer.headers().keys().any(|name| name.as_str().starts_with("access-control")));
    house.still_stands().await;
}

/// A finished run, asked for with every kind of wrong number.
#[tokio::test]
async fn wrong_ids_and_positions_of_runs_are_refused() {
    let house = House::build("").await;
    let server = &house.server;
    let run =
        server.post(ENDPOINTS[0], &valid()).await.ok()["agent"]["run_id"].as_str().expect("it has an id").to_owned();
    let events =
        |after: &str| server.request(Method::GET, &format!("/v1/runs/{run}/events")).header("last-event-id", after);
    for after in ["abc", "-1", "1e30", "99999999999999999999", "1.0"] {
        check(after, &server.send(events(after)).await, VALUE);
    }
    check("ahead", &server.send(events("1000")).await, &[(409, "event_id_ahead")]);
    let last =
        server.get(&format!("/v1/runs/{run}/events?stream=false")).await.ok()["data"].as_array().map_or(0, Vec::len);
    assert!(last > 3, "the run has few events: {last}");
    for (flag, listed) in [("0", true), ("1", false)] {
        let answer = server.respond(server.request(Method::GET, &format!("/v1/runs/{run}/events?stream={flag}"))).await;
        assert_eq!((answer.status().as_u16(), answer.headers()["content-type"] == "application/json"), (200, listed));
    }
    check("stream=no", &server.get(&format!("/v1/runs/{run}/events?stream=no")).await, VALUE);
    // An empty header is none: browsers send it before they have met an event.
    for empty in ["", " "] {
        let path = format!("/v1/runs/{run}/events?stream=false");
        let all = server.request(Method::GET, &path).header("last-event-id", empty);
        assert_eq!(server.send(all).await.ok()["data"].as_array().map_or(0, Vec::len), last);
    }
    // The header wins.
    let both = server.request(Method::GET, &format!("/v1/runs/{run}/events?after=1")).header("last-event-id", last);
    assert_eq!(server.send(both).await.status, 204);
    check("after=x", &server.get(&format!("/v1/runs/{run}/events?after=x")).await, VALUE);
    // Cancelling what has ended changes nothing; what never was cannot be cancelled.
    assert_eq!(server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.ok()["status"], "completed");
    let absent = "run_00000000000070008000000000000000";
    for id in [absent, "run_x", "x", "run_00000000000070008000000000000000x"] {
        check(id, &server.post(&format!("/v1/runs/{id}/cancel"), &json!({})).await, NO_RUN);
        check(id, &server.get(&format!("/v1/runs/{id}")).await, NO_RUN);
        check(id, &server.get(&format!("/v1/runs/{id}/events")).await, NO_RUN);
    }
    check("run_id", &server.post(ENDPOINTS[0], &with_agent("run_id", absent)).await, NO_RUN);
    let ended = server.post(ENDPOINTS[0], &with_agent("run_id", run.as_str())).await;
    check("run_id of an ended run", &ended, &[(409, "run_not_waiting")]);
    house.still_answers().await;
}

/// The limits of lists.
#[tokio::test]
async fn wrong_limits_and_cursors_of_lists_are_refused() {
    let house = House::build("").await;
    house.server.post("/v1/sessions", &json!({"id": "s"})).await.ok();
    for list in ["/v1/runs", "/v1/sessions", "/v1/sessions/s/messages"] {
        for limit in ["0", "-1", "1000000000", "x", "1.5", "99999999999999999999", ""] {
            let path = format!("{list}?limit={limit}");
            check(&path, &house.server.get(&path).await, VALUE);
        }
        house.server.get(&format!("{list}?limit=1")).await.ok();
    }
    for path in ["/v1/runs?status=sleeping", "/v1/runs?after=x", "/v1/sessions/s/messages?order=sideways"] {
        check(path, &house.server.get(path).await, VALUE);
    }
    house.still_stands().await;
}

/// Copies of sessions.
#[tokio::test]
async fn wrong_forks_and_imports_are_refused() {
    let house = House::build("\n[server]\ndrain_delay = \"0s\"\nmax_body = \"16KiB\"\n").await;
    let server = &house.server;
    server.post("/v1/sessions", &json!({"id": "s", "messages": valid()["messages"]})).await.ok();
    for at in [json!(2), json!(-1), json!(0.5), json!("1"), json!(1_000_000_000_u64), json!(1e300)] {
        check(&format!("at {at}"), &server.post("/v1/sessions/s/fork", &json!({"at": at})).await, VALUE);
    }
    let whole = server.get("/v1/sessions/s/export").await.ok();
    let mut unknown = whole.clone();
    unknown["version"] = 99.into();
    check("version 99", &server.post("/v1/sessions/import", &unknown).await, VALUE);
    let mut object = whole.clone();
    object["messages"][0] = json!({"lc": 1, "type": "constructor", "id": ["os", "system"]});
    check("an object", &server.post("/v1/sessions/import", &object).await, &[(400, "missing_field")]);
    let mut large = whole.clone();
    large["messages"][0]["content"] = "x".repeat(17 << 10).into();
    check("17 KiB", &server.post("/v1/sessions/import", &large).await, &[(413, "payload_too_large")]);
    let mut inert = whole;
    inert["id"] = "inert".into();
    inert["tenant"] = "other".into();
    inert["messages"][0]["content"] = r#"{"lc": 1}"#.into();
    server.post("/v1/sessions/import", &inert).await.ok();
    let read = server.get("/v1/sessions/inert/messages").await.ok();
    assert_eq!(read["data"][0]["message"]["content"], r#"{"lc": 1}"#);
    house.still_stands().await;
}

/// Wrong ids are refused at every route to sessions.
#[tokio::test]
async fn wrong_session_ids_are_refused() {
    let house = House::build("").await;
    let server = &house.server;
    for id in ["", "a/b", "..", "a b", "import", &"x".repeat(129)] {
        check(id, &server.post("/v1/sessions", &json!({"id": id})).await, VALUE);
        let request = server.json(ENDPOINTS[0], &valid()).header("x-loopgate-session-id", id);
        check(id, &server.send(request).await, VALUE);
    }
    check("absent", &server.get("/v1/sessions/absent").await, &[(404, "session_not_found")]);
    check(
        "a name that cannot be",
        &server.get("/v1/sessions/%7Bx%7D").await,
        &[(404, "session_not_found"), (400, "invalid_value")],
    );
    let named = server.json(ENDPOINTS[0], &with_agent("session_id", "a")).header("x-loopgate-session-id", "b");
    check("two sessions", &server.send(named).await, VALUE);
    house.still_stands().await;
}

/// The refusal names the run that holds the session, and the client can follow it.
#[tokio::test]
async fn a_busy_session_refuses_a_second_run() {
    let gate = Gate::new();
    let held = Reply::stream().text("Wait").gate(&gate).finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held]).await;
    let server = TestServer::start(&upstream.config()).await;
    let mut request = with_agent("session_id", "s");
    let busy = request.clone();
    request["stream"] = true.into();
    let mut stream = server.stream(ENDPOINTS[0], &request).await;
    let first = stream.next().await.expect("it begins").json();
    gate.reached().await;
    let answer = server.post(ENDPOINTS[0], &busy).await;
    check("a second run", &answer, &[(409, "session_busy")]);
    assert_eq!(answer.header("x-should-retry"), "false");
    assert_eq!(answer.body["error"]["run_id"], first["run_id"]);
    let deletion = server.send(server.request(Method::DELETE, "/v1/sessions/s")).await;
    check("its deletion", &deletion, &[(409, "session_busy")]);
    for name in ["run_id", "events_url"] {
        assert_eq!(deletion.body["error"][name], answer.body["error"][name]);
    }
    let events = answer.body["error"]["events_url"].as_str().expect("it names the events");
    gate.open();
    let joined = server.respond(server.request(Method::GET, events)).await;
    let joined = crate::support::SseReader::new(joined).rest().await;
    assert_eq!(joined[0].json(), first);
    assert_eq!(joined[joined.len() - 2].name, "run.completed");
    stream.until(|frame| frame.name == "run.completed").await;
}

#[tokio::test]
async fn wrong_reports_of_usage_are_refused() {
    let house = House::build("").await;
    for query in [
        "from=yesterday",
        "from=2026-11-31",
        "from=20261101",
        "to=2026-11-23T00:00:00Z",
        "to=-009999-01-01",
        "from=2026-11-23&to=2026-11-22",
        "from=0001-01-01&to=9999-12-31",
        "from=2025-10-01&to=2026-11-23",
        "group_by=tenant",
        "group_by=day,,tenant",
        "limit=0",
        "limit=1001",
        "limit=x",
        "after=x",
        "after=bnVsbA",
        "after=W251bGxd&group_by=day,key",
        "format=xml",
        "format=csv&limit=10",
        "format=csv&after=W251bGxd",
    ] {
        check(query, &house.server.get(&format!("/v1/usage?{query}")).await, VALUE);
    }
    for query in ["agents=a", "tenant=other", "group-by=day"] {
        check(query, &house.server.get(&format!("/v1/usage?{query}")).await, &[(400, "unknown_field")]);
    }
    for query in
        ["", "group_by=", "group_by=user,day,user", "user=%00", "key=%F0%9F%A6%80", "after=W251bGxd", "to=9999-12-31"]
    {
        assert_eq!(house.server.get(&format!("/v1/usage?{query}")).await.ok()["object"], "list", "{query}");
    }
    house.still_answers().await;
}

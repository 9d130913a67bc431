//! Keys of who operates the server: they list, read and cancel the runs of all tenants, and the log says so.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gate, Reply, TestServer, Upstream, within};

const AGENT: &str = "/v1/agent/completions";

const KEYS: &str = r#"
    [keys.one]
    key_env = "ONE"

    [keys.two]
    key_env = "TWO"

    [keys.ops]
    key_env = "OPS"
    scopes = ["operator"]

    [keys.both]
    key_env = "BOTH"
    scopes = ["operator", "run", "read"]
"#;

async fn start(upstream: &Upstream) -> TestServer {
    let builder = TestServer::builder(&[&upstream.config(), KEYS].concat());
    ["ONE", "TWO", "OPS", "BOTH"].iter().fold(builder, |builder, key| builder.env(key, key)).start().await
}

async fn get(server: &TestServer, key: &str, path: &str) -> Answer {
    server.send(server.request(Method::GET, path).bearer_auth(key)).await
}

async fn post(server: &TestServer, key: &str, path: &str, body: &Value) -> Answer {
    server.send(server.json(path, body).bearer_auth(key)).await
}

/// A run in the background, by its id.
async fn begin(server: &TestServer, key: &str) -> String {
    let body = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}], "agent": {"background": true}});
    let begun = post(server, key, AGENT, &body).await;
    assert_eq!(begun.status, 202, "{}", begun.body);
    begun.body["id"].as_str().expect("it has an id").to_owned()
}

fn ids(list: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list["data"].as_array().into_iter().flatten().map(|run| (text(&run["tenant"]), text(&run["id"]))).collect()
}

#[tokio::test]
async fn an_operator_lists_the_runs_of_all_tenants_page_by_page() {
    let upstream = Upstream::start((0..12).map(|_| Reply::says("Yes."))).await;
    let server = start(&upstream).await;
    let mut begun = Vec::new();
    for number in 0..10 {
        let (key, tenant) = [("ONE", "one"), ("TWO", "two"), ("TWO", "two")][number % 3];
        begun.push((tenant.to_owned(), begin(&server, key).await));
    }
    begun.sort_by(|(_, one), (_, other)| other.cmp(one));
    let (mut seen, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = get(&server, "OPS", &format!("/v1/runs?limit=3{after}")).await.ok();
        seen.extend(ids(&page));
        pages += 1;
        if page["has_more"] == json!(false) {
            break;
        }
        after = format!("&after={}", page["last_id"].as_str().expect("it is text"));
    }
    assert_eq!((seen, pages), (begun.clone(), 4));
    let of_two: Vec<_> = begun.iter().filter(|(tenant, _)| tenant == "two").cloned().collect();
    assert_eq!(ids(&get(&server, "OPS", "/v1/runs?tenant=two").await.ok()), of_two);
    assert_eq!(ids(&get(&server, "OPS", "/v1/runs?tenant=nobody").await.ok()), []);
    let line = server.logged("an operator listed runs").await;
    for part in ["\"key\":\"ops\"", "\"tenant\":\"*\"", "\"action\":\"list\""] {
        assert!(line.contains(part), "{part}: {line}");
    }

    // Others see what they saw.
    let own = get(&server, "ONE", "/v1/runs").await.ok();
    assert_eq!(own["data"].as_array().map(Vec::len), Some(4));
    assert!(own["data"][0].get("tenant").is_none(), "{own}");
    let refused = get(&server, "ONE", "/v1/runs?tenant=two").await;
    assert_eq!((refused.status, refused.code()), (403, "forbidden"));
    assert_eq!(get(&server, "ONE", "/v1/runs?tenant=one").await.status, 200);
}

#[tokio::test]
async fn an_operator_reads_and_cancels_runs_of_any_tenant_and_the_log_says_who_did() {
    let gate = Gate::new();
    let held = Reply::stream().text("Half ").gate(&gate).text("whole.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held]).await;
    let server = start(&upstream).await;
    let run = begin(&server, "ONE").await;
    within("the model to be asked", gate.reached()).await;
    let read = get(&server, "OPS", &format!("/v1/runs/{run}")).await.ok();
    assert_eq!((&read["tenant"], &read["status"]), (&json!("one"), &json!("in_progress")));
    let events = get(&server, "OPS", &format!("/v1/runs/{run}/events?stream=false")).await.ok();
    assert!(events["data"].as_array().is_some_and(|events| !events.is_empty()), "{events}");
    assert_eq!(get(&server, "OPS", &format!("/v1/runs/{run}/trace?tenant=one")).await.status, 200);
    let elsewhere = get(&server, "OPS", &format!("/v1/runs/{run}?tenant=two")).await;
    assert_eq!((elsewhere.status, elsewhere.code()), (404, "run_not_found"));
    let missing = get(&server, "OPS", &format!("/v1/runs/run_{}", "0".repeat(32))).await;
    assert_eq!((missing.status, missing.code()), (404, "run_not_found"));
    let line = server.logged(&format!("\"run\":\"run_{}\"", "0".repeat(32))).await;
    assert!(line.contains("\"tenant\":\"*\"") && line.contains("\"key\":\"ops\""), "who tries is named too: {line}");
    let foreign = get(&server, "TWO", &format!("/v1/runs/{run}")).await;
    assert_eq!((foreign.status, foreign.code()), (404, "run_not_found"));
    let cancelled = post(&server, "OPS", &format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
    assert_eq!((&cancelled["status"], &cancelled["tenant"]), (&json!("cancelled"), &json!("one")));
    for action in ["read", "follow", "trace", "cancel"] {
        let line = server.logged(&format!("\"action\":\"{action}\"")).await;
        for part in ["\"key\":\"ops\"", "\"tenant\":\"one\"", &format!("\"run\":\"{run}\""), "\"level\":\"INFO\""] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    gate.open();
}

#[tokio::test]
async fn an_operator_does_nothing_else_in_the_name_of_others() {
    let upstream = Upstream::start((0..3).map(|_| Reply::says("Yes."))).await;
    let server = start(&upstream).await;
    let body = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}], "agent": {"session_id": "s"}});
    let answer = post(&server, "ONE", AGENT, &body).await.ok();
    let run = answer["agent"]["run_id"].as_str().expect("it has an id");
    for path in [
        "/v1/sessions".to_owned(),
        "/v1/sessions/s".to_owned(),
        "/v1/sessions/s/messages".to_owned(),
        "/v1/memory?user=u&tenant=one".to_owned(),
        "/v1/usage".to_owned(),
        format!("/v1/runs/{run}/tree"),
    ] {
        let refused = get(&server, "OPS", &path).await;
        assert_eq!((refused.status, refused.code()), (403, "forbidden"), "{path}");
    }
    for path in [AGENT.to_owned(), format!("/v1/runs/{run}/messages"), format!("/v1/runs/{run}/approvals")] {
        let refused = post(&server, "OPS", &path, &body).await;
        assert_eq!((refused.status, refused.code()), (403, "forbidden"), "{path}");
    }
    // What the key may do besides it does in its own tenant.
    let found = get(&server, "BOTH", "/v1/sessions/s").await;
    assert_eq!((found.status, found.code()), (404, "session_not_found"));
    let other = post(&server, "BOTH", AGENT, &body).await.ok();
    let own =
        get(&server, "BOTH", &format!("/v1/runs/{}", other["agent"]["run_id"].as_str().expect("it has an id"))).await;
    assert_eq!(own.ok()["tenant"], "both");
    // A key that names no scopes is no operator.
    let list = get(&server, "TWO", "/v1/runs").await.ok();
    assert_eq!(list["data"], json!([]));
}

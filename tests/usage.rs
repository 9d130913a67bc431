//! `/v1/usage` and `/v1/budget`: who may read them, and that they agree with the runs.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Frame, Gate, Reply, TestServer, Upstream};

const ENDPOINT: &str = "/v1/agent/completions";

fn ask(user: &str) -> Value {
    json!({"model": "test", "user": user, "messages": [{"role": "user", "content": "Go."}]})
}

/// A server with keys of two tenants, and one that may read no usage.
async fn server(upstream: &Upstream) -> TestServer {
    let keys = "[keys.ONE]\nkey_env = \"ONE\"\n[keys.OTHER]\nkey_env = \"OTHER\"\ntenant = \"other\"\n\
                [keys.RUNNER]\nkey_env = \"RUNNER\"\nscopes = [\"run\"]\n\
                [keys.BOUND]\nkey_env = \"BOUND\"\nagents = [\"helper\"]\n";
    let config = format!(
        "{}[agents.default]\n[agents.helper]\nmodel = \"test\"\n[models.test]\nprice = {{ input = 100.0, output = 1000.0 }}\n{keys}",
        upstream.config()
    );
    let builder = TestServer::builder(&config);
    let builder = ["ONE", "OTHER", "RUNNER", "BOUND"].into_iter().fold(builder, |builder, key| builder.env(key, key));
    let mut server = builder.start().await;
    server.use_key("ONE");
    server
}

/// The sums of a report of so many runs: a run is counted a moment after its last event, and is not counted again a moment
/// later.
async fn report(server: &TestServer, query: &str, runs: u64) -> Vec<Value> {
    let read = async || {
        let rows = server.get(&format!("/v1/usage?{query}")).await.ok()["data"].as_array().cloned().unwrap_or_default();
        (rows.iter().filter_map(|row| row["runs"].as_u64()).sum::<u64>(), rows)
    };
    for _ in 0..400 {
        if read().await.0 >= runs {
            // Runs that end together are counted with the next turn of the second.
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            let (counted, rows) = read().await;
            assert_eq!(counted, runs, "{rows:?}");
            return rows;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{runs} runs are not counted");
}

#[tokio::test]
async fn usage_agrees_with_the_runs_and_outlives_the_process() {
    let upstream = Upstream::start((0..4).map(|_| Reply::says("Done."))).await;
    let mut server = server(&upstream).await;
    let mut runs = Vec::new();
    for user in ["ann", "=1+1", "ann"] {
        runs.push(server.post(ENDPOINT, &ask(user)).await.ok());
    }
    let sum = |name: &str| runs.iter().filter_map(|run| run["usage"][name].as_u64()).sum::<u64>();
    let all = report(&server, "group_by=", 3).await;
    assert_eq!((all.len(), &all[0]["runs"]), (1, &json!(3)));
    for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert!(sum(name) > 0);
        assert_eq!(all[0][name], sum(name), "{name}");
    }
    let cost: f64 = runs.iter().filter_map(|run| run["agent"]["cost_usd"].as_f64()).sum();
    assert!((all[0]["cost_usd"].as_f64().unwrap_or(0.0) - cost).abs() < 1e-9 && cost > 0.0);

    server.kill9().await;
    server.restart().await;
    runs.push(server.post(ENDPOINT, &ask("ann")).await.ok());
    let query = "group_by=key,agent,model,user";
    let rows = report(&server, query, 4).await;
    let named: Vec<_> = rows.iter().map(|row| (row["user"].as_str().unwrap_or(""), row["runs"].as_u64())).collect();
    assert_eq!(named, [("=1+1", Some(1)), ("ann", Some(3))], "the rows of both processes are added up");
    assert_eq!((&rows[0]["key"], &rows[0]["agent"]), (&json!("ONE"), &json!("default")));
    assert!(rows[0]["model"].as_str().is_some_and(|model| model.ends_with("/test")) && rows[0].get("day").is_none());
    let page = server.get(&format!("/v1/usage?{query}&limit=1")).await.ok();
    assert_eq!((page["data"].as_array().map_or(0, Vec::len), &page["has_more"]), (1, &json!(true)));
    let last = page["last_id"].as_str().expect("it has one");
    let next = server.get(&format!("/v1/usage?{query}&limit=1&after={last}")).await.ok();
    assert_eq!((&next["data"][0], &next["has_more"]), (&rows[1], &json!(false)));

    let answer =
        server.respond(server.request(Method::GET, "/v1/usage?group_by=user,key").header("accept", "text/csv")).await;
    assert_eq!(answer.headers()["content-type"], "text/csv; charset=utf-8; header=present");
    let csv = answer.text().await.expect("it is text");
    let lines: Vec<_> = csv.split("\r\n").collect();
    assert!(lines[0].starts_with("key,user,runs,prompt_tokens,") && lines.len() == 4, "{csv}");
    assert!(lines[1].starts_with("ONE,\"'=1+1\",1,") && lines[2].starts_with("ONE,ann,3,"), "{csv}");
}

#[tokio::test]
async fn usage_is_read_by_keys_of_the_tenant_with_the_scope_and_of_their_agents() {
    let upstream = Upstream::start((0..2).map(|_| Reply::says("Done."))).await;
    let mut server = server(&upstream).await;
    server.post(ENDPOINT, &ask("ann")).await.ok();
    report(&server, "group_by=", 1).await;
    server.use_key("RUNNER");
    assert_eq!(server.get("/v1/usage").await.status, 403);
    server.use_key("OTHER");
    assert_eq!(server.get("/v1/usage").await.ok()["data"], json!([]));
    server.use_key("BOUND");
    assert_eq!(server.get("/v1/usage").await.ok()["data"], json!([]));
    server.post(ENDPOINT, &json!({"model": "helper", "messages": ask("")["messages"]})).await.ok();
    let rows = report(&server, "group_by=agent,user", 1).await;
    assert_eq!((rows.len(), &rows[0]["agent"], &rows[0]["user"]), (1, &json!("helper"), &Value::Null));
    server.use_key("nobody");
    assert_eq!(server.get("/v1/usage").await.status, 401);
}

/// The budgets that a path shows: scope, kind, limit, used, reserved, remaining and period of each.
async fn budgets(server: &TestServer, query: &str) -> Vec<Value> {
    let list = server.get(&format!("/v1/budget{query}")).await.ok();
    let names = ["scope", "kind", "limit", "used", "reserved", "remaining", "period"];
    let rows = list["data"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| names.map(|name| row[name].clone()).to_vec().into()).collect()
}

#[tokio::test]
async fn budgets_show_what_is_used_and_what_is_reserved_apart() {
    let gate = Gate::new();
    let held = Reply::stream().text("One ").gate(&gate).text("two").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([Reply::says("Done."), held]).await;
    let keys = "[keys.ONE]\nkey_env = \"ONE\"\ntenant = \"t\"\nscopes = [\"run\", \"sessions\"]\n\
                token_budget = { limit = 100000, per = \"day\" }\ncost_budget_usd = { limit = 9.0 }\n\
                [keys.READER]\nkey_env = \"READER\"\ntenant = \"t\"\n";
    let config = format!("{}[models.test]\nprice = {{ input = 100.0, output = 1000.0 }}\n{keys}", upstream.config());
    let mut server = TestServer::builder(&config).env("ONE", "ONE").env("READER", "READER").start().await;
    server.use_key("ONE");
    server.post("/v1/sessions", &json!({"id": "s", "token_budget": 5000})).await.ok();
    let fresh =
        [json!(["key", "tokens", 100_000, 0, 0, 100_000, "day"]), json!(["key", "cost", 9.0, 0.0, 0.0, 9.0, null])];
    assert_eq!(budgets(&server, "").await, fresh);
    let renews = server.get("/v1/budget").await.ok()["data"][0]["resets_in_s"].as_u64();
    assert!(renews.is_some_and(|seconds| (1..=86_400).contains(&seconds)), "{renews:?}");

    let ask =
        json!({"model": "test", "max_tokens": 100, "messages": ask("")["messages"], "agent": {"session_id": "s"}});
    let usage = server.post(ENDPOINT, &ask).await.ok()["usage"]["total_tokens"].as_u64().expect("it is a number");
    assert_eq!(budgets(&server, "").await[0], json!(["key", "tokens", 100_000, usage, 0, 100_000 - usage, "day"]));
    let mut live = ask.clone();
    live["stream"] = json!(true);
    let mut stream = server.stream(ENDPOINT, &live).await;
    gate.reached().await;
    assert_eq!(server.get("/v1/budget?session_id=s").await.status, 403, "sessions take the scope `read`");
    let of_key = server.get("/v1/budget").await.ok()["data"][0].clone();
    server.use_key("READER");
    let of_session = server.get("/v1/budget?session_id=s").await.ok()["data"].clone();
    assert_eq!((of_session.as_array().map_or(0, Vec::len), &of_session[0]["scope"]), (1, &json!("session")));
    for (budget, limit) in [(&of_key, 100_000), (&of_session[0], 5_000)] {
        let reserved = budget["reserved"].as_u64().expect("it is a number");
        assert!(reserved >= 100, "{budget}");
        assert_eq!((&budget["used"], &budget["remaining"]), (&json!(usage), &json!(limit - usage - reserved)));
    }
    gate.open();
    stream.until(|frame| frame.name == "run.completed").await;
    assert_eq!(server.get("/v1/budget").await.ok()["data"], json!([]), "this key has none");
    assert_eq!(server.get("/v1/budget?session_id=none").await.status, 404);
    assert_eq!(server.get("/v1/budget?session_id=a%20b").await.status, 400);
}

#[tokio::test]
async fn headers_say_what_is_left_of_budgets_and_the_run_that_takes_one_to_four_fifths_warns() {
    let small = || Reply::stream().text("One").finish("stop").usage(100, 5).done();
    let large = Reply::stream().text("Two").finish("stop").usage(3_900, 5).done();
    let rejected = Reply::error(400, "bad_request", "no");
    let upstream = Upstream::start([small(), large, small(), small(), rejected, small()]).await;
    let keys = "[keys.ONE]\nkey_env = \"ONE\"\ntoken_budget = { limit = 100000, per = \"day\" }\n\
                cost_budget_usd = { limit = 9.0 }\n[keys.FREE]\nkey_env = \"FREE\"\n";
    let config = format!("{}[models.test]\nprice = {{ input = 100.0, output = 1000.0 }}\n{keys}", upstream.config());
    let mut server = TestServer::builder(&config).env("ONE", "ONE").env("FREE", "FREE").start().await;
    server.use_key("ONE");
    server.post("/v1/sessions", &json!({"id": "s", "token_budget": 5000})).await.ok();
    let mut ask =
        json!({"model": "test", "max_tokens": 100, "messages": ask("")["messages"], "agent": {"session_id": "s"}});
    let header = |headers: &reqwest::header::HeaderMap, name: &str| {
        headers.get(name).map(|value| value.to_str().expect("it is plain").to_owned())
    };
    let answer = server.post(ENDPOINT, &ask).await;
    let of_kind = |kind: &str, headers: &reqwest::header::HeaderMap| {
        ["limit", "remaining", "reset"].map(|what| header(headers, &format!("x-ratelimit-{what}-{kind}")))
    };
    // The session has less left than the key.
    assert_eq!(of_kind("tokens", &answer.headers), [Some("5000".into()), Some("4895".into()), None]);
    let [limit, remaining, reset] = of_kind("cost", &answer.headers);
    assert_eq!((limit.as_deref(), remaining.as_deref(), reset), (Some("9"), Some("8.985"), None));
    assert_eq!(header(&answer.headers, "x-loopgate-budget-warning"), None);

    ask["stream"] = json!(true);
    let mut stream = server.stream(ENDPOINT, &ask).await;
    let frames = stream.until(|frame| frame.name == "run.completed").await;
    let warnings: Vec<_> = frames.iter().filter(|frame| frame.name == "budget.warning").map(Frame::json).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let told = ["scope", "kind", "used", "limit"].map(|name| warnings[0][name].clone());
    assert_eq!(told, [json!("session"), json!("tokens"), json!(4010), json!(5000)]);
    let line = server.logged("four fifths of a budget are used").await;
    assert!(line.contains("\"level\":\"WARN\"") && line.contains("\"session\":\"s\""), "{line}");

    ask["stream"] = json!(false);
    let answer = server.post(ENDPOINT, &ask).await;
    assert_eq!(header(&answer.headers, "x-loopgate-budget-warning").as_deref(), Some("session tokens"));
    ask["agent"] = json!({});
    let answer = server.post(ENDPOINT, &ask).await;
    let [limit, _, reset] = of_kind("tokens", &answer.headers);
    assert_eq!(limit.as_deref(), Some("100000"));
    assert!(reset.is_some_and(|reset| reset.trim_end_matches('s').parse::<u64>().is_ok_and(|s| s <= 86_400)));
    server.post("/v1/sessions", &json!({"id": "full", "token_budget": 10})).await.ok();
    ask["agent"] = json!({"session_id": "full"});
    let refused = server.post(ENDPOINT, &ask).await;
    assert_eq!((refused.status, refused.code()), (429, "budget_exceeded"), "{}", refused.body);
    assert_eq!(of_kind("tokens", &refused.headers), [Some("10".into()), Some("10".into()), None]);
    ask["agent"] = json!({});
    let failed = server.post(ENDPOINT, &ask).await;
    assert_eq!((failed.status, failed.code()), (400, "request_rejected"), "{}", failed.body);
    assert_eq!(
        of_kind("tokens", &failed.headers)[0].as_deref(),
        Some("100000"),
        "a run that failed has used some, too"
    );
    server.use_key("FREE");
    let headers = server.post(ENDPOINT, &ask).await.headers;
    assert_eq!((of_kind("tokens", &headers), of_kind("cost", &headers)), ([None, None, None], [None, None, None]));
}

//! Runs as resources, from outside: what is told of them while they go on and after they ended.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::redis::eventually;
use crate::support::{Gate, Reply, TestServer, ToolServer, Upstream};

const CHAT: &str = "/v1/chat/completions";

fn ask(more: &Value) -> Value {
    let mut request = json!({"model": "test", "messages": [{"role": "user", "content": "What?"}]});
    for (name, value) in more.as_object().into_iter().flatten() {
        request[name] = value.clone();
    }
    request
}

#[tokio::test]
async fn a_run_keeps_the_notes_of_the_request_that_began_it() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().text("So").gate(&gate).text(".").finish("stop").done()]).await;
    let mut server = TestServer::start(&upstream.config()).await;
    let notes = json!({"customer": "c-7", "é".repeat(64): "ü".repeat(512)});
    let accepted = server.post(CHAT, &ask(&json!({"metadata": notes, "agent": {"background": true}}))).await.ok();
    let path = format!("/v1/runs/{}", accepted["id"].as_str().expect("it has an id"));
    assert_eq!(accepted["metadata"], notes);
    gate.reached().await;
    assert_eq!(server.get(&path).await.ok()["metadata"], notes);
    gate.open();
    server.events(path.trim_start_matches("/v1/runs/"), 0).await.rest().await;
    server.kill9().await;
    server.restart().await;
    let run = server.get(&path).await.ok();
    assert_eq!((&run["status"], &run["metadata"]), (&json!("completed"), &notes));
    assert_eq!(server.get("/v1/runs").await.ok()["data"][0]["metadata"], notes);
    let many: Value = (0..17).map(|n| (n.to_string(), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    for refused in [many, json!({"k".repeat(65): "v"}), json!({"k": "v".repeat(513)}), json!({"k": 1})] {
        let answer = server.post(CHAT, &ask(&json!({"metadata": refused}))).await;
        assert_eq!((answer.status, answer.code()), (400, "invalid_value"), "{refused}");
    }
}

#[tokio::test]
async fn a_run_under_way_tells_how_far_it_came() {
    let gate = Gate::new();
    let second = Reply::stream().text("It is ").gate(&gate).text("42.").finish("stop").usage(30, 7).done();
    let upstream = Upstream::start([Reply::calls("calculator", &json!({"expression": "6 * 7"})), second]).await;
    let mut server = TestServer::start(&upstream.config()).await;
    let limits = json!({"background": true, "limits": {"token_budget": 100_000}});
    let accepted = server.post(CHAT, &ask(&json!({"agent": limits}))).await.ok();
    let path = format!("/v1/runs/{}", accepted["id"].as_str().expect("it has an id"));
    gate.reached().await;
    let id = path.trim_start_matches("/v1/runs/");
    server.events(id, 0).await.until(|frame| frame.text().is_some_and(|text| !text.is_empty())).await;
    let run = server.get(&path).await.ok();
    assert_eq!(run["status"], "in_progress");
    let progress = &run["progress"];
    assert_eq!(
        (&progress["step"], &progress["iterations"], &progress["tool_calls"]),
        (&json!(2), &json!(1), &json!(1))
    );
    let used = |run: &Value| (run["usage"]["prompt_tokens"].clone(), run["usage"]["completion_tokens"].clone());
    assert_eq!(used(&run), (json!(10), json!(5)));
    assert_eq!(progress["budget"]["tokens_used"], 15);
    assert_eq!((&progress["tools"], &progress["last_event"]["type"]), (&json!([]), &json!("text")));
    let (seq, at_ms) = (&progress["last_event"]["seq"], progress["last_event"]["at_ms"].as_u64());
    assert!(*seq == 7 && at_ms >= run["created_ms"].as_u64(), "{progress}");
    let replica = progress["replica"].as_str().expect("a replica drives it");
    assert!(server.logged("loopgate listens").await.contains(&format!("\"replica\":\"{replica}\"")), "{replica}");
    assert!(server.get("/v1/runs").await.ok()["data"][0].get("progress").is_none());
    gate.open();
    server.events(path.trim_start_matches("/v1/runs/"), 0).await.rest().await;
    let run = server.get(&path).await.ok();
    assert_eq!((used(&run), run.get("progress")), ((json!(40), json!(12)), None));
    server.sigterm();
    assert!(server.drained().await.success());
}

#[tokio::test]
async fn a_run_under_way_names_the_tools_that_it_waits_for() {
    let gate = Gate::new();
    let tools = ToolServer::start([Reply::status(200).bytes("so").gate(&gate).bytes("on")]).await;
    let upstream = Upstream::start([Reply::calls("look", &json!({"note": "x"})), Reply::says("Done.")]).await;
    let config = format!("{}{}[agents.default]\ntools = [\"look\"]\n", upstream.config(), tools.config("look", "read"));
    let server = TestServer::start(&config).await;
    let accepted = server.post(CHAT, &ask(&json!({"agent": {"background": true}}))).await.ok();
    let path = format!("/v1/runs/{}", accepted["id"].as_str().expect("it has an id"));
    gate.reached().await;
    // What happens to a call that only reads is recorded beside it.
    let progress = async || server.get(&path).await.ok()["progress"].clone();
    eventually("the call to be recorded", async || progress().await["tools"] != json!([])).await;
    let progress = progress().await;
    let [call] = &progress["tools"].as_array().expect("it is a list")[..] else { panic!("{progress}") };
    assert_eq!((&call["name"], &progress["last_event"]["type"]), (&json!("look"), &json!("tool.call")));
    assert!(call["call_id"].as_str().is_some_and(|id| id.starts_with("call_")), "{progress}");
    assert_eq!(call["started_ms"], progress["last_event"]["at_ms"]);
    gate.open();
    let events = server.events(path.trim_start_matches("/v1/runs/"), 0).await.rest().await;
    assert!(events.iter().any(|event| event.name == "run.completed"));
}

/// A client's tool, and the transcript of a client that answered the call of it.
fn with_tool(transcript: &Value) -> Value {
    let function = json!({"name": "weather", "parameters": {"type": "object"}});
    json!({"model": "test", "messages": transcript, "tools": [{"type": "function", "function": function}]})
}

#[tokio::test]
async fn a_client_that_edited_its_transcript_is_told_that_the_run_went_on_with_its_own() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    for (asked, said, edits) in [
        ("How is it?", "Let me see. ", 0),
        ("How was it?", "Let me see. ", 1),
        ("How is it?", "I refuse.", 1),
        ("How is it?", "", 0),
    ] {
        upstream.then(Reply::calls("calculator", &json!({"expression": "6 * 7"})));
        let calls = Reply::stream().text("Let me see. ").tool_call(0, "c", "weather", "{\"city\": \"Oslo\"}");
        upstream.then(calls.finish("tool_calls").usage(10, 5).done());
        upstream.then(Reply::says("Fine."));
        let question = json!({"role": "user", "content": "How is it?"});
        let waiting = server.post(CHAT, &with_tool(&json!([question]))).await.ok();
        let mut spoken = waiting["choices"][0]["message"].clone();
        spoken["content"] = said.into();
        // As a client's library may write them anew.
        spoken["tool_calls"][0]["function"]["arguments"] = "{\"city\":\"Oslo\"}".into();
        let result = json!({"role": "tool", "tool_call_id": spoken["tool_calls"][0]["id"], "content": "sunny"});
        let question = json!({"content": [{"type": "text", "text": asked}], "role": "user"});
        let answered = server.post(CHAT, &with_tool(&json!([question, spoken, result]))).await.ok();
        let warnings = answered["agent"]["warnings"].as_array().cloned().unwrap_or_default();
        let told = warnings.iter().filter(|warning| warning.to_string().contains("not those of the run")).count();
        assert_eq!((told, &answered["agent"]["iterations"]), (edits, &json!(3)), "{asked} {said} {warnings:?}");
        assert_eq!(answered["agent"]["run_id"], waiting["agent"]["run_id"]);
    }
    let requests = upstream.received(12).await;
    assert!(requests.iter().all(|request| request["messages"][0]["content"] == "How is it?"));
}

#[tokio::test]
async fn a_request_that_goes_on_with_a_run_is_told_what_of_it_changes_nothing() {
    let calls = Reply::calls("weather", &json!({"city": "Oslo"}));
    let upstream = Upstream::start([calls, Reply::says("Fine.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let mut request = with_tool(&json!([{"role": "user", "content": "How is it?"}]));
    request["metadata"] = json!({"from": "one"});
    let waiting = server.post(CHAT, &request).await.ok();
    let call = &waiting["agent"]["required_action"]["calls"][0]["call_id"];
    let mut answer = with_tool(&json!([{"role": "tool", "tool_call_id": call, "content": "sunny"}]));
    answer["agent"] = json!({"run_id": waiting["agent"]["run_id"]});
    answer["metadata"] = json!({"from": "two"});
    answer["temperature"] = json!(0.5);
    answer["api_base"] = "http://elsewhere".into();
    let answered = server.post(CHAT, &answer).await.ok();
    let warnings = answered["agent"]["warnings"].to_string();
    for about in ["keeps the metadata", "other parameters changed nothing", "api_base"] {
        assert!(warnings.contains(about), "{about}: {warnings}");
    }
    assert!(!warnings.contains("not those of the run"), "{warnings}");
    let path = format!("/v1/runs/{}", waiting["agent"]["run_id"].as_str().expect("it has an id"));
    assert_eq!(server.get(&path).await.ok()["metadata"], json!({"from": "one"}));
}

#[tokio::test]
async fn a_request_that_goes_on_with_a_run_may_not_ask_for_other_settings() {
    let calls = Reply::calls("weather", &json!({"city": "Oslo"}));
    let upstream = Upstream::start([calls, Reply::says("Fine.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let waiting = server.post(CHAT, &with_tool(&json!([{"role": "user", "content": "How is it?"}]))).await.ok();
    let call = &waiting["agent"]["required_action"]["calls"][0]["call_id"];
    let mut answer = with_tool(&json!([{"role": "tool", "tool_call_id": call, "content": "sunny"}]));
    answer["agent"] = json!({"run_id": waiting["agent"]["run_id"]});
    for (param, member, other) in [
        ("model", "/model", json!("scripted/test")),
        ("tools", "/tools/0/function/name", json!("tides")),
        ("agent.limits.max_iterations", "/agent/limits", json!({"max_iterations": 3})),
        ("agent.limits.token_budget", "/agent/limits", json!({"token_budget": 5_000})),
        ("agent.limits.cost_budget_usd", "/agent/limits", json!({"cost_budget_usd": 1.5})),
    ] {
        let mut changed = answer.clone();
        changed["agent"]["limits"] = json!({});
        *changed.pointer_mut(member).expect("it is there") = other;
        let refused = server.post(CHAT, &changed).await;
        assert_eq!((refused.status, refused.code()), (400, "invalid_value"), "{}", refused.body);
        assert_eq!(refused.body["error"]["param"], param);
    }
    assert_eq!(server.post(CHAT, &answer).await.ok()["choices"][0]["message"]["content"], "Fine.");
}

#[tokio::test]
async fn members_that_no_upstream_is_sent_are_named_in_a_warning() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Fine."));
    let server = TestServer::start(&upstream.config()).await;
    let warned = server.post(CHAT, &ask(&json!({"apiKey": "secret", "fallbacks": ["m"], "top_k": 4}))).await.ok();
    let warnings = warned["agent"]["warnings"].to_string();
    assert!(warnings.contains("apiKey, fallbacks") && !warnings.contains("top_k"), "{warnings}");
    assert!(!warnings.contains("secret"));
    let many: serde_json::Map<_, _> = (0..100).map(|n| (format!("aws_{n}_{}", "x".repeat(900)), json!(1))).collect();
    let warned = server.post(CHAT, &ask(&many.into())).await.ok();
    let warnings = warned["agent"]["warnings"].to_string();
    assert!(warnings.contains("aws_0_x") && warnings.len() < 1_000, "{}", warnings.len());
    assert!(!server.post(CHAT, &ask(&json!({}))).await.ok()["agent"]["warnings"].to_string().contains("no upstream"));
}

#[tokio::test]
async fn a_run_that_waits_is_cancelled_at_once_in_either_mode_and_stays_so() {
    let upstream = Upstream::start([Reply::calls("ask", &json!({}))]).await;
    let mut server = TestServer::start(&upstream.config()).await;
    let tools = json!([{"type": "function", "function": {"name": "ask", "parameters": {"type": "object"}}}]);
    let waiting = server.post(CHAT, &ask(&json!({"tools": tools}))).await.ok();
    let cancel = format!("/v1/runs/{}/cancel", waiting["agent"]["run_id"].as_str().expect("it has an id"));
    for (wrong, code) in [
        (json!({"mode": "later"}), "invalid_value"),
        (json!({"mod": "after_step"}), "unknown_field"),
        (json!(["after_step"]), "invalid_value"),
    ] {
        let answer = server.post(&cancel, &wrong).await;
        assert_eq!((answer.status, answer.code()), (400, code), "{wrong}");
    }
    let after_step = json!({"mode": "after_step"});
    let run = server.post(&cancel, &after_step).await.ok();
    assert_eq!((&run["status"], &run["stop_reason"]), (&json!("cancelled"), &json!("cancelled")), "{run}");
    server.kill9().await;
    server.restart().await;
    for mode in [after_step, json!({"mode": "immediate"}), json!({})] {
        assert_eq!(server.post(&cancel, &mode).await.ok()["status"], "cancelled", "it stays as it is");
    }
    // As curl sends it with `-d ''`.
    let form =
        server.request(Method::POST, &cancel).header("content-type", "application/x-www-form-urlencoded").body("");
    assert_eq!(server.send(form).await.ok()["status"], "cancelled");
}

#[tokio::test]
async fn a_model_that_repeats_its_calls_is_stopped_and_the_stream_tells_why() {
    let calls = || Reply::calls("calculator", &json!({"expression": "1+1"}));
    let upstream = Upstream::start((0..9).map(|_| calls())).await;
    let server = TestServer::start(&upstream.config()).await;
    let answer =
        server.post("/v1/agent/completions", &ask(&json!({"agent": {"planning": {"enabled": true}}}))).await.ok();
    assert_eq!(
        (&answer["agent"]["status"], &answer["agent"]["stop_reason"]),
        (&json!("incomplete"), &json!("loop_guard"))
    );
    assert_eq!((&answer["choices"][0]["finish_reason"], upstream.requests().len()), (&json!("length"), 5));
    let run = answer["agent"]["run_id"].as_str().expect("it has an id");
    let events = server.get(&format!("/v1/runs/{run}/events?stream=false")).await.ok();
    let told: Vec<_> = events["data"]
        .as_array()
        .expect("it is a list")
        .iter()
        .filter(|event| event["type"] == "loop_guard.triggered" || event["type"] == "plan.created")
        .map(|event| (event["type"].clone(), event["action"].clone(), event["step"].clone()))
        .collect();
    let guard = |action: &str, step| (json!("loop_guard.triggered"), json!(action), json!(step));
    assert_eq!(told, [(json!("plan.created"), Value::Null, json!(1)), guard("warn", 3), guard("stop", 5)]);
}

//! Bodies of completion requests.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Allowed, ENDPOINTS, House, check, complaint, nothing_in, valid, with, with_agent};

const JSON: Allowed = &[(400, "invalid_json")];
const VALUE: Allowed = &[(400, "invalid_value")];
const MISSING: Allowed = &[(400, "missing_field")];
const NOT_ALLOWED: Allowed = &[(403, "forbidden")];
const NO_MODEL: Allowed = &[(404, "model_not_found")];

async fn refused(house: &House, bodies: impl IntoIterator<Item = (String, Allowed)>) {
    let mut complaints = Vec::new();
    for (body, allowed) in bodies {
        for endpoint in ENDPOINTS {
            let request = house.server.request(Method::POST, endpoint).header("content-type", "application/json");
            let answer = house.server.send(request.body(body.clone())).await;
            complaints.extend(complaint(&body, &answer, allowed));
        }
    }
    nothing_in(&complaints);
    house.still_stands().await;
}

const DEEP_TOOL: &str = r#"{"type":"function","function":{"name":"t","parameters":{"type":"object","default":DEEP}}}"#;

#[tokio::test]
async fn that_are_not_json_are_refused() {
    let good = valid().to_string();
    let nested = format!(r#"{{"model":"test","messages":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let deep: Allowed = &[(400, "invalid_json"), (400, "invalid_value")];
    let deeply = |text: &str| text.replace("DEEP", &format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    let rows: [(String, Allowed); 24] = [
        (deeply(&good.replacen(r#""role""#, r#""x":DEEP,"role""#, 1)), JSON),
        (deeply(&good.replacen('{', r#"{"response_format":{"type":"json_schema","json_schema":DEEP},"#, 1)), JSON),
        (deeply(&good.replacen('{', &format!(r#"{{"tools":[{DEEP_TOOL}],"#), 1)), JSON),
        (String::new(), JSON),
        ("{".into(), JSON),
        (format!("{good}{good}"), JSON),
        (format!("{good} x"), JSON),
        (format!("\u{feff}{good}"), JSON),
        ("null".into(), VALUE),
        ("[]".into(), VALUE),
        ("\"x\"".into(), VALUE),
        ("1".into(), VALUE),
        // 31; bytes that are not UTF-8 are tested below
        (good.replace("Hi", r"\ud800"), JSON),
        (good.replacen('{', r#"{"model":"test","#, 1), JSON),
        (
            with("agent", json!({"session_id": "a"}))
                .to_string()
                .replace("\"session_id\"", "\"session_id\":\"b\",\"session_id\""),
            JSON,
        ),
        (good.replacen(r#""role""#, r#""role":"user","role""#, 1), JSON),
        (nested.clone(), deep),
        (
            nested
                .replace('[', r#"{"a":"#)
                .replace(']', "}")
                .replace(r#":"test","messages":"#, r#":"test","messages":1,"x":"#),
            deep,
        ),
        (good.replacen('{', r#"{"temperature":1e400,"#, 1), &[(400, "invalid_json"), (400, "invalid_value")]),
        (good.replacen('{', r#"{"temperature":NaN,"#, 1), JSON),
        (good.replacen('{', r#"{"max_tokens":18446744073709551616,"#, 1), VALUE),
        (good.replacen('{', r#"{"max_tokens":-0,"#, 1), VALUE),
        (good.replacen('{', r#"{"seed":18446744073709551616,"#, 1), VALUE),
        (good.replacen('{', r#"{"n":1.5,"#, 1), VALUE),
    ];
    refused(&House::build("").await, rows).await;
}

#[tokio::test]
async fn that_are_not_text_are_refused() {
    let house = House::build("").await;
    for endpoint in ENDPOINTS {
        let mut body = valid().to_string().into_bytes();
        let at = body.iter().position(|byte| *byte == b'H').expect("it says Hi");
        body[at] = 0xff;
        let request = house.server.request(Method::POST, endpoint).header("content-type", "application/json");
        check("a byte that is not UTF-8", &house.server.send(request.body(body)).await, JSON);
    }
    house.still_stands().await;
}

#[tokio::test]
async fn with_parameters_out_of_range_are_refused() {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let tools = |names: &[&str]| with("tools", names.iter().map(|name| tool(name)).collect::<Value>());
    let mut no_model = valid();
    no_model["model"] = Value::Null;
    let mut unnamed = valid();
    unnamed.as_object_mut().expect("it is an object").remove("model");
    let rows: Vec<(Value, Allowed)> = vec![
        (with("n", 0), VALUE),
        (with("n", 2), VALUE),
        (with("n", 1_000_000_000), VALUE),
        (with("max_tokens", -1), VALUE),
        (with("max_tokens", 0), VALUE),
        (with("max_completion_tokens", 1_000_000_000_000_u64), VALUE),
        (with("temperature", "hot"), VALUE),
        (with("temperature", -1), VALUE),
        (with("top_p", 99), VALUE),
        (with("stream", "yes"), VALUE),
        (with("model", "nonsense"), NO_MODEL),
        (with("model", "../test"), NO_MODEL),
        (with("model", "x".repeat(300)), NO_MODEL),
        (with("model", "🦀"), NO_MODEL),
        (with("model", 7), VALUE),
        (no_model, MISSING),
        (unnamed, MISSING),
        (with("tools", (0..10_000).map(|n| tool(&format!("t{n}"))).collect::<Value>()), VALUE),
        (tools(&["a b"]), VALUE),
        (tools(&[""]), VALUE),
        (tools(&["same", "same"]), VALUE),
        (tools(&["calculator"]), VALUE),
        (with("tools", json!([{"type": "function"}])), MISSING),
        (with("tools", json!([{"type": "magic"}])), VALUE),
        (with("tools", json!([{"type": "mcp"}])), MISSING),
        (with("tools", json!([{"type": "mcp", "server_label": "a"}])), MISSING),
        (with("tools", json!([{"type": "mcp", "server_label": "a b", "server_url": "https://a.test/"}])), VALUE),
        (with("tools", json!([{"type": "mcp", "server_label": "a", "server_url": 7}])), VALUE),
        (with("tools", json!([{"type": "mcp", "server_label": "a", "server_url": "https://a.test/"}])), NOT_ALLOWED),
        (with("tools", "all"), VALUE),
        (with("tool_choice", "sometimes"), VALUE),
        (with("tool_choice", json!({"type": "function", "function": {"name": "absent"}})), VALUE),
        (with("response_format", "junk"), VALUE),
        (with("response_format", json!({"type": "xml"})), VALUE),
        (with("response_format", json!({"type": "json_schema"})), &[(400, "invalid_value"), (400, "missing_field")]),
        (with("stop", json!(["a", "b", "c", "d", "e"])), VALUE),
        (with("metadata", json!({"a": 1})), VALUE),
        (with("metadata", json!({"é".repeat(65): "x"})), VALUE),
        (with("max_tokens", 100.5), VALUE),
        (with("logprobs", true), VALUE),
        (with("logprobs", 5), VALUE),
        (with("top_logprobs", 3), VALUE),
        (with("modalities", json!(["text", "audio"])), VALUE),
        (with("modalities", "audio"), VALUE),
        (with("audio", json!({"voice": "alloy", "format": "wav"})), VALUE),
        (with("logit_bias", "x"), VALUE),
        (with("logit_bias", json!([1])), VALUE),
        (with("logit_bias", json!({"50256": 101})), VALUE),
        (with("logit_bias", json!({"50256": "-100"})), VALUE),
    ];
    refused(&House::build("").await, rows.into_iter().map(|(body, allowed)| (body.to_string(), allowed))).await;
}

#[tokio::test]
async fn with_wrong_agent_options_are_refused() {
    let limit = |name: &str, value: Value| with_agent("limits", json!({name: value}));
    let unknown: Allowed = &[(400, "unknown_field")];
    let forbidden: Allowed = &[(403, "tool_not_allowed")];
    let mut rows: Vec<(Value, Allowed)> = vec![
        (with_agent("limts", json!({})), unknown),
        (limit("max_iteration", json!(1)), unknown),
        (with("agent", "default"), VALUE),
        (limit("max_iterations", json!(21)), VALUE),
        (limit("max_iterations", json!(-1)), VALUE),
        (limit("max_iterations", json!(0)), VALUE),
        (limit("max_iterations", json!(1.5)), VALUE),
        (limit("max_tool_calls", json!(0)), VALUE),
        (limit("max_tool_calls", json!("3")), VALUE),
        (with_agent("loop_guard", json!({"warn_after": 1})), VALUE),
        (with_agent("loop_guard", json!({"stop_after": 6})), VALUE),
        (with_agent("loop_guard", json!({"enabled": false})), unknown),
        (with_agent("loop_guard", false), VALUE),
        (with_agent("planning", json!({"prompt": " "})), VALUE),
        (with_agent("planning", json!({"prompt": "x".repeat((16 << 10) + 1)})), VALUE),
        (with_agent("reflection", json!({"every": 0})), VALUE),
        (with_agent("reflection", json!([true])), VALUE),
        (with_agent("tool_errors", json!({"end_run": "*"})), VALUE),
        (with_agent("tool_errors", json!({"end_run": vec!["*"; 65]})), VALUE),
        (limit("timeout_ms", json!(300_001)), VALUE),
        (limit("tool_timeout_ms", json!("120s")), VALUE),
        (limit("cost_budget_usd", json!(-0.5)), VALUE),
        (limit("cost_budget_usd", json!(1e300)), VALUE),
        (limit("token_budget", json!((1_u64 << 53) + 1)), VALUE),
        (limit("token_budget", json!(1_000_001)), VALUE),
        (with_agent("on_limit", "explode"), VALUE),
        (with_agent("on_disconnect", "stay"), VALUE),
        (with_agent("on_conflict", "fight"), VALUE),
        (with_agent("events", "all"), VALUE),
        (with_agent("tools", json!(["shell"])), forbidden),
        (with_agent("tools", json!(["calculator", "*_shell"])), forbidden),
        (with_agent("tools", "calculator"), VALUE),
        (with_agent("run_id", "run_nonsense"), &[(404, "run_not_found")]),
    ];
    for id in ["", "a/b", "{x}", "..", "a b", "naïve", "a\nb", &"x".repeat(129)] {
        rows.push((with_agent("session_id", id), VALUE));
    }
    let house = House::build("[agents.default.limits]\ntoken_budget = 1000000\n").await;
    refused(&house, rows.into_iter().map(|(body, allowed)| (body.to_string(), allowed))).await;
}

/// No input is so long that it costs more than its own length.
#[tokio::test]
async fn that_are_too_long_are_refused() {
    let message = json!({"role": "user", "content": "x"});
    let metadata: serde_json::Map<_, _> = (0..100_000).map(|n| (format!("k{n}"), json!("v"))).collect();
    let too_long: Allowed = &[(400, "invalid_value"), (400, "context_length_exceeded"), (413, "payload_too_large")];
    let rows = [
        (with("messages", vec![message; 100_000]).to_string(), too_long),
        (with("metadata", metadata).to_string(), too_long),
    ];
    refused(&House::build("").await, rows).await;
}

/// The schema of a client's tool is for the model to read; nothing in it is fetched or followed.
#[tokio::test]
async fn with_hostile_schemas_cause_no_request_and_no_stall() {
    let canary = crate::support::ToolServer::start([]).await;
    let config = canary.config("canary", "read");
    let url = config.split('"').find(|part| part.starts_with("http")).expect("it names its address").to_owned();
    let house = House::build("").await;
    for schema in [
        json!({"$ref": url}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
        json!({"type": "object", "description": "x".repeat(1 << 20)}),
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(a+)+$"}}}),
    ] {
        let tool = json!({"type": "function", "function": {"name": "t", "parameters": schema}});
        let answer = house.server.post(ENDPOINTS[0], &with("tools", json!([tool]))).await;
        if answer.status != 200 {
            check(&tool.to_string(), &answer, &[(400, "invalid_value"), (400, "context_length_exceeded")]);
        }
    }
    assert!(canary.calls().is_empty(), "a schema's reference was fetched");
    house.still_answers().await;
}

/// What a body asks for beyond its rights has no effect.
#[tokio::test]
async fn with_members_for_the_upstream_do_not_reach_it() {
    let house = House::build("").await;
    let mut request = valid();
    for (name, value) in [
        ("api_base", json!("http://127.0.0.1:9/v1")),
        ("base_url", json!("http://127.0.0.1:9/v1")),
        ("api_key", json!("sk-stolen")),
        ("extra_headers", json!({"x-stolen": "yes"})),
        ("user", json!("eve\r\n\u{1b}[31mforged line\u{0}")),
        ("metadata", json!({"a": "b\r\nforged line\u{1b}[0m"})),
        ("agent", json!({"tools": ["*"]})),
    ] {
        request[name] = value;
    }
    house.server.post(ENDPOINTS[0], &request).await.ok();
    let asked = &house.upstream.requests()[0];
    for name in ["api_base", "base_url", "api_key", "extra_headers", "agent"] {
        assert!(asked.get(name).is_none(), "{name} went to the upstream");
    }
    let raw = &house.upstream.raw_requests()[0];
    assert!(!raw.headers.values().any(|value| value.contains("stolen")) && !raw.headers.contains_key("x-stolen"));
    let offered = asked["tools"].as_array().expect("tools are offered");
    let offered: Vec<_> = offered.iter().map(|tool| tool["function"]["name"].as_str().unwrap_or_default()).collect();
    assert_eq!(offered, ["calculator", "current_time"], "a star is all that the agent has, not all there is");
    let log = house.server.output();
    assert!(!log.contains('\u{1b}') && !log.lines().any(|line| line.starts_with("forged")), "{log}");
    house.still_answers().await;
}

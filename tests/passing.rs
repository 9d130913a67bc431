//! What passes between callers, upstreams and the log: members that only an upstream knows, its refusals, and the lines
//! that say how runs ended.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::cluster::client::Client;
use crate::support::cluster::plan::Plan;
use crate::support::cluster::{KEY, TestServices};
use crate::support::redis::{durable, free_port};
use crate::support::seed::Seed;
use crate::support::{Gate, Reply, TestServer, ToolServer, Upstream};

const ENDPOINT: &str = "/v1/chat/completions";

fn request(members: &Value) -> Value {
    let mut request = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]});
    for (name, value) in members.as_object().expect("members are an object") {
        request[name] = value.clone();
    }
    request
}

/// What the upstream is asked for a request with these members, if its declaration ends with `setting`.
async fn asked(setting: &str, members: &Value) -> Value {
    let upstream = Upstream::start([Reply::says("Hello")]).await;
    let server = TestServer::start(&format!("{}{setting}", upstream.config())).await;
    server.post(ENDPOINT, &request(members)).await.ok();
    upstream.requests().remove(0)
}

#[tokio::test]
async fn members_that_are_not_known_reach_an_upstream_that_may_know_them() {
    let members = json!({
        "top_k": 40, "min_p": 0.05, "chat_template_kwargs": {"enable_thinking": false}, "store": true,
        "modalities": ["text"], "logprobs": false, "thinking": null, "agent": {"events": "none"},
    });
    let passed = asked("", &members).await;
    for name in ["top_k", "min_p", "chat_template_kwargs", "store", "modalities", "logprobs"] {
        assert_eq!(passed[name], members[name], "{name}");
    }
    assert_eq!((passed.get("thinking"), passed.get("agent")), (None, None));

    let documented = asked("pass_unknown_members = false\n", &json!({"chat_id": "c", "top_k": 0, "store": true})).await;
    assert_eq!((&documented["store"], documented.get("top_k"), documented.get("chat_id")), (&json!(true), None, None));
}

/// What decides about the answer is refused; a member that says nothing of it is left out, and named.
#[tokio::test]
async fn members_that_an_upstream_is_not_sent_are_named_to_the_caller() {
    let upstream = Upstream::start([Reply::says("Hello")]).await;
    let server = TestServer::start(&format!("{}pass_unknown_members = false\n", upstream.config())).await;
    let answer = server.post(ENDPOINT, &request(&json!({"chat_id": "c", "min_p": 0, "store": true}))).await.ok();
    let said = "the upstream scripted was not sent these members, which it or its model does not take: chat_id";
    let warnings = answer["agent"]["warnings"].as_array().expect("there are warnings");
    assert!(warnings.contains(&said.into()), "{warnings:?}");
    for (name, value) in [
        ("top_k", json!(40)),
        ("min_p", json!(0.05)),
        ("thinking", json!({"type": "enabled"})),
        ("chat_template_kwargs", json!({"enable_thinking": false})),
    ] {
        let answer = server.post(ENDPOINT, &request(&json!({name: value}))).await;
        let error = &answer.body["error"];
        assert_eq!((answer.status, &error["param"]), (400, &json!(name)), "{}", answer.body);
        assert!(error["message"].as_str().is_some_and(|text| text.contains(name)), "{error}");
    }
    assert_eq!(upstream.requests().len(), 1);
}

/// Whatever the settings say, and however it is spelled.
#[tokio::test]
async fn members_that_would_steer_a_gateway_stay_behind() {
    let members = json!({
        "api_base": "http://127.0.0.1:9/v1", "apiKey": "sk-stolen", "extra_body": {"model": "dearer"},
        "provider": {"order": ["dearer"]}, "models": ["dearer"], "route": "fallback", "fallbacks": ["dearer"],
        "mock_response": "free", "aws_role_name": "root", "n_predict": 1_000_000, "best_of": 20, "top_k": 1,
    });
    let passed = asked("pass_unknown_members = true\n", &members).await;
    let passed = passed.as_object().expect("it is an object");
    let reached: Vec<_> =
        members.as_object().into_iter().flat_map(|all| all.keys()).filter(|name| passed.contains_key(*name)).collect();
    assert_eq!(reached, ["top_k"]);
}

/// Half a minute of it is a megabyte, and some hundred tokens.
#[tokio::test]
async fn sound_is_not_taken_for_text() {
    let upstream = Upstream::start([Reply::says("A bird.")]).await;
    let model = "[models.test]\ncontext_window = 32000\n";
    let server = TestServer::start(&format!("{}{model}", upstream.config())).await;
    let sound = json!({"data": "A".repeat(1_280_000), "format": "wav"});
    let parts = json!([{"type": "text", "text": "What is it?"}, {"type": "input_audio", "input_audio": sound}]);
    let messages = json!([{"role": "user", "content": parts}]);
    server.post(ENDPOINT, &request(&json!({"messages": messages}))).await.ok();
    assert_eq!(upstream.requests()[0]["messages"], messages);
}

#[tokio::test]
async fn whole_numbers_may_have_a_fraction_of_nothing() {
    let asked = asked("", &json!({"max_tokens": 100.0, "n": 1.0})).await;
    assert_eq!(asked["max_tokens"].as_u64(), Some(100));
}

#[tokio::test]
async fn what_an_upstream_refuses_is_the_callers_error_in_its_own_words() {
    let words = "Unsupported parameter: 'top_k' is not supported with this model.";
    for status in [400, 422] {
        let upstream = Upstream::start([Reply::error(status, "unsupported_parameter", words)]).await;
        let server = TestServer::start(&upstream.config()).await;
        let answer = server.post(ENDPOINT, &request(&json!({"top_k": 1}))).await;
        assert_eq!((answer.status, answer.code()), (400, "request_rejected"));
        let message = answer.body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{message}");
        assert_eq!(upstream.requests().len(), 1, "what was refused was sent again");
        let line = server.logged("the run failed").await;
        assert!(line.contains("WARN") && line.contains(words), "{line}");
    }
}

/// Some servers find out only when the answer has begun.
#[tokio::test]
async fn what_an_upstream_refuses_within_its_answer_is_the_callers_error_too() {
    let words = "top_k must be positive";
    for error in [
        json!({"message": words, "code": 400}),
        json!({"message": words, "type": "invalid_request_error", "code": null}),
    ] {
        let event = format!("data: {}\n\n", json!({"error": error}));
        let upstream = Upstream::start([Reply::stream().bytes(event)]).await;
        let server = TestServer::start(&upstream.config()).await;
        let answer = server.post(ENDPOINT, &request(&json!({"top_k": -9}))).await;
        assert_eq!((answer.status, answer.code()), (400, "request_rejected"), "{}", answer.body);
        assert!(answer.body["error"]["message"].as_str().is_some_and(|message| message.contains(words)));
        assert_eq!(upstream.requests().len(), 1, "what was refused was sent again");
    }
}

#[tokio::test]
async fn a_conversation_that_the_upstream_finds_too_long_is_the_same_as_one_that_the_server_does() {
    let upstream = Upstream::start([Reply::error(400, "context_length_exceeded", "too many tokens")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let answer = server.post(ENDPOINT, &request(&json!({}))).await;
    assert_eq!((answer.status, answer.code()), (400, "context_length_exceeded"));
    let run = server.get(&format!("/v1/runs/{}", answer.header("x-loopgate-run-id"))).await.ok();
    assert_eq!((&run["status"], &run["stop_reason"]), (&json!("failed"), &json!("context_limit")));
}

#[tokio::test]
async fn a_failure_is_told_in_one_sentence_everywhere_and_without_the_upstreams_key() {
    let words = "Incorrect API key provided: up_secret. Ask your operator.";
    let upstream = Upstream::start([Reply::error(402, "unpaid", words)]).await;
    let config = format!("{}api_key_env = \"UP_KEY\"\n", upstream.config());
    let server = TestServer::builder(&config).env("UP_KEY", "up_secret").start().await;
    let answer = server.post(ENDPOINT, &request(&json!({}))).await;
    assert_eq!((answer.status, answer.code()), (502, "provider_error"));
    let message = answer.body["error"]["message"].as_str().expect("it says why");
    assert!(message.contains("Ask your operator") && !message.contains("up_secret"), "{message}");
    let path = format!("/v1/runs/{}", answer.header("x-loopgate-run-id"));
    assert_eq!(server.get(&path).await.ok()["error"]["message"], message);
    let events = server.get(&format!("{path}/events?stream=false")).await.ok();
    let last = events["data"].as_array().and_then(|events| events.last()).expect("there are events");
    assert_eq!(last["error"]["message"], message);
    let line: Value = serde_json::from_str(&server.logged("the run failed").await).expect("it is a line of JSON");
    assert!(line.to_string().contains(message), "{line}");
    assert!(!server.output().contains("up_secret"));
}

#[tokio::test]
async fn the_log_says_whose_run_it_was_how_it_ended_and_what_it_took() {
    let upstream = Upstream::start([Reply::says("Hello")]).await;
    let config = format!("{}[keys.ann]\nkey_env = \"KEY_ANN\"\n", upstream.config());
    let mut server = TestServer::builder(&config).env("KEY_ANN", "lg_aaaa").start().await;
    server.use_key("lg_aaaa");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let asked = server.json("/v1/agent/completions", &request(&json!({"agent": {"session_id": "s:1"}})));
    let asked = asked.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01")).header("x-request-id", "req-7");
    let answer = server.send(asked).await.ok();
    let run = answer["agent"]["run_id"].as_str().expect("it has an id");
    let line: Value = serde_json::from_str(&server.logged("the run ended").await).expect("it is a line of JSON");
    for (field, value) in [("session", "s:1"), ("request", "req-7"), ("trace_id", trace), ("reason", "done")] {
        assert_eq!(line[field], value, "{field}: {line}");
    }
    let times = ["total_ms", "llm_ms", "tool_ms"].map(|field| line[field].as_u64());
    assert!(times.iter().all(Option::is_some) && times[0] >= times[1], "{line}");
    assert_eq!((&line["iterations"], &line["tool_calls"]), (&json!(1), &json!(0)));
    for subject in ["\"message\":\"the run ended\"", "\"path\":\"/v1/agent/completions\""] {
        let line = server.logged(subject).await;
        for word in [run, "\"tenant\":\"ann\"", "\"key\":\"ann\"", "test\"", "\"tokens\":15", "\"cost_usd\":", trace] {
            assert!(line.contains(word), "{word} is not in: {line}");
        }
    }
}

#[tokio::test]
async fn the_log_tells_a_run_that_waits_from_one_that_ended() {
    let upstream = Upstream::start([Reply::calls("pay", &json!({}))]).await;
    let server = TestServer::start(&upstream.config()).await;
    let tools = json!({"tools": [{"type": "function", "function": {"name": "pay"}}]});
    let answer = server.post("/v1/agent/completions", &request(&tools)).await.ok();
    assert_eq!(answer["agent"]["status"], "requires_action");
    let line = server.logged("the run waits for its caller").await;
    for word in [answer["agent"]["run_id"].as_str().expect("it has an id"), "\"tenant\":", "test\"", "\"tokens\":15"] {
        assert!(line.contains(word), "{word} is not in: {line}");
    }
    assert!(!server.output().contains("the run ended"));
}

#[tokio::test]
async fn the_line_of_a_request_says_all_that_became_known_of_it() {
    let upstream = Upstream::start([Reply::says("Hello")]).await;
    let config = format!("{}[keys.ann]\nkey_env = \"KEY_ANN\"\n", upstream.config());
    let mut server = TestServer::builder(&config).env("KEY_ANN", "lg_aaaa").start().await;
    server.use_key("lg_aaaa");
    let served = async |path: &str| -> Value {
        let line = server.logged(&format!("\"path\":\"{path}\"")).await;
        serde_json::from_str(&line).expect("it is a line of JSON")
    };
    let answer = server.post("/v1/agent/completions", &request(&json!({}))).await;
    let line = served("/v1/agent/completions").await;
    assert_eq!(line["run"], answer.header("x-loopgate-run-id"));
    assert_eq!(line["span"]["id"], answer.header("x-request-id"));
    assert_eq!((&line["tenant"], &line["key"], &line["status"]), (&json!("ann"), &json!("ann"), &json!(200)));
    assert!(line["model"].is_string() && line["latency_ms"].is_f64() && line["tokens"] == 15, "{line}");

    // Of a request that fails there is less to say, but whose it is.
    assert_eq!(server.get("/v1/runs/run_none").await.status, 404);
    let line = served("/v1/runs/run_none").await;
    assert_eq!((&line["tenant"], &line["key"], &line["status"]), (&json!("ann"), &json!("ann"), &json!(404)));
    assert!(line.get("run").is_none() && line.get("model").is_none(), "{line}");
    assert_eq!((&line["code"], &line["level"]), (&json!("run_not_found"), &json!("INFO")));
}

/// What failed is a warning; what a caller did wrong is none.
#[tokio::test]
async fn the_line_of_a_request_that_failed_is_a_warning_with_its_code() {
    let upstream = Upstream::start([Reply::error(402, "unpaid", "Pay first.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    assert_eq!(server.post("/v1/agent/completions", &request(&json!({}))).await.status, 502);
    let line: Value = serde_json::from_str(&server.logged("\"status\":502").await).expect("it is JSON");
    assert_eq!((&line["level"], &line["code"]), (&json!("WARN"), &json!("provider_error")));
}

#[tokio::test]
async fn the_log_says_why_a_tool_gave_no_answer() {
    let upstream = Upstream::start([Reply::calls("look", &json!({"note": "x"})), Reply::says("Done.")]).await;
    let tool = format!(
        "[tools.look]\ndescription = \"d\"\nurl = \"http://127.0.0.1:{}/?key=in_query\"\neffect = \"read\"\n\
         parameters = {{ type = \"object\", properties = {{ note = {{ type = \"string\" }} }} }}\n",
        free_port()
    );
    let server = TestServer::start(&format!("{}{tool}[agents.default]\ntools = [\"look\"]\n", upstream.config())).await;
    let answer = server.post("/v1/agent/completions", &request(&json!({}))).await.ok();
    let line: Value =
        serde_json::from_str(&server.logged("an HTTP tool gave no answer").await).expect("it is a line of JSON");
    assert_eq!(
        (&line["level"], &line["run"], &line["tool"]),
        (&json!("WARN"), &answer["agent"]["run_id"], &json!("look"))
    );
    assert!(line["error"].as_str().is_some_and(|error| error.contains("refused")), "{line}");
    assert!(line["call"].is_string() && !server.output().contains("in_query"), "{line}");
}

#[tokio::test]
async fn every_model_of_the_list_is_found_by_its_id() {
    let upstream = Upstream::start([]).await;
    let config = upstream.config().replace("[\"test\"]", "[\"test\", \"meta/llama/big\"]");
    let server = TestServer::start(&config).await;
    let models = server.get("/v1/models").await.ok();
    let ids: Vec<_> =
        models["data"].as_array().into_iter().flatten().filter_map(|model| model["id"].as_str()).collect();
    assert!(ids.contains(&"scripted/test") && ids.contains(&"scripted/meta/llama/big"), "{ids:?}");
    for id in ids {
        for path in [id.to_owned(), id.replace('/', "%2F")] {
            assert_eq!(server.get(&format!("/v1/models/{path}")).await.ok()["id"], id);
        }
    }
    assert_eq!(server.get("/v1/models/scripted/absent").await.code(), "model_not_found");
}

/// An operator finds a slow or failed call under the same names in the logs of the caller, the server, the upstream and
/// the tool.
#[tokio::test]
async fn upstreams_and_tools_are_told_the_trace_and_the_request() {
    let tools = ToolServer::start([]).await;
    let upstream = Upstream::start([Reply::calls("look", &json!({"note": "x"})), Reply::says("Done.")]).await;
    let config = format!("{}{}[agents.default]\ntools = [\"look\"]\n", upstream.config(), tools.config("look", "read"));
    let server = TestServer::start(&config).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = server.json(ENDPOINT, &request(&json!({}))).header("traceparent", trace);
    server.send(request.header("x-request-id", "req-7")).await.ok();
    let (asked, called) = (upstream.raw_requests(), tools.calls());
    assert_eq!((asked.len(), called.len()), (2, 1));
    for received in asked.iter().chain(&called) {
        let named = ["traceparent", "x-request-id"].map(|name| received.headers.get(name).map(String::as_str));
        assert_eq!(named, [Some(trace), Some("req-7")], "{}", received.target);
    }
}

/// A service may act for the caller's user, so it must know who that is, and no text of the caller's may forge a header.
#[tokio::test]
async fn a_tool_is_told_of_the_caller_what_its_operator_allows() {
    let tools = ToolServer::start([]).await;
    let upstream = Upstream::start([]).await;
    let quiet = tools.config("quiet", "read");
    let told = tools.config("told", "read")
        + "send_identity = [\"tenant\", \"session\", \"user\", \"metadata\"]\n\
                                               headers = { x-loopgate-user = \"nobody\" }\n";
    let config = format!("{}{quiet}{told}[agents.default]\ntools = [\"*\"]\n", upstream.config());
    let config = format!("{config}[keys.web]\ntenant = \"acme\"\nkey_env = \"KEY_WEB\"\n");
    let mut server = TestServer::builder(&config).env("KEY_WEB", "lg_aaaa").start().await;
    server.use_key("lg_aaaa");
    let names = ["x-loopgate-tenant", "x-loopgate-session-id", "x-loopgate-user", "x-loopgate-metadata"];
    let called = async |tool: &str, members: Value| -> [Option<String>; 4] {
        upstream.then(Reply::calls(tool, &json!({"note": "x"})));
        upstream.then(Reply::says("Done."));
        server.post(ENDPOINT, &request(&members)).await.ok();
        let call = tools.calls().pop().expect("the tool was called");
        assert_eq!(call.target, format!("/{tool}"));
        names.map(|name| call.headers.get(name).cloned())
    };
    let members = json!({
        "user": "Zoë, 50%\r\nx-loopgate-tenant: other",
        "metadata": {"order": "17", "für": "a b"},
        "agent": {"session_id": "s:1"},
    });
    assert_eq!(called("quiet", members.clone()).await, [const { None }; 4]);
    let expected = [
        "acme",
        "s:1",
        "Zo%C3%AB%2C%2050%25%0D%0Ax-loopgate-tenant:%20other",
        "{%22f%C3%BCr%22:%22a%20b%22%2C%22order%22:%2217%22}",
    ];
    assert_eq!(called("told", members).await, expected.map(|value| Some(value.to_owned())));
    // A header of the configuration is not taken for what the caller said.
    assert_eq!(called("told", json!({})).await, [Some("acme".to_owned()), None, None, None]);
    // What no header could tell is refused at once, and only where a tool would have to tell it.
    let long: std::collections::BTreeMap<String, String> = (0..16).map(|n| (n.to_string(), "ü".repeat(500))).collect();
    for (member, value) in [("metadata", json!(long)), ("user", json!("ü".repeat(2_000)))] {
        let refused = server.post(ENDPOINT, &request(&json!({member: value}))).await;
        assert_eq!((refused.status, refused.body["error"]["param"].as_str()), (400, Some(member)), "{}", refused.body);
        assert!(
            refused.body["error"]["message"].as_str().is_some_and(|why| why.contains("\"told\"")),
            "{}",
            refused.body
        );
        upstream.then(Reply::says("Done."));
        server.post(ENDPOINT, &request(&json!({member: value, "agent": {"tools": ["quiet"]}}))).await.ok();
    }
    for asked in upstream.raw_requests() {
        assert!(!names.iter().any(|name| asked.headers.contains_key(*name)), "{:?}", asked.headers);
    }
}

/// Several runs wait for the store, are left when their leases run out, and requests come meanwhile. Each of these says
/// something of it again and again, and the log has each sentence once.
#[tokio::test]
async fn the_log_says_once_a_minute_that_the_store_is_away() {
    const AWAY: Duration = Duration::from_secs(14);
    let (mut redis, services) = (durable().await, TestServices::start().await);
    let config = services.config_under("requests_per_minute = 10000\n");
    let mut server = TestServer::builder(&config).store(&redis.url()).start().await;
    server.use_key(KEY);
    let client = Client::new(vec![server.url().to_owned()]);
    let jobs = (0..6).map(|run| (Plan::new(format!("away-{run}")).with_text(400, 50), None)).collect();
    let in_flight = TestServices::launch(&client, &Seed::of_this_run().part("away"), jobs);
    services.model.asked(6).await;
    redis.kill().await;
    let since = Instant::now();
    while since.elapsed() < AWAY {
        server.get("/v1/runs").await;
        sleep(Duration::from_millis(300)).await;
    }
    let output = server.output();
    let sentences = [
        "could not renew the lease",
        "could not mark the run",
        "could not look for orphaned runs",
        "could not look whether the other replicas live",
        "could not read what is due",
        "the store cannot count requests",
    ];
    let said = sentences.map(|sentence| (sentence, output.matches(sentence).count()));
    assert_eq!(said, sentences.map(|sentence| (sentence, 1)), "{output}");
    drop(in_flight);
}

/// Who operates the server learns of a takeover and of a call that may have been made from its log.
#[tokio::test]
async fn the_log_tells_of_a_replica_that_died_and_of_what_that_left_unknown() {
    let tools = ToolServer::start([Reply::plain("").stall()]).await;
    let upstream = Upstream::start([Reply::calls("pay", &json!({"note": "x"}))]).await;
    let config = format!("{}{}[agents.default]\ntools = [\"pay\"]\n", upstream.config(), tools.config("pay", "write"));
    let mut server = TestServer::start(&config).await;
    let body = request(&json!({"agent": {"background": true}}));
    let run = server.post(ENDPOINT, &body).await.ok()["id"].as_str().expect("it is text").to_owned();
    tools.called(1).await;
    server.kill9().await;
    server.restart().await;
    let failed = server.logged("the run failed").await;
    assert!(failed.contains("outcome_unknown") && failed.contains(&run) && failed.contains("WARN"), "{failed}");
    let gone = server.logged("a replica is gone").await;
    assert!(gone.contains("WARN"), "{gone}");
    let taken_over = server.logged("resuming an orphaned run").await;
    assert!(taken_over.contains(&run) && taken_over.contains("WARN"), "{taken_over}");
    let unknown = server.logged("whether a tool call took effect is not known").await;
    assert!(unknown.contains("WARN") && unknown.contains("pay") && unknown.contains(&run), "{unknown}");
}

/// A rollout is no fault.
#[tokio::test]
async fn the_log_tells_a_run_that_was_handed_over_from_one_whose_replica_died() {
    let (gate, redis) = (Gate::new(), durable().await);
    let tools = ToolServer::start([Reply::status(200).bytes("so").gate(&gate).bytes("on")]).await;
    let upstream = Upstream::start([Reply::calls("look", &json!({"note": "x"})), Reply::says("Done.")]).await;
    let config = format!("{}{}[agents.default]\ntools = [\"look\"]\n", upstream.config(), tools.config("look", "read"));
    let start = async || TestServer::builder(&config).store(&redis.url()).start().await;
    let (mut leaving, staying) = (start().await, start().await);
    let body = request(&json!({"agent": {"background": true}}));
    let run = leaving.post(ENDPOINT, &body).await.ok()["id"].as_str().expect("it is text").to_owned();
    gate.reached().await;
    leaving.sigterm();
    leaving.logged("draining").await;
    gate.open();
    let line = staying.logged("resuming a run that its replica handed over").await;
    assert!(line.contains(&run) && line.contains("INFO"), "{line}");
    staying.logged("the run ended").await;
    assert!(!staying.output().contains("resuming an orphaned run"), "{}", staying.output());
    assert!(leaving.drained().await.success());
}

//! Agents by name: what a request gets by naming one, who may, and what is said where one cannot be had.

use serde_json::{Value, json};

use crate::support::{Answer, Gate, Reply, TestServer, ToolServer, Upstream};

const CHAT: &str = "/v1/chat/completions";
const AGENT: &str = "/v1/agent/completions";

/// A request for this agent or model, with more members.
fn request(model: &str, more: &Value) -> Value {
    let mut request = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
    for (name, value) in more.as_object().into_iter().flatten() {
        request[name] = value.clone();
    }
    request
}

fn message(answer: &Answer) -> &str {
    answer.body["error"]["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_named_agent_brings_its_model_system_message_tools_and_limits() {
    let call = Reply::calls("calculator", &json!({"expression": "1 + 1"}));
    let upstream = Upstream::start([call, Reply::says("Done.")]).await;
    let agent = "[agents.careful]\nmodel = \"test\"\nsystem = \"Be careful.\"\ntools = [\"calculator\"]\n\
                 [agents.careful.limits]\nmax_iterations = 1\n";
    let server = TestServer::start(&format!("{}{agent}", upstream.config())).await;
    let system = json!({"role": "system", "content": "Be brief."});
    let mut body = request("careful", &Value::Null);
    body["messages"] = json!([system, {"role": "user", "content": "Hi"}]);
    let answer = server.post(CHAT, &body).await.ok();
    assert_eq!((&answer["model"], &answer["agent"]["stop_reason"]), (&json!("careful"), &json!("max_iterations")));
    let asked = &upstream.requests()[0];
    assert_eq!(asked["model"], "test");
    let texts: Vec<_> = asked["messages"].as_array().into_iter().flatten().map(|message| &message["content"]).collect();
    assert_eq!(texts, ["Be careful.", "Be brief.", "Hi"]);
    let tools: Vec<_> = asked["tools"].as_array().into_iter().flatten().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(tools, ["calculator"]);
    let raised = request("careful", &json!({"agent": {"limits": {"max_iterations": 2}}}));
    assert_eq!(server.post(CHAT, &raised).await.code(), "invalid_value");
}

/// As in a conversation: instructions are for the request that brings them.
#[tokio::test]
async fn a_system_message_is_sent_first_and_not_kept_in_the_session() {
    let upstream = Upstream::start([Reply::says("One."), Reply::says("Two.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let mut body = request("test", &json!({"agent": {"session_id": "s"}}));
    body["messages"] = json!([{"role": "user", "content": "Hi"}, {"role": "developer", "content": "Be brief."}]);
    server.post(CHAT, &body).await.ok();
    server.post(CHAT, &request("test", &json!({"agent": {"session_id": "s"}}))).await.ok();
    let roles = |index: usize| {
        let asked = upstream.requests().remove(index);
        let messages = asked["messages"].as_array().cloned().unwrap_or_default();
        messages.iter().map(|message| message["role"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(roles(0), ["developer", "user"]);
    assert_eq!(roles(1), ["user", "assistant", "user"]);
}

#[tokio::test]
async fn a_key_may_use_the_agents_that_it_names() {
    let upstream = Upstream::start([Reply::says("Yes.")]).await;
    let config = "[agents.mine]\nmodel = \"test\"\n[agents.theirs]\nmodel = \"test\"\n\
                  [keys.k]\nkey_env = \"CALLERS_KEY\"\nagents = [\"mine\"]\n";
    let config = format!("{}{config}", upstream.config());
    let mut server = TestServer::builder(&config).env("CALLERS_KEY", "right").start().await;
    server.use_key("right");
    server.post(CHAT, &request("mine", &Value::Null)).await.ok();
    for other in ["theirs", "test"] {
        let refused = server.post(CHAT, &request(other, &Value::Null)).await;
        assert_eq!((refused.status, refused.code()), (403, "forbidden"), "{other}");
        assert_eq!(server.get(&format!("/v1/models/{other}")).await.status, 404, "{other}");
    }
    let listed = server.get("/v1/models").await.ok();
    assert_eq!((&listed["data"][0]["id"], listed["data"].as_array().map(Vec::len)), (&json!("mine"), Some(1)));
}

#[tokio::test]
async fn an_agent_without_a_model_runs_the_only_one_there_is() {
    let upstream = Upstream::start([Reply::says("Hello.")]).await;
    let agent = "[agents.plain]\nsystem = \"Be plain.\"\n";
    let server = TestServer::start(&format!("{}{agent}", upstream.config())).await;
    let answer = server.post(CHAT, &request("plain", &Value::Null)).await.ok();
    assert_eq!((&answer["model"], &answer["choices"][0]["message"]["content"]), (&json!("plain"), &json!("Hello.")));
    assert_eq!(upstream.requests()[0]["messages"][0]["content"], "Be plain.");
    let listed = server.get("/v1/models").await.ok();
    assert_eq!(listed["data"][0]["id"], "plain");
    assert_eq!(server.get("/v1/models/plain").await.ok()["id"], "plain");
}

/// With several models nothing tells which one is meant. Where they are declared, the configuration is refused.
#[tokio::test]
async fn an_agent_without_a_model_is_refused_where_its_upstream_lists_several() {
    let list = Reply::json(200, &json!({"object": "list", "data": [{"id": "one"}, {"id": "other"}]}));
    let listing = ToolServer::start([list.clone(), list]).await;
    let upstream = format!("[upstreams.elsewhere]\nbase_url = \"http://{}/v1\"\n", listing.address());
    let server = TestServer::start(&format!("{upstream}[agents.plain]\nsystem = \"Be plain.\"\n")).await;
    let line = server.logged("agents.plain: it has no model").await;
    assert!(line.contains("WARN"), "{line}");
    let refused = server.post(CHAT, &request("plain", &Value::Null)).await;
    assert_eq!((refused.status, refused.code()), (404, "model_not_found"), "{}", refused.body);
    assert!(message(&refused).contains("agents.plain.model"), "{}", message(&refused));
}

#[tokio::test]
async fn what_does_not_exist_is_named_beside_what_may_be_meant() {
    let upstream = Upstream::start([]).await;
    let config = "[agents.default]\ntools = [\"calculator\"]\n[agents.researcher]\nmodel = \"scripted/gone\"\n\
                  [agents.secret]\nmodel = \"test\"\n\
                  [keys.k]\nkey_env = \"CALLERS_KEY\"\nagents = [\"default\", \"researcher\"]\n";
    let config = format!("{}{config}", upstream.config().replace("[\"test\"]", "[\"test\", \"gone\"]"));
    let mut server = TestServer::builder(&config).env("CALLERS_KEY", "right").start().await;
    server.use_key("right");
    let refused = server.post(CHAT, &request("reseacher", &Value::Null)).await;
    assert!(message(&refused).contains("did you mean \"researcher\"?"), "{}", message(&refused));
    let refused = server.get("/v1/models/scripted/tset").await;
    assert!(message(&refused).contains("did you mean \"scripted/test\"?"), "{}", message(&refused));
    let refused = server.post(CHAT, &request("secert", &Value::Null)).await;
    assert!(!message(&refused).contains("secret"), "what it may not use is not named: {}", message(&refused));
    let refused = server.post(CHAT, &request("test", &json!({"agent": {"tools": ["calculater"]}}))).await;
    assert!(message(&refused).contains("did you mean \"calculator\"?"), "{}", message(&refused));
    let choice = json!({"type": "function", "function": {"name": "calculater"}});
    let refused = server.post(CHAT, &request("test", &json!({"tool_choice": choice}))).await;
    assert!(message(&refused).contains("did you mean \"calculator\"?"), "{}", message(&refused));
}

/// The caller wrote the agent's name and can only repeat that.
#[tokio::test]
async fn an_agent_whose_model_is_gone_is_named_with_it() {
    let list = json!({"object": "list", "data": [{"id": "other"}]});
    let listing = ToolServer::start([Reply::json(200, &list), Reply::json(200, &list)]).await;
    let config = format!(
        "[upstreams.elsewhere]\nbase_url = \"http://{}/v1\"\n[agents.researcher]\nmodel = \"elsewhere/gone\"\n",
        listing.address()
    );
    let server = TestServer::start(&config).await;
    let refused = server.post(CHAT, &request("researcher", &Value::Null)).await;
    assert_eq!((refused.status, refused.code()), (404, "model_not_found"), "{}", refused.body);
    let said = message(&refused);
    assert!(said.contains("\"researcher\"") && said.contains("\"elsewhere/gone\""), "{said}");
}

/// The SDKs show a person the sentence alone.
#[tokio::test]
async fn sentences_name_the_value_at_fault() {
    let server = TestServer::start("").await;
    for (more, words) in [
        (json!({"temperature": 3}), "temperature must be between 0 and 2"),
        (json!({"n": 2}), "n must be 1"),
        (json!({"max_tokens": 0}), "max_tokens must be between 1"),
        (json!({"max_tokens": -1}), "max_tokens must be a non-negative whole number, not -1"),
        (json!({"n": "1"}), "n must be a number, not the string \"1\""),
        (json!({"seed": 1.5}), "seed must be a whole number, not 1.5"),
        (
            json!({"agent": {"limits": {"max_iterations": -1}}}),
            "agent.limits.max_iterations must be a non-negative whole number, not -1",
        ),
        (json!({"agent": {"on_limit": "wait"}}), "agent.on_limit must be one of stop, synthesize, error, not wait"),
        (json!({"agent": {"limits": {"timeout_ms": 0}}}), "agent.limits.timeout_ms must be above 0"),
        (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0].content must be a string"),
    ] {
        let refused = server.post(CHAT, &request("demo", &more)).await;
        assert!(refused.status == 400 && message(&refused).starts_with(words), "{}", message(&refused));
    }
}

/// The upstream is told so, and the server itself holds to it.
#[tokio::test]
async fn calls_are_made_one_by_one_if_the_request_says_so() {
    let gate = Gate::new();
    let slow = Reply::plain("first").gate(&gate);
    let tools = ToolServer::start([slow]).await;
    let calls = Reply::stream().tool_call(0, "a", "look", "{}").tool_call(1, "b", "look", "{\"note\":\"b\"}");
    let upstream = Upstream::start([calls.finish("tool_calls").usage(9, 9).done(), Reply::says("Done.")]).await;
    let config = format!("{}{}[agents.default]\ntools = [\"look\"]\n", upstream.config(), tools.config("look", "read"));
    let server = TestServer::start(&config).await;
    let mut body = request("test", &json!({"parallel_tool_calls": false}));
    body["stream"] = true.into();
    let mut events = server.stream("/v1/agent/completions", &body).await;
    gate.reached().await;
    assert_eq!(tools.calls().len(), 1, "the second call waits for the first");
    gate.open();
    let events: Vec<String> =
        events.until(crate::support::Frame::is_done).await.into_iter().map(|frame| frame.name).collect();
    let of_tools: Vec<&str> = events.iter().map(String::as_str).filter(|name| name.starts_with("tool.")).collect();
    assert_eq!(of_tools, ["tool.call", "tool.result", "tool.call", "tool.result"]);
    assert_eq!(upstream.requests()[0]["parallel_tool_calls"], false);
}

/// A tool's own timeout is below the agent's.
#[tokio::test]
async fn a_tools_own_timeout_ends_its_calls() {
    let tools = ToolServer::start([Reply::plain("").stall()]).await;
    let upstream = Upstream::start([Reply::calls("look", &json!({})), Reply::says("Done.")]).await;
    let tool = tools.config("look", "read").replace("effect =", "timeout = \"300ms\"\neffect =");
    let config = format!("{}{tool}[agents.default]\ntools = [\"look\"]\n", upstream.config());
    let server = TestServer::start(&config).await;
    let answer = server.post(CHAT, &request("test", &Value::Null)).await.ok();
    assert_eq!(answer["agent"]["status"], "completed", "{answer}");
    let told = upstream.requests()[1]["messages"].as_array().and_then(|all| all.last().cloned()).unwrap_or_default();
    assert!(told["content"].as_str().is_some_and(|text| text.contains("300 ms")), "{told}");
    assert_eq!(tools.calls()[0].headers["x-loopgate-deadline-ms"], "300");
    let line = server.logged("a tool call failed").await;
    assert!(line.contains("WARN") && line.contains("look"), "{line}");
}

/// Gives the server an agent of the store.
async fn put(server: &TestServer, name: &str, settings: &Value) -> Answer {
    let request = server.request(reqwest::Method::PUT, &format!("/v1/agents/{name}"));
    server.send(request.header("content-type", "application/json").body(settings.to_string())).await
}

#[tokio::test]
async fn one_text_is_one_message_of_the_user() {
    let upstream = Upstream::start(["One.", "Two.", "Three."].map(Reply::says)).await;
    let server = TestServer::start(&upstream.config()).await;
    let asked = |more: &Value| {
        let mut body = json!({"model": "test", "input": "What is it?"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let answer = server.post(AGENT, &asked(&json!({"agent": {"session_id": "s"}}))).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "One.");
    server.post(AGENT, &asked(&json!({"agent": {"session_id": "s"}}))).await.ok();
    server.post(CHAT, &asked(&json!({}))).await.ok();
    let said = |request: &Value| request["messages"].clone();
    let question = json!({"role": "user", "content": "What is it?"});
    let told = upstream.requests();
    assert_eq!([&told[0], &told[2]].map(said), [json!([question]), json!([question])]);
    assert_eq!(told[1]["messages"].as_array().unwrap().len(), 3, "it continues the session: {}", told[1]);
    assert!(told.iter().all(|request| request.get("input").is_none()), "{told:?}");
    let both = asked(&json!({"messages": [question]}));
    for (wrong, param, code) in [
        (both, "input", "invalid_value"),
        (json!({"model": "test", "input": ["What"]}), "input", "invalid_value"),
        (json!({"model": "test", "input": null}), "messages", "missing_field"),
    ] {
        let refused = server.post(AGENT, &wrong).await;
        assert_eq!((refused.status, refused.code()), (400, code), "{refused:?}");
        assert_eq!(refused.body["error"]["param"], param);
    }
}

#[tokio::test]
async fn an_agent_says_whether_a_request_is_streamed_that_does_not() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello."));
    let agents = "[agents.live]\nmodel = \"test\"\nstream = true\n[agents.still]\nmodel = \"test\"\n";
    let server = TestServer::start(&format!("{}{agents}", upstream.config())).await;
    let stored = json!({"model": "test", "stream": true});
    put(&server, "kept", &stored).await.ok();
    let kind = async |path: &str, body: &Value| {
        let response = server.respond(server.json(path, body)).await;
        assert_eq!(response.status().as_u16(), 200, "{path} {body}");
        let kind = response.headers()["content-type"].to_str().unwrap_or_default().to_owned();
        assert!(response.text().await.unwrap().contains("Hello."), "{path} {body}");
        kind
    };
    let (stream, plain) = ("text/event-stream", "application/json");
    for (path, agent, more, expected) in [
        (AGENT, "live", json!({}), stream),
        (AGENT, "kept", json!({}), stream),
        (AGENT, "live", json!({"stream": null}), stream),
        (AGENT, "live", json!({"stream": false}), plain),
        (AGENT, "live", json!({"agent": {"session_id": "s"}}), stream),
        (AGENT, "live", json!({"agent": {"events": "none"}}), plain),
        (AGENT, "still", json!({}), plain),
        (AGENT, "still", json!({"stream": true}), stream),
        (CHAT, "live", json!({}), plain),
    ] {
        assert_eq!(kind(path, &request(agent, &more)).await, expected, "{path} {agent} {more}");
    }
    for _ in 0..2 {
        let request = server.json(AGENT, &request("live", &Value::Null)).header("idempotency-key", "again");
        let response = server.respond(request).await;
        assert_eq!(response.headers()["content-type"], stream, "also of the run of an earlier request");
    }
    let shown = server.get("/v1/agents/kept").await.ok();
    assert_eq!(shown["effective"]["stream"], true, "{shown}");
}

#[tokio::test]
async fn model_calls_are_unlimited_beside_another_limit() {
    let calls = (0..230).map(|number| Reply::calls("calculator", &json!({"expression": format!("{number} + 1")})));
    let upstream = Upstream::start(calls.chain([Reply::says("Done.")])).await;
    let agent = "[agents.long]\nmodel = \"test\"\ntools = [\"calculator\"]\n\
                 [agents.long.limits]\nmax_iterations = \"unlimited\"\ntoken_budget = 100_000_000\n";
    let server = TestServer::start(&format!("{}{agent}", upstream.config())).await;
    let answer = server.post(AGENT, &request("long", &json!({"agent": {"include_report": false}}))).await.ok();
    assert_eq!((&answer["agent"]["stop_reason"], &answer["agent"]["iterations"]), (&json!("done"), &json!(231)));
    let narrowed = request("long", &json!({"agent": {"limits": {"max_iterations": 1}}}));
    upstream.then(Reply::calls("calculator", &json!({"expression": "1"})));
    assert_eq!(server.post(AGENT, &narrowed).await.ok()["agent"]["stop_reason"], "max_iterations");
    let bare = json!({"model": "test", "limits": {"max_iterations": "unlimited"}});
    let refused = put(&server, "bare", &bare).await;
    assert_eq!((refused.status, refused.code()), (400, "invalid_value"));
    assert!(message(&refused).contains("needs another limit beside it"), "{refused:?}");
}

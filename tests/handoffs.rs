//! Runs that go on as another agent, at the door: what clients of each dialect read, what runs and sessions tell, and what is refused.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::sse::{Frame, SseReader, text_of};
use crate::support::{Reply, TestServer, Upstream};

const AGENTS: &str = r#"
    [agents.default]
    tools = []

    [agents.front]
    model = "scripted/test"
    system = "You greet."
    handoffs = ["billing"]

    [agents.billing]
    model = "scripted/test"
    system = "You bill."
    tools = ["calculator"]
    description = "Knows invoices."
"#;

fn hands_off() -> Reply {
    Reply::calls("handoff", &json!({"agent": "billing", "reason": "It is about money."}))
}

/// A server whose model hands its run off at once.
async fn stage() -> (Upstream, TestServer) {
    let calls = Reply::calls("calculator", &json!({"expression": "6 * 7"}));
    let upstream = Upstream::start([hands_off(), calls, Reply::says("You owe 42.")]).await;
    let server = TestServer::start(&format!("{}{AGENTS}", upstream.config())).await;
    (upstream, server)
}

fn body(stream: bool) -> Value {
    json!({"model": "front", "stream": stream, "messages": [{"role": "user", "content": "What do I owe?"}]})
}

fn named<'f>(frames: &'f [Frame], name: &'f str) -> impl Iterator<Item = Value> + 'f {
    frames.iter().filter(move |frame| frame.name == name).map(Frame::json)
}

#[tokio::test]
async fn a_stream_goes_on_as_the_other_agent_and_says_so_once() {
    let (upstream, server) = stage().await;
    let mut asked = body(true);
    asked["agent"] = json!({"session_id": "s"});
    let frames = server.stream("/v1/agent/completions", &asked).await.rest().await;
    assert_eq!(text_of(&frames), "You owe 42.");
    let told: Vec<_> = named(&frames, "handoff").collect();
    let [handoff] = &told[..] else { panic!("it is told once: {told:?}") };
    assert_eq!(
        (&handoff["from"], &handoff["to"], &handoff["reason"]),
        (&json!("front"), &json!("billing"), &json!("It is about money."))
    );
    let call = named(&frames, "tool.call").next().expect("it is a call");
    assert_eq!((&call["name"], &call["call_id"]), (&json!("handoff"), &handoff["call_id"]));
    let ends = frames.iter().filter(|frame| frame.name.starts_with("run.") && frame.name != "run.started").count();
    assert_eq!(ends, 1, "there is one run and one end");
    let end = named(&frames, "run.completed").next().expect("it ends");
    let run = end["agent"]["run_id"].as_str().expect("it has an id").to_owned();
    let told = server.get(&format!("/v1/runs/{run}")).await.ok();
    assert_eq!((&told["agent_name"], &told["model"]), (&json!("billing"), &json!("front")));
    assert_eq!(told["usage"]["total_tokens"], end["agent"]["usage"]["total_tokens"]);
    let asked = upstream.requests();
    assert_eq!(asked[1]["messages"][0]["content"], "You bill.");
    let offered = |index: usize| asked[index]["tools"].to_string();
    assert!(offered(0).contains("- billing: Knows invoices.") && !offered(0).contains("calculator"), "{}", offered(0));
    assert!(offered(1).contains("calculator") && !offered(1).contains("handoff"), "{}", offered(1));

    upstream.then(Reply::says("Still 42."));
    let session = server.get("/v1/sessions/s").await.ok();
    assert_eq!((&session["agent"], &session["last_run"]["agent"]), (&json!("billing"), &json!("billing")));
    let listed = async |agent: &str| {
        server.get(&format!("/v1/sessions?agent={agent}")).await.ok()["data"].as_array().map(Vec::len)
    };
    assert_eq!((listed("billing").await, listed("front").await), (Some(1), Some(0)));
    let next = json!({"messages": [{"role": "user", "content": "Sure?"}], "agent": {"session_id": "s"}});
    server.post("/v1/agent/completions", &next).await.ok();
    let again = upstream.requests().pop().expect("it was asked");
    assert_eq!(again["messages"][0]["content"], "You bill.", "the session goes on with the agent");
}

#[tokio::test]
async fn clients_of_other_dialects_read_a_call_and_an_answer() {
    let (_upstream, server) = stage().await;
    let chunks = server.respond(server.json("/v1/chat/completions", &body(true))).await;
    let chunks = SseReader::of_chunks(chunks).rest().await;
    assert_eq!(text_of(&chunks), "You owe 42.");

    let (_upstream, server) = stage().await;
    let answer = server.post("/v1/responses", &json!({"model": "front", "input": "What do I owe?"})).await.ok();
    let items = answer["output"].as_array().expect("it has output");
    let seen: Vec<_> = items.iter().map(|item| (item["type"].as_str().unwrap_or_default(), &item["name"])).collect();
    let calls = [json!("handoff"), json!("calculator")];
    assert_eq!(seen, [("mcp_call", &calls[0]), ("mcp_call", &calls[1]), ("message", &Value::Null)], "{answer}");
    assert_eq!(answer["status"], "completed");

    let (_upstream, server) = stage().await;
    let asked =
        json!({"model": "front", "max_tokens": 100, "messages": [{"role": "user", "content": "What do I owe?"}]});
    let answer = server.post("/v1/messages", &asked).await.ok();
    let blocks = answer["content"].as_array().expect("it has content");
    let kinds: Vec<_> = blocks.iter().filter_map(|block| block["type"].as_str()).collect();
    assert_eq!(kinds, ["mcp_tool_use", "mcp_tool_result", "mcp_tool_use", "mcp_tool_result", "text"], "{answer}");
    assert_eq!((&blocks[0]["name"], &answer["stop_reason"]), (&json!("handoff"), &json!("end_turn")));
}

#[tokio::test]
async fn a_response_is_continued_as_the_agent_that_its_request_names() {
    let (upstream, server) = stage().await;
    let first = server.post("/v1/responses", &json!({"model": "front", "input": "What do I owe?"})).await.ok();
    upstream.then(Reply::says("Hello again."));
    let more = json!({"model": "front", "input": "Thanks.", "previous_response_id": first["id"]});
    let next = server.post("/v1/responses", &more).await.ok();
    assert_eq!(next["output"][0]["content"][0]["text"], "Hello again.", "{next}");
    let asked = upstream.requests().pop().expect("it was asked");
    assert_eq!(asked["messages"][0]["content"], "You greet.");
    assert!(asked["messages"].to_string().contains("You owe 42."), "{asked}");
}

#[tokio::test]
async fn the_window_that_counts_is_that_of_the_model_after_the_handoff() {
    let heavy = || {
        let call = json!({"agent": "billing", "reason": "It is about money."}).to_string();
        Reply::stream().tool_call(0, "call_1", "handoff", &call).finish("tool_calls").usage(5_000, 5).done()
    };
    let upstream = Upstream::start([heavy()]).await;
    let config = upstream.config().replace("[\"test\"]", "[\"test\", \"small\"]");
    let agents = AGENTS.replace(
        "model = \"scripted/test\"\n    system = \"You bill.\"",
        "model = \"scripted/small\"\n    system = \"You bill.\"",
    );
    let bounds = "[models.small]\ncontext_window = 2000\nmax_output_tokens = 100\n[agents.billing.context]\ncompaction = \"off\"\n";
    let server = TestServer::start(&format!("{config}{agents}{bounds}")).await;
    upstream.then(Reply::says("I go on."));
    let mut asked = body(false);
    asked["messages"][0]["content"] = json!("word ".repeat(4_000));
    let answer = server.post("/v1/agent/completions", &asked).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "I go on.");
    let told = upstream.requests()[1]["messages"].to_string();
    assert!(told.contains("cannot go on with this run") && told.contains("small takes 2000"), "{told}");
    assert_eq!(upstream.requests()[1]["model"], "test", "what does not fit is not handed off");

    let short = TestServer::start(&format!("{config}{agents}{}", bounds.replace("\"off\"", "\"truncate\""))).await;
    upstream.then(heavy());
    upstream.then(Reply::says("In short."));
    let mut long = body(false);
    let filler = |role: &str| json!({"role": role, "content": "word ".repeat(400)});
    let mut messages: Vec<_> = (0..5).flat_map(|_| [filler("user"), filler("assistant")]).collect();
    messages.push(json!({"role": "user", "content": "What do I owe?"}));
    long["messages"] = json!(messages);
    let answer = short.post("/v1/agent/completions", &long).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "In short.", "{answer}");
    let last = upstream.requests().pop().expect("it was asked");
    assert_eq!(last["model"], "small");
    assert!(last["messages"].to_string().len() < 12_000, "the conversation was made to fit: {last}");
}

#[tokio::test]
async fn a_run_is_handed_to_an_agent_of_the_store_as_it_is_then_and_the_log_says_which_version() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Done."));
    let server = TestServer::start(&upstream.config()).await;
    let put = async |name: &str, settings: Value| {
        let request = server.request(Method::PUT, &format!("/v1/agents/{name}"));
        let request = request.header("content-type", "application/json").body(settings.to_string());
        server.send(request).await
    };
    put("clerk", json!({"model": "test", "system": "First."})).await.ok();
    put("clerk", json!({"model": "test", "system": "Second."})).await.ok();
    put("desk", json!({"model": "test", "handoffs": ["clerk", "gone"], "handoff": {"max_handoffs": 1}})).await.ok();
    let myself = put("desk", json!({"model": "test", "handoffs": ["desk"]})).await;
    assert!(myself.body.to_string().contains("cannot hand a run off to itself"), "{}", myself.body);
    let often = put("desk", json!({"model": "test", "handoff": {"max_handoffs": 9}})).await;
    assert!(often.body.to_string().contains("`max_handoffs` of 3 at most"), "{}", often.body);
    upstream.then(Reply::calls("handoff", &json!({"agent": "clerk", "reason": "x"})));
    let asked = json!({"model": "desk", "messages": [{"role": "user", "content": "Hi"}]});
    let answer = server.post("/v1/agent/completions", &asked).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Done.");
    let warnings = answer["agent"]["warnings"].to_string();
    assert!(warnings.contains("agents that are not there: gone"), "{answer}");
    assert_eq!(upstream.requests()[1]["messages"][0]["content"], "Second.");
    let run = answer["agent"]["run_id"].as_str().expect("it has an id");
    let told = server.get(&format!("/v1/runs/{run}")).await.ok();
    assert_eq!((&told["agent_name"], &told["agent_version"]), (&json!("clerk"), &json!(2)), "{told}");
}

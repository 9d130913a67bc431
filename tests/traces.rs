//! Traces: what a run's spans say over HTTP, what upstreams and tools are told of them, and that a collector that does not
//! answer harms nothing. `tests/sdk/collector.rs` has a collector that does.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::support::http::Request;
use crate::support::redis::durable;
use crate::support::{Anthropic, Gate, Reply, TestServer, ToolServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";
const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn ask() -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "The word is xyzzy-canary."}]})
}

/// The spans of an answer of `/v1/runs/{id}/trace`.
pub(crate) fn spans(answer: &Value) -> &Vec<Value> {
    answer["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("it has spans")
}

/// Each span's name below that of its parent.
fn nested(spans: &[Value]) -> Vec<String> {
    let name = |span: &Value| span["name"].as_str().expect("it has a name").to_owned();
    let parent = |span: &Value| spans.iter().find(|other| other["spanId"] == span["parentSpanId"]).map(name);
    let above = |span: &Value| parent(span).map_or_else(String::new, |parent| format!("{parent} > "));
    let mut all: Vec<_> = spans.iter().map(|span| above(span) + &name(span)).collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_run_tells_its_spans_to_its_tenant_and_nothing_that_was_said() {
    let tools = ToolServer::start([Reply::plain("plugh-canary")]).await;
    let upstream = Upstream::start([Reply::calls("look", &json!({"note": "x"})), Reply::says("Done-canary.")]).await;
    let config = format!(
        "{}{}[agents.default]\ntools = [\"look\"]\n[keys.ann]\ntenant = \"ann\"\nkey_env = \"ANN\"\n\
         [keys.bob]\ntenant = \"bob\"\nkey_env = \"BOB\"\n[keys.blind]\ntenant = \"ann\"\nkey_env = \"BLIND\"\n\
         scopes = [\"run\"]\n",
        upstream.config(),
        tools.config("look", "read")
    );
    let builder = TestServer::builder(&config).env("ANN", "lg_ann").env("BOB", "lg_bob").env("BLIND", "lg_blind");
    let mut server = builder.start().await;
    server.use_key("lg_ann");
    let run = server.post(ENDPOINT, &ask()).await.ok();
    let path = format!("/v1/runs/{}/trace", run["agent"]["run_id"].as_str().expect("it is named"));
    let answer = server.get(&path).await.ok();
    let expected = [
        "invoke_agent default",
        "invoke_agent default > step 1",
        "invoke_agent default > step 2",
        "step 1 > chat test",
        "step 1 > execute_tool look",
        "step 2 > chat test",
    ];
    assert_eq!(nested(spans(&answer)), expected);
    assert!(!answer.to_string().contains("canary"), "{answer}");
    assert_eq!(answer, server.get(&path).await.ok(), "it is the same each time");
    server.use_key("lg_bob");
    assert_eq!(server.get(&path).await.status, 404, "another tenant's run is not there");
    server.use_key("lg_blind");
    assert_eq!(server.get(&path).await.status, 403);
}

#[tokio::test]
async fn a_model_call_names_its_service_and_its_upstream() {
    let claude = Anthropic::start([Reply::anthropic().text_block(0, "Hello.").stop("end_turn")]).await;
    let other = Upstream::start([Reply::says("Hello.")]).await;
    let server = TestServer::start(&format!("{}{}", claude.config(), other.config())).await;
    for (model, service) in [("claude/claude-opus-5", "anthropic"), ("scripted/test", "scripted")] {
        let mut body = ask();
        body["model"] = json!(model);
        let run = server.post(ENDPOINT, &body).await.ok();
        let path = format!("/v1/runs/{}/trace", run["agent"]["run_id"].as_str().expect("it is named"));
        let answer = server.get(&path).await.ok();
        let call =
            spans(&answer).iter().find(|span| span["name"].as_str().is_some_and(|name| name.starts_with("chat ")));
        let attributes = call.expect("the model was called")["attributes"].as_array().expect("it has some");
        let told =
            |name| attributes.iter().find(|one| one["key"] == name).map(|one| one["value"]["stringValue"].clone());
        let (upstream, _) = model.split_once('/').expect("it names its upstream");
        let expected = [service, service, upstream].map(|name| Some(json!(name)));
        assert_eq!(["gen_ai.provider.name", "gen_ai.system", "loopgate.upstream"].map(told), expected);
    }
}

/// What the server has counted of this.
async fn counted(server: &TestServer, name: &str) -> u64 {
    let metrics = server.respond(server.request(Method::GET, "/metrics")).await.text().await.expect("it is text");
    let value = |line: &str| line.strip_prefix(name)?.trim_start_matches("{}").strip_prefix(' ')?.parse().ok();
    metrics.lines().find_map(value).expect("it is counted")
}

const NO_ROOM: &str = "loopgate_traces_dropped_total{reason=\"no_room\"}";
const NOT_SENT: &str = "loopgate_traces_dropped_total{reason=\"not_sent\"}";
const EXPORTED: &str = "loopgate_traces_exported_total";
const FAILURES: &str = "loopgate_traces_export_failures_total";
const REJECTED: &str = "loopgate_traces_rejected_spans_total";

/// The collector of this test is a server that takes what it is sent, or refuses it.
#[tokio::test]
async fn what_is_kept_is_sent_until_the_collector_takes_it_or_says_that_it_will_not() {
    let taken = || Reply::plain("");
    let collector =
        ToolServer::start([Reply::status(503), taken(), Reply::status(400), Reply::status(400), taken()]).await;
    let upstream = Upstream::start([Reply::says("Done."), Reply::error(401, "denied", "no")]).await;
    upstream.otherwise(Reply::says("Done."));
    let config = format!("{}[traces]\nendpoint = \"http://{}\"\nratio = 0\n", upstream.config(), collector.address());
    let server = TestServer::start(&config).await;
    let plain = server.post(ENDPOINT, &ask()).await.ok()["agent"]["run_id"].clone();
    assert_eq!(server.post(ENDPOINT, &ask()).await.status, 502);
    let failed = server.get("/v1/runs?status=failed").await.ok()["data"][0]["id"].clone();
    let sent = collector.called(2).await;
    assert!(sent[0].body == sent[1].body, "what may be taken later is sent again");
    let names = |run: &Value| {
        let id = run.as_str().expect("it is named");
        sent[0].body.windows(id.len()).any(|part| part == id.as_bytes())
    };
    assert!(names(&failed) && !names(&plain), "a run that failed is sent whatever the ratio, and no other");

    for attempt in 3..=5 {
        server.send(server.json(ENDPOINT, &ask()).header("traceparent", CALLER)).await.ok();
        collector.called(attempt).await;
    }
    within("what became of them", async { while counted(&server, EXPORTED).await < 2 {} }).await;
    assert_eq!((counted(&server, NOT_SENT).await, counted(&server, FAILURES).await), (2, 3));
    assert_eq!(collector.calls().len(), 5, "what is refused is not sent again");
    server.logged("the collector of traces takes traces again").await;
    assert_eq!(server.output().matches("traces are dropped").count(), 1, "{}", server.output());
}

/// The collector of this test is a server that is sent two traces together, which are too much for it, and takes one of
/// them but for two of its spans.
#[tokio::test]
async fn what_is_too_much_together_is_sent_singly_and_what_is_rejected_is_counted() {
    let gate = Gate::new();
    // `partial_success`: two spans, and why.
    let partly =
        Reply::status(200).header("content-type", "application/x-protobuf").bytes(*b"\n\x08\x08\x02\x12\x04full");
    let collector =
        ToolServer::start([Reply::plain("").gate(&gate), Reply::status(413), Reply::plain(""), partly]).await;
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Done."));
    let config = format!("{}[traces]\nendpoint = \"http://{}\"\n", upstream.config(), collector.address());
    let server = TestServer::start(&config).await;
    server.post(ENDPOINT, &ask()).await.ok();
    collector.called(1).await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        let run = server.post(ENDPOINT, &ask()).await.ok()["agent"]["run_id"].clone();
        runs.push(run.as_str().expect("it is named").to_owned());
    }
    gate.open();
    let sent = collector.called(4).await;
    let is_of = |request: &Request, run: &str| request.body.windows(run.len()).any(|part| part == run.as_bytes());
    let told: Vec<_> = sent.iter().map(|request| runs.iter().filter(|run| is_of(request, run)).count()).collect();
    assert_eq!(told, [0, 2, 1, 1]);
    within("what became of them", async { while counted(&server, REJECTED).await < 2 {} }).await;
    let line = server.logged("the collector of traces did not take all spans").await;
    assert!(line.contains("full"), "{line}");
    within("the last trace to be counted", async { while counted(&server, EXPORTED).await < 3 {} }).await;
    assert_eq!((counted(&server, NOT_SENT).await, counted(&server, FAILURES).await), (0, 1));
}

/// The collector of this test is a server that takes what it is sent.
#[tokio::test]
async fn an_agent_can_keep_what_is_said_in_its_runs_out_of_traces() {
    let collector = ToolServer::start((0..4).map(|_| Reply::plain(""))).await;
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Done."));
    let config = format!(
        "{}[agents.hush]\nmodel = \"test\"\nsystem = \"Be quiet.\"\ntrace_content = false\n\
         [traces]\nendpoint = \"http://{}\"\ncontent = \"full\"\n",
        upstream.config(),
        collector.address()
    );
    let mut server = TestServer::start(&config).await;
    for model in ["hush", "test"] {
        let mut body = ask();
        body["model"] = json!(model);
        server.post(ENDPOINT, &body).await.ok();
    }
    server.sigterm();
    server.drained().await;
    let sent: String = collector.calls().iter().map(|call| String::from_utf8_lossy(&call.body).into_owned()).collect();
    let times = |words: &str| sent.matches(words).count();
    assert_eq!((times("invoke_agent hush"), times("invoke_agent default")), (1, 1), "{sent}");
    assert_eq!((times("xyzzy-canary"), times("Be quiet")), (1, 0), "{sent}");
}

/// The collector of this test takes connections and answers nothing.
#[tokio::test]
async fn runs_are_left_to_other_replicas_while_the_last_traces_wait_for_a_collector() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let (gate, redis) = (Gate::new(), durable().await);
    let tools = ToolServer::start([Reply::plain("lost").gate(&gate), Reply::plain("found")]).await;
    let calls = Reply::calls("look", &json!({"note": "x"}));
    let upstream = Upstream::start([Reply::says("Hello."), calls, Reply::says("Done.")]).await;
    let config = format!(
        "{}{}[agents.default]\ntools = [\"look\"]\n[server]\ndrain_delay = \"0s\"\ndrain_timeout = \"0s\"\n\
         [traces]\nendpoint = \"http://{}\"\n",
        upstream.config(),
        tools.config("look", "read"),
        listener.local_addr().expect("it has an address"),
    );
    let start = || TestServer::builder(&config).store(&redis.url()).start();
    let (mut leaving, other) = (start().await, start().await);
    leaving.post(ENDPOINT, &ask()).await.ok();
    let mut body = ask();
    body["stream"] = json!(true);
    let mut stream = leaving.stream(ENDPOINT, &body).await;
    let begun = stream.until(|frame| frame.name == "tool.call").await;
    tools.called(1).await;
    leaving.sigterm();
    let run = begun[0].json()["run_id"].as_str().expect("it is named").to_owned();
    other.events(&run, 0).await.until(|frame| frame.name == "run.completed").await;
    let given_up = "did not take the last traces in time";
    assert!(!leaving.output().contains(given_up), "the run goes on meanwhile: {}", leaving.output());
    leaving.drained().await;
    assert!(leaving.output().contains(given_up), "{}", leaving.output());
}

/// The collector of this test takes connections and answers nothing.
#[tokio::test]
async fn a_collector_that_does_not_answer_delays_no_run_and_no_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let tools = ToolServer::start([]).await;
    tools.then(Reply::plain("1"));
    let upstream = Upstream::start([Reply::calls("look", &json!({"note": "x"}))]).await;
    upstream.otherwise(Reply::says("Done."));
    let config = format!(
        "{}{}[agents.default]\ntools = [\"look\"]\n[traces]\nendpoint = \"http://{}\"\nqueue = 2\n",
        upstream.config(),
        tools.config("look", "read"),
        listener.local_addr().expect("it has an address"),
    );
    let mut server = TestServer::start(&config).await;
    let request = server.json(ENDPOINT, &ask()).header("traceparent", CALLER).header("tracestate", "vendor=1");
    let answer = server.send(request).await;
    assert_eq!(answer.headers["x-loopgate-trace-id"], CALLER[3..35]);
    let run = answer.ok();
    let path = format!("/v1/runs/{}/trace", run["agent"]["run_id"].as_str().expect("it is named"));
    let object = server.get(path.trim_end_matches("/trace")).await.ok();
    assert_eq!(object["trace_id"], CALLER[3..35]);
    let answer = server.get(&path).await.ok();
    let of = |name: &str| {
        let id = |span: &Value| span["spanId"].as_str().expect("it has an id").to_owned();
        let found = spans(&answer).iter().filter(|span| span["name"] == name);
        found.map(id).collect::<Vec<_>>()
    };
    let root = &spans(&answer)[0];
    assert_eq!((&root["traceId"], &root["parentSpanId"]), (&json!(&CALLER[3..35]), &json!(&CALLER[36..52])));
    let told = |received: &[Request]| {
        let header = |request: &Request, name| request.headers.get(name).map(ToString::to_string);
        let each = received.iter().map(|request| (header(request, "traceparent"), header(request, "tracestate")));
        each.collect::<Vec<_>>()
    };
    let context = |id: &String| (Some(format!("00-{}-{id}-01", &CALLER[3..35])), Some("vendor=1".to_owned()));
    assert_eq!(told(&upstream.raw_requests()), of("chat test").iter().map(context).collect::<Vec<_>>());
    assert_eq!(told(&tools.calls()), of("execute_tool look").iter().map(context).collect::<Vec<_>>());

    within("a trace to be dropped", async {
        while counted(&server, NO_ROOM).await == 0 {
            server.post(ENDPOINT, &ask()).await.ok();
        }
    })
    .await;
    let since = Instant::now();
    server.sigterm();
    server.drained().await;
    assert!(since.elapsed() < Duration::from_secs(9), "{:?}", since.elapsed());
}

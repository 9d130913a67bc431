//! `/metrics`: who may read it, and that it agrees with what upstreams, tools and clients saw.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::redis::{Signal, durable, eventually};
use crate::support::{Gate, Reply, TestServer, ToolServer, Upstream};

const ENDPOINT: &str = "/v1/agent/completions";

/// The samples of a server's metrics as they are written, by name and labels.
type Samples = BTreeMap<String, String>;

fn ask() -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "Go."}]})
}

async fn text(server: &TestServer, accept: &str) -> String {
    let answer = server.respond(server.request(Method::GET, "/metrics").header("accept", accept)).await;
    assert_eq!(answer.status(), 200);
    answer.text().await.expect("it is text")
}

async fn samples(server: &TestServer) -> Samples {
    let text = text(server, "text/plain").await;
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        assert!(value.parse::<f64>().is_ok(), "no number: {line}");
        (name.to_owned(), value.to_owned())
    };
    text.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

fn is_zero(value: &str) -> bool {
    ["0", "0.0"].contains(&value)
}

/// The samples of these metrics that are not 0, as they are written.
fn of(samples: &Samples, names: &[&str]) -> Vec<String> {
    let is_of = |sample: &str| names.iter().any(|name| sample.split('{').next() == Some(name));
    let found = samples.iter().filter(|(sample, value)| !is_zero(value) && is_of(sample));
    found.map(|(sample, value)| format!("{sample} {value}")).collect()
}

/// Runs of all kinds, on one server.
#[tokio::test]
async fn the_counters_agree_with_what_upstreams_tools_and_clients_saw() {
    let gate = Gate::new();
    let tools = ToolServer::start([Reply::plain("12345"), Reply::json(500, &json!({"error": "no"}))]).await;
    let upstream = Upstream::start([
        // A run of three steps, whose first call is repeated, and whose second tool call fails.
        Reply::error(503, "busy", "come back").header("retry-after-ms", "1"),
        Reply::calls("look", &json!({"note": "x"})),
        Reply::calls("look", &json!({"note": "y"})),
        Reply::says("Done."),
        // A run whose upstream refuses its request.
        Reply::error(401, "denied", "no"),
        // A run that is cancelled.
        Reply::stream().text("One ").gate(&gate).text("two").finish("stop").usage(10, 5).done(),
    ])
    .await;
    let config = format!(
        "{}{}[agents.default]\ntools = [\"look\"]\n[models.test]\nprice = {{ input = 100.0, output = 1000.0 }}\n",
        upstream.config(),
        tools.config("look", "read")
    );
    let server = TestServer::start(&config).await;
    let run = server.post(ENDPOINT, &ask()).await.ok();
    let first = samples(&server).await;
    let (usage, cost) = (&run["usage"], &run["agent"]["cost_usd"]);
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"], cost), (&json!(30), &json!(15), &json!(0.018)));
    let model = "{upstream=\"scripted\",model=\"test\"}";
    assert_eq!(
        of(&first, &["loopgate_tokens_total", "loopgate_cost_usd_total", "loopgate_tokens_estimated_total"]),
        [
            format!("loopgate_cost_usd_total{model} 0.018"),
            "loopgate_tokens_total{upstream=\"scripted\",model=\"test\",kind=\"input\"} 30".to_owned(),
            "loopgate_tokens_total{upstream=\"scripted\",model=\"test\",kind=\"output\"} 15".to_owned(),
        ]
    );
    let requests = "loopgate_http_requests_total{route=\"/v1/agent/completions\",status=\"200\"}";
    let first_tokens = &first[&format!("loopgate_model_first_token_seconds_count{model}")];
    assert_eq!((first[requests].as_str(), first_tokens.as_str()), ("1", "3"));
    assert_eq!(server.post(ENDPOINT, &ask()).await.status, 502);
    assert_eq!(server.post(ENDPOINT, &json!({"model": "test"})).await.status, 400);
    let mut stream =
        server.stream(ENDPOINT, &json!({"model": "test", "stream": true, "messages": ask()["messages"]})).await;
    let begun = stream.until(|frame| frame.text().is_some()).await;
    gate.reached().await;
    let live = samples(&server).await;
    assert_eq!(
        of(&live, &["loopgate_live_runs", "loopgate_readers", "loopgate_streams"]),
        ["loopgate_live_runs 1", "loopgate_readers 1", "loopgate_streams 1"]
    );
    assert!(!is_zero(&live["loopgate_reserved_tokens"]));
    let run = begun[0].json()["run_id"].as_str().expect("it is named").to_owned();
    server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
    stream.until(|frame| frame.name == "run.cancelled").await;
    gate.open();

    assert_eq!((upstream.requests().len(), tools.calls().len()), (6, 2), "what the figures below are held against");
    let samples = samples(&server).await;
    for (name, expected) in [
        ("loopgate_runs_accepted_total", &["{agent=\"default\"} 3"] as &[_]),
        (
            "loopgate_runs_finished_total",
            &[
                "{agent=\"default\",status=\"cancelled\",reason=\"cancelled\"} 1",
                "{agent=\"default\",status=\"completed\",reason=\"done\"} 1",
                "{agent=\"default\",status=\"failed\",reason=\"provider_error\"} 1",
            ],
        ),
        ("loopgate_run_duration_seconds_count", &["{agent=\"default\"} 3"]),
        ("loopgate_step_duration_seconds_count", &["{agent=\"default\"} 4"]),
        (
            "loopgate_upstream_errors_total",
            &["{upstream=\"scripted\",class=\"rejected\"} 1", "{upstream=\"scripted\",class=\"unavailable\"} 1"],
        ),
        ("loopgate_model_retries_total", &["{upstream=\"scripted\",model=\"test\",class=\"unavailable\"} 1"]),
        ("loopgate_model_call_duration_seconds_count", &["{upstream=\"scripted\",model=\"test\"} 4"]),
        ("loopgate_tool_calls_total", &["{tool=\"look\",outcome=\"error\"} 1", "{tool=\"look\",outcome=\"ok\"} 1"]),
        ("loopgate_tool_call_duration_seconds_count", &["{tool=\"look\"} 2"]),
        ("loopgate_tool_result_bytes_total", &["{tool=\"look\"} 19"]),
        ("loopgate_http_errors_total", &["{code=\"missing_field\"} 1", "{code=\"provider_error\"} 1"]),
        ("loopgate_live_runs", &[]),
        ("loopgate_reserved_tokens", &[]),
    ] {
        let expected: Vec<_> = expected.iter().map(|labels| format!("{name}{labels}")).collect();
        assert_eq!(of(&samples, &[name]), expected);
    }
    // A commit that met the cancellation was refused, and made again after it.
    let refused = of(&samples, &["loopgate_store_errors_total"]);
    assert!(refused.iter().all(|line| line.contains("sequence_conflict")), "{refused:?}");
    assert_eq!(samples["loopgate_steps_total{upstream=\"scripted\",model=\"test\",outcome=\"completed\"}"], "4");
    assert_eq!(samples["loopgate_steps_total{upstream=\"scripted\",model=\"test\",outcome=\"no_answer\"}"], "1");
}

/// A server with a key for each list of scopes, which is its name.
async fn keyed(config: &str, keys: &[(&str, Option<&str>)]) -> TestServer {
    let declared = keys.iter().fold(String::new(), |declared, (name, scopes)| {
        let scopes = scopes.map_or(String::new(), |scopes| format!("scopes = [{scopes}]\n"));
        format!("{declared}[keys.{name}]\nkey_env = \"{name}\"\n{scopes}")
    });
    let builder = TestServer::builder(&format!("{config}{declared}"));
    keys.iter().fold(builder, |builder, (name, _)| builder.env(name, name)).start().await
}

async fn status(server: &mut TestServer, key: &str) -> u16 {
    server.use_key(key);
    server.respond(server.request(Method::GET, "/metrics")).await.status().as_u16()
}

#[tokio::test]
async fn where_there_are_keys_metrics_take_one_with_their_scope() {
    let upstream = Upstream::start([]).await;
    let keys = [("ALL", None), ("READER", Some("\"read\"")), ("MONITOR", Some("\"metrics\""))];
    let mut server = keyed(&upstream.config(), &keys).await;
    for (key, expected) in [("ALL", 403), ("READER", 403), ("MONITOR", 200), ("NONE", 401)] {
        assert_eq!(status(&mut server, key).await, expected, "{key}");
    }
    server.use_key("MONITOR");
    assert_eq!(server.get("/v1/runs").await.status, 403, "it can read nothing else");
    let mut open = keyed(&format!("{}[metrics]\nopen = true\n", upstream.config()), &keys).await;
    assert_eq!(status(&mut open, "NONE").await, 200);
    let mut off = keyed(&format!("{}[metrics]\nenabled = false\n", upstream.config()), &keys).await;
    assert_eq!(status(&mut off, "MONITOR").await, 404);
}

#[tokio::test]
async fn metrics_can_have_an_address_of_their_own() {
    let upstream = Upstream::start([Reply::says("Hi.")]).await;
    let config = format!("{}[metrics]\nlisten = \"127.0.0.1:0\"\n", upstream.config());
    let server = TestServer::start(&config).await;
    server.post(ENDPOINT, &ask()).await.ok();
    assert_eq!(server.get("/metrics").await.code(), "unknown_url");
    let line = server.logged("metrics are read at").await;
    let url = line.split("http://").nth(1).and_then(|rest| rest.split('"').next()).expect("it names a URL");
    let get = async |url: String| reqwest::get(url).await.expect("it answers");
    let answer = get(format!("http://{url}")).await;
    assert!(answer.text().await.expect("it is text").contains("loopgate_runs_finished_total{agent=\"default\""));
    let elsewhere = get(format!("http://{}/v1/models", url.trim_end_matches("/metrics"))).await;
    assert_eq!(elsewhere.status(), 404, "nothing else is there");
    let posted = reqwest::Client::new().post(format!("http://{url}")).send().await.expect("it answers");
    let status = posted.status();
    let error = posted.text().await.expect("it has a body");
    let error: Value = serde_json::from_str(&error).expect("it is JSON, as all errors are");
    assert_eq!((status.as_u16(), &error["error"]["code"]), (405, &json!("method_not_allowed")));
}

/// A request that waits for the end of its run reads events too, and passes none on before.
#[tokio::test]
async fn open_connections_readers_and_streams_are_counted_while_they_are_open() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().text("One ").gate(&gate).text("two").finish("stop").done()]).await;
    let server = TestServer::start(&upstream.config()).await;
    let number = |samples: &Samples, name: &str| samples[name].parse::<u64>().expect("it is a number");
    let look = async {
        gate.reached().await;
        let before = samples(&server).await;
        assert_eq!(["loopgate_readers", "loopgate_streams"].map(|name| number(&before, name)), [1, 0]);
        let open = number(&before, "loopgate_connections");
        let connections: Vec<_> =
            (0..3).map(|_| std::net::TcpStream::connect(server.address()).expect("it listens")).collect();
        let becomes = async |expected: u64| {
            eventually("the connections to be counted", async || {
                number(&samples(&server).await, "loopgate_connections") == expected
            })
            .await;
        };
        becomes(open + 3).await;
        drop(connections);
        becomes(open).await;
        gate.open();
    };
    let asked = ask();
    let (answer, ()) = tokio::join!(server.post(ENDPOINT, &asked), look);
    answer.ok();
    let after = samples(&server).await;
    assert_eq!(number(&after, "loopgate_readers"), 0);
}

/// Each of the two formats is read by its own readers, and only one of them has exemplars.
#[tokio::test]
async fn an_open_reader_gets_the_trace_of_a_run_beside_its_duration() {
    let upstream = Upstream::start([Reply::says("Hi.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let traced = "0af7651916cd43dd8448eb211c80319c";
    let request = server.json(ENDPOINT, &ask()).header("traceparent", format!("00-{traced}-b7ad6b7169203331-01"));
    server.send(request).await.ok();
    let open = text(&server, "application/openmetrics-text; version=1.0.0, text/plain; q=0.5").await;
    assert!(open.ends_with("# EOF\n"));
    assert!(open.contains("# TYPE loopgate_runs_finished counter\n"), "{open}");
    let of_run =
        open.lines().find(|line| line.starts_with("loopgate_run_duration_seconds_bucket") && line.contains('#'));
    assert!(of_run.is_some_and(|line| line.contains(&format!("# {{trace_id=\"{traced}\"}} "))), "{open}");
    let plain = text(&server, "*/*").await;
    assert!(plain.contains("# TYPE loopgate_runs_finished_total counter\n"), "{plain}");
    assert!(!plain.contains(traced) && !plain.contains("# EOF"), "{plain}");
}

/// A replica freezes for longer than its lease; another resumes its run and ends it; then the first one wakes up.
#[tokio::test]
async fn the_end_of_a_run_that_another_replica_resumed_is_counted_once() {
    let gate = Gate::new();
    let upstream = Upstream::start([
        Reply::stream().text("One ").gate(&gate).text("lost").finish("stop").usage(10, 5).done(),
        Reply::says("Whole."),
    ])
    .await;
    let redis = durable().await;
    let start = || TestServer::builder(&upstream.config()).store(&redis.url()).start();
    let (frozen, other) = (start().await, start().await);
    let body = json!({"model": "test", "stream": true, "messages": ask()["messages"]});
    let mut stream = frozen.stream(ENDPOINT, &body).await;
    let begun = stream.until(|frame| frame.text().is_some()).await;
    let run = begun[0].json()["run_id"].as_str().expect("it is named").to_owned();
    frozen.signal(Signal::STOP);
    other.events(&run, 0).await.until(|frame| frame.name == "run.completed").await;
    frozen.signal(Signal::CONT);
    gate.open();
    let names = ["loopgate_runs_finished_total", "loopgate_runs_resumed_total", "loopgate_runs_accepted_total"];
    let resumed = of(&samples(&other).await, &names);
    assert_eq!(
        resumed,
        [
            "loopgate_runs_finished_total{agent=\"default\",status=\"completed\",reason=\"done\"} 1",
            "loopgate_runs_resumed_total{agent=\"default\",cause=\"crash\"} 1",
        ]
    );
    // Until it has noticed that the run is not its own any more, and has given back what it held for the run.
    let mut left = samples(&frozen).await;
    while !(is_zero(&left["loopgate_live_runs"]) && is_zero(&left["loopgate_reserved_tokens"])) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        left = samples(&frozen).await;
    }
    assert_eq!(of(&left, &names), ["loopgate_runs_accepted_total{agent=\"default\"} 1"]);
    let lost =
        ["renewal", "commit"].map(|by| left[&format!("loopgate_lease_losses_total{{noticed_by=\"{by}\"}}")].clone());
    let lost: u32 = lost.iter().map(|count| count.parse::<u32>().expect("it is a number")).sum();
    assert!((1..=2).contains(&lost), "it lost its run, and perhaps its name as well: {lost}");
    assert!(is_zero(&left["loopgate_reserved_tokens"]));
}

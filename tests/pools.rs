//! Upstreams with several addresses or keys, and bounds on the calls that are made at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::http::{HttpServer, Request};
use crate::support::redis::free_port;
use crate::support::{Gate, Reply, SseReader, TestServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";

fn ask() -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]})
}

fn ask_in(session: &str) -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}], "agent": {"session_id": session}})
}

/// An upstream with these addresses.
fn addresses(addresses: &[SocketAddr], more: &str) -> String {
    let urls: Vec<_> = addresses.iter().map(|address| format!("\"http://{address}/v1\"")).collect();
    format!("[upstreams.scripted]\nbase_urls = [{}]\nmodels = [\"test\"]\n{more}\n", urls.join(", "))
}

/// A server of models that answers each request for an answer as `decide` says.
async fn server(decide: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> HttpServer {
    HttpServer::start(|request| request.method == "POST", decide).await
}

/// An address at which nothing listens.
fn nowhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// The values of a metric, by its labels.
async fn metric(server: &TestServer, name: &str) -> BTreeMap<String, u64> {
    let text = server.respond(server.request(Method::GET, "/metrics")).await.text().await.expect("it is text");
    let sample = |line: &str| {
        let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
        Some((labels.to_owned(), value.trim_end_matches(".0").parse().expect("it is a number")))
    };
    text.lines().filter_map(sample).collect()
}

#[tokio::test]
async fn runs_go_on_while_one_of_three_addresses_is_dead_and_one_refuses() {
    let well = Upstream::start([]).await;
    well.otherwise(Reply::says("Hello"));
    let busy = server(|_| Reply::error(503, "busy", "later")).await;
    let (dead, well_address) = (nowhere(), well.address());
    let config = addresses(&[dead, busy.address(), well_address], "address_cooldown = \"1h\"");
    let server = TestServer::start(&config).await;
    for session in 0..30 {
        let answer = server.post(ENDPOINT, &ask_in(&format!("s{session}"))).await.ok();
        assert_eq!(answer["choices"][0]["message"]["content"], "Hello");
    }
    assert_eq!((well.requests().len(), busy.requests().len()), (30, 1));
    let rests = metric(&server, "loopgate_upstream_address_rests_total").await;
    let expected = [busy.address(), dead].map(|address| (format!("upstream=\"scripted\",address=\"{address}\""), 1));
    assert_eq!(rests, BTreeMap::from(expected));
    assert!(server.output().contains("an address is left out"), "{}", server.output());
}

/// What was sent to a server that failed may be billed by it.
#[tokio::test]
async fn what_may_have_cost_something_is_sent_elsewhere_only_by_the_rules_for_retries() {
    let broken = server(|_| Reply::error(502, "broken", "no")).await;
    let well = Upstream::start([]).await;
    well.otherwise(Reply::says("Hello"));
    // Nor is the upstream left alone for what one of its addresses does.
    let breaker = "[upstreams.scripted.breaker]\nfailures = 1\ncooldown = \"1h\"\n";
    let server = TestServer::start(&addresses(&[broken.address(), well.address()], breaker)).await;
    let mut charged = 0;
    for session in 0..20 {
        let request = ask_in(&format!("s{session}"));
        let answer = server.post(ENDPOINT, &request).await.ok();
        // The usual usage is 10 and 5; of the call that failed the estimated input is added.
        charged += usize::from(answer["usage"]["prompt_tokens"].as_u64() > Some(10));
    }
    assert_eq!((broken.requests().len(), charged), (1, 1));
}

#[tokio::test]
async fn an_address_is_asked_again_after_its_cooldown_and_a_session_comes_back_to_it() {
    let is_well = Arc::new(Mutex::new(false));
    let sick = {
        let is_well = is_well.clone();
        server(move |_| if *is_well.lock().unwrap() { Reply::says("Back") } else { Reply::error(503, "busy", "later") })
            .await
    };
    let well = Upstream::start([]).await;
    well.otherwise(Reply::says("Hello"));
    let config = addresses(&[sick.address(), well.address()], "address_cooldown = \"200ms\"");
    let server = TestServer::start(&config).await;
    let mut sessions = (0..).map(|number| format!("s{number}"));
    let session = loop {
        let session = sessions.next().expect("there are more");
        server.post(ENDPOINT, &ask_in(&session)).await.ok();
        if sick.requests().len() == 1 {
            break session;
        }
    };
    *is_well.lock().unwrap() = true;
    let back = async {
        while server.post(ENDPOINT, &ask_in(&session)).await.ok()["choices"][0]["message"]["content"] != "Back" {}
    };
    within("the address to be asked again", back).await;
    server.logged("an address answers again").await;
    for _ in 0..5 {
        let answer = server.post(ENDPOINT, &ask_in(&session)).await.ok();
        assert_eq!(answer["choices"][0]["message"]["content"], "Back");
    }
}

#[tokio::test]
async fn sessions_are_spread_over_addresses_by_weight_and_each_stays_where_it_is() {
    let upstreams = [Upstream::start([]).await, Upstream::start([]).await];
    for (upstream, name) in upstreams.iter().zip(["a", "b"]) {
        upstream.otherwise(Reply::says(name));
    }
    let [a, b] = [&upstreams[0], &upstreams[1]].map(Upstream::address);
    let config = format!(
        "[upstreams.scripted]\nmodels = [\"test\"]\nbase_urls = [\"http://{a}/v1\", {{ url = \"http://{b}/v1\", weight = 3 }}]\n"
    );
    let server = TestServer::start(&config).await;
    let mut asked = BTreeMap::new();
    for session in 0..60 {
        let mut answers = Vec::new();
        for _ in 0..2 {
            let answer = server.post(ENDPOINT, &ask_in(&format!("s{session}"))).await.ok();
            answers.push(answer["choices"][0]["message"]["content"].as_str().expect("it is text").to_owned());
        }
        assert_eq!(answers[0], answers[1]);
        *asked.entry(answers.remove(0)).or_insert(0) += 1;
    }
    // A quarter of 60 sessions is 15. Which session goes where depends on the ports; 30 or 0 are over four deviations away.
    assert!(asked.get("a").is_some_and(|count| (1..30).contains(count)), "{asked:?}");
}

#[tokio::test]
async fn calls_go_where_the_fewest_are_under_way() {
    let gate = Gate::new();
    let slow = Reply::stream().gate(&gate).text("slow").finish("stop").usage(10, 5).done();
    let upstreams = [Upstream::start([]).await, Upstream::start([]).await];
    for upstream in &upstreams {
        upstream.otherwise(slow.clone());
    }
    let config = addresses(&[upstreams[0].address(), upstreams[1].address()], "balance = \"least_busy\"");
    let server = TestServer::start(&config).await;
    let mut streams = Vec::new();
    for call in 1..=8 {
        let mut request = ask();
        request["stream"] = json!(true);
        streams.push(server.stream(ENDPOINT, &request).await);
        let all = || upstreams.iter().map(|upstream| upstream.requests().len()).sum::<usize>();
        within("the call", async {
            while all() < call {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    assert_eq!(upstreams.each_ref().map(|upstream| upstream.requests().len()), [4, 4]);
    gate.open();
    for stream in streams {
        stream.rest().await;
    }
}

/// The key that a request bears.
fn key_of(request: &Request) -> &str {
    request.headers.get("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default()
}

async fn keyed(address: SocketAddr, more: &str) -> TestServer {
    let config = format!(
        "[upstreams.scripted]\nbase_url = \"http://{address}/v1\"\nmodels = [\"test\", \"other\"]\n\
         api_key_envs = [\"KEY_A\", \"KEY_B\", \"KEY_C\"]\n{more}\n"
    );
    let builder = TestServer::builder(&config);
    builder.env("KEY_A", "sk-a").env("KEY_B", "sk-b").env("KEY_C", "sk-c").start().await
}

#[tokio::test]
async fn a_key_that_is_limited_refused_or_used_up_is_left_out() {
    for (status, code, reason) in [
        (429, "rate_limit_exceeded", "rate_limit"),
        (401, "invalid_api_key", "refused"),
        (429, "insufficient_quota", "quota"),
        (403, "denied", "forbidden"),
    ] {
        let upstream = server(move |request| match key_of(request) {
            "sk-b" => Reply::error(status, code, "not with sk-b"),
            _ => Reply::says("Hello"),
        })
        .await;
        let server = keyed(upstream.address(), "").await;
        for session in 0..30 {
            server.post(ENDPOINT, &ask_in(&format!("s{session}"))).await.ok();
        }
        let mut asked = BTreeMap::new();
        for request in upstream.requests() {
            *asked.entry(key_of(&request).to_owned()).or_insert(0) += 1;
        }
        assert_eq!((asked.values().sum::<i32>(), asked["sk-b"]), (31, 1), "{status} {code}: {asked:?}");
        let rests = metric(&server, "loopgate_upstream_key_rests_total").await;
        let expected = format!("upstream=\"scripted\",key=\"2\",reason=\"{reason}\"");
        assert_eq!(rests, BTreeMap::from([(expected, 1)]), "{status} {code}");
        let log = server.logged("a key is left out").await;
        assert!(log.contains('2') && !server.output().contains("sk-"), "{}", server.output());
    }
}

#[tokio::test]
async fn all_keys_left_out_are_an_error_that_says_how_long() {
    let upstream = server(|request| {
        let seconds = if key_of(request) == "sk-b" { "300" } else { "500" };
        Reply::error(429, "rate_limit_exceeded", "slow down").header("retry-after", seconds)
    })
    .await;
    let server = keyed(upstream.address(), "").await;
    for _ in 0..2 {
        let answer = server.post(ENDPOINT, &ask()).await;
        let message = answer.body["error"]["message"].as_str().expect("it says why").to_owned();
        assert_eq!((answer.status, upstream.requests().len()), (502, 3), "{}", answer.body);
        assert!(message.contains("all 3 keys are left out after failures, the first for"), "{message}");
        assert!(message.contains(" 300 s") || message.contains(" 299 s"), "{message}");
        assert!(!message.contains("sk-"), "{message}");
    }
    // The limit is that of a model.
    let answer =
        server.post(ENDPOINT, &json!({"model": "other", "messages": [{"role": "user", "content": "Hi"}]})).await;
    assert_eq!((answer.status, upstream.requests().len()), (502, 6), "{}", answer.body);
}

/// Such as one that its vendor moderates: the next caller's request is no worse for it.
#[tokio::test]
async fn what_no_key_may_do_leaves_no_key_out() {
    let upstream = server(|request| match request.json()["messages"][0]["content"].as_str() {
        Some("Bad") => Reply::error(403, "flagged", "flagged"),
        _ => Reply::says("Hello"),
    })
    .await;
    let server = keyed(upstream.address(), "").await;
    let answer =
        server.post(ENDPOINT, &json!({"model": "test", "messages": [{"role": "user", "content": "Bad"}]})).await;
    assert_eq!((answer.status, upstream.requests().len()), (502, 3), "{}", answer.body);
    server.post(ENDPOINT, &ask()).await.ok();
    assert_eq!(upstream.requests().len(), 4);
    assert!(metric(&server, "loopgate_upstream_key_rests_total").await.is_empty());
}

/// A caller whose requests are all moderated does not make an upstream as many times the work as it has keys.
#[tokio::test]
async fn a_third_key_is_asked_for_what_two_may_not_do_only_as_retries_are_earned() {
    let upstream = server(|_| Reply::error(403, "flagged", "flagged")).await;
    let server = keyed(upstream.address(), "[upstreams.scripted.breaker]\nretry_percent = 1\n").await;
    for _ in 0..12 {
        assert_eq!(server.post(ENDPOINT, &ask()).await.status, 502);
    }
    // Ten retries are there at first.
    assert_eq!(upstream.requests().len(), 10 * 3 + 2 * 2);
}

#[tokio::test]
async fn a_reload_keeps_what_rests_and_forgets_what_is_replaced() {
    let upstream = server(|request| match key_of(request) {
        "sk-c" => Reply::says("Hello"),
        _ => Reply::error(401, "invalid_api_key", "no"),
    })
    .await;
    let keys = |names: &str, more: &str| {
        format!(
            "[upstreams.scripted]\nbase_url = \"http://{}/v1\"\nmodels = [\"test\"]\napi_key_envs = [{names}]\n\
             key_cooldown = \"1h\"\n{more}",
            upstream.address()
        )
    };
    let builder = TestServer::builder(&keys("\"KEY_A\", \"KEY_B\"", ""));
    let server = builder.env("KEY_A", "sk-a").env("KEY_B", "sk-b").env("KEY_C", "sk-c").start().await;
    assert_eq!(server.post(ENDPOINT, &ask()).await.status, 502);
    assert_eq!(upstream.requests().len(), 2);
    server.reload(&keys("\"KEY_B\", \"KEY_A\"", "idle_timeout = \"9s\"\n")).await;
    assert_eq!(server.post(ENDPOINT, &ask()).await.status, 502);
    assert_eq!(upstream.requests().len(), 2, "both still rest");
    server.reload(&keys("\"KEY_A\", \"KEY_C\"", "")).await;
    server.post(ENDPOINT, &ask()).await.ok();
    assert_eq!(upstream.requests().len(), 3, "the new key is used at once");
}

/// A server with an upstream that makes one call at a time, and the key of two tenants.
async fn one_at_a_time(upstream: &Upstream) -> TestServer {
    let key = |name: &str| format!("[keys.{name}]\ntenant = \"{name}\"\nkey_env = \"{}\"\n", name.to_uppercase());
    let config = format!(
        "{}max_concurrent_calls = 1\n{}{}{}[metrics]\nopen = true\n",
        upstream.config(),
        key("one"),
        key("two"),
        key("three"),
    );
    TestServer::builder(&config).env("ONE", "ONE").env("TWO", "TWO").env("THREE", "THREE").start().await
}

async fn stream_as(server: &mut TestServer, key: &str, text: &str) -> SseReader {
    server.use_key(key);
    let mut request = ask();
    request["messages"][0]["content"] = json!(text);
    request["stream"] = json!(true);
    server.stream(ENDPOINT, &request).await
}

/// Waits until so many calls wait for their turn.
async fn until_queued(server: &TestServer, count: u64) {
    within("calls to wait", async {
        while metric(server, "loopgate_upstream_queued_calls").await["upstream=\"scripted\""] < count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_tenants_call_waits_for_one_call_of_each_other_tenant_at_most() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().gate(&gate).text("Hi").finish("stop").usage(10, 5).done()]).await;
    upstream.otherwise(Reply::says("Hello"));
    let mut server = one_at_a_time(&upstream).await;
    let mut streams = Vec::new();
    for number in 0..100 {
        streams.push(stream_as(&mut server, "ONE", &format!("one {number}")).await);
        if number == 0 {
            gate.reached().await;
        }
    }
    until_queued(&server, 99).await;
    streams.push(stream_as(&mut server, "TWO", "two").await);
    streams.push(stream_as(&mut server, "THREE", "three").await);
    until_queued(&server, 101).await;
    assert_eq!(upstream.requests().len(), 1);
    gate.open();
    for stream in streams {
        stream.rest().await;
    }
    let asked: Vec<_> = upstream.requests().iter().map(|body| body["messages"][0]["content"].to_string()).collect();
    assert_eq!(asked.len(), 102);
    let place = |who: &str| asked.iter().position(|text| text.contains(who)).expect("it was asked");
    assert!(place("two") <= 2 && place("three") <= 3, "{asked:?}");
    let active = metric(&server, "loopgate_upstream_active_calls").await;
    assert_eq!(active["upstream=\"scripted\""], 0);
    let waits = metric(&server, "loopgate_upstream_queue_wait_seconds_count").await;
    assert_eq!(waits["upstream=\"scripted\""], 102);
}

#[tokio::test]
async fn a_run_that_is_cancelled_while_its_call_waits_costs_nothing_and_leaves_the_queue() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().gate(&gate).text("Hi").finish("stop").usage(10, 5).done()]).await;
    let mut server = one_at_a_time(&upstream).await;
    let first = stream_as(&mut server, "ONE", "first").await;
    gate.reached().await;
    let mut second = stream_as(&mut server, "ONE", "second").await;
    until_queued(&server, 1).await;
    let started = second.next().await.expect("it began");
    let run = started.json()["run_id"].as_str().expect("it says which run it is").to_owned();
    server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
    second.rest().await;
    let ended = server.get(&format!("/v1/runs/{run}")).await.ok();
    assert_eq!((&ended["status"], &ended["usage"]["total_tokens"]), (&json!("cancelled"), &json!(0)), "{ended}");
    let queued = metric(&server, "loopgate_upstream_queued_calls").await;
    assert_eq!(queued["upstream=\"scripted\""], 0);
    gate.open();
    first.rest().await;
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_call_that_waits_ends_with_its_run_and_costs_nothing() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().gate(&gate).text("Hi").finish("stop").usage(10, 5).done()]).await;
    let mut server = one_at_a_time(&upstream).await;
    let first = stream_as(&mut server, "ONE", "first").await;
    gate.reached().await;
    let mut request = ask();
    request["agent"] = json!({"limits": {"timeout_ms": 300}});
    let late = server.post(ENDPOINT, &request).await.ok();
    assert_eq!(
        (&late["agent"]["stop_reason"], &late["usage"]["total_tokens"]),
        (&json!("timeout"), &json!(0)),
        "{late}"
    );
    gate.open();
    first.rest().await;
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_reload_changes_how_many_calls_are_made_at_once() {
    let gate = Gate::new();
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::stream().gate(&gate).text("Hi").finish("stop").usage(10, 5).done());
    let config = |most: &str| format!("{}{most}[metrics]\nopen = true\n", upstream.config());
    let mut server = TestServer::start(&config("max_concurrent_calls = 1\n")).await;
    let mut streams = Vec::new();
    for number in 0..5 {
        streams.push(stream_as(&mut server, "", &format!("{number}")).await);
    }
    until_queued(&server, 4).await;
    server.reload(&config("max_concurrent_calls = 3\n")).await;
    upstream.received(3).await;
    until_queued(&server, 2).await;
    server.reload(&config("")).await;
    upstream.received(5).await;
    // A call that begins while there is no bound counts once there is one again.
    streams.push(stream_as(&mut server, "", "free").await);
    upstream.received(6).await;
    server.reload(&config("max_concurrent_calls = 6\n")).await;
    streams.push(stream_as(&mut server, "", "bounded").await);
    until_queued(&server, 1).await;
    gate.open();
    for stream in streams {
        stream.rest().await;
    }
}

/// Many runs at once, while addresses come and go.
#[tokio::test]
async fn nearly_all_runs_complete_while_an_address_is_slow_to_fail() {
    let calls = Arc::new(AtomicUsize::new(0));
    let flaky = {
        let calls = calls.clone();
        server(move |_| match calls.fetch_add(1, Ordering::SeqCst) % 3 {
            0 => Reply::error(500, "broken", "no"),
            1 => Reply::stream().text("Hel").cut(),
            _ => Reply::error(503, "busy", "later"),
        })
        .await
    };
    let well = Upstream::start([]).await;
    well.otherwise(Reply::says("Hello"));
    let server = TestServer::start(&addresses(&[flaky.address(), well.address()], "")).await;
    let requests: Vec<_> = (0..60).map(|session| ask_in(&format!("s{session}"))).collect();
    let mut ended = 0;
    // Few at once: the calls that fail before the address is left out are repeated, and retries are bounded.
    for some in requests.chunks(4) {
        let answers = futures_util::future::join_all(some.iter().map(|request| server.post(ENDPOINT, request))).await;
        ended += answers.iter().filter(|answer| answer.body["agent"]["status"] == "completed").count();
    }
    assert_eq!(ended, 60);
}

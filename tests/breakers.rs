//! One of two upstreams is dead, slow, lying or rate-limited: runs complete all the same, and several servers over one Redis ask it
//! no more than once in a cooldown.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::redis::{durable, eventually};
use crate::support::{Answer, Gate, Reply, TestServer, Upstream};

const ENDPOINT: &str = "/v1/agent/completions";
/// Runs of each scenario.
const RUNS: usize = 1_000;
/// Most calls that it takes to open the breaker of the first upstream, whose threshold is five failures: what began before goes on.
const MOST_TO_OPEN: usize = 15;
/// How long the breaker of the first upstream is open, each time.
const COOLDOWN: Duration = Duration::from_secs(1);

fn ask() -> Value {
    json!({"model": "first/test", "messages": [{"role": "user", "content": "Hi"}]})
}

/// Two upstreams, the second of which stands in for the first.
fn declared(first: &Upstream, spare: &Upstream) -> String {
    let named = |upstream: &Upstream, name: &str| upstream.config().replace("scripted", name);
    format!(
        "{}first_byte_timeout = \"300ms\"\n[upstreams.first.breaker]\ncooldown = \"1s\"\nmax_cooldown = \"1s\"\n{}\
         [models.\"first/test\"]\nfallbacks = [\"spare/test\"]\n",
        named(first, "first"),
        named(spare, "spare")
    )
}

async fn breaker_is(server: &TestServer, state: &str) -> bool {
    let page = server.respond(server.request(reqwest::Method::GET, "/metrics")).await.text().await.unwrap_or_default();
    page.contains(&format!("loopgate_model_breaker{{upstream=\"first\",model=\"test\",state=\"{state}\"}} 1"))
}

/// Has a thousand runs on three servers whose first upstream replies this. Returns how often it was asked in how many
/// cooldowns, once its breaker had opened.
async fn asked_while(reply: Reply) -> (usize, usize) {
    let redis = durable().await;
    let (first, spare) = (Upstream::start([]).await, Upstream::start([]).await);
    first.otherwise(reply);
    spare.otherwise(Reply::says("Hello"));
    let config = declared(&first, &spare);
    let start = || TestServer::builder(&config).store(&redis.url()).start();
    let servers = [start().await, start().await, start().await];
    while !breaker_is(&servers[0], "open").await {
        servers[0].post(ENDPOINT, &ask()).await.ok();
    }
    for server in &servers {
        eventually("the servers to know", async || !breaker_is(server, "closed").await).await;
    }
    let (before, since) = (first.requests().len(), Instant::now());
    assert!(before <= MOST_TO_OPEN, "{before} calls until it was left alone");
    let servers = &servers;
    let answers = futures_util::stream::iter(0..RUNS)
        .map(|run| async move { servers[run % 3].post(ENDPOINT, &ask()).await })
        .buffer_unordered(30);
    let is_answered = |answer: &Answer| {
        answer.body["agent"]["status"] == "completed" && answer.body["choices"][0]["message"]["content"] == "Hello"
    };
    let completed = answers.filter(|answer| std::future::ready(is_answered(answer))).count().await;
    assert!(completed * 100 >= RUNS * 99, "{completed} of {RUNS} complete");
    let cooldowns = since.elapsed().as_secs_f64() / COOLDOWN.as_secs_f64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "there are few")]
    (first.requests().len() - before, cooldowns.ceil() as usize + 1)
}

#[tokio::test]
async fn runs_complete_beside_an_upstream_that_is_dead() {
    let (asked, most) = asked_while(Reply::status(200).headless().cut()).await;
    assert!(asked <= most, "{asked} times in {most} cooldowns");
}

#[tokio::test]
async fn runs_complete_beside_an_upstream_that_is_slow() {
    let (asked, most) = asked_while(Reply::status(200).headless().stall()).await;
    assert!(asked <= most, "{asked} times in {most} cooldowns");
}

#[tokio::test]
async fn runs_complete_beside_an_upstream_that_lies_in_a_whole_answer() {
    let error = json!({"error": {"message": "overloaded", "type": "server_error"}});
    let (asked, most) = asked_while(Reply::json(200, &error)).await;
    assert!(asked <= most, "{asked} times in {most} cooldowns");
}

#[tokio::test]
async fn runs_complete_beside_an_upstream_that_lies() {
    let error = "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\"}}\n\n";
    let (asked, most) = asked_while(Reply::stream().bytes(error)).await;
    assert!(asked <= most, "{asked} times in {most} cooldowns");
}

#[tokio::test]
async fn runs_complete_beside_an_upstream_that_limits_their_rate() {
    let (asked, most) = asked_while(Reply::error(429, "busy", "later").header("retry-after", "1")).await;
    assert!(asked <= most, "{asked} times in {most} cooldowns");
}

/// Retries add a tenth to the calls of an upstream that is down, beside the ten that are saved up.
#[tokio::test]
async fn an_upstream_that_is_down_gets_a_tenth_more_calls_at_most() {
    let first = Upstream::start([]).await;
    first.otherwise(Reply::error(503, "busy", "later").header("retry-after-ms", "20"));
    let config = format!("{}[upstreams.scripted.breaker]\nenabled = false\n", first.config());
    let server = TestServer::start(&config).await;
    let ask = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]});
    let server = &server;
    let runs = futures_util::stream::iter(0..200).map(|_| server.post(ENDPOINT, &ask)).buffer_unordered(20);
    assert!(runs.all(|answer| std::future::ready(answer.status == 502)).await);
    let asked = first.requests().len();
    assert!((200 + 10..=200 + 20 + 10).contains(&asked), "{asked} calls of 200 runs");
}

#[tokio::test]
async fn a_server_that_needs_an_upstream_is_not_ready_while_it_fails_and_says_so() {
    let first = Upstream::start([]).await;
    first.otherwise(Reply::error(503, "busy", "later"));
    let breaker = "[upstreams.scripted.breaker]\nfailures = 1\ncooldown = \"2s\"\n";
    let config = format!("{}needed = true\n{breaker}", first.config());
    let server = TestServer::start(&config).await;
    let ask = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]});
    let ready = async || server.get("/readyz").await;
    assert_eq!(ready().await.status, 200);
    let run = server.post(ENDPOINT, &ask);
    let look = async {
        eventually("it is not ready", async || ready().await.status == 503).await;
        assert_eq!(ready().await.body["status"], "upstream_unavailable");
        assert!(server.output().contains("a model is not asked for a while"), "{}", server.output());
    };
    let (answer, ()) = tokio::join!(run, look);
    assert_eq!(answer.status, 502, "{}", answer.body);
    // While it is half-open it is ready, or no request would probe it.
    eventually("it is ready again", async || ready().await.status == 200).await;
}

/// Such as one that is moderated, or too large for what is left of a rate limit.
#[tokio::test]
async fn what_one_request_is_refused_for_sends_no_other_request_elsewhere() {
    let large = Reply::error(429, "rate_limit_exceeded", "too large").header("retry-after", "60");
    let page = Reply::status(200).header("content-type", "text/html").bytes("<html>");
    for refused in [Reply::error(403, "flagged", "flagged"), Reply::error(404, "odd", "no images"), large, page] {
        let told = format!("{refused:?}");
        let (first, spare) = (Upstream::start([refused]).await, Upstream::start([]).await);
        first.otherwise(Reply::says("Hello"));
        spare.otherwise(Reply::says("Spare"));
        let needed = declared(&first, &spare).replacen("first_byte_timeout", "needed = true\nfirst_byte_timeout", 1);
        let server = TestServer::start(&needed).await;
        for text in ["Spare", "Hello", "Hello"] {
            let answer = server.post(ENDPOINT, &ask()).await;
            assert_eq!(answer.body["choices"][0]["message"]["content"], text, "{told}: {}", answer.body);
            assert_eq!(server.get("/readyz").await.status, 200, "{told}");
        }
        assert_eq!((first.requests().len(), spare.requests().len()), (3, 1), "{told}");
    }
}

/// A replica that dies between the fallback and the answer leaves a log that says which model the next one is to ask.
#[tokio::test]
async fn another_replica_goes_on_with_the_model_that_a_run_fell_back_to() {
    let redis = durable().await;
    let gate = Gate::new();
    let held = Reply::stream().gate(&gate).text("lost").finish("stop").usage(9, 9).done();
    let (first, spare) = (Upstream::start([]).await, Upstream::start([held, Reply::says("Hello")]).await);
    first.otherwise(Reply::error(401, "odd", "why"));
    let config = declared(&first, &spare);
    let mut dies = TestServer::builder(&config).store(&redis.url()).start().await;
    let lives = TestServer::builder(&config).store(&redis.url()).start().await;
    let mut request = ask();
    (request["stream"], request["agent"]) = (json!(true), json!({"on_disconnect": "continue"}));
    let mut stream = dies.stream(ENDPOINT, &request).await;
    let frames = stream.until(|frame| frame.name == "provider.fallback").await;
    let run = frames[0].json()["run_id"].as_str().expect("it has an id").to_owned();
    spare.received(1).await;
    dies.kill9().await;
    drop(stream);
    let ended = async || lives.get(&format!("/v1/runs/{run}")).await.body;
    eventually("the run to end", async || ended().await["status"] == "completed").await;
    let run = ended().await;
    assert_eq!(run["output_text"], "Hello", "{run}");
    assert_eq!(run["agent"]["report"]["steps"][0]["fallback"], "spare/test", "{run}");
    assert_eq!((first.requests().len(), spare.requests().len()), (1, 2));
}

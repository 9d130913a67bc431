//! The faults that alerts are about, made for real: a server tells each of them by the words that the rules wait for.
//! `scripts/check-k8s` has Prometheus judge the rules themselves.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::redis::durable;
use crate::support::{Reply, TestServer, ToolServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";

fn ask(content: &str, background: bool) -> Value {
    let messages = json!([{"role": "user", "content": content}]);
    json!({"model": "test", "messages": messages, "agent": {"background": background}})
}

async fn metrics(server: &TestServer) -> String {
    within("metrics", async {
        let response = server.respond(server.request(Method::GET, "/metrics")).await;
        response.text().await.expect("they are text")
    })
    .await
}

/// Tools fail and are lost, a run fails, another finds no room, and then the store is gone.
async fn of_a_bad_day() -> String {
    let calls = || Reply::calls("put", &json!({"note": "x"}));
    let upstream = Upstream::start([calls(), calls(), Reply::error(401, "denied", "no")]).await;
    upstream.otherwise(Reply::plain("").stall());
    let tools = ToolServer::start([Reply::status(500), Reply::status(200).headless().reset()]).await;
    let config = format!(
        "{}{}[agents.default]\ntools = [\"put\"]\ncontext = {{ max_message_chars = 1_000_000 }}\n[server]\nrun_memory = \"1MiB\"\n\
         drain_delay = \"0s\"\n",
        upstream.config(),
        tools.config("put", "write")
    );
    let mut redis = durable().await;
    let server = TestServer::builder(&config).store(&redis.url()).start().await;
    assert_eq!(server.post(ENDPOINT, &ask("Go.", false)).await.code(), "outcome_unknown");
    assert_eq!(server.post(ENDPOINT, &ask("Go.", false)).await.code(), "provider_error");
    let large = ask(&"x".repeat(250 << 10), true);
    server.post(ENDPOINT, &large).await.ok();
    assert_eq!(server.post(ENDPOINT, &large).await.code(), "overloaded");
    redis.kill().await;
    assert_eq!(server.post(ENDPOINT, &ask("Go.", false)).await.code(), "store_unavailable");
    metrics(&server).await
}

/// A server dies again and again in the same run.
async fn of_crashes() -> String {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::stream().stall());
    let mut server = TestServer::start(&upstream.config()).await;
    let run = server.post(ENDPOINT, &ask("Go.", true)).await.ok();
    let mut pages = String::new();
    for calls in 1..=4 {
        upstream.received(calls).await;
        pages += &metrics(&server).await;
        server.kill9().await;
        server.restart().await;
    }
    let path = format!("/v1/runs/{}", run["id"].as_str().expect("it is named"));
    within("the run to fail", async { while server.get(&path).await.ok()["status"] != "failed" {} }).await;
    pages + &metrics(&server).await
}

/// A metric as a rule asks for it: its name, and what must be so of its labels.
#[derive(Debug, PartialEq)]
struct Selector<'t>(&'t str, Vec<(&'t str, &'t str, &'t str)>);

/// Those with conditions of labels.
fn selectors(rules: &str) -> Vec<Selector<'_>> {
    let mut found = Vec::new();
    for (at, _) in rules.match_indices("loopgate_") {
        let length = rules[at..].find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(0);
        let Some(rest) = rules[at + length..].strip_prefix('{') else { continue };
        let (conditions, _) = rest.split_once('}').expect("it is closed");
        let parsed = conditions.split(',').map(|condition| {
            let at = condition.find(['=', '!']).expect("it compares");
            let (compared, value) = condition[at..].split_once('"').expect("it has a value");
            (condition[..at].trim(), compared, value.trim_end_matches('"'))
        });
        found.push(Selector(&rules[at..at + length], parsed.collect()));
    }
    found
}

impl Selector<'_> {
    /// Whether it is a sample of that metric, with such labels, and something was counted.
    fn takes(&self, sample: &str) -> bool {
        let Some((labels, value)) =
            sample.strip_prefix(self.0).and_then(|rest| rest.strip_prefix('{')?.split_once("} "))
        else {
            return false;
        };
        let of = |name: &str| labels.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        let holds = |(name, compared, wanted): &(&str, &str, &str)| match *compared {
            "=" => of(name) == Some(wanted),
            "!=" => of(name) != Some(wanted),
            "=~" => wanted.split('|').any(|wanted| of(name) == Some(wanted)),
            other => panic!("{other} is not known here"),
        };
        value.parse::<f64>().is_ok_and(|value| value > 0.0) && self.1.iter().all(holds)
    }
}

#[tokio::test]
async fn a_fault_is_told_by_the_words_that_its_alert_waits_for() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("k8s/components/monitoring/rules.yaml");
    let rules = std::fs::read_to_string(file).expect("the rules are there");
    let (bad_day, crashes) = tokio::join!(of_a_bad_day(), of_crashes());
    let pages = bad_day + &crashes;
    let selectors = selectors(&rules);
    assert!(selectors.len() > 10, "{selectors:?}");
    let unheard: Vec<_> = selectors.iter().filter(|selector| !pages.lines().any(|line| selector.takes(line))).collect();
    assert!(unheard.is_empty(), "{unheard:?} in\n{pages}");
}

#[test]
fn selectors_are_read_and_compared() {
    let rules = "sum(rate(loopgate_a_total{code=\"x\",route!=\"other\"}[5m])) > loopgate_b and loopgate_c{d=~\"e|f\"}";
    let read = selectors(rules);
    let expected = [
        Selector("loopgate_a_total", vec![("code", "=", "x"), ("route", "!=", "other")]),
        Selector("loopgate_c", vec![("d", "=~", "e|f")]),
    ];
    assert_eq!(read, expected);
    assert!(read[0].takes("loopgate_a_total{route=\"/\",code=\"x\"} 1"));
    for other in ["{route=\"other\",code=\"x\"} 1", "{route=\"/\",code=\"y\"} 1", "{route=\"/\",code=\"x\"} 0", " 1"] {
        assert!(!read[0].takes(&format!("loopgate_a_total{other}")), "{other}");
    }
    assert!(read[1].takes("loopgate_c{d=\"f\"} 2.5") && !read[1].takes("loopgate_c{d=\"g\"} 2.5"));
}

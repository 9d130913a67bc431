//! `loopgate doctor`, beside real servers.

use std::path::Path;

use serde_json::Value;
use tempfile::{TempDir, tempdir};
use tokio::net::TcpListener;

use super::text;
use crate::support::http::{HttpServer, Request};
use crate::support::redis::{RedisServer, durable, free_port};
use crate::support::server::loopgate;
use crate::support::upstream::list;
use crate::support::{Reply, TestServer, ToolServer, Upstream, within};

/// What the command found, a line each: its level, its area, and the words.
#[derive(Debug)]
struct Report {
    code: Option<i32>,
    findings: Vec<[String; 4]>,
    /// All that was written, in both forms.
    written: String,
}

impl Report {
    /// Whether there is a finding of this level and area whose words or advice contain `words`.
    fn has(&self, level: &str, area: &str, words: &str) -> bool {
        let is_it = |[of, at, message, advice]: &[String; 4]| {
            of == level && at == area && (message.contains(words) || advice.contains(words))
        };
        self.findings.iter().any(is_it)
    }
}

async fn examine(directory: &Path, config: &str, arguments: &[&str], secrets: &[(&str, &str)]) -> Report {
    std::fs::write(directory.join("doctor.toml"), config).expect("it can be written to");
    let run = async |more: &[&str]| {
        let mut command = loopgate(directory);
        command.args(["doctor", "--config", "doctor.toml"]).args(arguments).args(more).kill_on_drop(true);
        command.envs(secrets.iter().copied());
        within("the command to end", command.output()).await.expect("it can be started")
    };
    let (words, json) = (run(&[]).await, run(&["--json"]).await);
    assert_eq!(words.status.code(), json.status.code());
    let written = text(&[words.stdout, words.stderr, json.stdout.clone(), json.stderr].concat());
    let report: Value = serde_json::from_slice(&json.stdout).unwrap_or_else(|error| panic!("{error}: {written}"));
    assert_eq!(report["ok"], json.status.success(), "{written}");
    let field = |finding: &Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
    let findings = report["checks"].as_array().expect("it is a list").iter();
    let findings = findings.map(|finding| ["level", "area", "message", "advice"].map(|name| field(finding, name)));
    Report { code: json.status.code(), findings: findings.collect(), written }
}

fn listen() -> String {
    format!("127.0.0.1:{}", free_port())
}

fn directory() -> TempDir {
    tempdir().expect("a directory can be made")
}

#[tokio::test]
async fn a_doctor_finds_what_is_well_and_spends_nothing() {
    let (upstream, tools, redis) = (Upstream::start([]).await, ToolServer::start([]).await, durable().await);
    let agent = "[agents.default]\ntools = [\"look\"]\nmodel = \"scripted/test\"\n";
    let config = format!("{}{}{agent}", upstream.config(), tools.config("look", "read"));
    let (place, listen) = (directory(), listen());
    let report = examine(place.path(), &config, &["--listen", &listen, "--store", &redis.url()], &[]).await;
    assert_eq!(report.code, Some(0), "{}", report.written);
    for (area, words) in [
        ("configuration", "valid: 1 upstream ("),
        ("durations", "fit together"),
        ("store", "runs version"),
        ("store", "a change and a read take"),
        ("clock", "agrees with Redis"),
        ("upstreams.scripted", "it lists 1 models"),
        ("tools.look", "can be reached"),
        ("port", "is free"),
    ] {
        assert!(report.has("ok", area, words), "{area}: {words}: {}", report.written);
    }
    assert!(report.written.contains("ok    port: "), "{}", report.written);
    assert!(report.has("warn", "store", "has no replica"), "{}", report.written);
    assert!(!report.findings.iter().any(|finding| finding[2].contains("appendonly")), "{}", report.written);
    assert!(upstream.requests().is_empty() && tools.calls().is_empty());
}

#[tokio::test]
async fn a_doctor_names_the_models_that_a_running_server_leaves_alone() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::error(401, "invalid_api_key", "no"));
    let (place, config) = (directory(), upstream.config());
    let server = TestServer::start(&config).await;
    let examine =
        async || examine(place.path(), &config, &["--listen", server.address(), "--store", "memory:"], &[]).await;
    let words = "leaves the model test alone";
    assert!(!examine().await.written.contains(words), "it is well");
    let ask = serde_json::json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(server.post("/v1/agent/completions", &ask).await.status, 502);
    let report = examine().await;
    assert!(report.has("warn", "upstreams.scripted", words), "{}", report.written);
}

#[tokio::test]
async fn a_doctor_says_what_is_wrong_and_what_to_do() {
    let refuse = |_: &Request| Reply::error(401, "invalid_api_key", "Incorrect API key provided: up_secret.");
    let (closed, lists) = (HttpServer::start(|_| true, refuse).await, Upstream::start([]).await);
    // A label of a name has 63 characters at most, so that no name server is asked.
    let (redis, other) = (RedisServer::start().await, TcpListener::bind("127.0.0.1:0").await.expect("a port is free"));
    let listen = other.local_addr().expect("it has one").to_string();
    let (nowhere, no_host) = (free_port(), "x".repeat(64));
    let config = format!(
        "{lists}[upstreams.closed]\nbase_url = \"http://{closed}/v1\"\napi_key_env = \"UP_KEY\"\n\
         [upstreams.away]\nbase_url = \"http://127.0.0.1:{nowhere}/v1\"\nfree = false\n\
         [agents.odd]\nmodel = \"scripted/none\"\n[agents.dear]\nmodel = \"away/dear\"\n[agents.dear.limits]\n\
         cost_budget_usd = 1.0\n\
         [tools.gone]\ndescription = \"d\"\nurl = \"http://127.0.0.1:{nowhere}/?key=in_query\"\n\
         [tools.unknown]\ndescription = \"d\"\nurl = \"http://{no_host}/\"\nheaders = {{ authorization = \"in_header\" }}\n",
        lists = lists.config().replace("models = [\"test\"]\n", ""),
        closed = closed.address(),
    );
    let (place, store) = (directory(), redis.url());
    let report =
        examine(place.path(), &config, &["--listen", &listen, "--store", &store], &[("UP_KEY", "up_secret")]).await;
    assert_eq!(report.code, Some(1), "{}", report.written);
    for (level, area, words) in [
        ("fail", "upstreams.closed", "Its key is not accepted"),
        ("fail", "upstreams.away", "Check base_url"),
        ("warn", "upstreams.scripted", "does not list the model none of agents.odd"),
        ("fail", "prices", "agents.dear: no price is known"),
        ("warn", "tools.gone", "cannot be reached"),
        ("fail", "tools.unknown", "resolved"),
        ("warn", "store", "a restart of it loses runs"),
        ("fail", "port", "another program listens"),
    ] {
        assert!(report.has(level, area, words), "{area}: {words}: {}", report.written);
    }
    let locked = RedisServer::start_with(&["--requirepass", "right"]).await;
    let wrong = locked.url().replace("redis://", "redis://:in_url@");
    let refused = examine(place.path(), "", &["--listen", &self::listen(), "--store", &wrong], &[]).await;
    assert!(refused.has("fail", "store", "Check `store.url`"), "{}", refused.written);
    for secret in ["up_secret", "in_query", "in_header", "in_url"] {
        assert!(!report.written.contains(secret) && !refused.written.contains(secret), "{secret}: {}", report.written);
    }
    let mistaken = examine(place.path(), "[server]\nlisen = 1\n", &[], &[]).await;
    assert_eq!(mistaken.code, Some(1));
    assert!(mistaken.has("fail", "configuration", "doctor.toml:2"), "{}", mistaken.written);
}

#[tokio::test]
async fn a_doctor_asks_each_address_and_each_key() {
    let refuse = |request: &Request| match request.headers.get("authorization").map(String::as_str) {
        Some("Bearer first") => list(),
        _ => Reply::error(401, "invalid_api_key", "no"),
    };
    let well = HttpServer::start(|_| true, refuse).await;
    let (address, nowhere) = (well.address(), free_port());
    let config = format!(
        "[upstreams.several]\nbase_urls = [\"http://{address}/v1\", \"http://127.0.0.1:{nowhere}/v1\"]\n\
         api_key_envs = [\"FIRST\", \"SECOND\"]\n"
    );
    let (place, listen, keys) = (directory(), listen(), [("FIRST", "first"), ("SECOND", "second")]);
    let report = examine(place.path(), &config, &["--listen", &listen, "--store", "memory:"], &keys).await;
    let area = "upstreams.several";
    for (level, words) in [
        ("ok", format!("http://{address}/v1: key 1 of 2: answers, and accepts the key")),
        ("fail", format!("http://127.0.0.1:{nowhere}/v1: key 1 of 2: upstream several cannot be reached")),
        ("fail", format!("http://{address}/v1: key 2 of 2: upstream several refused our key")),
    ] {
        assert!(report.has(level, area, &words), "{words}: {}", report.written);
    }
}

#[tokio::test]
async fn a_doctor_works_beside_a_server_and_before_its_first_start() {
    let (place, upstream) = (directory(), Upstream::start([]).await);
    let store = format!("embedded:{}/data", place.path().display());
    let before = examine(place.path(), &upstream.config(), &["--listen", &listen(), "--store", &store], &[]).await;
    assert_eq!(before.code, Some(0), "{}", before.written);
    assert!(before.has("ok", "store", "will be made by the first start"), "{}", before.written);
    assert!(!place.path().join("data").exists(), "it only looked");
    let mut server = TestServer::builder(&upstream.config()).store(&store).start().await;
    let listen = server.address().to_owned();
    let beside = examine(place.path(), &upstream.config(), &["--listen", &listen, "--store", &store], &[]).await;
    assert_eq!(beside.code, Some(0), "{}", beside.written);
    assert!(
        beside.has("ok", "store", "has it open") && beside.has("ok", "port", "a server listens"),
        "{}",
        beside.written
    );
    server.kill9().await;
    let files = || ["store.redb", "store.journal"].map(|name| std::fs::read(place.path().join("data").join(name)).ok());
    let left = files();
    let after = examine(place.path(), &upstream.config(), &["--listen", &listen, "--store", &store], &[]).await;
    assert!(after.has("warn", "store", "was not closed by its last server"), "{}", after.written);
    assert!(left[0].is_some() && files() == left, "what a crash left is as it was");
    server.restart().await;
    server.sigterm();
    assert!(server.drained().await.success());
    let after = examine(place.path(), &upstream.config(), &["--listen", &listen, "--store", &store], &[]).await;
    assert!(after.has("ok", "store", "a change and a read take"), "{}", after.written);
    assert!(after.findings.iter().any(|[_, area, ..]| area == "disk"), "{}", after.written);
    let file = format!("embedded:{}/doctor.toml/data", place.path().display());
    let nowhere = examine(place.path(), &upstream.config(), &["--store", &file], &[]).await;
    assert!(nowhere.code == Some(1) && nowhere.has("fail", "store", "doctor.toml/data"), "{}", nowhere.written);
}

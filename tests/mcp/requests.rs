//! Servers that requests name: who may, what a run makes of them, and where what they are shown is found.

use std::path::Path;
use std::process::Stdio;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{ENDPOINT, told, until};
use crate::support::redis::RedisServer;
use crate::support::{Reply, TestServer, Upstream, within};

/// What the caller has the server shown.
pub(crate) const TOKEN: &str = "SECRET-of-the-caller";

/// The scripted server, listening. Dropping it kills it.
pub(crate) struct Listening {
    process: Child,
    pub(crate) port: u16,
    journal: NamedTempFile,
}

impl Listening {
    /// One that takes only those who show the token, and quotes it.
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// The same with more options.
    pub(crate) async fn with(options: &[&str]) -> Self {
        let journal = NamedTempFile::new().expect("it can be made");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.py");
        let mut command = Command::new("python3");
        command
            .arg(script)
            .args(["--http", "0", "--token", TOKEN, "--quoted", TOKEN, "--journal"])
            .arg(journal.path())
            .args(options);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut process = command.spawn().expect("there is an interpreter");
        let mut said = BufReader::new(process.stdout.take().expect("it is a pipe")).lines();
        let port = within("the port", said.next_line()).await.expect("it is read").expect("it says where it listens");
        Self { process, port: port.parse().expect("it is a number"), journal }
    }

    /// What it got, by the member at this path.
    pub(crate) fn got(&self, member: &str) -> Vec<String> {
        let journal = std::fs::read_to_string(self.journal.path()).expect("it is there");
        let lines = journal.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter_map(|line| Some(line.pointer(member)?.as_str()?.to_owned())).collect()
    }

    /// The sessions in which tools were called, each once, in their order.
    fn sessions(&self) -> Vec<String> {
        let mut sessions = self.got("/headers/mcp-session-id");
        sessions.dedup();
        sessions
    }

    /// As a request names it.
    fn named(&self, more: &Value) -> Value {
        let mut named = json!({"type": "mcp", "server_label": "crm", "authorization": TOKEN,
            "server_url": format!("http://127.0.0.1:{}/mcp", self.port)});
        for (name, value) in more.as_object().expect("it is an object") {
            named[name] = value.clone();
        }
        named
    }
}

/// Where servers at these ports of this machine may be named by one of two keys.
fn config(upstream: &Upstream, ports: &[u16]) -> String {
    format!(
        "{}[egress]\nports = {ports:?}\nprivate_addresses = [\"127.0.0.0/8\"]\n[request_mcp]\nallow_http = true\nmax_servers = 2\n\
         [keys.web]\nkey_env = \"WEB\"\nrequest_mcp = true\n[keys.plain]\nkey_env = \"PLAIN\"\n[keys.metrics]\nkey_env = \"METRICS\"\n\
         scopes = [\"metrics\"]\n[mcp.taken]\nurl = \"http://127.0.0.1:9/mcp\"\n[agents.default]\ntools = []\n",
        upstream.config()
    )
}

async fn started(upstream: &Upstream, ports: &[u16], store: Option<&RedisServer>, log: &str) -> TestServer {
    let builder = TestServer::builder(&config(upstream, ports)).env("WEB", "lg_web").env("PLAIN", "lg_plain");
    let builder = builder.env("METRICS", "lg_metrics").env("LOOPGATE_LOG", log);
    let builder = if let Some(store) = store { builder.store(&store.url()) } else { builder };
    let mut server = builder.start().await;
    server.use_key("lg_web");
    server
}

fn ask(tools: &Value) -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "Go."}], "tools": tools})
}

fn never() -> Value {
    json!({"require_approval": "never"})
}

#[tokio::test]
async fn a_request_names_a_server_whose_tools_its_run_calls() {
    let crm = Listening::start().await;
    let upstream = Upstream::start([]).await;
    let server = started(&upstream, &[crm.port], None, "info").await;
    let allowed = json!({"require_approval": "never", "allowed_tools": ["echo", "quote", "absent"], "server_description": "Customers."});
    for endpoint in [ENDPOINT, "/v1/chat/completions"] {
        upstream.then(Reply::calls("crm__echo", &json!({"text": "hello"})));
        upstream.then(Reply::calls("crm__quote", &json!({})));
        upstream.then(Reply::says("Done."));
        let answer = server.post(endpoint, &ask(&json!([crm.named(&allowed)]))).await.ok();
        assert_eq!(answer["choices"][0]["message"]["content"], "Done.", "{answer}");
        let warnings = answer["agent"]["warnings"].to_string();
        assert!(warnings.contains("absent") && !answer.to_string().contains(TOKEN), "{answer}");
        assert!(told(&upstream).contains("with ***"), "{}", told(&upstream));
    }
    let requests = upstream.requests();
    let offered: Vec<&Value> =
        requests[0]["tools"].as_array().expect("they are").iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(offered, ["crm__echo", "crm__quote"], "no more than the request allows");
    let system = &requests[0]["messages"][0];
    assert!(system["role"] == "system" && system["content"].to_string().contains("Customers."), "{system}");
    assert!(requests.iter().all(|request| !request.to_string().contains(TOKEN)));
    let sessions = crm.sessions();
    assert_eq!(sessions.len(), 2, "each run has its own: {sessions:?}");
    until("the end of both sessions", || crm.got("/deleted").len() == 2).await;
    assert_eq!(crm.got("/deleted"), sessions);
}

#[tokio::test]
async fn a_call_needs_an_approval_and_the_run_goes_on_at_another_process_with_what_it_was_given() {
    let redis = crate::support::redis::durable().await;
    let crm = Listening::start().await;
    let upstream = Upstream::start([Reply::calls("crm__echo", &json!({"text": "hello"})), Reply::says("Done.")]).await;
    let mut server = started(&upstream, &[crm.port], Some(&redis), "info").await;
    let asked = server.post(ENDPOINT, &ask(&json!([crm.named(&json!({}))]))).await.ok();
    assert_eq!(
        (&asked["agent"]["status"], &asked["agent"]["stop_reason"]),
        (&json!("requires_action"), &json!("approval")),
        "{asked}"
    );
    assert!(crm.got("/params/name").is_empty(), "nothing was called");
    let holding = || async {
        let keys = redis.cli(&["--raw", "KEYS", "*"]).await;
        let mut holding = Vec::new();
        for key in keys.lines() {
            let dump = redis.cli(&["--no-raw", "DUMP", key]).await;
            let plain = redis.cli(&["--raw", "HVALS", key]).await + &redis.cli(&["--raw", "GET", key]).await;
            if dump.contains(TOKEN) || plain.contains(TOKEN) {
                holding.push(key.to_owned());
            }
        }
        holding
    };
    assert!(!holding().await.is_empty(), "another process could not go on otherwise");
    server.kill9().await;
    server.restart().await;
    let (run, call) = (
        asked["agent"]["run_id"].as_str().expect("it has one"),
        &asked["agent"]["required_action"]["calls"][0]["call_id"],
    );
    let decided = json!({"approvals": [{"call_id": call, "decision": "approve"}]});
    let done = server.post(&format!("/v1/runs/{run}/approvals"), &decided).await.ok();
    assert!(!done.to_string().contains(TOKEN), "{done}");
    let ended = || async { server.get(&format!("/v1/runs/{run}")).await.ok()["status"] == "completed" };
    crate::support::redis::eventually("the end of the run", async || ended().await).await;
    assert_eq!(told(&upstream), "hello");
    until("the end of the session", || !crm.got("/deleted").is_empty()).await;
    assert_eq!(holding().await, Vec::<String>::new(), "what was shown is gone with the run");
}

#[tokio::test]
async fn who_may_not_name_servers_or_not_such_is_refused_before_a_model_is_asked() {
    let crm = Listening::start().await;
    let upstream = Upstream::start([]).await;
    let mut server = started(&upstream, &[crm.port, 9], None, "info").await;
    let named = |more: Value| ask(&json!([crm.named(&more)]));
    let second = |label: &str| ask(&json!([crm.named(&json!({})), crm.named(&json!({"server_label": label}))]));
    let three = json!([
        crm.named(&json!({})),
        crm.named(&json!({"server_label": "b"})),
        crm.named(&json!({"server_label": "c"}))
    ]);
    let mut clash = named(never());
    let own = json!({"type": "function", "function": {"name": "crm__echo"}});
    clash["tools"].as_array_mut().expect("it is").insert(0, own);
    let rows = [
        (named(json!({"server_url": "https://169.254.169.254/mcp"})), 400, "invalid_value", "tools[0].server_url"),
        (named(json!({"server_url": "http://127.0.0.1:1/mcp"})), 400, "invalid_value", "tools[0].server_url"),
        (named(json!({"server_url": "file:///etc/passwd"})), 400, "invalid_value", "tools[0].server_url"),
        (named(json!({"server_label": "taken"})), 400, "invalid_value", "tools[0].server_label"),
        (second("crm"), 400, "invalid_value", "tools[1].server_label"),
        (ask(&three), 400, "invalid_value", "tools[2].server_url"),
        (clash, 400, "invalid_value", "tools[0].function.name"),
        (named(json!({"authorization": "wrong"})), 424, "mcp_server_error", "tools"),
        (named(json!({"server_url": "http://127.0.0.1:9/mcp"})), 424, "mcp_server_error", "tools"),
        (named(json!({"server_url": format!("http://127.0.0.1:{}/away", crm.port)})), 424, "mcp_server_error", "tools"),
    ];
    for (body, status, code, param) in rows {
        let answer = server.post(ENDPOINT, &body).await;
        let error = &answer.body["error"];
        assert_eq!(
            (answer.status, &error["code"], &error["param"]),
            (status, &json!(code), &json!(param)),
            "{body}: {error}"
        );
        assert!(!error.to_string().contains(TOKEN), "{error}");
    }
    // Nothing is asked where no tool may be called.
    upstream.then(Reply::says("Hi."));
    let mut none = named(json!({"server_url": "http://127.0.0.1:9/mcp"}));
    none["tool_choice"] = json!("none");
    server.post(ENDPOINT, &none).await.ok();
    server.use_key("lg_plain");
    let refused = server.post(ENDPOINT, &named(never())).await;
    assert_eq!((refused.status, refused.code()), (403, "forbidden"));
    assert_eq!(upstream.requests().len(), 1, "nothing else was spent");
    let alone = TestServer::start(&upstream.config()).await;
    let refused = alone.post(ENDPOINT, &named(never())).await;
    assert_eq!((refused.status, refused.code()), (403, "forbidden"), "it is off unless the operator says otherwise");
}

#[tokio::test]
async fn what_a_caller_has_a_server_shown_is_told_nobody_else() {
    let mut crm = Listening::start().await;
    let upstream = Upstream::start([]).await;
    let mut server = started(&upstream, &[crm.port], None, "debug").await;
    let mut told = String::new();
    let url = format!("http://127.0.0.1:{}/mcp?key=SECRET-in-the-query", crm.port);
    let named = crm
        .named(&json!({"require_approval": "never", "server_url": url, "headers": {"x-more": "SECRET-in-a-header"}}));
    let fails = json!({"fails": true});
    for (tool, arguments) in [("quote", json!({})), ("quote", fails), ("fail", json!({})), ("die", json!({}))] {
        upstream.then(Reply::calls(&format!("crm__{tool}"), &arguments));
        upstream.then(Reply::says("Done."));
        let mut body = ask(&json!([named]));
        body["agent"] = json!({"on_unknown_outcome": "tell_model", "background": true});
        let begun = server.post(ENDPOINT, &body).await;
        let run = begun.body["id"].as_str().unwrap_or_else(|| panic!("{}", begun.body)).to_owned();
        told += &server.events(&run, 0).await.rest().await.iter().map(|frame| frame.data.clone()).collect::<String>();
        for path in ["", "/trace"] {
            told += &server.get(&format!("/v1/runs/{run}{path}")).await.body.to_string();
        }
    }
    within("the end of the server", crm.process.wait()).await.expect("it ended");
    told += &server.post(ENDPOINT, &ask(&json!([named]))).await.body.to_string();
    server.use_key("lg_metrics");
    let metrics = server.respond(server.request(Method::GET, "/metrics")).await.text().await.expect("it is text");
    assert!(metrics.contains("loopgate_") && !metrics.contains("server=\"crm\""), "labels are not the callers'");
    server.sigterm();
    server.drained().await;
    let log = server.output();
    assert!(told.contains("with ***") && told.contains("mcp_server_error"), "{told}");
    for (what, text) in [("answers", told), ("metrics", metrics), ("log", log)] {
        assert!(!text.contains("SECRET"), "in the {what}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_function_tool_is_told_at_its_place_among_servers_too() {
    let crm = Listening::start().await;
    let upstream = Upstream::start([]).await;
    let server = started(&upstream, &[crm.port], None, "info").await;
    let function =
        |name: &str, kind: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": kind}}});
    let named = || crm.named(&never());
    for (tools, param) in [
        (json!([named(), function("crm__echo", "object")]), "tools[1].function.name"),
        (json!([function("a", "object"), named(), function("crm__echo", "object")]), "tools[2].function.name"),
        (json!([function("crm__echo", "object"), named()]), "tools[0].function.name"),
        (json!([named(), function("a", "object"), function("b", "string")]), "tools[2].function.parameters"),
    ] {
        let refused = server.post(ENDPOINT, &ask(&tools)).await;
        assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!(param)), "{}", refused.body);
    }
}

//! The programs and pages of `examples/`, as their readers run them: against the real server with its demo model.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use reqwest::header::{HeaderMap, SET_COOKIE};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::sdk::installed;
use crate::support::server::loopgate;
use crate::support::{Gate, Proxy, Reply, TestServer, Upstream, within};

const DEMO: &str = "[upstreams.demo]\nkind = \"demo\"\n";
/// How long an example, a browser or a compiler may take where all cores are busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(example(path)).unwrap_or_else(|error| panic!("examples/{path}: {error}"))
}

/// A directory with what is in one of the examples', and the packages of `tests/sdk` for Node.
fn copied(of: &str) -> TempDir {
    let directory = tempdir().expect("a directory can be made");
    for entry in fs::read_dir(example(of)).expect("the examples are there") {
        let file = entry.expect("it can be listed").path();
        fs::copy(&file, directory.path().join(file.file_name().unwrap_or_default())).expect("it can be copied");
    }
    let modules = installed("LOOPGATE_TEST_NODE_MODULES", "node/node_modules");
    symlink(modules, directory.path().join("node_modules")).expect("it can be linked to");
    directory
}

/// What a program prints that asks the server at `url`, once it has ended well.
async fn printed(mut command: Command, url: &str) -> String {
    command.env("LOOPGATE_URL", url).env_remove("LOOPGATE_KEY").env_remove("MODEL");
    command.stdin(Stdio::null()).kill_on_drop(true);
    let done = tokio::time::timeout(PATIENCE, command.output()).await.expect("the example ends").expect("it starts");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{command:?}:\n{said}{}", String::from_utf8_lossy(&done.stderr));
    said
}

/// A program that goes on until it is dropped, and the lines that it prints.
struct Service {
    lines: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Service {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        Self { lines, _process: process }
    }

    async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        line.expect("it says something").expect("it can be read").expect("it goes on")
    }

    /// Where it listens, as its first line says.
    async fn url(&mut self) -> String {
        let line = self.line().await;
        let (_, port) = line.split_once("http://127.0.0.1:").unwrap_or_else(|| panic!("no address: {line}"));
        format!("http://127.0.0.1:{}", port.trim_end_matches(|c: char| !c.is_ascii_digit()))
    }
}

fn python() -> Command {
    Command::new(installed("LOOPGATE_TEST_PYTHON", "python/bin/python"))
}

#[tokio::test]
async fn the_example_for_curl_shows_what_it_says() {
    let server = TestServer::start(DEMO).await;
    let mut command = Command::new("bash");
    command.arg(example("curl.sh"));
    let said = printed(command, server.url()).await;
    for shown in [
        r#""content":"[demo model] 1234 * 5678 = 7006652.""#,
        "event: tool.result",
        r#""content":"[demo model] Your name is Ada.""#,
        r#"{"index":3,"message":{"role": "user", "content": "What is my name?"}}"#,
        r#""status":"queued""#,
    ] {
        assert!(said.contains(shown), "it lacks {shown}:\n{said}");
    }
    // Both the stream and the run in the background are read to their ends.
    assert_eq!(said.matches("event: run.completed\n").count(), 2, "{said}");
    let after = said.rsplit("# … and what came after event 4\n").next().unwrap_or_default();
    assert!(after.starts_with("id: 5\nid: 6\n"), "{after}");
}

#[tokio::test]
async fn the_examples_for_python_show_what_they_say() {
    let server = TestServer::start(DEMO).await;
    let stream = "-> calculator {'expression': '1234 * 5678'}\n<- 7006652\n[demo model] 1234 * 5678 = 7006652.\n";
    let session = "[demo model] Nice to meet you, Ada.\n[demo model] Your name is Ada.\n\
                   1 user My name is Ada.\n2 assistant [demo model] Nice to meet you, Ada.\n\
                   3 user What is my name?\n4 assistant [demo model] Your name is Ada.\n";
    let tool = "calling get_weather {'city': 'Oslo'}\n[demo model] get_weather says: 7 °C and rain in Oslo\n";
    let langchain = format!("[demo model] 1234 * 5678 = 7006652.\n{tool}");
    let programs =
        [("stream.py", stream), ("session.py", session), ("client_tool.py", tool), ("langchain_chat.py", &langchain)];
    for (name, expected) in programs {
        let mut command = python();
        command.arg(example("python").join(name));
        assert_eq!(printed(command, server.url()).await, expected, "{name}");
    }
}

#[tokio::test]
async fn the_examples_for_node_show_what_they_say() {
    let server = TestServer::start(DEMO).await;
    let directory = copied("node");
    let stream = "-> calculator {\"expression\":\"1234 * 5678\"}\n<- 7006652\n[demo model] 1234 * 5678 = 7006652.\n";
    let tool = "calling get_weather {\"city\": \"Oslo\"}\n[demo model] get_weather says: 7 °C and rain in Oslo\n";
    for (name, expected) in [("stream.mjs", stream), ("client_tool.mjs", tool)] {
        let mut command = Command::new("node");
        command.arg(directory.path().join(name));
        assert_eq!(printed(command, server.url()).await, expected, "{name}");
    }
}

/// A server with this configuration, which pages of another origin may call, and these pages.
async fn with_pages(config: &str) -> (TestServer, String, Service) {
    let mut command = Command::new("python3");
    command.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"]).arg(example("web"));
    let mut pages = Service::start(command);
    let origin = pages.url().await;
    let server = TestServer::start(&format!("{config}[server]\ncors_origins = [{origin:?}]\n")).await;
    (server, origin, pages)
}

/// A page in a browser, which does these steps.
fn browse(url: &str, steps: &[&str]) -> Service {
    let mut command = Command::new("node");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages/browser.mjs")).arg(url).args(steps);
    command.env("LOOPGATE_TEST_NODE_MODULES", installed("LOOPGATE_TEST_NODE_MODULES", "node/node_modules"));
    Service::start(command)
}

/// What a page shows at the end, after a check that nothing in it keeps people out.
async fn shown(mut page: Service) -> Value {
    let line = page.line().await;
    let shown: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_eq!(shown["barriers"], json!([]));
    shown
}

/// From another origin, and reloaded in the middle.
#[tokio::test]
async fn a_page_with_fetch_shows_one_run_although_it_is_reloaded() {
    let (server, origin, _pages) = with_pages(DEMO).await;
    let url = format!("{origin}/fetch.html?url={}", server.url());
    let steps = ["click:form button", "wait:4 tool.result calculator 1", "reload", "wait:run.completed"];
    let mut page = browse(&url, &steps);
    assert_eq!(page.line().await, "4 tool.result calculator 1");
    assert_eq!(page.line().await, "run.completed");
    let shown = shown(page).await;
    assert_eq!(shown["answer"], "[demo model] I counted to 12: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12.");
    let log: Vec<_> = shown["log"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert_eq!(log[..4], ["1 run.started", "2 step.started", "3 tool.call calculator", "4 tool.result calculator 1"]);
    assert_eq!(log.iter().filter(|line| line.contains("tool.result")).count(), 12, "{log:?}");
    assert_eq!(shown["complaints"], json!([]));
    let runs = server.get("/v1/runs").await.ok();
    assert_eq!(runs["data"].as_array().map(Vec::len), Some(1), "the reload began another run: {runs}");
}

/// The connections of a page break in the middle of an answer. It reads on, and shows each piece once.
async fn reads_on(page: &str, button: &str) {
    let gate = Gate::new();
    let answer = Reply::stream().text("Half ").gate(&gate).text("whole.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([answer]).await;
    let (server, origin, _pages) = with_pages(&upstream.config()).await;
    let proxy = Proxy::start(server.address().parse().expect("it is an address")).await;
    let url = format!("{origin}/{page}?url={}&model=test", proxy.url());
    let mut page = browse(&url, &[button, "wait:Half", "wait:run.completed"]);
    assert_eq!(page.line().await, "Half");
    proxy.cut();
    gate.open();
    assert_eq!(page.line().await, "run.completed");
    assert_eq!(shown(page).await["answer"], "Half whole.");
    assert_eq!(upstream.requests().len(), 1, "the run was started twice");
}

#[tokio::test]
async fn a_page_with_fetch_reads_on_where_its_connection_broke() {
    reads_on("fetch.html", "click:form button").await;
}

#[tokio::test]
async fn a_page_with_eventsource_reads_on_where_its_connection_broke() {
    reads_on("eventsource.html", "click:#ask").await;
}

#[tokio::test]
async fn a_page_with_eventsource_shows_a_run() {
    let (server, origin, _pages) = with_pages(DEMO).await;
    let url = format!("{origin}/eventsource.html?url={}", server.url());
    let mut page = browse(&url, &["click:#ask", "wait:run.completed"]);
    assert_eq!(page.line().await, "run.completed");
    let shown = shown(page).await;
    assert_eq!(shown["answer"], "[demo model] 1234 * 5678 = 7006652.");
    let names = shown["log"].as_array().into_iter().flatten().filter_map(|line| line.as_str()?.split(' ').nth(1));
    assert_eq!(names.collect::<Vec<_>>(), ["run.started", "tool.call", "tool.result", "run.completed"]);
    assert_eq!(shown["complaints"], json!([]));
}

/// From another origin, and reloaded in the middle: the page joins the message from its first chunk on.
#[tokio::test]
async fn a_page_with_ui_messages_joins_its_answer_after_a_reload() {
    let (server, origin, _pages) = with_pages(DEMO).await;
    let url = format!("{origin}/ai-sdk.html?url={}", server.url());
    let steps = ["click:form button", "wait:calculator output-available 1", "reload", "wait:finished: stop"];
    let mut page = browse(&url, &steps);
    assert_eq!(page.line().await, "calculator output-available 1");
    assert_eq!(page.line().await, "finished: stop");
    let shown = shown(page).await;
    assert_eq!(shown["answer"], "[demo model] I counted to 12: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12.");
    assert_eq!(shown["log"].as_array().map(Vec::len), Some(13), "{shown}");
    assert_eq!(shown["complaints"], json!([]));
    let runs = server.get("/v1/runs").await.ok();
    assert_eq!(runs["data"].as_array().map(Vec::len), Some(1), "the reload began another run: {runs}");
}

#[tokio::test]
async fn pages_for_chats_ask_for_approvals() {
    let (server, origin, _pages) = with_pages(DEMO).await;
    for (page, asks, made) in [
        ("ai-sdk.html", "May calculator be called with", "calculator output-available 1"),
        ("ag-ui.html", "The call of calculator needs an approval.", "result 1"),
    ] {
        let url = format!("{origin}/{page}?url={}&ask=calculator", server.url());
        let (wait, then) = (format!("wait:{asks}"), format!("wait:{made}"));
        let mut page = browse(&url, &["click:form button", &wait, "click:#approve", &then]);
        assert_eq!((page.line().await, page.line().await), (asks.to_owned(), made.to_owned()));
        assert_eq!(shown(page).await["complaints"], json!([]));
    }
}

#[tokio::test]
async fn a_page_with_ag_ui_shows_a_run() {
    let (server, origin, _pages) = with_pages(DEMO).await;
    let mut page =
        browse(&format!("{origin}/ag-ui.html?url={}", server.url()), &["click:form button", "wait:finished: success"]);
    assert_eq!(page.line().await, "finished: success");
    let shown = shown(page).await;
    assert_eq!(shown["answer"], "[demo model] I counted to 12: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12.");
    assert_eq!(shown["complaints"], json!([]));
}

/// The helper's types stand in its comments, and hold.
#[tokio::test]
async fn the_helper_for_pages_is_typed() {
    // Alone, so that the compiler finds no other types.
    let directory = tempdir().expect("a directory can be made");
    fs::copy(example("web/loopgate.js"), directory.path().join("loopgate.js")).expect("it can be copied");
    let mut command = Command::new("node");
    let modules = installed("LOOPGATE_TEST_NODE_MODULES", "node/node_modules");
    command.arg(modules.join("typescript/bin/tsc")).current_dir(directory.path());
    command.args(["--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022", "--module", "es2022"]);
    command.args(["--lib", "es2022,dom", "loopgate.js"]).stdin(Stdio::null()).kill_on_drop(true);
    let done = tokio::time::timeout(PATIENCE, command.output()).await;
    let done = done.expect("the compiler ends").expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

#[tokio::test]
async fn the_backend_for_pages_adds_the_key_and_keeps_visitors_apart() {
    let config = format!("{DEMO}[keys.web]\nkey_env = \"WEB_KEY\"\n");
    let server = TestServer::builder(&config).env("WEB_KEY", "lg_web").start().await;
    let mut command = Command::new("node");
    command.arg(example("web/backend.mjs"));
    command.envs([("PORT", "0"), ("LOOPGATE_KEY", "lg_web"), ("LOOPGATE_URL", server.url())]);
    let mut backend = Service::start(command);
    let url = backend.url().await;
    let client = reqwest::Client::builder().no_proxy().build().expect("the defaults are valid");
    let get = async |path: &str, cookie: &str| {
        let request = client.get(format!("{url}{path}")).header("cookie", cookie);
        within("an answer", request.send()).await.expect("it answers")
    };
    let page = get("/fetch.html", "").await;
    assert_eq!(page.status(), 200);
    let cookie = cookie(page.headers());

    let body = json!({"model": "demo", "stream": true, "messages": [{"role": "user", "content": "What is 6 * 7?"}]});
    let request = client.post(format!("{url}/v1/agent/completions")).header("cookie", &cookie);
    let request = request.header("content-type", "application/json").body(body.to_string());
    let answer = within("an answer", request.send()).await.expect("it answers");
    let run = answer.headers()["x-loopgate-run-id"].to_str().expect("it is text").to_owned();
    let stream = within("the stream", answer.text()).await.expect("it is whole");
    assert!(stream.contains("event: tool.result") && stream.ends_with("data: [DONE]\n\n"), "{stream}");

    let events = format!("/v1/runs/{run}/events");
    let again = within("the events", get(&events, &cookie).await.text()).await.expect("they are whole");
    assert_eq!(again, stream);
    assert_eq!(get(&events, "visitor=another").await.status(), 404);
    assert_eq!(get("/v1/sessions", &cookie).await.status(), 404);
    assert_eq!(get("/backend.mjs", &cookie).await.status(), 404);

    let mut page = browse(&format!("{url}/fetch.html?url="), &["click:form button", "wait:run.completed"]);
    assert_eq!(page.line().await, "run.completed");
    assert_eq!(shown(page).await["complaints"], json!([]));
}

/// From another origin, and with a token in place of a key. The page is reloaded in the middle, its token expires, and then is revoked: it
/// goes on with another one each time.
#[tokio::test]
async fn a_page_with_a_token_goes_on_when_its_token_does_not() {
    let gate = Gate::new();
    let sum = Reply::calls("calculator", &json!({"expression": "6 * 7"}));
    let held = Reply::stream().text("Half ").gate(&gate).text("whole.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([sum, held, Reply::says(" Told.")]).await;
    let config = format!(
        "{}[agents.guide]\nmodel = \"test\"\ntools = [\"calculator\"]\n[server]\ncors_origins = [\"*\"]\n[tokens]\nsecret_env = \"SECRET\"\n[keys.web]\nkey_env = \"WEB_KEY\"\n",
        upstream.config()
    );
    let builder = TestServer::builder(&config).env("WEB_KEY", "lg_web");
    let mut server = builder.env("SECRET", "a-secret-of-more-than-32-characters").start().await;
    server.use_key("lg_web");
    let mut command = Command::new("node");
    command.arg(example("web/tokens.mjs"));
    command.envs([("PORT", "0"), ("LOOPGATE_KEY", "lg_web"), ("LOOPGATE_URL", server.url()), ("TTL_S", "4")]);
    command.env("AGENT", "guide");
    let mut backend = Service::start(command);
    let url = format!("{}/tokens.html", backend.url().await);
    let steps =
        ["click:form button", "wait:tool.result calculator 42", "wait:Half", "reload", "wait:Half", "wait:token 2"];
    let steps = [&steps[..], &["click:#steer", "wait:it was told", "wait:token 3", "wait:run.completed"]].concat();
    let mut page = browse(&url, &steps);
    for line in ["tool.result calculator 42", "Half", "Half", "token 2", "it was told"] {
        assert_eq!(page.line().await, line);
    }
    let revoked = server.send(server.request(reqwest::Method::DELETE, "/v1/tokens")).await;
    assert_eq!(revoked.status, 200, "{}", revoked.body);
    assert_eq!(page.line().await, "token 3");
    gate.open();
    assert_eq!(page.line().await, "run.completed");
    let shown = shown(page).await;
    assert_eq!(shown["answer"], "Half whole. Told.");
    let log: Vec<_> = shown["log"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for name in ["run.started", "tool.result", "run.completed"] {
        assert_eq!(log.iter().filter(|line| line.contains(name)).count(), 1, "{name} once: {log:?}");
    }
    let runs = server.get("/v1/runs").await.ok();
    assert_eq!(runs["data"].as_array().map(Vec::len), Some(1), "{runs}");
    assert!(!server.output().contains("lgt_"), "a token is in the log");
    drop(backend);
}

fn cookie(headers: &HeaderMap) -> String {
    let cookie = headers[SET_COOKIE].to_str().expect("it is text");
    cookie.split(';').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_three_tools_in_python_are_called_as_they_expect() {
    let mut command = Command::new("python3");
    command.arg(example("tools/service.py")).args(["--port", "0"]);
    calls_three_tools(Service::start(command)).await;
}

#[tokio::test]
async fn the_three_tools_in_rust_are_called_as_they_expect() {
    let test = std::env::current_exe().expect("it has a path");
    let built = test.ancestors().nth(2).expect("it lies in a directory of its own").join("examples/tool_service");
    let mut command = Command::new(built);
    command.arg("0");
    calls_three_tools(Service::start(command)).await;
}

async fn calls_three_tools(mut service: Service) {
    let config = text("tools/loopgate.toml").replace("http://127.0.0.1:9000", &service.url().await);
    let server = TestServer::start(&config).await;
    for (question, status, answer, request) in [
        (
            r#"Call weather with {"city": "New York"}"#,
            "weather says: ",
            json!({"city": "New York", "celsius": 7, "sky": "rain"}),
            "GET /weather?city=New%20York of run_",
        ),
        (
            r#"Call stock with {"sku": "boots"}"#,
            "stock says: HTTP 404 Not Found: ",
            json!({"error": "no boots here", "skus": ["raincoat", "umbrella"]}),
            "GET /stock/boots of run_",
        ),
        (
            r#"Call order with {"sku": "umbrella", "count": 2}"#,
            "order says: ",
            json!({"order": "O-1", "sku": "umbrella", "count": 2}),
            "POST /orders of run_",
        ),
        (
            r#"Call order with {"sku": "raincoat", "count": 4}"#,
            "order says: HTTP 409 Conflict: ",
            json!({"error": "not enough in stock", "in_stock": 3}),
            "POST /orders of run_",
        ),
    ] {
        let body = json!({"model": "demo", "messages": [{"role": "user", "content": question}]});
        let said = server.post("/v1/agent/completions", &body).await.ok();
        let said = said["choices"][0]["message"]["content"].as_str().unwrap_or_default();
        let result = said.split_once(status).and_then(|(_, result)| serde_json::from_str::<Value>(result).ok());
        assert_eq!(result, Some(answer), "{question}: {said}");
        let line = service.line().await;
        assert!(line.starts_with(request), "{question}: {line}");
    }
    // What does not fit the schema does not reach the service.
    let question = r#"Call order with {"sku": "umbrella", "count": 200}"#;
    let body = json!({"model": "demo", "messages": [{"role": "user", "content": question}]});
    let said = server.post("/v1/agent/completions", &body).await.ok();
    assert!(
        said["choices"][0]["message"]["content"].as_str().is_some_and(|said| said.contains("do not fit its schema")),
        "{said}"
    );
}

/// The services, files and variables of `compose.yaml` that others of them name are there; the replicas take their configuration, and
/// `HAProxy` takes its own.
#[tokio::test]
async fn the_compose_file_fits_what_it_starts() {
    let compose: Value = serde_saphyr::from_str(&text("compose.yaml")).expect("it is YAML");
    let services = compose["services"].as_object().expect("there are services");
    let names: BTreeSet<&str> = services.keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["haproxy", "loopgate-1", "loopgate-2", "loopgate-3", "redis"]));
    for service in services.values() {
        for needed in service["depends_on"].as_array().into_iter().flatten() {
            assert!(names.contains(needed.as_str().unwrap_or_default()), "there is no service {needed}");
        }
        for volume in service["volumes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let (from, _) = volume.split_once(':').expect("it has a place");
            let is_there =
                if from.starts_with('.') { example(from).exists() } else { compose["volumes"].get(from).is_some() };
            assert!(is_there, "there is no {from}");
        }
    }

    let balancer = services["haproxy"]["environment"].as_object().expect("it has variables");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/haproxy.cfg");
    let known = fs::read_to_string(&file).expect("it is there");
    let mut check = Command::new("haproxy");
    check.args(["-c", "-f"]).arg(&file);
    for (name, value) in balancer {
        assert!(known.contains(&format!("\"${{{name}-")), "docs/haproxy.cfg does not know {name}");
        let value = value.as_str().expect("it is a string");
        let (host, port) = value.split_once(':').expect("it is an address");
        assert!(name == "LOOPGATE_BIND" || (names.contains(host) && port == "8080"), "{name} is {value}");
        // The names are known among the containers only.
        check.env(name, format!("127.0.0.1:{port}"));
    }
    let checked = within("the check", check.output()).await.expect("haproxy is there: scripts/test installs it");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

    let replica = services["loopgate-1"]["environment"].as_object().expect("it has variables");
    let mut check = loopgate(&example("."));
    check.args(["check-config", "--config", "compose.toml", "--listen", "0.0.0.0:8080"]);
    for name in replica.keys() {
        check.env(name, if name == "LOOPGATE_STORE" { "redis://redis" } else { "some-secret" });
    }
    let checked = within("the check", check.output()).await.expect("it starts");
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && said.contains("1 key"), "{said}{}", String::from_utf8_lossy(&checked.stderr));
}

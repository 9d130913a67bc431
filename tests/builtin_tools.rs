//! Built-in tools that reach beyond the server: they are there if they are declared, and reach what they may.

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::support::http::{HttpServer, Request};
use crate::support::server::loopgate;
use crate::support::{Reply, TestServer, Upstream, within};

const PAGE: &str = "<html><head><title>News</title></head><body><nav>menu</nav><main><h1>Today</h1>\
    <p>All is well, as <a href='/more'>more</a> says, and will be for as long as this text goes on, which it does \
    until it is longer than two hundred bytes, so that nobody takes it for a page without any content.</p></main></body></html>";

fn answer(request: &Request) -> Reply {
    match request.target.as_str() {
        "/page" => Reply::status(200).header("content-type", "text/html; charset=utf-8").bytes(PAGE),
        "/away" => Reply::status(302).header("location", "http://169.254.169.254/latest/meta-data/"),
        "/moved" => Reply::status(301).header("location", "/page"),
        "/picture" => Reply::status(200).header("content-type", "image/png").bytes(*b"\x89PNG"),
        "/archive" => Reply::status(200).header("content-type", "application/zip").bytes(*b"PK\0\0"),
        "/gone" => Reply::status(404).header("content-type", "text/html").bytes("<p>No such page</p>"),
        "/items" => Reply::json(200, &json!({"items": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]})),
        "/cut" => Reply::status(200).headless().cut(),
        _ => Reply::plain("ok").header("set-cookie", "secret"),
    }
}

async fn site() -> HttpServer {
    HttpServer::start(|_| true, answer).await
}

/// A configuration whose tools may reach this site, and nothing else that is not public.
fn config(site: &HttpServer, more: &str) -> String {
    let port = site.address().port();
    format!(
        "[egress]\nports = [80, 443, {port}]\nprivate_addresses = [\"127.0.0.1\"]\nprivate_hosts = [\"localhost\"]\n\
         [tools.web_fetch]\ntimeout = \"10s\"\n[tools.http_request]\nhosts = [\"localhost\"]\n{more}"
    )
}

fn directory(config: &str) -> TempDir {
    let directory = tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("loopgate.toml"), config).expect("it can be written to");
    directory
}

/// What a call comes to: its exit code, and what is told of it.
async fn call(directory: &TempDir, tool: &str, arguments: &Value) -> (Option<i32>, Value) {
    let mut command = loopgate(directory.path());
    command.args(["tools", "call", tool, "--json", &arguments.to_string()]).env("SITE_KEY", "hush").kill_on_drop(true);
    let ran = within("a command to end", command.output()).await.expect("it can be started");
    let told = serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null);
    assert!(!told.is_null(), "{}", String::from_utf8_lossy(&ran.stderr));
    (ran.status.code(), told)
}

fn content(told: &Value) -> &str {
    told["content"].as_str().expect("it has content")
}

#[tokio::test]
async fn a_model_reads_a_page() {
    let site = site().await;
    let url = format!("http://{}/moved", site.address());
    let upstream =
        Upstream::start([Reply::calls("web_fetch", &json!({"url": url})), Reply::says("All is well.")]).await;
    let agent = "[agents.default]\ntools = [\"web_fetch\"]\n";
    let server = TestServer::start(&format!("{}{}{agent}", upstream.config(), config(&site, ""))).await;
    let ask = json!({"model": "test", "messages": [{"role": "user", "content": "What is new?"}]});
    server.post("/v1/agent/completions", &ask).await.ok();
    let told = upstream.requests()[1]["messages"].clone();
    let told = told.as_array().and_then(|messages| messages.last()).expect("a result")["content"].to_string();
    assert!(told.contains("# News") && told.contains("All is well, as [more](http://"), "{told}");
    assert!(!told.contains("menu"), "{told}");
    let sent = &site.requests()[0];
    assert!(sent.headers["user-agent"].starts_with("loopgate/") && !sent.headers.contains_key("x-loopgate-run-id"));
}

#[tokio::test]
async fn only_what_can_be_read_and_may_be_reached_is_fetched() {
    let site = site().await;
    let directory = directory(&config(&site, ""));
    let fetch = async |url: &str| call(&directory, "web_fetch", &json!({"url": url})).await;
    let at = |path: &str| format!("http://{}{path}", site.address());
    let (code, told) = fetch(&at("/picture")).await;
    assert_eq!((code, content(&told)), (Some(0), "[image, image/png, 4 bytes]"));
    let (code, told) = fetch(&at("/gone")).await;
    assert!(code == Some(3) && content(&told).contains("404 Not Found\n\nNo such page"), "{told}");
    let before = site.requests().len();
    for (url, words) in [
        (at("/archive").as_str(), "application/zip"),
        (&at("/away"), "The page cannot be read: "),
        (&at("/cut"), "broke off"),
        ("http://127.0.0.2/", "The page cannot be read: "),
        ("http://[::ffff:10.0.0.1]/", "The page cannot be read: "),
        ("file:///etc/passwd", "The page cannot be read: "),
        ("http://user:password@example.com/", "The page cannot be read: "),
        ("nonsense", "The page cannot be read: "),
    ] {
        let (code, told) = fetch(url).await;
        assert!(code == Some(3) && content(&told).contains(words), "{url}: {told}");
    }
    assert_eq!(site.requests().len(), before + 3);
}

#[tokio::test]
async fn requests_go_only_where_the_operator_says() {
    let site = site().await;
    let more =
        "methods = [\"GET\", \"POST\"]\nheaders = { authorization = { env = \"SITE_KEY\", prefix = \"Bearer \" } }\n";
    let directory = directory(&config(&site, more));
    let at = |path: &str| format!("http://localhost:{}{path}", site.address().port());
    let request = async |arguments: &Value| call(&directory, "http_request", arguments).await;
    let (code, told) = request(&json!({"url": at("/items"), "select": "items[?id > `1`].name"})).await;
    assert_eq!((code, content(&told)), (Some(0), "200 OK\ncontent-type: application/json\n\n[\"b\"]"));
    assert_eq!(site.requests()[0].headers["authorization"], "Bearer hush");
    let post = json!({"url": at("/post"), "method": "POST", "headers": {"prefer": "n"}, "body": {"a": 1}});
    let (code, told) = request(&post).await;
    assert!(code == Some(0) && !content(&told).contains("secret"), "{told}");
    let sent = &site.requests()[1];
    assert_eq!((sent.json()["a"].as_u64(), sent.headers["content-type"].as_str()), (Some(1), "application/json"));
    assert!(sent.headers["prefer"] == "n" && sent.headers["idempotency-key"].starts_with("call_"));
    for (arguments, words) in [
        (json!({"url": format!("http://{}/items", site.address())}), "was not sent"),
        (json!({"url": "https://example.com/"}), "got no answer"),
        (json!({"url": at("/items"), "headers": {"authorization": "mine"}}), "not for you to send"),
        (json!({"url": at("/items"), "headers": {"x-http-method-override": "DELETE"}}), "not for you to send"),
        (json!({"url": at("/items"), "headers": {"a b": "c"}}), "not the name of a header"),
    ] {
        let (code, told) = request(&arguments).await;
        assert!(code == Some(3), "{arguments}: {told}");
        assert!(content(&told).contains(words) || content(&told).contains("got no answer"), "{arguments}: {told}");
    }
    assert_eq!(site.requests().len(), 2);
    let (code, told) = request(&json!({"url": at("/cut"), "method": "POST"})).await;
    assert!(code == Some(4) && told["outcome_unknown"] == true, "{told}");
    let (code, _) = request(&json!({"url": at("/cut")})).await;
    assert_eq!(code, Some(3), "what only reads had no effect");
}

#[tokio::test]
async fn a_tool_that_reaches_beyond_the_server_must_be_declared() {
    let refused = async |config: &str| {
        let directory = directory(config);
        let mut command = loopgate(directory.path());
        let ran =
            within("it to end", command.arg("check-config").kill_on_drop(true).output()).await.expect("it starts");
        assert_eq!(ran.status.code(), Some(78));
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    let undeclared = refused("[agents.default]\ntools = [\"web_fetch\"]\n").await;
    assert!(undeclared.contains("declare [tools.web_fetch]"), "{undeclared}");
    assert!(refused("[tools.http_request]\n").await.contains("`hosts` is missing"));
    assert!(refused("[tools.http_request]\nhosts = []\n").await.contains("must name a host"));
    assert!(refused("[tools.http_request]\nhosts = [\"a.b\"]\nmethods = []\n").await.contains("must name a method"));
    assert!(refused("[tools.http_request]\nhosts = [\"*\"]\n").await.contains("hosts"));
    assert!(refused("[tools.web_fetch]\nurl = \"http://x/\"\n").await.contains("unknown key"));
    let server = TestServer::start("").await;
    let tools = server.get("/v1/tools").await.ok();
    let names: Vec<_> = tools["data"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["calculator", "current_time", "json_query"]);
}

//! Nothing that a model or a caller names leads inside, through the whole server: URLs in every spelling, names that are answered
//! otherwise the next time, and chains of redirects. What must not be reached is a listener that notices every connection.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

#[path = "../src/net/guard/corpus.rs"]
mod corpus;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use url::Url;

use self::corpus::{ANSWERS, INSIDE, REFUSED};
use crate::support::http::{HttpServer, Request};
use crate::support::{Reply, TestServer, Upstream, within};

/// The address of the one server that may be reached, and its name.
const OURS: &str = "127.8.0.1";
/// Most calls in one turn of the scripted model.
const CALLS: usize = 40;

/// Listens where nothing may connect.
struct Canary(TcpListener);

impl Canary {
    fn at(address: impl std::net::ToSocketAddrs) -> Option<Self> {
        TcpListener::bind(address).ok().map(Self)
    }

    /// Listens on all addresses of this machine.
    fn everywhere() -> Self {
        Self::at("[::]:0").or_else(|| Self::at("0.0.0.0:0")).expect("a port is free")
    }

    fn port(&self) -> u16 {
        self.0.local_addr().expect("it is bound").port()
    }

    /// A connection is in the queue before its client hears of it, so one of our own that comes first shows that there was no other.
    fn is_untouched(&self) {
        let own = TcpStream::connect(("127.0.0.1", self.port())).expect("it listens");
        let (_, peer) = self.0.accept().expect("it listens");
        assert_eq!(
            peer.port(),
            own.local_addr().expect("it is connected").port(),
            "{peer} reached what must not be reached"
        );
    }
}

/// `/to/N` leads to the URL of this number, `/via/N` there by another redirect; all else is a page.
fn lead(request: &Request, targets: &[String]) -> Reply {
    let number = |rest: &str| rest.parse::<usize>().expect("the test writes it");
    let away = |location: &str| Reply::status(302).header("location", location);
    match request.target.split_once('/').and_then(|(_, path)| path.split_once('/')) {
        Some(("to", rest)) => away(&targets[number(rest)]),
        Some(("via", rest)) => away(&format!("/to/{rest}")),
        _ => Reply::plain("safe"),
    }
}

/// The library that answers names by a script.
async fn names(directory: &TempDir) -> PathBuf {
    let library = directory.path().join("names.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/names.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).args([source, "-ldl"]).kill_on_drop(true);
    let compiled = within("a library to be compiled", compiler.status()).await.expect("there is a compiler");
    assert!(compiled.success());
    library
}

/// The results of calls of one tool with these URLs, in one run.
async fn results(server: &TestServer, upstream: &Upstream, tool: &str, urls: &[String]) -> Vec<String> {
    let mut told = Vec::new();
    for batch in urls.chunks(CALLS) {
        let call = |reply: Reply, (at, url): (usize, &String)| {
            reply.tool_call(at, &format!("call_{at}"), tool, &json!({ "url": url }).to_string())
        };
        let turn = batch.iter().enumerate().fold(Reply::stream(), call);
        upstream.then(turn.finish("tool_calls").usage(10, 5).done());
        upstream.then(Reply::says("Done."));
        let ask = json!({"model": "test", "messages": [{"role": "user", "content": "Go."}]});
        server.post("/v1/agent/completions", &ask).await.ok();
        let last = upstream.requests().pop().expect("the model was asked");
        let messages = last["messages"].as_array().expect("there are messages").clone();
        let results = messages.iter().filter(|message| message["role"] == "tool");
        let before = told.len();
        told.extend(results.map(|message| message["content"].as_str().unwrap_or_default().to_owned()));
        assert_eq!(told.len() - before, batch.len());
    }
    told
}

#[tokio::test]
async fn nothing_that_a_model_names_leads_inside() {
    let canary = Canary::everywhere();
    let port = canary.port();
    let mut urls: Vec<String> =
        INSIDE.iter().chain(&REFUSED).map(|url| url.replace("PORT", &port.to_string())).collect();
    let mut script = vec![format!("ours.test={OURS}"), format!("flip.test={OURS}|127.0.0.1")];
    for (at, answers) in ANSWERS.iter().enumerate().filter(|(_, answers)| !answers.is_empty()) {
        script.push(format!("inside{at}.test={}", answers.join(",")));
        urls.push(format!("http://inside{at}.test:{port}/"));
    }
    urls.push(format!("http://nowhere.test:{port}/"));
    // Redirects to each of them that a header can carry and that leads elsewhere, and to a name that is answered otherwise by then.
    let page = Url::parse("http://ours.test/to/0").expect("this is a URL");
    let leads_elsewhere = |url: &str| page.join(url).map_or(true, |led| led.host_str() != page.host_str());
    let can_be_sent = |url: &str| url.bytes().all(|byte| byte.is_ascii_graphic());
    let mut targets: Vec<String> =
        urls.iter().filter(|url| can_be_sent(url) && leads_elsewhere(url)).cloned().collect();
    targets.push(format!("http://flip.test:{port}/"));
    let listed = targets.clone();
    let site = HttpServer::start_at(&format!("{OURS}:0"), |_| true, move |request| lead(request, &listed)).await;
    let own = site.address().port();
    // The same port at another address of this machine.
    let beside = Canary::at(SocketAddr::from(([127, 0, 0, 1], own)));
    script.push(format!("rebinding.test={OURS}|127.0.0.1"));
    let upstream = Upstream::start([]).await;
    let config = format!(
        "{}[egress]\nports = [80, 443, {own}, {port}]\nprivate_addresses = [\"{OURS}\"]\n[tools.web_fetch]\ntimeout = \"10s\"\n\
         [tools.http_request]\nhosts = [\"*.test\"]\n[agents.default]\ntools = [\"web_fetch\", \"http_request\"]\n",
        upstream.config()
    );
    let directory = tempfile::tempdir().expect("a directory can be made");
    let library = names(&directory).await;
    let server = TestServer::builder(&config)
        .env("LD_PRELOAD", library.to_str().expect("the path is text"))
        .env("LOOPGATE_TEST_NAMES", &script.join(";"))
        .start()
        .await;

    // The guard lets the right ones through, or nothing here shows anything. The second answer would lead to the listener beside it.
    let ours: Vec<String> = ["ours", "rebinding", "flip"].map(|name| format!("http://{name}.test:{own}/")).into();
    for (url, told) in ours.iter().zip(results(&server, &upstream, "web_fetch", &ours).await) {
        assert!(told.contains("safe"), "{url}: {told}");
    }
    let inside = urls.len();
    for path in ["to", "via"] {
        urls.extend((0..targets.len()).map(|at| format!("http://ours.test:{own}/{path}/{at}")));
    }
    for (url, told) in urls.iter().zip(results(&server, &upstream, "web_fetch", &urls).await) {
        assert!(told.contains("The page cannot be read: "), "{url}: {told}");
    }
    for (url, told) in urls.iter().zip(results(&server, &upstream, "http_request", &urls[..inside]).await) {
        assert!(told.contains("was not sent") || told.contains("got no answer"), "{url}: {told}");
    }
    let redirected = results(&server, &upstream, "http_request", &urls[inside..]).await;
    assert!(redirected.iter().all(|told| !told.contains("safe")), "{redirected:?}");
    canary.is_untouched();
    beside.iter().for_each(Canary::is_untouched);
    assert!(site.requests().len() > 4 * targets.len(), "the redirects were asked for");
}

#[tokio::test]
async fn no_server_of_tools_that_a_caller_names_leads_inside() {
    let canary = Canary::everywhere();
    let port = canary.port();
    let mut urls: Vec<String> =
        INSIDE.iter().chain(&REFUSED).map(|url| url.replace("PORT", &port.to_string())).collect();
    let mut script = vec![format!("rebinding.test={OURS}|127.0.0.1"), format!("ours.test={OURS}")];
    for (at, answers) in ANSWERS.iter().enumerate().filter(|(_, answers)| !answers.is_empty()) {
        script.push(format!("inside{at}.test={}", answers.join(",")));
        urls.push(format!("http://inside{at}.test:{port}/"));
    }
    // Redirects of the kind that servers of tools may answer, and of the other kind.
    let leads: Vec<String> =
        urls.iter().filter(|url| url.bytes().all(|byte| byte.is_ascii_graphic())).cloned().collect();
    let listed = leads.clone();
    let redirect = move |request: &Request| {
        let number = request.target.rsplit('/').next().and_then(|number| number.parse::<usize>().ok()).unwrap_or(0);
        let status = if request.target.starts_with("/307") { 307 } else { 302 };
        Reply::status(status).header("location", &listed[number])
    };
    let site = HttpServer::start_at(&format!("{OURS}:0"), |_| true, redirect).await;
    let own = site.address().port();
    let beside = Canary::at(SocketAddr::from(([127, 0, 0, 1], own)));
    let upstream = Upstream::start([]).await;
    let config = format!(
        "{}[egress]\nports = [80, 443, {own}, {port}]\nprivate_addresses = [\"{OURS}\"]\n[request_mcp]\nenabled = true\n\
         allow_http = true\nlist_timeout = \"5s\"\n",
        upstream.config()
    );
    let directory = tempfile::tempdir().expect("a directory can be made");
    let library = names(&directory).await;
    let server = TestServer::builder(&config)
        .env("LD_PRELOAD", library.to_str().expect("the path is text"))
        .env("LOOPGATE_TEST_NAMES", &script.join(";"))
        .start()
        .await;
    for (at, _) in leads.iter().enumerate() {
        urls.extend(["307", "302"].map(|status| format!("http://ours.test:{own}/{status}/{at}")));
    }
    urls.push(format!("http://rebinding.test:{own}/302/0"));
    for url in &urls {
        let named = json!({"type": "mcp", "server_label": "s", "server_url": url, "authorization": "SECRET"});
        let ask = json!({"model": "test", "messages": [{"role": "user", "content": "Go."}], "tools": [named]});
        let answer = server.post("/v1/agent/completions", &ask).await;
        assert!(matches!(answer.status, 400 | 424), "{url}: {}", answer.body);
    }
    canary.is_untouched();
    beside.iter().for_each(Canary::is_untouched);
    assert!(site.requests().len() > leads.len(), "the redirects were asked for");
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn no_picture_that_a_caller_names_leads_inside() {
    let canary = Canary::everywhere();
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    for url in INSIDE.iter().chain(&REFUSED).map(|url| url.replace("PORT", &canary.port().to_string())) {
        // What a caller may name at another port is for the upstream to reach.
        if url == "http://example.com:22/" {
            continue;
        }
        let picture: Value = json!({"type": "image_url", "image_url": {"url": url}});
        let ask = json!({"model": "test", "messages": [{"role": "user", "content": [picture]}]});
        for path in ["/v1/agent/completions", "/v1/chat/completions"] {
            let answer = server.post(path, &ask).await;
            assert_eq!((answer.status, answer.code()), (400, "invalid_value"), "{url}");
            assert_eq!(answer.body["error"]["param"], "messages[0].content[0].image_url.url", "{url}");
        }
    }
    canary.is_untouched();
    assert!(upstream.requests().is_empty());
}

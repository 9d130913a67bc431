//! Credentials and sessions of tenants, users and runs, and tokens, at a server that tells what it was shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir, tempdir};
use tokio::task::JoinSet;

use crate::config::{
    CallerCredentials, ClientAuth, CredentialFile, Grant, McpAccess, McpServerConfig, McpSession, McpTransport,
    OAuthConfig, Secret, SentValue,
};
use crate::net::testing::{Act, serve_with};
use crate::tools::mcp::testing::{Listening, SOON, call_in, tried};
use crate::tools::testing::context;
use crate::tools::{CallContext, ToolSource};
use crate::types::{RunId, Tenant};

/// A server that takes what a file lists, and the file of what it got.
struct House {
    listening: Listening,
    journal: NamedTempFile,
    taken: NamedTempFile,
    secrets: TempDir,
}

impl House {
    async fn start(taken: &[&str], more: &[&str]) -> Self {
        let (journal, file) = (NamedTempFile::new().unwrap(), NamedTempFile::new().unwrap());
        std::fs::write(file.path(), taken.join("\n")).unwrap();
        let (journal_path, file_path) = (journal.path().display().to_string(), file.path().display().to_string());
        let options = [&["--journal", &journal_path, "--tokens", &file_path], more].concat();
        let listening = Listening::start(&options).await;
        Self { listening, journal, taken: file, secrets: tempdir().unwrap() }
    }

    /// The server, of which the operator shows `own` and these credentials.
    fn config(&self, own: Option<&str>, access: McpAccess) -> McpServerConfig {
        let mut config = McpServerConfig { access, ..self.listening.config("/mcp") };
        let McpTransport::Http(endpoint) = &mut config.transport else { unreachable!() };
        let own = own.map(|own| (AUTHORIZATION, SentValue { whole: Secret::new(own), secret: None }));
        endpoint.headers.extend(own);
        config
    }

    /// Credentials in files of this directory.
    fn files(&self, template: &str) -> CallerCredentials {
        let file = CredentialFile::parse(&format!("{}/{template}", self.secrets.path().display())).unwrap();
        CallerCredentials {
            file: Some(file),
            tenants: Vec::new(),
            header: AUTHORIZATION,
            prefix: "Bearer ".to_owned(),
            required: true,
        }
    }

    fn put(&self, name: &str, secret: &str) {
        let path = self.secrets.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, secret).unwrap();
    }

    fn told(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.journal.path()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What each call showed, and in which session.
    fn calls(&self) -> Vec<(String, String)> {
        let calls = self.told().into_iter().filter(|message| message["method"] == "tools/call");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        calls.map(|call| (text(&call["headers"]["authorization"]), text(&call["headers"]["mcp-session-id"]))).collect()
    }

    /// Waits until so many sessions were ended, and returns them.
    async fn deleted(&self, count: usize) -> Vec<String> {
        let deleted = || -> Vec<String> {
            let ends = self.told().into_iter().filter_map(|message| message["deleted"].as_str().map(str::to_owned));
            ends.collect()
        };
        let waiting = async {
            while deleted().len() < count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("{:?}", self.told()));
        deleted()
    }
}

fn caller(tenant: &str, user: Option<&str>) -> CallContext {
    CallContext { tenant: Tenant::parse(tenant).unwrap(), user: user.map(str::to_owned), ..context(SOON) }
}

fn in_run(run: &RunId) -> CallContext {
    CallContext { run: run.clone(), call: run.call(1), ..context(SOON) }
}

fn echo() -> (&'static str, Value) {
    ("test__echo", json!({"text": "hello"}))
}

#[tokio::test]
async fn each_user_of_each_tenant_has_its_own_credentials_and_its_own_session() {
    let shown = ["Bearer own", "Bearer a1", "Bearer a2", "Bearer b1", "Bearer a1-new"];
    let house = House::start(&shown, &[]).await;
    for (file, secret) in [("acme/alice", "a1\n"), ("acme/bob", "a2"), ("other/alice", "b1")] {
        house.put(file, secret);
    }
    let access = McpAccess { credentials: Some(house.files("{tenant}/{user}")), ..McpAccess::default() };
    let (servers, server) = tried(&house.config(Some("Bearer own"), access)).await;
    for (tenant, user) in [("acme", "alice"), ("acme", "bob"), ("other", "alice"), ("acme", "alice")] {
        let (tool, arguments) = echo();
        assert_eq!(call_in(&server, tool, arguments, caller(tenant, Some(user))).await.text(), "hello");
    }
    let calls = house.calls();
    let seen: Vec<&str> = calls.iter().map(|(shown, _)| shown.as_str()).collect();
    assert_eq!(seen, ["Bearer a1", "Bearer a2", "Bearer b1", "Bearer a1"]);
    let session = |at: usize| calls[at].1.as_str();
    assert!(session(0) != session(1) && session(1) != session(2) && session(0) != session(2), "{calls:?}");
    assert_eq!(session(0), session(3), "one session of a caller is enough");
    house.put("acme/alice", "a1-new");
    call_in(&server, echo().0, echo().1, caller("acme", Some("alice"))).await;
    let calls = house.calls();
    assert_eq!(calls[4].0, "Bearer a1-new");
    assert_ne!(calls[4].1, calls[0].1, "a session shows one secret");
    assert_eq!(house.deleted(1).await, [calls[0].1.clone()]);
    servers.close().await;
    assert_eq!(house.deleted(5).await.len(), 5, "three callers' and the one in which tools are listed");
}

#[tokio::test]
async fn a_caller_without_credentials_is_told_so_and_the_server_is_not() {
    let house = House::start(&["Bearer own", "Bearer t"], &[]).await;
    house.put("acme", "t");
    house.put("empty", "\n");
    let access = McpAccess { credentials: Some(house.files("{tenant}")), ..McpAccess::default() };
    let (_servers, server) = tried(&house.config(Some("Bearer own"), access.clone())).await;
    for tenant in ["other", "empty"] {
        let outcome = call_in(&server, echo().0, echo().1, caller(tenant, None)).await;
        let words = "The MCP server `test` cannot be used: this caller has no credentials for it. Nothing was sent.";
        assert_eq!((outcome.is_error, &*outcome.text()), (true, words));
    }
    let of_users = McpAccess { credentials: Some(house.files("{tenant}/{user}")), ..access.clone() };
    let (_others, strict) = tried(&house.config(Some("Bearer own"), of_users)).await;
    let nameless = call_in(&strict, echo().0, echo().1, caller("acme", None)).await;
    assert!(nameless.text().contains("the request of this run names none (`user`)"), "{nameless:?}");
    assert_eq!(house.calls(), []);
    let lenient = CallerCredentials { required: false, ..house.files("{tenant}") };
    let lenient = McpAccess { credentials: Some(lenient), ..access };
    let (_more, server) = tried(&house.config(Some("Bearer own"), lenient)).await;
    for tenant in ["other", "acme"] {
        call_in(&server, echo().0, echo().1, caller(tenant, None)).await;
    }
    let shown: Vec<String> = house.calls().into_iter().map(|(shown, _)| shown).collect();
    assert_eq!(shown, ["Bearer own", "Bearer t"]);
}

#[tokio::test]
async fn the_secret_of_a_tenant_can_be_named_in_the_configuration() {
    let house = House::start(&["Bearer own", "Key of-acme"], &[]).await;
    let acme = (Tenant::parse("acme").unwrap(), Secret::new("of-acme"));
    let credentials =
        CallerCredentials { tenants: vec![acme], prefix: "Key ".into(), ..house.files("{tenant}/{user}") };
    let access = McpAccess { credentials: Some(credentials), ..McpAccess::default() };
    let (_servers, server) = tried(&house.config(Some("Bearer own"), access)).await;
    for user in [None, Some("alice"), Some("bob")] {
        call_in(&server, echo().0, echo().1, caller("acme", user)).await;
    }
    let calls = house.calls();
    assert!(calls.iter().all(|call| *call == calls[0]) && calls[0].0 == "Key of-acme", "{calls:?}");
}

#[tokio::test]
async fn a_run_has_a_session_of_its_own_until_it_ends() {
    let house = House::start(&["Bearer own"], &[]).await;
    let access = McpAccess { session: McpSession::Run, ..McpAccess::default() };
    let (_servers, server) = tried(&house.config(Some("Bearer own"), access)).await;
    let (one, other) = (RunId::mint(), RunId::mint());
    for run in [&one, &other, &one] {
        call_in(&server, echo().0, echo().1, in_run(run)).await;
    }
    let calls = house.calls();
    assert!(calls[0].1 == calls[2].1 && calls[0].1 != calls[1].1, "{calls:?}");
    server.run_ended(&one);
    assert_eq!(house.deleted(1).await, [calls[0].1.clone()]);
    call_in(&server, echo().0, echo().1, in_run(&other)).await;
    assert_eq!(house.calls()[3].1, calls[1].1, "the other run keeps its own");
    call_in(&server, "test__end_session", json!({}), in_run(&other)).await;
    assert_eq!(call_in(&server, echo().0, echo().1, in_run(&other)).await.text(), "hello");
    assert_ne!(house.calls().last().unwrap().1, calls[1].1, "a session that the server ended is opened again");
}

#[tokio::test]
async fn sessions_are_bounded_in_number_and_in_idle_time() {
    let house = House::start(&["Bearer own"], &[]).await;
    let idle = Duration::from_millis(300);
    let access = McpAccess { session: McpSession::Run, max_sessions: 2, session_idle: idle, ..McpAccess::default() };
    let (_servers, server) = tried(&house.config(Some("Bearer own"), access.clone())).await;
    let busy = [RunId::mint(), RunId::mint()];
    let slow = |run: &RunId| call_in(&server, "test__slow", json!({"seconds": 2}), in_run(run));
    let third = async {
        while house.calls().len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        call_in(&server, echo().0, echo().1, in_run(&RunId::mint())).await
    };
    let (first, second, third) = tokio::join!(slow(&busy[0]), slow(&busy[1]), third);
    assert_eq!((first.text(), second.text()), ("done".into(), "done".into()), "a long call is not idle");
    assert!(third.text().contains("2 sessions of it are in use at once"), "{third:?}");
    house.deleted(2).await;
    let lasting = McpAccess { session_idle: SOON, ..access };
    let (_others, server) = tried(&house.config(Some("Bearer own"), lasting)).await;
    let runs = [RunId::mint(), RunId::mint(), RunId::mint()];
    for run in &runs {
        assert_eq!(call_in(&server, echo().0, echo().1, in_run(run)).await.text(), "hello");
    }
    let first = house.calls()[2].1.clone();
    assert_eq!(house.deleted(3).await[2], first, "the one that was unused for longest makes room");
}

/// An authorization server that gives the tokens `t1`, `t2`, …, each good for `lasts` seconds, and what it was asked.
struct Issuer {
    url: url::Url,
    asked: Arc<parking_lot::Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Issuer {
    async fn start(lasts: &'static str, answer: impl Fn(usize) -> Option<String> + Send + Sync + 'static) -> Self {
        let asked: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
        let (heard, given) = (asked.clone(), AtomicUsize::new(0));
        let (address, tasks) = serve_with(move |request| {
            let host = request.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned();
            let body = if request.starts_with("GET /.well-known/oauth-authorization-server") {
                json!({"issuer": format!("http://{host}"), "token_endpoint": format!("http://{host}/token")})
                    .to_string()
            } else if request.starts_with("POST /token") {
                heard.lock().push(request);
                let number = given.fetch_add(1, Ordering::Relaxed) + 1;
                match answer(number) {
                    Some(refusal) => return Act::from(refusal),
                    None => format!(r#"{{"access_token":"t{number}","token_type":"Bearer"{lasts}}}"#),
                }
            } else {
                return Act::from("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            };
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ";
            Act::from(format!("{head}{}\r\n\r\n{body}", body.len()))
        })
        .await;
        Self { url: format!("http://{address}").parse().unwrap(), asked, _tasks: tasks }
    }

    fn config(&self, grant: Grant) -> OAuthConfig {
        OAuthConfig {
            issuer: Some(self.url.clone()),
            token_url: None,
            client_id: "loopgate".into(),
            client_secret: Some(Secret::new("hush")),
            client_auth: ClientAuth::Auto,
            grant,
            scope: Some("tools".into()),
            resource: None,
        }
    }

    fn access(&self) -> McpAccess {
        McpAccess { oauth: Some(self.config(Grant::ClientCredentials)), ..McpAccess::default() }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

#[tokio::test]
async fn a_token_is_asked_for_once_and_again_once_the_server_refuses_it() {
    let issuer = Issuer::start(r#","expires_in":3600"#, |_| None).await;
    let house = House::start(&["Bearer t1"], &["--issuer", issuer.url.as_str()]).await;
    let (_servers, server) = tried(&house.config(None, issuer.access())).await;
    let calls = (0..8).map(|_| call_in(&server, echo().0, echo().1, context(SOON)));
    assert!(join_all(calls).await.iter().all(|outcome| outcome.text() == "hello"));
    let asked = issuer.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let resource: String =
        url::form_urlencoded::byte_serialize(house.listening.config("/mcp").url().unwrap().as_str().as_bytes())
            .collect();
    assert!(asked[0].ends_with(&format!("grant_type=client_credentials&resource={resource}&scope=tools")), "{asked:?}");
    assert!(asked[0].contains("authorization: Basic bG9vcGdhdGU6aHVzaA=="), "{asked:?}");
    std::fs::write(house.taken.path(), "Bearer t2").unwrap();
    let calls = (0..8).map(|_| call_in(&server, echo().0, echo().1, context(SOON)));
    assert!(join_all(calls).await.iter().all(|outcome| outcome.text() == "hello"));
    assert_eq!(issuer.asked().len(), 2, "one call asks for all");
    std::fs::write(house.taken.path(), "").unwrap();
    let refused = call_in(&server, echo().0, echo().1, context(SOON)).await;
    assert!(refused.is_error && refused.text().contains("HTTP 401"), "{refused:?}");
    assert_eq!(issuer.asked().len(), 3, "a server that refuses the next one too is not asked again");
}

#[tokio::test]
async fn tokens_that_a_server_quotes_are_told_to_no_model_and_no_log() {
    let token = |number| {
        let body = format!(
            r#"{{"access_token":"secret-token-{number}","token_type":"Bearer","expires_in":9223372036854775807}}"#
        );
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ";
        Some(format!("{head}{}\r\n\r\n{body}", body.len()))
    };
    let issuer = Issuer::start("", token).await;
    let house = House::start(&["Bearer secret-token-1"], &["--quoted", "secret-token-1"]).await;
    let (_servers, server) = tried(&house.config(None, issuer.access())).await;
    let answer = call_in(&server, "test__quote", json!({}), context(SOON)).await;
    assert_eq!(answer.text(), "with ***");
    assert_eq!(call_in(&server, "test__echo", json!({"text": "hush"}), context(SOON)).await.text(), "***");
}

#[tokio::test]
async fn a_token_is_replaced_before_its_end() {
    let issuer = Issuer::start(r#","expires_in":1"#, |_| None).await;
    let house = House::start(&["Bearer t1", "Bearer t2", "Bearer t3", "Bearer t4"], &[]).await;
    let (_servers, server) = tried(&house.config(None, issuer.access())).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(call_in(&server, echo().0, echo().1, context(SOON)).await.text(), "hello");
    assert!(issuer.asked().len() >= 2);
    assert!(house.told().iter().all(|message| message.get("refused").is_none() || message["refused"] == ""));
}

#[tokio::test]
async fn each_tenant_goes_on_with_its_own_refresh_token_which_may_be_replaced() {
    let issuer = Issuer::start(r#","refresh_token":"next","expires_in":3600"#, |_| None).await;
    let house = House::start(&["Bearer own", "Bearer t1", "Bearer t2", "Bearer t3"], &[]).await;
    house.put("acme", "refresh-a");
    house.put("other", "refresh-b");
    let oauth = Some(issuer.config(Grant::RefreshToken(None)));
    let access = McpAccess { credentials: Some(house.files("{tenant}")), oauth, ..McpAccess::default() };
    let (_servers, server) = tried(&house.config(Some("Bearer own"), access)).await;
    for tenant in ["acme", "other", "acme"] {
        assert_eq!(call_in(&server, echo().0, echo().1, caller(tenant, None)).await.text(), "hello");
    }
    let shown: Vec<String> = house.calls().into_iter().map(|(shown, _)| shown).collect();
    assert_eq!(shown, ["Bearer t1", "Bearer t2", "Bearer t1"]);
    std::fs::write(house.taken.path(), "Bearer own\nBearer t3").unwrap();
    call_in(&server, echo().0, echo().1, caller("acme", None)).await;
    let asked = issuer.asked();
    let tokens: Vec<bool> = ["refresh-a", "refresh-b", "next"]
        .iter()
        .zip(&asked)
        .map(|(token, asked)| asked.contains(&format!("grant_type=refresh_token&refresh_token={token}&")))
        .collect();
    assert_eq!((tokens, asked.len()), (vec![true; 3], 3), "{asked:?}");
}

#[tokio::test]
async fn what_is_wrong_with_tokens_is_told_without_secrets() {
    let refusing = || {
        let body = r#"{"error":"invalid_client","error_description":"hush is wrong"}"#;
        Some(format!("HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
    };
    let issuer = Issuer::start("", move |_| refusing()).await;
    let house = House::start(&[], &["--issuer", issuer.url.as_str()]).await;
    let trouble = |access: McpAccess, house: &House| {
        let config = house.config(None, access);
        async move {
            let (servers, server) = tried(&config).await;
            let trouble = server.trouble().expect("it cannot be used");
            servers.close().await;
            trouble
        }
    };
    let refused = trouble(issuer.access(), &house).await;
    assert_eq!(refused, "no token for it can be had: its authorization server answered HTTP 401: invalid_client");
    let with = |change: fn(&mut OAuthConfig)| {
        let mut access = issuer.access();
        access.oauth.as_mut().map(change);
        access
    };
    let unnamed = trouble(with(|oauth| oauth.issuer = None), &house).await;
    assert!(unnamed.contains("if its secret may go there, write it as `issuer`"), "{unnamed}");
    assert_eq!(issuer.asked().len(), 1, "the secret went nowhere else");
    let elsewhere = House::start(&[], &["--issuer", "http://127.0.0.1:9/other"]).await;
    let other = trouble(issuer.access(), &elsewhere).await;
    assert!(other.ends_with("its metadata name another authorization server than `issuer`"), "{other}");
    let stranger = with(|oauth| oauth.issuer = Some("http://127.0.0.1:9/".parse().unwrap()));
    let plain = House::start(&[], &[]).await;
    let gone = trouble(stranger, &plain).await;
    assert!(gone.contains("has no metadata that can be read; write its `token_url`"), "{gone}");
}

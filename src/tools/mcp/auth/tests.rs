//! Credentials and sessions of tenants, users and runs, and tokens, at a server that tells what it was shown.

mod tokens;

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
use crate::net::guard::Policy;
use crate::net::testing::{Act, serve_with};
use crate::tools::mcp::McpClients;
use crate::tools::mcp::auth::{Sessions, Tokens, account};
use crate::tools::mcp::testing::{Listening, SOON, call_in, tried};
use crate::tools::testing::context;
use crate::tools::{CallContext, ToolSource};
use crate::types::tool::CallEnding;
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
        CallerCredentials { file: Some(file), ..Self::nowhere() }
    }

    /// Credentials that are in no file.
    fn nowhere() -> CallerCredentials {
        let (file, tenants) = (None, Vec::new());
        CallerCredentials { file, tenants, header: AUTHORIZATION, prefix: "Bearer ".to_owned(), required: true }
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

//! Servers of tools over both transports, with the faults that they may have.

mod faults;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::config::{McpEffects, McpProtocol, McpServerConfig, McpTransport, Secret, SentValue};
use crate::tools::mcp::McpServer;
use crate::tools::mcp::testing::{Listening, SOON, call, call_in, process, started, tool, tried};
use crate::tools::testing::context;
use crate::tools::{ProgressSink, ToolSource, ToolSpec};
use crate::types::conversation::PartKind;
use crate::types::tool::CallEnding;
use crate::types::{Effect, ToolOutcome};

/// What a test's server got, line by line.
fn journal(file: &tempfile::NamedTempFile) -> Vec<Value> {
    let text = std::fs::read_to_string(file.path()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until something is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("{what} did not happen"));
}

fn says(outcome: &ToolOutcome, words: &str) {
    assert!(outcome.text().contains(words), "{words:?} is not in {outcome:?}");
}

fn names(server: &McpServer) -> Vec<String> {
    let tools = server.tools().unwrap_or_default();
    tools.iter().map(|tool| tool.spec().name.clone()).collect()
}

async fn works(server: &McpServer) {
    let outcome = call(server, "test__echo", json!({"text": "hello"})).await;
    assert_eq!((&*outcome.text(), outcome.is_error, outcome.ending), ("hello", false, CallEnding::Answered));
}

#[tokio::test]
async fn tools_are_listed_and_called_over_both_transports_in_all_revisions() {
    for options in [&[][..], &["--modern"], &["--version", "2024-11-05"], &["--version", "2025-03-26"]] {
        let listening = Listening::start(options).await;
        for config in [process(options), listening.config("/mcp")] {
            let (servers, server) = tried(&config).await;
            works(&server).await;
            let names = names(&server);
            assert!(
                names.contains(&"test__end_session".into()) && !names.contains(&"test__broken".into()),
                "{names:?}"
            );
            servers.close().await;
        }
    }
    for odd in ["--plain", "--lenient"] {
        let odd = Listening::start(&[odd]).await;
        works(&tried(&odd.config("/mcp")).await.1).await;
    }
    works(&tried(&process(&["--lenient"])).await.1).await;
}

#[tokio::test]
async fn an_older_or_newer_revision_can_be_asked_for() {
    let (modern, legacy) = (Listening::start(&["--modern"]).await, Listening::start(&[]).await);
    let with = |protocol, listening: &Listening| McpServerConfig { protocol, ..listening.config("/mcp") };
    works(&tried(&with(McpProtocol::Discover, &modern)).await.1).await;
    works(&tried(&with(McpProtocol::Initialize, &legacy)).await.1).await;
    let (_servers, server) = tried(&with(McpProtocol::Discover, &legacy)).await;
    assert!(server.tools().is_none() && server.trouble().unwrap().contains("-32000"), "{:?}", server.trouble());
}

#[tokio::test]
async fn what_a_tool_answers_becomes_parts() {
    let (_servers, server) = tried(&process(&[])).await;
    let parts = call(&server, "test__parts", json!({})).await.parts;
    let kinds = parts.iter().map(|part| matches!(part.kind, PartKind::Text(_))).collect::<Vec<_>>();
    assert_eq!(kinds, [true, false, false, true, false], "{parts:?}");
    let structured = call(&server, "test__structured", json!({})).await;
    assert_eq!(structured.structured.unwrap().get(), r#"{"n":1}"#);
    let failed = call(&server, "test__fail", json!({})).await;
    assert!(failed.is_error && failed.text() == "it did not work");
    let refused = call(&server, "test__refuse", json!({})).await;
    assert!(refused.is_error && refused.ending == CallEnding::Answered);
    says(&refused, "The MCP server `test` refused the call: error -32602: not with these arguments");
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let (_servers, server) = tried(&process(&["--page", "2", "--more", "30"])).await;
    let names = names(&server);
    assert_eq!(names.len(), 20 + 30, "{names:?}");
}

#[tokio::test]
async fn effects_are_the_operators() {
    let effect = |server: &McpServer, name: &str| -> Effect { ToolSpec::clone(tool(server, name).spec()).effect };
    let effects = McpEffects { read: vec!["co*".into()], ..McpEffects::default() };
    let (_servers, server) = tried(&McpServerConfig { effects: effects.clone(), ..process(&[]) }).await;
    assert_eq!((effect(&server, "test__count"), effect(&server, "test__echo")), (Effect::Read, Effect::Write));
    let effects = McpEffects { trust_annotations: true, ..effects };
    let (_servers, server) = tried(&McpServerConfig { effects, ..process(&[]) }).await;
    assert_eq!(effect(&server, "test__echo"), Effect::Read);
}

#[tokio::test]
async fn a_server_is_told_the_key_the_run_and_the_trace_of_a_call() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    for options in [&["--journal", &path][..], &["--journal", &path, "--modern"]] {
        std::fs::write(file.path(), "").unwrap();
        let (_servers, server) = tried(&process(options)).await;
        let trace =
            crate::types::TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("a=b"));
        let surroundings = crate::tools::CallContext { trace, ..context(SOON) };
        let (key, run) = (surroundings.call.as_str().to_owned(), surroundings.run.as_str().to_owned());
        call_in(&server, "test__echo", json!({"text": "x"}), surroundings).await;
        let calls: Vec<Value> =
            journal(&file).into_iter().filter(|message| message["method"] == "tools/call").collect();
        let meta = &calls[0]["params"]["_meta"];
        assert_eq!((&meta["loopgate/idempotency-key"], &meta["loopgate/run-id"]), (&json!(key), &json!(run)), "{meta}");
        assert_eq!(meta["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        assert_eq!((&meta["tracestate"], &meta["loopgate/fence"]), (&json!("a=b"), &json!(7)));
    }
}

#[tokio::test]
async fn progress_is_reported_while_the_call_goes_on() {
    let listening = Listening::start(&[]).await;
    for config in [process(&[]), listening.config("/mcp")] {
        let (_servers, server) = tried(&config).await;
        let (reports, mut told) = mpsc::channel(16);
        let surroundings = context(SOON);
        let progress = ProgressSink::new(surroundings.call.clone(), reports);
        let surroundings = crate::tools::CallContext { progress, ..surroundings };
        let outcome = call_in(&server, "test__slow", json!({"seconds": 1}), surroundings).await;
        assert_eq!(outcome.text(), "done");
        let (_, last) = std::iter::from_fn(|| told.try_recv().ok()).last().expect("something was told");
        assert!(last.message.unwrap().starts_with("part ") && last.total == Some(4.0));
    }
}

#[tokio::test]
async fn a_call_that_is_stopped_is_cancelled_at_the_server() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    let (_servers, server) = tried(&process(&["--journal", &path])).await;
    let outcome = call_in(&server, "test__hang", json!({}), context(Duration::from_millis(300))).await;
    assert_eq!(outcome.ending, CallEnding::Lost);
    says(&outcome, "did not answer within 300 ms");
    let is_told = || journal(&file).iter().any(|message| message["method"] == "notifications/cancelled");
    until("the cancellation", is_told).await;
    works(&server).await;
}

#[tokio::test]
async fn a_changed_list_is_taken_up() {
    let (servers, server) = tried(&process(&[])).await;
    let (mut changes, before) = (servers.changes(), tool(&server, "test__echo").spec().description.clone());
    changes.mark_unchanged();
    let hash =
        |server: &McpServer| server.definitions().iter().find(|one| one.own_name == "echo").unwrap().hash.clone();
    let hash_before = hash(&server);
    call(&server, "test__change", json!({})).await;
    timeout(SOON, changes.changed()).await.unwrap().unwrap();
    assert_ne!(tool(&server, "test__echo").spec().description, before);
    assert_ne!(hash(&server), hash_before);
}

#[tokio::test]
async fn a_list_that_is_old_is_asked_for_again() {
    let listening = Listening::start(&["--modern"]).await;
    let config = McpServerConfig { refresh: Duration::from_millis(200), ..listening.config("/mcp") };
    let (servers, server) = tried(&config).await;
    let mut changes = servers.changes();
    changes.mark_unchanged();
    call(&server, "test__change", json!({})).await;
    timeout(SOON, changes.changed()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_finds_nothing_of_our_environment_but_what_it_is_given() {
    let (_servers, server) = tried(&process(&[])).await;
    let mut found = Vec::new();
    for name in ["TOKEN", "PATH", "CARGO_MANIFEST_DIR"] {
        found.push(call(&server, "test__env", json!({"name": name})).await.text() != "unset");
    }
    assert_eq!(found, [true, true, false]);
}

#[tokio::test]
async fn a_question_to_the_user_is_declined() {
    let (_servers, server) = tried(&process(&[])).await;
    let outcome = call(&server, "test__ask", json!({})).await;
    assert_eq!(serde_json::from_str::<Value>(&outcome.text()).unwrap()["action"], "decline");
}

#[tokio::test]
async fn secrets_are_sent_and_refusals_tell_none() {
    let listening = Listening::start(&["--token", "sk-right"]).await;
    let with = |token: &str| {
        let mut config = listening.config("/mcp");
        let McpTransport::Http(endpoint) = &mut config.transport else { panic!("it listens") };
        let value = SentValue { whole: Secret::new(format!("Bearer {token}")), secret: None };
        endpoint.headers.push((http::header::AUTHORIZATION, value));
        config
    };
    works(&tried(&with("sk-right")).await.1).await;
    let (_servers, server) = tried(&with("sk-wrong")).await;
    let trouble = server.trouble().unwrap();
    assert_eq!(trouble, "it answered HTTP 401: who are you?");
}

#[tokio::test]
async fn redirects_are_followed_to_the_same_server_alone() {
    let listening = Listening::start(&[]).await;
    works(&tried(&listening.config("/moved")).await.1).await;
    let (_servers, server) = tried(&listening.config("/away")).await;
    assert_eq!(server.trouble().unwrap(), "it redirects elsewhere, which is not followed");
}

#[tokio::test]
async fn no_more_calls_are_made_at_once_than_are_allowed() {
    let config = McpServerConfig { max_concurrent_calls: 1, ..process(&[]) };
    let (_servers, server) = tried(&config).await;
    let (slow, waiting) = tokio::join!(
        call(&server, "test__slow", json!({"seconds": 2})),
        call_in(&server, "test__echo", json!({"text": "x"}), context(Duration::from_millis(500))),
    );
    assert_eq!(slow.text(), "done");
    assert_eq!(waiting.ending, CallEnding::Answered, "nothing was sent, so nothing is lost: {waiting:?}");
    says(&waiting, "1 calls at once");
}

#[tokio::test]
async fn a_list_that_is_no_object_is_a_trouble_and_the_server_is_looked_after_on() {
    let (_servers, server) = tried(&process(&["--list-result", "x"])).await;
    assert_eq!(server.trouble().unwrap(), "its list of tools is not one of the protocol");
    assert!(!server.is_awaited());
}

#[tokio::test]
async fn a_tool_that_has_changed_since_it_was_offered_is_not_called() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    let listening = Listening::start(&["--journal", &path]).await;
    for (config, ends_session) in [(process(&["--journal", &path]), false), (listening.config("/mcp"), true)] {
        std::fs::write(file.path(), "").unwrap();
        let (servers, server) = tried(&config).await;
        let (offered, mut changes) = (tool(&server, "test__echo"), servers.changes());
        changes.mark_unchanged();
        call(&server, "test__change", json!({"quietly": ends_session})).await;
        if ends_session {
            // What the next session offers is first known once the call was sent in the old one.
            call(&server, "test__end_session", json!({})).await;
        } else {
            timeout(SOON, changes.changed()).await.unwrap().unwrap();
        }
        let arguments = serde_json::value::to_raw_value(&json!({"text": "x"})).unwrap();
        let outcome = crate::tools::invoke(offered, arguments, context(SOON)).await;
        says(&outcome, "The tool `test__echo` has changed since this conversation was offered it");
        assert!(!journal(&file).iter().any(|message| message["params"]["name"] == "echo"));
    }
}

#[tokio::test]
async fn an_error_of_a_tool_that_speaks_of_a_session_is_its_answer() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    let listening = Listening::start(&["--journal", &path]).await;
    let (_servers, server) = tried(&listening.config("/mcp")).await;
    let (slow, refused) =
        tokio::join!(call(&server, "test__slow", json!({"seconds": 1})), call(&server, "test__browse", json!({})),);
    says(&refused, "error -32603: the session of the browser is gone");
    assert_eq!((refused.ending, slow.text().as_ref()), (CallEnding::Answered, "done"));
    let calls = journal(&file).iter().filter(|message| message["params"]["name"] == "browse").count();
    assert_eq!(calls, 1);
}

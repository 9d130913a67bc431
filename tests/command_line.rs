//! The commands of the binary that end by themselves.

mod agents;
mod declared;
mod delegates;
mod doctor;
mod models;
mod prompts;
mod runs;
mod tools;
mod top;

use std::path::Path;
use std::process::Output;

use tempfile::tempdir;

use crate::support::http::{HttpServer, Request};
use crate::support::redis::free_port;
use crate::support::server::loopgate;
use crate::support::{Reply, TestServer, Upstream, within};

/// What a command in this directory comes to.
async fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = loopgate(directory);
    command.args(arguments).kill_on_drop(true);
    within("a command to end", command.output()).await.expect("it can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn the_help_says_where_models_are_found() {
    let directory = tempdir().expect("a directory can be made");
    let help = text(&run(directory.path(), &["--help"]).await.stdout);
    for found in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "127.0.0.1:11434", "demo model"] {
        assert!(help.contains(found), "{found} is not in {help}");
    }
}

#[tokio::test]
async fn a_question_is_answered_without_a_server() {
    let directory = tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("loopgate.toml"), "[server]\nlisten = \"127.0.0.1:1\"\n").expect("it is new");
    let ran = run(directory.path(), &["ask", "--model", "demo", "What is 6 * 7?"]).await;
    let (out, err) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success() && out.contains("6 * 7 = 42"), "{out}{err}");
    assert!(err.contains("→ calculator {\"expression\":\"6 * 7\"}"), "{err}");
    assert!(err.contains("completed (done), 2 model calls, 1 tool call"), "{err}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("it is there").collect();
    assert_eq!(left.len(), 1, "nothing but the configuration: {left:?}");
}

/// With its key, in a session, and also where the model declines or the run fails.
#[tokio::test]
async fn a_question_is_answered_by_the_server_that_is_named() {
    let declines = Reply::stream().refusal("I cannot.").finish("stop").usage(9, 2).done();
    let upstream = Upstream::start([Reply::says("Hello."), declines, Reply::error(400, "no", "no such thing")]).await;
    let key = "[keys.k]\nkey_env = \"CALLERS_KEY\"\n";
    let server = TestServer::builder(&format!("{}{key}", upstream.config())).env("CALLERS_KEY", "right").start().await;
    let directory = tempdir().expect("a directory can be made");
    let ask = async |key: &str, question: &str| {
        run(directory.path(), &["ask", "--url", server.url(), "--key", key, "--session", "s", question]).await
    };
    let ran = ask("wrong", "Hi").await;
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stderr).starts_with("401"), "{}", text(&ran.stderr));
    assert_eq!(text(&ask("right", "Hi").await.stdout), "Hello.\n");
    let ran = ask("right", "And?").await;
    assert_eq!((text(&ran.stdout), ran.status.success()), ("I cannot.\n".to_owned(), true), "{}", text(&ran.stderr));
    assert_eq!(upstream.requests()[1]["messages"].as_array().map(Vec::len), Some(3), "it is one conversation");
    let ran = ask("right", "And?").await;
    assert!(!ran.status.success() && text(&ran.stderr).contains("no such thing"), "{}", text(&ran.stderr));
}

/// A server that has to end a stream says why, and no event of the run follows.
#[tokio::test]
async fn a_question_whose_stream_ends_with_an_error_is_told_of_the_error() {
    let error = "data: {\"error\": {\"message\": \"the store is away\", \"code\": \"store_unavailable\"}}\n\n";
    let ended = move |_: &Request| Reply::status(200).header("content-type", "text/event-stream").bytes(error);
    let server = HttpServer::start(|_| true, ended).await;
    let directory = tempdir().expect("a directory can be made");
    let url = format!("http://{}", server.address());
    let ran = run(directory.path(), &["ask", "--url", &url, "--model", "m", "Hi"]).await;
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stderr).contains("the store is away"), "{}", text(&ran.stderr));
}

#[tokio::test]
async fn help_shows_no_secret_of_the_environment() {
    let directory = tempdir().expect("a directory can be made");
    for command in [&["ask"][..], &["runs", "list"], &["serve"], &["doctor"]] {
        let mut asked = loopgate(directory.path());
        asked.args(command).arg("--help").env("LOOPGATE_URL", "http://user:hush@localhost").env("LOOPGATE_KEY", "hush");
        asked.env("LOOPGATE_STORE", "redis://:hush@localhost");
        let ran = within("a command to end", asked.output()).await.expect("it can be started");
        let said = text(&ran.stdout);
        assert!(ran.status.success() && said.contains("[env: LOOPGATE_") && !said.contains("hush"), "{said}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_with_the_cause() {
    let directory = tempdir().expect("a directory can be made");
    let url = format!("http://127.0.0.1:{}", free_port());
    for more in [&[][..], &["--model", "m"]] {
        let ran = run(directory.path(), &[&["ask", "--url", &url][..], more, &["Hi"]].concat()).await;
        let err = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(8), "{err}");
        assert!(err.contains(&url) && err.contains("refused"), "{err}");
    }
}

/// A model for vectors, which servers list like any other, answers nothing.
#[tokio::test]
async fn a_question_without_a_model_goes_to_one_that_converses() {
    let upstream = Upstream::start([Reply::says("Hello.")]).await;
    let config = upstream.config().replace("[\"test\"]", "[\"text-embedding-3-small\", \"test\"]");
    let server = TestServer::start(&config).await;
    let directory = tempdir().expect("a directory can be made");
    let ran = run(directory.path(), &["ask", "--url", server.url(), "Hi"]).await;
    assert_eq!(text(&ran.stdout), "Hello.\n", "{}", text(&ran.stderr));
    assert_eq!(upstream.requests()[0]["model"], "test");
}

#[tokio::test]
async fn the_description_is_printed_as_it_is_committed() {
    let directory = tempdir().expect("a directory can be made");
    let ran = run(directory.path(), &["openapi"]).await;
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/openapi.json");
    assert!(ran.status.success() && ran.stdout == std::fs::read(committed).expect("it is there"));
}

/// What is printed for the caller opens what is printed for the server.
#[tokio::test]
async fn a_new_key_is_accepted_by_a_server_with_its_lines() {
    let directory = tempdir().expect("a directory can be made");
    let out = text(&run(directory.path(), &["key", "new", "mine"]).await.stdout);
    let key = out.lines().find_map(|line| line.strip_prefix("  ")).expect("a line holds the key").trim();
    let lines = &out[out.find("[keys.mine]").expect("there are lines for the file")..];
    let mut server = TestServer::start(lines).await;
    let refused = server.get("/v1/models").await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer"));
    server.use_key(key);
    assert_eq!(server.get("/v1/models").await.ok()["object"], "list");
    let again = text(&run(directory.path(), &["key", "new"]).await.stdout);
    assert!(!again.contains(key) && again.contains("[keys.my-app]"), "{again}");
    // A key is shown this once, so none is made whose lines could not be read.
    for name in ["my key", "", "..", "a\"b"] {
        let ran = run(directory.path(), &["key", "new", name]).await;
        assert!(!ran.status.success() && ran.stdout.is_empty(), "{name:?}: {}", text(&ran.stdout));
        assert!(text(&ran.stderr).contains("a name is 1 to 64 of"), "{}", text(&ran.stderr));
    }
    let dotted = text(&run(directory.path(), &["key", "new", "a.b"]).await.stdout);
    let lines = &dotted[dotted.find("[keys.").expect("there are lines for the file")..];
    drop(TestServer::start(lines).await);
}

//! `loopgate runs`, against a real server.

use std::io::Read;
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::text;
use crate::support::http::{HttpServer, Request};
use crate::support::redis::free_port;
use crate::support::server::loopgate;
use crate::support::{Gate, Proxy, Reply, TestServer, Upstream, within};

const CHAT: &str = "/v1/chat/completions";

/// What a command came to.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    err: String,
}

/// A command line beside a server.
pub(super) struct CommandLine {
    pub(super) directory: TempDir,
    url: String,
}

impl CommandLine {
    pub(super) fn of(server: &TestServer) -> Self {
        Self::at(server.url())
    }

    fn at(url: &str) -> Self {
        Self { directory: tempfile::tempdir().expect("a directory can be made"), url: url.to_owned() }
    }

    fn command(&self, arguments: &[&str]) -> tokio::process::Command {
        let mut command = loopgate(self.directory.path());
        command.arg("runs").args(arguments).env("LOOPGATE_URL", &self.url).env_remove("COLUMNS").kill_on_drop(true);
        command.stdin(Stdio::null());
        command
    }

    pub(super) async fn run(&self, arguments: &[&str]) -> Ran {
        let ran = within("a command to end", self.command(arguments).output()).await.expect("it can be started");
        Ran { code: ran.status.code(), out: text(&ran.stdout), err: text(&ran.stderr) }
    }
}

pub(super) fn ask(more: &Value) -> Value {
    let mut request = json!({"model": "test", "messages": [{"role": "user", "content": "What?"}]});
    for (name, value) in more.as_object().into_iter().flatten() {
        request[name] = value.clone();
    }
    request
}

/// The id of a run that goes on in the background.
async fn begun(server: &TestServer) -> String {
    let accepted = server.post(CHAT, &ask(&json!({"agent": {"background": true}}))).await.ok();
    accepted["id"].as_str().expect("it has an id").to_owned()
}

pub(super) async fn ended(server: &TestServer, request: &Value) -> String {
    let answer = server.post(CHAT, request).await;
    let run = answer.header("x-loopgate-run-id").to_owned();
    assert!(run.starts_with("run_"), "{answer:?}");
    run
}

#[tokio::test]
async fn runs_are_listed_as_they_are_asked_for() {
    let failure = Reply::error(400, "no", "no such thing");
    let upstream = Upstream::start([Reply::says("One."), failure, Reply::says("Three.")]).await;
    let server = TestServer::start(&format!("{}[agents.helper]\nmodel = \"test\"\n", upstream.config())).await;
    let session = "a-session-whose-name-is-so-long-that-no-terminal-has-room-for-it";
    let first = ended(&server, &ask(&json!({"agent": {"session_id": session}}))).await;
    let second = ended(&server, &ask(&json!({}))).await;
    let third = ended(&server, &ask(&json!({"model": "helper"}))).await;
    let line = CommandLine::of(&server);
    let listed = async |filters: &[&str]| {
        let ran = line.run(&[&["list", "--json"], filters].concat()).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let ids = ran.out.lines().map(|line| {
            let run: Value = serde_json::from_str(line).expect("each line is JSON");
            run["id"].as_str().expect("it has an id").to_owned()
        });
        ids.collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]).await, [&*third, &*second, &*first]);
    assert_eq!(listed(&["--limit", "2"]).await, [&*third, &*second]);
    assert_eq!(listed(&["--status", "failed"]).await, [&*second]);
    assert_eq!(listed(&["--session", session]).await, [&*first]);
    assert_eq!(listed(&["--agent", "helper"]).await, [&*third]);
    assert_eq!(listed(&["--agent", "test", "--limit", "1"]).await, [&*second]);
    assert_eq!(listed(&["--since", "1h"]).await.len(), 3);
    assert_eq!(listed(&["--since", "2999-01-01"]).await.len(), 0);

    let ran = line.run(&["list"]).await;
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines.len(), 4, "{ran:?}");
    assert!(lines[0].starts_with("RUN ") && lines[2].starts_with(&second) && lines[2].contains(" failed "), "{ran:?}");
    assert!(lines[2].ends_with("provider_error") && lines[3].contains(session), "{ran:?}");
    assert!(!ran.out.contains('\x1b'), "a pipe gets no colours: {ran:?}");
    let narrow = within("a list", line.command(&["list"]).env("COLUMNS", "110").output()).await.expect("it starts");
    let narrow = text(&narrow.stdout);
    assert!(narrow.lines().all(|line| line.chars().count() <= 110) && narrow.contains("a-session"), "{narrow}");
    assert!(!narrow.contains(session), "{narrow}");

    for (arguments, code) in
        [(&["list", "--status", "odd"][..], 1), (&["list", "--since", "x"], 2), (&["list", "--limit", "0"], 2)]
    {
        let ran = line.run(arguments).await;
        assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{ran:?}");
    }
    assert!(line.run(&["list", "--session", "none"]).await.err.contains("no such run"));
}

/// What a command shows on a terminal.
fn on_a_terminal(line: &CommandLine, variables: &[(&str, &str)]) -> String {
    let window = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
    rustix::pty::grantpt(&window).expect("it is ours");
    rustix::pty::unlockpt(&window).expect("it is ours");
    let name = rustix::pty::ptsname(&window, Vec::new()).expect("it has a name");
    let terminal = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it opens");
    let mut command = line.command(&["list"]).into_std();
    command.env_remove("NO_COLOR").envs(variables.iter().copied()).stdout(terminal);
    let mut child = command.spawn().expect("it starts");
    assert!(child.wait().expect("it is ours").success());
    drop(command);
    // What was written to it is kept until it is read; then the terminal without a process is an error.
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    let mut window = std::fs::File::from(window);
    while let Ok(count @ 1..) = window.read(&mut piece) {
        shown.extend_from_slice(&piece[..count]);
    }
    text(&shown)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_gets_colours_unless_it_is_told_not_to() {
    let upstream = Upstream::start([Reply::error(400, "no", "no such thing")]).await;
    let server = TestServer::start(&upstream.config()).await;
    ended(&server, &ask(&json!({}))).await;
    let line = CommandLine::of(&server);
    let (coloured, plain) = (on_a_terminal(&line, &[]), on_a_terminal(&line, &[("NO_COLOR", "1")]));
    assert!(coloured.contains("\x1b[31mrun_"), "{coloured:?}");
    assert!(plain.contains("run_") && !plain.contains('\x1b'), "{plain:?}");
}

#[tokio::test]
async fn a_run_is_told_in_words_that_no_terminal_obeys() {
    let hostile = "\x1b]0;mine\x07 and \u{9b}2J";
    let arguments = json!({"expression": "6 * 7"});
    let answer = Reply::stream().text("It is 42").text(hostile).finish("stop").usage(30, 7).done();
    let upstream = Upstream::start([Reply::calls("calculator", &arguments), answer]).await;
    let server = TestServer::start(&upstream.config()).await;
    let run = ended(&server, &ask(&json!({"agent": {"session_id": "s"}}))).await;
    let line = CommandLine::of(&server);
    let shown = line.run(&["show", &run]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for words in [
        "completed (done): the model answered",
        "model      test",
        "session    s",
        "40 tokens in, 12 out",
        "cost       $",
        "step 1: the model took",
        "→ calculator {\"expression\":",
        "← calculator: 42 (",
        "step 2: the model is called",
        "“It is 42",
        "completed (done), 2 model calls, 1 tool call",
    ] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    let followed = line.run(&["follow", &run]).await;
    assert_eq!(followed.code, Some(0), "{followed:?}");
    let (as_json, events) = (line.run(&["show", &run, "--json"]).await, line.run(&["follow", &run, "--json"]).await);
    for out in [&shown.out, &followed.out, &as_json.out, &events.out] {
        assert!(out.contains("It is 42"), "{out}");
        assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "{out:?}");
    }
    let read: Value = serde_json::from_str(&as_json.out).expect("it is JSON");
    assert_eq!((&read["id"], &read["output_text"]), (&json!(run), &json!(format!("It is 42{hostile}"))));
    let last: Value = serde_json::from_str(events.out.lines().last().expect("there are events")).expect("it is JSON");
    assert_eq!(last["type"], "run.completed");
    let asked = within("a question", {
        let mut ask = loopgate(line.directory.path());
        upstream.then(Reply::says(hostile));
        ask.args(["ask", "--url", server.url(), "--model", "test", "Hi"]).kill_on_drop(true).output()
    });
    let asked = text(&asked.await.expect("it starts").stdout);
    assert!(asked.contains("mine") && !asked.contains(['\x1b', '\u{9b}']), "{asked:?}");
}

#[tokio::test]
async fn a_run_is_followed_over_a_broken_connection() {
    let (gate, other) = (Gate::new(), Gate::new());
    let reply = Reply::stream().text("Be").gate(&gate).text("fore.\nAf").gate(&other).text("ter.");
    let upstream = Upstream::start([reply.finish("stop").usage(10, 5).done()]).await;
    let server = TestServer::start(&upstream.config()).await;
    let proxy = Proxy::start(server.address().parse().expect("it is an address")).await;
    let run = begun(&server).await;
    let line = CommandLine::at(&proxy.url());
    let mut following =
        line.command(&["follow", &run]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(following.stdout.take().expect("it is piped")).lines();
    let mut line = async || within("a line", lines.next_line()).await.expect("it is text");
    assert_eq!(line().await.as_deref(), Some(&*format!("{run} began with test")));
    assert_eq!(line().await.as_deref(), Some("step 1: the model is called"));
    gate.open();
    assert_eq!(line().await.as_deref(), Some("Before."));
    other.reached().await;
    proxy.cut();
    proxy.accepted(2).await;
    other.open();
    assert_eq!(line().await.as_deref(), Some("After."));
    assert!(line().await.is_some_and(|line| line.starts_with("step 1: the model took ")));
    assert!(line().await.is_some_and(|line| line.starts_with("warning: ") && line.contains("price")));
    assert!(line().await.is_some_and(|line| line.starts_with("completed (done), 1 model call")));
    assert_eq!(line().await, None);
    let ended = within("the command to end", following.wait_with_output()).await.expect("it was not waited for");
    assert!(ended.status.success());
    assert!(text(&ended.stderr).contains("the connection broke"), "{}", text(&ended.stderr));
}

#[tokio::test]
async fn a_run_that_its_client_continued_is_followed_to_its_present_end() {
    let calls = Reply::calls("weather", &json!({"city": "Oslo"}));
    let upstream = Upstream::start([calls, Reply::says("It rains.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let function = json!({"name": "weather", "parameters": {"type": "object"}});
    let mut request = ask(&json!({"tools": [{"type": "function", "function": function}]}));
    let waiting = server.post(CHAT, &request).await.ok();
    let run = waiting["agent"]["run_id"].as_str().expect("it has an id");
    let line = CommandLine::of(&server);
    assert_eq!(line.run(&["follow", run]).await.code, Some(6));
    let call = &waiting["agent"]["required_action"]["calls"][0]["call_id"];
    request["messages"] = json!([{"role": "tool", "tool_call_id": call, "content": "rain"}]);
    request["agent"] = json!({"run_id": run});
    server.post(CHAT, &request).await.ok();
    let followed = line.run(&["follow", run]).await;
    assert_eq!(followed.code, Some(0), "{followed:?}");
    let told = ["waits for its client to answer weather", "the run was resumed", "It rains.", "completed (done), "];
    let places: Vec<_> = told.iter().map(|words| followed.out.find(words)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {followed:?}");
}

/// A server that answers every request for events like this, and shows a run of such a status.
async fn stranger(events: Reply, status: &'static str) -> HttpServer {
    let answer = move |request: &Request| {
        if request.target.contains("/events") {
            return events.clone();
        }
        let run = json!({"id": "run_1", "status": status, "session_id": null, "model": "test", "created_ms": 1,
            "ended_ms": null, "stop_reason": null, "agent": null, "usage": null, "error": null, "progress": null});
        Reply::json(200, &run)
    };
    HttpServer::start(|_| true, answer).await
}

/// A follower of such events ends at its first request, shows nothing and says this.
async fn is_given_up_at_once(events: Reply, words: &str) {
    let server = stranger(events, "completed").await;
    let ran = CommandLine::at(&format!("http://{}", server.address())).run(&["follow", "run_1"]).await;
    assert_eq!((ran.code, ran.out.as_str(), server.requests().len()), (Some(1), "", 1), "{ran:?}");
    assert!(ran.err.contains(words), "{ran:?}");
}

#[tokio::test]
async fn a_page_that_is_no_event_stream_is_not_followed() {
    is_given_up_at_once(Reply::plain("Welcome!"), "text/plain instead of text/event-stream").await;
    is_given_up_at_once(Reply::status(200).bytes("Hi!"), "nothing instead of text/event-stream").await;
}

#[tokio::test]
async fn an_error_in_the_stream_is_shown_and_ends_it() {
    let stream = Reply::status(200).header("content-type", "Text/Event-Stream; charset=utf-8");
    let error = json!({"error": {"message": "the log is \u{9b}2J damaged"}});
    let words = "the server ended the stream: the log is \u{fffd}2J damaged";
    is_given_up_at_once(stream.bytes(format!("data: {error}\n\n")), words).await;
}

#[tokio::test]
async fn neither_a_status_commands_the_terminal_nor_a_mistyped_url_tells_its_password() {
    let server = stranger(Reply::status(204).header("connection", "close").cut(), "odd\u{1b}]0;mine\u{7}").await;
    let ran = CommandLine::at(&format!("http://{}", server.address())).run(&["follow", "run_1"]).await;
    assert_eq!(ran.out, "odd\u{fffd}]0;mine\u{fffd}; there are no further events\n", "{ran:?}");
    let ran = CommandLine::at("htps://u:secret@h").run(&["list"]).await;
    assert!(ran.code == Some(1) && ran.err.contains("\"htps://h\" is no address"), "{ran:?}");
    assert!(!ran.err.contains("secret"), "{ran:?}");
}

#[tokio::test]
async fn a_run_is_cancelled_and_its_follower_is_told() {
    let gate = Gate::new();
    let reply = Reply::stream().text("Be").gate(&gate).text("fore.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([reply]).await;
    let server = TestServer::start(&upstream.config()).await;
    let run = begun(&server).await;
    gate.reached().await;
    server.events(&run, 0).await.until(|frame| frame.text().is_some_and(|text| !text.is_empty())).await;
    let line = CommandLine::of(&server);
    let shown = line.run(&["show", &run]).await;
    for words in ["in_progress", "step 1: the model is called", "  replica    ", "  last event 3 text, "] {
        assert!(shown.out.contains(words), "{words}: {shown:?}");
    }
    let (follow, cancel) = (["follow", &*run], ["cancel", &*run]);
    let (followed, cancelled) = tokio::join!(line.run(&follow), line.run(&cancel));
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert!(cancelled.out.contains("cancelled (cancelled): it was cancelled"), "{cancelled:?}");
    assert_eq!(followed.code, Some(4), "{followed:?}");
    assert!(followed.out.contains("cancelled (cancelled), "), "{followed:?}");
    assert_eq!(server.get(&format!("/v1/runs/{run}")).await.ok()["status"], "cancelled");
    let again = line.run(&["cancel", &run, "--json"]).await;
    assert!(again.code == Some(0) && again.out.contains("\"cancelled\""), "{again:?}");
    gate.open();
}

#[tokio::test]
async fn exit_codes_tell_how_a_run_ended_and_what_is_missing() {
    let weather = Reply::calls("weather", &json!({"city": "Oslo"}));
    let replies =
        [Reply::error(400, "no", "no such thing"), Reply::calls("calculator", &json!({"expression": "1"})), weather];
    let upstream = Upstream::start(replies).await;
    let key = "[keys.k]\nkey_env = \"CALLERS_KEY\"\n";
    let mut server =
        TestServer::builder(&format!("{}{key}", upstream.config())).env("CALLERS_KEY", "right").start().await;
    server.use_key("right");
    let failed = ended(&server, &ask(&json!({}))).await;
    let incomplete = ended(&server, &ask(&json!({"agent": {"limits": {"max_iterations": 1}}}))).await;
    let function = json!({"name": "weather", "parameters": {"type": "object"}});
    let waiting = ended(&server, &ask(&json!({"tools": [{"type": "function", "function": function}]}))).await;
    let line = CommandLine::of(&server);
    let none = "run_00000000000000000000000000000000";
    for (run, code, words) in [
        (&*failed, 3, "no such thing"),
        (&incomplete, 5, "limit of model calls"),
        (&waiting, 6, "waits for its client to answer weather"),
    ] {
        let ran = line.run(&["follow", "--key", "right", run]).await;
        assert!(ran.code == Some(code) && ran.out.contains(words), "{ran:?}");
        let shown = line.run(&["show", "--key", "right", run]).await;
        assert!(shown.code == Some(0) && shown.out.contains(words), "{shown:?}");
    }
    for command in ["show", "follow", "cancel"] {
        let ran = line.run(&[command, none, "--key", "right"]).await;
        assert_eq!((ran.code, ran.out.as_str()), (Some(7), ""), "{ran:?}");
        let ran = line.run(&[command, &failed, "--key", "wrong"]).await;
        assert!(ran.code == Some(1) && ran.err.starts_with("401"), "{ran:?}");
    }
    // The one that the configuration names, where none listens.
    let nowhere = format!("127.0.0.1:{}", free_port());
    for command in [&["list"][..], &["show", none], &["follow", none], &["cancel", none]] {
        let mut command = line.command(command);
        let ran = within("a command", command.env_remove("LOOPGATE_URL").env("LOOPGATE_LISTEN", &nowhere).output());
        let ran = ran.await.expect("it starts");
        assert_eq!(ran.status.code(), Some(8));
        assert!(text(&ran.stderr).contains(&nowhere), "{}", text(&ran.stderr));
    }
}

//! Hooks over real sockets and real programs.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;
use url::Url;

use super::*;
use crate::config::{HookCommand, Secret, SigningSecret, Webhook};
use crate::net::testing::{Act, nowhere, serve};
use crate::types::conversation::Part;
use crate::types::json::RawValueEq;
use crate::types::{CallId, ErrorKind, Outcome, RunError, RunId, StopReason, Tenant, ToolOutcome};

fn config(action: HookAction) -> HookConfig {
    HookConfig {
        name: "audit".to_owned(),
        points: HookPoint::ALL.to_vec(),
        tools: vec!["*".to_owned()],
        agents: vec!["*".to_owned()],
        users: None,
        action,
        is_asked: true,
        timeout: Duration::from_secs(5),
        fails_open: false,
        retry_for: Duration::from_secs(60),
    }
}

fn hook(config: HookConfig) -> Hook {
    Hook::new(config, Some(client().unwrap()))
}

fn webhook(address: impl std::fmt::Display) -> Webhook {
    Webhook {
        url: Url::parse(&format!("http://{address}/audit?key=k")).unwrap(),
        headers: vec![("x-team".parse().unwrap(), Secret::new("blue"))],
        secrets: vec![SigningSecret((0..24).collect())],
        max_response: 64,
    }
}

fn program(script: &str) -> HookCommand {
    HookCommand {
        program: "/bin/sh".to_owned(),
        arguments: vec!["-c".to_owned(), script.to_owned()],
        env: vec![("PATH".to_owned(), Secret::new("/usr/bin:/bin"))],
        directory: None,
        max_output: 1 << 20,
    }
}

/// Calls `use_it` with a message about a call with these arguments.
async fn about<T>(arguments: &str, use_it: impl AsyncFnOnce(Message<'_>) -> T) -> T {
    let (run, tenant, call) = (RunId::mint(), Tenant::default_tenant(), CallId::foreign("call_1"));
    let whose =
        Whose { run: &run, session: None, tenant: &tenant, agent: "default", model: "m", user: None, request: None };
    let what = What::Call(Call { id: &call, tool: "shell", arguments });
    let message = Message {
        hook: "audit",
        point: HookPoint::BeforeTool,
        whose,
        at_ms: 1_674_087_231_500,
        step: 2,
        seq: None,
        what,
    };
    use_it(message).await
}

async fn ask(hook: &Hook) -> Result<HookReply, HookFailure> {
    about(r#"{"command":"ls"}"#, async |message| hook.ask("msg_1", &message).await).await
}

async fn ask_program(script: &str) -> Result<HookReply, String> {
    ask(&hook(config(HookAction::Command(program(script))))).await.map_err(|failure| failure.to_string())
}

fn answer(status: &str, body: &str) -> Act {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).into()
}

#[tokio::test]
async fn a_service_is_told_all_and_decides() {
    let (address, requests) = serve([vec![answer("200 OK", r#"{"decision": "block", "reason": "no"}"#)]]).await;
    let reply = ask(&hook(config(HookAction::Webhook(webhook(address))))).await.unwrap();
    assert_eq!((reply.decision, reply.reason.as_deref()), (HookDecision::Deny, Some("no")));
    let request = requests.await.unwrap().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.split_once(": ").filter(|(is, _)| *is == name));
        line.unwrap_or_else(|| panic!("{name} is missing: {head}")).1
    };
    assert!(head.starts_with("POST /audit?key=k HTTP/1.1"), "{head}");
    assert_eq!((header("webhook-id"), header("x-team"), header("content-type")), ("msg_1", "blue", "application/json"));
    let at: u64 = header("webhook-timestamp").parse().unwrap();
    assert!(crate::types::clock::now_ms() / 1_000 - at < 60);
    let signed = headers("msg_1", at, body.as_bytes(), &[SigningSecret((0..24).collect())]).unwrap();
    assert_eq!(header("webhook-signature"), signed["webhook-signature"].to_str().unwrap());
    let mut body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert!(body["run_id"].take().as_str().unwrap().starts_with("run_"));
    assert_eq!(
        body,
        json!({
            "type": "before_tool", "event": "before_tool", "timestamp": "2023-01-19T00:13:51.500Z", "hook": "audit",
            "run_id": null, "tenant": "default", "agent": "default", "model": "m", "step": 2, "call_id": "call_1",
            "tool": "shell", "input": {"command": "ls"}, "input_raw": "{\"command\":\"ls\"}"
        })
    );
}

#[tokio::test]
async fn a_service_that_does_not_answer_as_a_hook_does_has_failed() {
    let long = format!(r#"{{"reason": "{}"}}"#, "x".repeat(64));
    for (act, failure, status) in [
        (answer("500 Oops", r#"{"decision": "approve"}"#), "the service answered HTTP 500 Internal Server Error", 500),
        (answer("302 Found", ""), "the service answered HTTP 302 Found", 302),
        (answer("200 OK", &long), "the answer is longer than max_response, 64 bytes", 200),
        (answer("200 OK", "fine!"), "its answer is not JSON, in line 1 column 2", 0),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}".into(), "the service broke off its answer", 200),
        (
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n".into(),
            "the service compressed its answer, which was not asked for",
            200,
        ),
    ] {
        let (address, _requests) = serve([vec![act]]).await;
        let failed = ask(&hook(config(HookAction::Webhook(webhook(address))))).await.unwrap_err();
        let found = failed.status.as_ref().map_or(0, StatusCode::as_u16);
        assert_eq!((failed.to_string().as_str(), found), (failure, status));
    }
    let failed = ask(&hook(config(HookAction::Webhook(webhook(nowhere().await))))).await.unwrap_err();
    assert!(failed.to_string().starts_with("the service cannot be reached"), "{failed}");
}

#[tokio::test]
async fn a_service_that_says_nothing_has_failed_after_the_timeout() {
    let (address, _requests) = serve([vec![Act::Stall("HTTP/1.1 200 OK\r\n".to_owned())]]).await;
    let slow = HookConfig { timeout: Duration::from_millis(50), ..config(HookAction::Webhook(webhook(address))) };
    assert_eq!(ask(&hook(slow)).await.unwrap_err().to_string(), "no answer within 50 ms");
}

#[tokio::test]
async fn an_answer_without_content_has_nothing_against_it() {
    for act in [answer("204 No Content", ""), answer("200 OK", ""), answer("201 Created", "{}")] {
        let (address, _requests) = serve([vec![act]]).await;
        assert_eq!(ask(&hook(config(HookAction::Webhook(webhook(address))))).await, Ok(HookReply::default()));
    }
}

#[tokio::test]
async fn a_service_may_say_when_to_send_again() {
    let act = "HTTP/1.1 429 Slow\r\nretry-after: 17\r\ncontent-length: 0\r\n\r\n";
    let (address, _requests) = serve([vec![act]]).await;
    let failed = hook(config(HookAction::Notify(webhook(address)))).tell("m", "{}".into()).await.unwrap_err();
    assert_eq!((failed.status, failed.retry_after_s), (Some(StatusCode::TOO_MANY_REQUESTS), Some(17)));
}

#[tokio::test]
async fn a_message_that_no_run_waits_for_is_taken_by_status_alone() {
    for body in ["fine!".to_owned(), "x".repeat(1_000)] {
        let (address, _requests) = serve([vec![answer("200 OK", &body)]]).await;
        assert_eq!(hook(config(HookAction::Webhook(webhook(address)))).tell("m", "{}".into()).await, Ok(()), "{body}");
    }
}

#[tokio::test]
async fn a_program_finds_the_message_on_its_input_and_decides() {
    let reply =
        ask_program(r#"grep -q '"tool":"shell"' && echo '{"permissionDecision": "ask", "reason": "look"}'"#).await;
    let reply = reply.unwrap();
    assert_eq!((reply.decision, reply.reason.as_deref()), (HookDecision::Ask, Some("look")));
    let denied = ask_program("echo '{}'; echo 'not here' >&2; exit 2").await.unwrap();
    assert_eq!((denied.decision, denied.reason.as_deref()), (HookDecision::Deny, Some("not here")));
    assert_eq!(ask_program("exit 0").await, Ok(HookReply::default()));
}

#[tokio::test]
async fn a_program_that_does_not_end_as_a_hook_does_has_failed() {
    for (script, failure) in [
        ("exit 1", "the program ended with status 1"),
        ("kill -9 $$", "the program was ended by a signal"),
        ("echo hello", "its answer is not JSON, in line 1 column 1"),
        ("head -c 1100000 /dev/zero", "the program wrote more than max_response, 1048576 bytes"),
    ] {
        assert_eq!(ask_program(script).await, Err(failure.to_owned()), "{script}");
    }
    let missing = HookCommand { program: "/nowhere/hook".to_owned(), ..program("") };
    let failed = ask(&hook(config(HookAction::Command(missing)))).await.unwrap_err().to_string();
    assert!(failed.starts_with("`/nowhere/hook` cannot be started"), "{failed}");
}

#[tokio::test]
async fn a_program_may_ignore_a_long_message_and_fill_both_pipes() {
    let arguments = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
    // More than a pipe takes, into either, before it ends; it never reads what it is told.
    let talks = program(
        "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero | tr '\\0' ' '; echo '{\"decision\":\"block\"}'",
    );
    let hook = hook(config(HookAction::Command(talks)));
    let reply = about(&arguments, async |message| hook.ask("m", &message).await).await.unwrap();
    assert_eq!(reply.decision, HookDecision::Deny);
}

#[tokio::test]
async fn a_program_reads_a_long_message_whole() {
    let arguments = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
    let counts = program(r#"n=$(wc -c); test "$n" -gt 2097152 && echo '{"decision":"block"}'"#);
    let hook = hook(config(HookAction::Command(counts)));
    let reply = about(&arguments, async |message| hook.ask("m", &message).await).await.unwrap();
    assert_eq!(reply.decision, HookDecision::Deny, "both the text and what it means have the argument");
}

#[tokio::test]
async fn a_program_that_takes_too_long_is_ended_with_all_that_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let script = format!(
        "trap '' TERM; sleep 600 & echo $! > {0}.new; echo $$ >> {0}.new; mv {0}.new {0}; wait",
        pids.display()
    );
    let slow = HookConfig { timeout: Duration::from_millis(500), ..config(HookAction::Command(program(&script))) };
    assert_eq!(ask(&hook(slow)).await.unwrap_err().to_string(), "no answer within 500 ms");
    let pids = std::fs::read_to_string(&pids).expect("it had begun");
    assert_eq!(pids.lines().count(), 2);
    for pid in pids.lines() {
        ended(pid).await;
    }
}

#[tokio::test]
async fn what_a_program_leaves_behind_does_not_hold_the_run_up() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    let begun = Instant::now();
    // What it leaves has the program's output, which thus does not end.
    ask_program(&format!("sleep 600 & echo $! > {}; echo '{{}}'", pid.display())).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4));
    ended(std::fs::read_to_string(pid).unwrap().trim()).await;
}

#[tokio::test]
async fn what_left_the_programs_group_does_not_hold_the_run_up_either() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    // Once the file is there, the process is in a group of its own, which is not ended with the program's.
    let script = format!(
        "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' & until test -e {0}; do :; done; echo '{{\"decision\":\"block\"}}'",
        pid.display()
    );
    let reply = ask_program(&script).await;
    let left = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(left).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    assert_eq!(reply.map(|reply| reply.decision), Ok(HookDecision::Deny));
}

/// Waits until this process is gone, or is there only for its parent to hear of its end.
async fn ended(pid: &str) {
    let path = format!("/proc/{pid}/stat");
    let is_there = || {
        let stat = std::fs::read_to_string(Path::new(&path)).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
    };
    let begun = Instant::now();
    while is_there() {
        assert!(begun.elapsed() < Duration::from_secs(5), "the process {pid} is still there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_program_has_no_environment_but_its_own() {
    let said =
        ask_program(r#"printf '{"reason": "'; env | cut -d= -f1 | sort | tr '\n' ' '; printf '"}'"#).await.unwrap();
    let names = said.reason.unwrap();
    // What a shell sets by itself.
    let names: Vec<_> =
        names.split_whitespace().filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name)).collect();
    assert_eq!(names, ["LOOPGATE_PROCESS", "PATH"]);
}

#[tokio::test]
async fn what_is_declared_needs_nobody_to_be_asked() {
    let blocks = ask(&hook(config(HookAction::Block("never".to_owned())))).await.unwrap();
    assert_eq!((blocks.decision, blocks.reason.as_deref()), (HookDecision::Deny, Some("never")));
    let set = json!({"limit": 10}).as_object().cloned();
    let rewrites = ask(&hook(config(HookAction::Rewrite { arguments: set, result: None }))).await.unwrap();
    assert_eq!(rewrites.arguments.as_deref(), Some(r#"{"command":"ls","limit":10}"#));
}

#[tokio::test]
async fn what_is_rewritten_of_arguments_that_would_be_refused_stays_refused() {
    let set = json!({"limit": 10}).as_object().cloned();
    let rewrites = hook(config(HookAction::Rewrite { arguments: set, result: None }));
    for (arguments, left) in [
        ("", Some(r#"{"limit":10}"#)),
        (r#"{"command":"#, None),
        ("[1]", None),
        (r#"{"command":"ls","command":"rm"}"#, None),
        (r#"{"a":{"b":1,"b":2}}"#, None),
    ] {
        let said = about(arguments, async |message| rewrites.ask("m", &message).await).await.unwrap();
        assert_eq!(said.arguments.as_deref(), left, "{arguments}");
    }
}

#[test]
fn what_holds_where_a_hook_fails_is_its_operators_choice() {
    let pinned = config(HookAction::Log).pinned();
    assert_eq!(failed(&pinned).decision, HookDecision::Deny);
    assert_eq!(failed(&PinnedHook { fails_open: true, ..pinned }), HookReply::default());
}

#[test]
fn a_message_that_is_kept_is_bounded_and_one_for_people_quotes_nothing() {
    let (run, tenant, call) = (RunId::mint(), Tenant::default_tenant(), CallId::foreign("call_1"));
    let whose =
        Whose { run: &run, session: None, tenant: &tenant, agent: "default", model: "m", user: None, request: None };
    let mut arguments = String::from("{\"text\":\"");
    for _ in 0..(message::MOST_KEPT / 2) {
        arguments.write_str("xx").unwrap();
    }
    arguments.push_str("\"}");
    let outcome =
        ToolOutcome { parts: vec![Part::text("secret ".repeat(100_000))], latency_ms: 3, ..ToolOutcome::default() };
    let what = What::Answer(Call { id: &call, tool: "shell", arguments: &arguments }, CallAnswer(&outcome));
    let message = Message { hook: "a", point: HookPoint::AfterTool, whose, at_ms: 0, step: 1, seq: Some(7), what };
    let kept: serde_json::Value = serde_json::from_slice(&message.encode_to_keep()).unwrap();
    assert!(message.encode().len() > message::MOST_KEPT && message.encode_to_keep().len() < message::MOST_KEPT / 8);
    assert_eq!(
        (kept["truncated"].as_bool(), kept.get("input"), kept["tool"].as_str()),
        (Some(true), None, Some("shell"))
    );
    let words = String::from_utf8(message.encode_in_words().to_vec()).unwrap();
    assert!(!words.contains("secret") && !words.contains("xx") && words.len() < 1_000, "{words}");
    assert!(
        words.contains(&format!("A call of shell succeeded in the run {run} of agent default, after 3 ms.")),
        "{words}"
    );
}

#[test]
fn results_that_differ_in_their_structure_alone_are_told_apart() {
    let call = CallId::foreign("call_1");
    let digested = |structured: Option<&str>| {
        let structured = structured.map(|json| RawValueEq(RawValue::from_string(json.to_owned()).unwrap()));
        let outcome = ToolOutcome { parts: vec![Part::text("done")], structured, ..ToolOutcome::default() };
        What::Answer(Call { id: &call, tool: "t", arguments: "{}" }, CallAnswer(&outcome)).digested()
    };
    let all = [digested(None), digested(Some("{}")), digested(Some(r#"{"n":1}"#))];
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
}

#[test]
fn the_end_of_a_run_is_told_with_what_it_took() {
    let (run, tenant) = (RunId::mint(), Tenant::default_tenant());
    let whose =
        Whose { run: &run, session: None, tenant: &tenant, agent: "a", model: "m", user: Some("u"), request: None };
    let outcome = Outcome { output_text: "done".to_owned(), ..Outcome::unknown(StopReason::Cancelled) };
    let message = Message {
        hook: "a",
        point: HookPoint::RunEnd,
        whose,
        at_ms: 0,
        step: 1,
        seq: Some(7),
        what: What::End(Ended(&outcome)),
    };
    let told: serde_json::Value = serde_json::from_slice(&message.encode()).unwrap();
    assert_eq!((told["user"].as_str(), told["run"]["status"].as_str()), (Some("u"), Some("cancelled")));
    assert_eq!(
        (told["run"]["output_text"].as_str(), told["run"]["stop_reason"].as_str()),
        (Some("done"), Some("cancelled"))
    );
    let outcome = Outcome { error: Some(RunError::new(ErrorKind::HookDenied, "She said hunter2.")), ..outcome.clone() };
    let failed = Message { what: What::End(Ended(&outcome)), ..message };
    assert!(String::from_utf8(failed.encode().to_vec()).unwrap().contains("hunter2"));
    assert!(!String::from_utf8(failed.encode_in_words().to_vec()).unwrap().contains("hunter2"));
    assert_eq!(
        message.in_words(),
        format!("The run {run} of agent a is cancelled (cancelled). It took 0 tokens and $0.")
    );
}

//! `loopgate tools`, beside real services.

use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::io::AsyncWriteExt;

use super::{run, text};
use crate::support::redis::free_port;
use crate::support::server::loopgate;
use crate::support::{Reply, ToolServer, within};

/// A directory with a configuration of this text.
fn configured(config: &str) -> TempDir {
    let directory = tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("loopgate.toml"), config).expect("it can be written to");
    directory
}

#[tokio::test]
async fn tools_are_listed_with_their_effects_agents_and_definitions() {
    let declared = "[tools.look]\ndescription = \"Looks\\u001b[2J closely.\"\nurl = \"http://127.0.0.1:9/?key=hush\"\neffect = \"read\"\n";
    let agents = "[agents.a]\nmodel = \"demo\"\ntools = [\"l*\"]\n[agents.b]\nmodel = \"demo\"\ntools = [\"look\", \"calculator\"]\n";
    let directory = configured(&format!("{declared}{agents}"));
    let list = async |more: &[&str]| run(directory.path(), &[&["tools", "list"][..], more].concat()).await;
    let ran = list(&["l*"]).await;
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    insta::assert_snapshot!(text(&ran.stdout), @"
    TOOL  KIND  EFFECT  AGENTS  DEFINITION    PIN  DESCRIPTION
    look  http  read    a b     d8fe0deab167  -    Looks\u{fffd}[2J closely.
    ");
    let ran = list(&[]).await;
    assert_eq!(text(&ran.stdout).lines().count(), 5, "{}", text(&ran.stdout));
    let ran = list(&["--agent", "b", "--json"]).await;
    let all: Value = serde_json::from_slice(&ran.stdout).expect("it is JSON");
    let names: Vec<_> = all["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["calculator", "look"]);
    let look = &all["tools"][1];
    assert_eq!(
        (&look["source"], &look["effect"], &look["agents"]),
        (&"http".into(), &"read".into(), &json!(["a", "b"]))
    );
    assert_eq!(look["definition_sha256"].as_str().map(str::len), Some(64));
    assert_eq!(look["parameters"]["type"], "object");
    assert!(!text(&ran.stdout).contains("hush"), "{}", text(&ran.stdout));
    assert_eq!(list(&["--agent", "c"]).await.status.code(), Some(1));
    assert_eq!(run(configured("[tools.x]\n").path(), &["tools", "list"]).await.status.code(), Some(78));
}

#[tokio::test]
async fn a_tool_is_called_by_its_schema_and_its_answer_is_shown() {
    let directory = configured("");
    let call = async |more: &[&str]| run(directory.path(), &[&["tools", "call"][..], more].concat()).await;
    let ran = call(&["calculator", r#"{"expression": "6 * 7"}"#]).await;
    assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(0), "42\n".into()), "{}", text(&ran.stderr));
    assert!(text(&ran.stderr).starts_with("calculator answered after "), "{}", text(&ran.stderr));
    let ran = call(&["calculator", r#"{"expresion": "6 * 7"}"#]).await;
    let err = text(&ran.stderr);
    assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(2), String::new()), "{err}");
    assert!(err.contains("do not fit its schema") && err.contains("They must fit {\"type\":\"object\""), "{err}");
    let ran = call(&["calculater", "{}"]).await;
    assert_eq!(ran.status.code(), Some(7));
    assert!(text(&ran.stderr).contains("did you mean calculator?"), "{}", text(&ran.stderr));
    let ran = call(&["calculator", "--json", r#"{"expression": "1 / 0"}"#]).await;
    let told: Value = serde_json::from_slice(&ran.stdout).expect("it is JSON");
    assert_eq!((ran.status.code(), &told["ok"], &told["is_error"]), (Some(3), &false.into(), &true.into()), "{told}");
    let mut command = loopgate(directory.path());
    command.args(["tools", "call", "calculator", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut started = command.spawn().expect("it can be started");
    let mut input = started.stdin.take().expect("it is piped");
    input.write_all(br#"{"expression": "2 + 2"}"#).await.expect("it is read");
    drop(input);
    let ran = within("a command to end", started.wait_with_output()).await.expect("it ends");
    assert_eq!(text(&ran.stdout), "4\n");
}

#[tokio::test]
async fn a_service_is_called_as_by_a_run_and_what_became_of_the_call_is_told() {
    let hostile = Reply::plain("\x1b]0;title\x07fine\n");
    let tools = ToolServer::start([
        hostile,
        Reply::status(500).header("content-type", "text/plain").bytes("no"),
        Reply::status(200).headless().cut(),
    ])
    .await;
    let config = format!("{}send_identity = [\"tenant\", \"user\"]\n", tools.config("write", "write"));
    let directory = configured(&config);
    let call = async |more: &[&str]| {
        run(directory.path(), &[&["tools", "call", "write", r#"{"note": "n"}"#][..], more].concat()).await
    };
    let ran = call(&["--tenant", "acme", "--user", "ann"]).await;
    assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(0), "fine\n\n".into()));
    let sent = &tools.calls()[0];
    assert_eq!(sent.json()["note"], "n");
    for (name, value) in [("x-loopgate-tenant", "acme"), ("x-loopgate-user", "ann"), ("x-loopgate-step", "1")] {
        assert_eq!(sent.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    let ran = call(&[]).await;
    assert_eq!((ran.status.code(), text(&ran.stdout).contains("no")), (Some(3), true), "{}", text(&ran.stdout));
    assert!(text(&ran.stderr).contains("answered with an error with status 500"), "{}", text(&ran.stderr));
    let ran = call(&[]).await;
    assert_eq!(ran.status.code(), Some(4), "{}", text(&ran.stderr));
    assert!(text(&ran.stderr).contains("whether the call took effect is not known"), "{}", text(&ran.stderr));
    tools.then(Reply::plain("late").pause(std::time::Duration::from_secs(600)));
    let ran = call(&["--timeout", "1s"]).await;
    assert_eq!(ran.status.code(), Some(4), "{}", text(&ran.stdout));
    assert_eq!(call(&["--timeout", "soon"]).await.status.code(), Some(2));
}

/// The answer is for a model, which is told neither; who asks at a terminal mends the configuration.
#[tokio::test]
async fn a_service_that_is_not_there_is_named_with_the_cause() {
    let address = format!("127.0.0.1:{}", free_port());
    let directory =
        configured(&format!("[tools.gone]\ndescription = \"Gone.\"\nurl = \"http://{address}/x?key=hush\"\n"));
    let ran = run(directory.path(), &["tools", "call", "gone"]).await;
    let err = text(&ran.stderr);
    assert_eq!((ran.status.code(), text(&ran.stdout).contains("could not be reached")), (Some(3), true), "{err}");
    assert!(err.contains(&address) && err.contains("refused") && !err.contains("hush"), "{err}");
}

#[tokio::test]
async fn every_tool_is_looked_at_and_none_is_called() {
    let tools = ToolServer::start([]).await;
    let agent = "[agents.a]\nmodel = \"demo\"\ntools = [\"well\", \"gone\", \"strange\"]\n";
    let gone = format!("[tools.gone]\ndescription = \"d\"\nurl = \"http://127.0.0.1:{}/?key=hush\"\n", free_port());
    let strange = "[tools.strange]\ndescription = \"d\"\nurl = \"http://127.0.0.1:9/\"\n\
                   parameters = { type = \"object\", properties = { a = { pattern = \"^(?=a)b\" } } }\n";
    let well = format!("{}{agent}", tools.config("well", "read"));
    let directory = configured(&well.replace(", \"gone\", \"strange\"", ""));
    let ran = run(directory.path(), &["tools", "check"]).await;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stdout));
    assert!(text(&ran.stdout).contains("ok    tools.well: its schema is valid; 1 agent may call it: a"));
    let directory = configured(&format!("{well}{gone}{strange}{}", tools.config("lonely", "read")));
    let ran = run(directory.path(), &["tools", "check", "--json"]).await;
    let report: Value = serde_json::from_slice(&ran.stdout).expect("it is JSON");
    assert_eq!((ran.status.code(), &report["ok"]), (Some(1), &false.into()), "{report:#}");
    let has = |level: &str, area: &str, words: &str| {
        let checks = report["checks"].as_array().expect("a list");
        let is_it = |check: &&Value| {
            check["level"] == level
                && check["area"] == area
                && check["message"].as_str().is_some_and(|message| message.contains(words))
        };
        assert!(checks.iter().any(|check| is_it(&check)), "{level} {area} {words}: {report:#}");
    };
    has("ok", "tools.calculator", "its schema is valid");
    has("ok", "tools.well", "can be reached");
    has("warn", "tools.gone", "cannot be reached");
    has("warn", "tools.lonely", "no agent has it");
    has("fail", "tools.strange", "the schema is not valid");
    assert!(tools.calls().is_empty() && !text(&ran.stdout).contains("hush"));
    let missing = "[tools.t]\ndescription = \"d\"\nurl = \"http://127.0.0.1:9/\"\nheaders = { authorization = { env = \"NOT_SET\" } }\n";
    let ran = run(configured(missing).path(), &["tools", "check"]).await;
    assert_eq!(ran.status.code(), Some(78), "{}", text(&ran.stdout));
    assert!(text(&ran.stderr).contains("NOT_SET"), "{}", text(&ran.stderr));
}

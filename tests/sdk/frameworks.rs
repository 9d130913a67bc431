//! Frameworks, whose model is the server, through each API that they speak.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use super::matrix::{CAPABILITIES, clients_of};
use super::{calls_calculator, node_program, python_program, script};
use crate::support::{Reply, TestServer, Upstream};

/// How long all cases of a framework may take, which is mostly the time in which its packages are loaded.
const PATIENCE: Duration = Duration::from_secs(100);

/// What the upstream says where a capability is checked, and what the client shows then.
fn expected(capability: &str, api: &str) -> (Vec<Reply>, Value) {
    let weather = || Reply::calls("get_weather", &json!({"city": "Oslo"}));
    match capability {
        "text" => (vec![Reply::says("Hello")], json!({"text": "Hello"})),
        "server tool" => (vec![calls_calculator(), Reply::says("It is 42.")], json!({"text": "It is 42."})),
        "client tool" => {
            let seen = json!({"text": "Rain.", "called": [["get_weather", {"city": "Oslo"}]]});
            (vec![weather(), Reply::says("Rain.")], seen)
        }
        "approval" => {
            let seen = json!({"text": "It is 42.", "asked": ["calculator"]});
            (vec![calls_calculator(), Reply::says("It is 42.")], seen)
        }
        "structured output" if api == "pydantic-ai messages" => {
            (vec![Reply::calls("final_result", &json!({"n": 42}))], json!({"n": 42}))
        }
        "structured output" => (vec![Reply::says(r#"{"n":42}"#)], json!({"n": 42})),
        "failure" => (vec![Reply::error(400, "bad", "No such thing.")], json!({"told": true})),
        "limit" => (vec![calls_calculator()], json!({"is_cut": true})),
        "cancel" => (vec![Reply::stream().text("First.").stall()], json!({"text": "First."})),
        _ => panic!("no framework has {capability}"),
    }
}

/// Has a program do all that it says it checks, in one process, and compares what its user would see.
async fn checks(program: &str, mut command: Command) {
    let text = fs::read_to_string(script(program)).expect("the program is there");
    let clients = clients_of(program, &text).expect("it says what it checks");
    let (mut cases, mut replies, mut expects, mut left) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (client, (capability, check)) in clients.iter().flat_map(|client| {
        let checks = CAPABILITIES.iter().zip(&client.checks);
        checks.map(move |check| (client, check))
    }) {
        let Ok(named) = check else { continue };
        let package = client.name.split(['`', ',']).nth(1).unwrap_or_default();
        let api = named[0].split(' ').next().unwrap_or_default();
        let (says, seen) = expected(capability, &format!("{package} {api}"));
        left += usize::from(*capability == "cancel");
        cases.push(named[0].clone());
        replies.extend(says);
        expects.push(seen);
    }
    let asked = replies.len();
    let upstream = Upstream::start(replies).await;
    let server = TestServer::start(&upstream.config()).await;
    command.arg(cases.join(", ")).arg(server.url()).stdin(Stdio::null()).kill_on_drop(true);
    let done = tokio::time::timeout(PATIENCE, command.output()).await.expect("it ends").expect("it starts");
    let (said, complaint) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{program}:\n{said}{complaint}\n{}", server.output());
    // What a package writes about itself stands before it.
    let seen: Vec<Value> = serde_json::from_str(said.lines().last().unwrap_or_default()).expect("it prints JSON");
    let seen: Vec<_> = cases.iter().zip(&seen).collect();
    assert_eq!(seen, cases.iter().zip(&expects).collect::<Vec<_>>());
    assert_eq!(upstream.requests().len(), asked, "no request was repeated");
    // Who leaves in the middle has nothing more to read, and the run ends.
    let is_cancelled = async {
        while server.get("/v1/runs?status=cancelled").await.ok()["data"].as_array().is_none_or(|runs| runs.len() < left)
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_cancelled).await.expect("the runs of clients that left are cancelled");
}

#[tokio::test]
async fn langchain() {
    checks("langchain_models.py", python_program("langchain_models.py")).await;
}

#[tokio::test]
async fn litellm() {
    checks("litellm_calls.py", python_program("litellm_calls.py")).await;
}

#[tokio::test]
async fn pydantic_ai() {
    checks("pydantic_ai_agents.py", python_program("pydantic_ai_agents.py")).await;
}

#[tokio::test]
async fn the_ai_sdk() {
    checks("ai_sdk.mjs", node_program("ai_sdk.mjs")).await;
}

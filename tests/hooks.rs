//! Hooks: services and programs that are asked about runs and calls, and told of them, over real sockets.

use std::process::Stdio;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::support::{Reply, TestServer, ToolServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";
const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

fn ask() -> Value {
    json!({"model": "test", "user": "u-17", "messages": [{"role": "user", "content": "Go."}]})
}

/// A server whose agents have the tool `pay`, with these hooks.
fn config(upstream: &Upstream, tools: &ToolServer, hooks: &str) -> String {
    format!("{}{}[agents.default]\ntools = [\"pay\"]\n{hooks}", upstream.config(), tools.config("pay", "write"))
}

/// A model that calls `pay` with this note, and then says that it is done.
async fn paying(note: &str) -> Upstream {
    Upstream::start([Reply::calls("pay", &json!({"note": note})), Reply::says("Done.")]).await
}

fn webhook(name: &str, on: &str, hooks: &ToolServer, more: &str) -> String {
    format!(
        "[hooks.{name}]\non = {on}\naction = \"webhook\"\nurl = \"http://{}/{name}\"\nsecret_env = \"HOOK_SECRET\"\n{more}\n",
        hooks.address()
    )
}

async fn serve(config: &str) -> TestServer {
    TestServer::builder(config).env("HOOK_SECRET", SECRET).start().await
}

/// What the model is told of its call.
fn told(upstream: &Upstream) -> String {
    let requests = upstream.requests();
    let message = requests[1]["messages"].as_array().and_then(|messages| messages.last()).expect("there are messages");
    assert_eq!(message["role"], "tool", "{message}");
    message["content"].as_str().expect("it is text").to_owned()
}

/// The events of this type that a run's log has.
async fn events(server: &TestServer, run: &str, kind: &str) -> Vec<Value> {
    let list = server.get(&format!("/v1/runs/{run}/events?stream=false")).await.ok();
    let all = list["data"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|event| event["type"] == kind).collect()
}

fn run_id(answer: &Value) -> String {
    answer["agent"]["run_id"].as_str().expect("a run has an id").to_owned()
}

#[tokio::test]
async fn a_call_that_a_service_refuses_is_not_made() {
    let hooks = ToolServer::start([Reply::json(200, &json!({"decision": "block", "reason": "Too much."}))]).await;
    let (tools, upstream) = (ToolServer::start([]).await, paying("100").await);
    let server =
        serve(&config(&upstream, &tools, &webhook("audit", "\"before_tool\"", &hooks, "tools = [\"p*\"]"))).await;
    let answer = server.post(ENDPOINT, &ask()).await.ok();
    assert!(tools.calls().is_empty());
    assert_eq!(told(&upstream), "The call was not made: Too much.");
    let call = &answer["agent"]["report"]["steps"][0]["tool_calls"][0];
    assert_eq!(
        (call["skipped"].as_bool(), call["error"].as_str()),
        (Some(true), Some("The call was not made: Too much."))
    );
    let ran = &events(&server, &run_id(&answer), "hook.ran").await[0];
    assert_eq!(
        (ran["name"].as_str(), ran["point"].as_str(), ran["decision"].as_str()),
        (Some("audit"), Some("before_tool"), Some("deny"))
    );
    let request = &hooks.calls()[0];
    let message: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!((message["tool"].as_str(), &message["input"]), (Some("pay"), &json!({"note": "100"})));
    assert_eq!((message["user"].as_str(), message["run_id"].as_str()), (Some("u-17"), Some(run_id(&answer).as_str())));
    assert!(request.headers["webhook-signature"].starts_with("v1,"));
}

#[tokio::test]
async fn a_call_is_made_with_the_arguments_that_hooks_leave_if_these_are_valid() {
    for (updated, made) in [(json!({"note": "9"}), Some("9")), (json!({"amount": 9}), None)] {
        let hooks = ToolServer::start([Reply::json(200, &json!({"updatedInput": updated}))]).await;
        let (tools, upstream) = (ToolServer::start([]).await, paying("100").await);
        let server = serve(&config(&upstream, &tools, &webhook("cap", "\"before_tool\"", &hooks, ""))).await;
        let answer = server.post(ENDPOINT, &ask()).await.ok();
        let calls = tools.calls();
        let body = calls.first().map(|call| serde_json::from_slice::<Value>(&call.body).unwrap());
        assert_eq!(body.as_ref().and_then(|body| body["note"].as_str()), made);
        let shown = &events(&server, &run_id(&answer), "tool.call").await[0]["arguments"];
        assert_eq!(shown, &updated, "what was to be made is shown");
        if made.is_none() {
            assert!(told(&upstream).contains("amount"), "{}", told(&upstream));
        }
    }
}

#[tokio::test]
async fn what_holds_where_a_service_fails_is_the_operators_choice() {
    for (policy, calls) in [("", 0), ("on_failure = \"allow\"", 1)] {
        let hooks = ToolServer::start([Reply::plain("not JSON")]).await;
        let (tools, upstream) = (ToolServer::start([]).await, paying("1").await);
        let server = serve(&config(&upstream, &tools, &webhook("audit", "\"before_tool\"", &hooks, policy))).await;
        let answer = server.post(ENDPOINT, &ask()).await.ok();
        assert_eq!(tools.calls().len(), calls, "{policy}");
        assert_eq!(events(&server, &run_id(&answer), "hook.ran").await[0]["failed"], true);
        let metrics = server.respond(server.request(Method::GET, "/metrics")).await.text().await.expect("it is text");
        let line = "loopgate_hook_decisions_total{hook=\"audit\",point=\"before_tool\",decision=\"failed\"} 1";
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test]
async fn a_hook_may_answer_in_place_of_the_tool_and_add_to_what_it_said() {
    let hooks = ToolServer::start([Reply::json(200, &json!({"result": "paid already"}))]).await;
    let (tools, upstream) = (ToolServer::start([]).await, paying("1").await);
    let server = serve(&config(&upstream, &tools, &webhook("cache", "\"before_tool\"", &hooks, ""))).await;
    server.post(ENDPOINT, &ask()).await.ok();
    assert_eq!((tools.calls().len(), told(&upstream)), (0, "paid already".to_owned()));

    let after = json!({"decision": "block", "reason": "Looks odd.", "additionalContext": "Ask the user."});
    let hooks = ToolServer::start([Reply::json(200, &after)]).await;
    let (tools, upstream) = (ToolServer::start([Reply::plain("paid")]).await, paying("1").await);
    let server = serve(&config(&upstream, &tools, &webhook("check", "\"after_tool\"", &hooks, ""))).await;
    let answer = server.post(ENDPOINT, &ask()).await.ok();
    assert_eq!(told(&upstream), "paid\n[hook check] Looks odd.\n[hook check] Ask the user.");
    assert_eq!(events(&server, &run_id(&answer), "tool.result").await[0]["is_error"], true);
    let message: Value = serde_json::from_slice(&hooks.calls()[0].body).unwrap();
    assert_eq!((message["event"].as_str(), message["output"].as_str()), (Some("after_tool"), Some("paid")));
}

#[tokio::test]
async fn a_program_refuses_with_status_2() {
    let (tools, upstream) = (ToolServer::start([]).await, paying("rm -rf").await);
    let hook = "[hooks.guard]\non = \"before_tool\"\naction = \"command\"\n\
                command = [\"/bin/sh\", \"-c\", \"grep -q 'rm -rf' && { echo 'No.' >&2; exit 2; }; exit 0\"]\n";
    let server = serve(&config(&upstream, &tools, hook)).await;
    server.post(ENDPOINT, &ask()).await.ok();
    assert_eq!((tools.calls().len(), told(&upstream)), (0, "The call was not made: No.".to_owned()));
}

#[tokio::test]
async fn a_run_that_a_hook_refuses_calls_no_model() {
    let (tools, upstream) = (ToolServer::start([]).await, paying("1").await);
    let hook = "[hooks.closed]\non = \"run_start\"\naction = \"block\"\nreason = \"Closed on Sundays.\"\n";
    let server = serve(&config(&upstream, &tools, hook)).await;
    let answer = server.post(ENDPOINT, &ask()).await;
    assert_eq!((answer.status, answer.code()), (403, "forbidden"), "{}", answer.body);
    assert!(answer.body["error"]["message"].as_str().unwrap().contains("Closed on Sundays."));
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn a_message_is_sent_until_it_is_taken_with_the_same_id() {
    let hooks = ToolServer::start([Reply::status(500), Reply::status(204)]).await;
    let (tools, upstream) = (ToolServer::start([]).await, paying("1").await);
    let server = serve(&config(&upstream, &tools, &webhook("ended", "\"run_end\"", &hooks, "timeout = \"1s\""))).await;
    let answer = server.post(ENDPOINT, &ask()).await.ok();
    let calls = within("the second attempt", hooks.called(2)).await;
    let ids: Vec<_> = calls.iter().map(|call| call.headers["webhook-id"].clone()).collect();
    assert_eq!(ids[0], ids[1]);
    let message: Value = serde_json::from_slice(&calls[1].body).unwrap();
    assert_eq!(
        (message["run_id"].as_str(), message["run"]["status"].as_str()),
        (Some(run_id(&answer).as_str()), Some("completed"))
    );
    assert_eq!(message["run"]["output_text"], "Done.");
}

#[tokio::test]
async fn a_message_survives_the_death_of_the_server_wherever_that_is() {
    // Where the server dies after the message was sent and before it noted that, the message comes once more.
    for (point, times) in [("run.ended", 1), ("outbox.before_claim", 1), ("outbox.claimed", 1), ("outbox.sent", 2)] {
        let hooks = ToolServer::start([]).await;
        let (tools, upstream) = (ToolServer::start([]).await, paying("1").await);
        let config = config(&upstream, &tools, &webhook("ended", "\"run_end\"", &hooks, "timeout = \"1s\""));
        let mut server =
            TestServer::builder(&config).env("HOOK_SECRET", SECRET).env("LOOPGATE_FAILPOINT", point).start().await;
        let mut body = ask();
        body["agent"] = json!({"background": true});
        server.post(ENDPOINT, &body).await;
        within("the server's death", server.ended()).await;
        server.next_env(&[("HOOK_SECRET", SECRET)]);
        server.restart().await;
        let calls = within("the message", hooks.called(times)).await;
        let message: Value = serde_json::from_slice(&calls[times - 1].body).unwrap();
        assert_eq!(message["run"]["status"], "completed", "{point}");
        for call in hooks.calls() {
            assert_eq!(call.headers["webhook-id"], calls[0].headers["webhook-id"], "{point}");
        }
    }
}

#[tokio::test]
async fn the_receiver_of_the_documentation_verifies_signatures_and_decides() {
    let mut receiver = Command::new("python3")
        .args(["docs/hooks/receiver.py", "0"])
        .env("WEBHOOK_SECRET", SECRET)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("python3 is installed");
    let mut lines = BufReader::new(receiver.stdout.take().expect("it was asked for")).lines();
    let line = within("the receiver", lines.next_line()).await.unwrap().unwrap();
    let port = line.rsplit(' ').next().unwrap().to_owned();
    let hooks = format!(
        "[hooks.files]\non = [\"before_tool\", \"run_end\"]\nwait = false\naction = \"webhook\"\nurl = \"http://127.0.0.1:{port}/\"\n\
         secret_env = \"HOOK_SECRET\"\n\
         [hooks.asked]\non = \"before_tool\"\naction = \"webhook\"\nurl = \"http://127.0.0.1:{port}/\"\nsecret_env = \"HOOK_SECRET\"\n"
    );
    // The space as an escape: the receiver looks for what the tool would read.
    let call = Reply::stream().tool_call(0, "call_upstream", "pay", r#"{"note":"rm\u0020x"}"#);
    let call = call.finish("tool_calls").usage(10, 5).done();
    let (tools, upstream) = (ToolServer::start([]).await, Upstream::start([call, Reply::says("Done.")]).await);
    let server = serve(&config(&upstream, &tools, &hooks)).await;
    let answer = server.post(ENDPOINT, &ask()).await.ok();
    assert_eq!(told(&upstream), "The call was not made: Files are not deleted here.");
    let line = within("the end of the run", lines.next_line()).await.unwrap().unwrap();
    assert_eq!(line, format!("{} completed", run_id(&answer)));

    // With another secret it believes nothing, so calls are refused.
    let (tools, upstream) = (ToolServer::start([]).await, paying("ls").await);
    let other = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";
    let server = TestServer::builder(&config(&upstream, &tools, &hooks)).env("HOOK_SECRET", other).start().await;
    server.post(ENDPOINT, &ask()).await.ok();
    assert_eq!(told(&upstream), "The call was not made: The hook `asked` gave no answer.");
    receiver.kill().await.unwrap();
}

#[test]
fn the_documentation_shows_the_receiver_as_it_is() {
    let (page, file) = (include_str!("../docs/hooks.md"), include_str!("../docs/hooks/receiver.py"));
    assert!(page.contains(file), "docs/hooks.md must have all of docs/hooks/receiver.py");
}

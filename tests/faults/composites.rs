//! Runs of agents that are made of others, on a server that dies: each agent works once, and the answer is whole.

use std::time::Duration;

use loopgate::failpoint::OF_COMPOSITES;
use serde_json::{Value, json};

use super::{dies_within, scaled};
use crate::support::http::{HttpServer, Request};
use crate::support::redis::durable;
use crate::support::upstream::{asked, declaration, is_list};
use crate::support::{Reply, TestServer, within};

/// How long a server may take to come to the place at which it is to die.
const REACHED: Duration = Duration::from_secs(20);

const AGENTS: &str = "
    [agents.default]
    model = \"scripted/test\"
    tools = []

    [agents.one]
    [agents.two]
    [agents.three]

    [agents.both]
    parallel = [\"one\", \"two\"]
    consolidate = \"three\"

    [agents.all]
    chain = [\"one\", \"both\", \"three\"]
";

/// Each agent says how many messages of users it is told.
fn play(request: &Request) -> Reply {
    let body = match asked(request) {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    let users = body["messages"].as_array().into_iter().flatten().filter(|message| message["role"] == "user").count();
    Reply::stream().pause(Duration::from_millis(20)).text(&format!("{users}")).finish("stop").usage(20, 10).done()
}

/// Asks for the one run of a test, which is begun once. Returns its id if the server lives to tell it.
async fn accept(server: &TestServer) -> Option<String> {
    let body = json!({
        "model": "all", "messages": [{"role": "user", "content": "Go"}], "agent": {"background": true}
    });
    let request = server.json("/v1/agent/completions", &body).header("idempotency-key", "the-run");
    let answer = request.send().await.ok()?.bytes().await.ok()?;
    let accepted: Value = serde_json::from_slice(&answer).ok()?;
    accepted["id"].as_str().map(str::to_owned)
}

/// The run once it has ended.
async fn ended(server: &TestServer, run: &str) -> Value {
    within("the run to end", async {
        loop {
            let run = server.get(&format!("/v1/runs/{run}")).await.ok();
            if ["completed", "incomplete", "failed", "cancelled"].iter().any(|status| run["status"] == *status) {
                return run;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_server_that_dies_between_the_agents_of_a_composite_one_goes_on_where_it_was() {
    // The chain has a turn for each of its agents and one for its answer, and so has the agent in its middle.
    let turns = scaled(vec!["1", "4", "7"], vec!["1", "2", "3", "4", "5", "6", "7"]);
    let points = OF_COMPOSITES.iter().flat_map(|point| turns.iter().map(move |turn| format!("{point}:{turn}")));
    for point in points.chain(["delegate.begun:3".to_owned(), "delegate.told:2".to_owned()]) {
        let model = HttpServer::start(|request| !is_list(request), play).await;
        let config = format!("{}{AGENTS}", declaration(model.address()));
        let mut server = TestServer::builder(&config).keep_port().env("LOOPGATE_FAILPOINT", &point).start().await;
        let _ = accept(&server).await;
        assert!(dies_within(&mut server, REACHED).await, "the server does not come to {point}");
        server.next_env(&[]);
        server.restart().await;
        let run = accept(&server).await.expect("it is accepted, or was before");
        let run = ended(&server, &run).await;
        assert_eq!((&run["status"], &run["output_text"]), (&json!("completed"), &json!("2")), "{point}: {run}");
        let runs = server.get("/v1/runs?limit=100").await.ok();
        let runs = runs["data"].as_array().expect("it is a list");
        assert_eq!(runs.len(), 7, "no agent works twice: {point}: {runs:?}");
        assert!(runs.iter().all(|run| run["status"] == "completed"), "{point}: {runs:?}");
    }
}

/// Another replica goes on with the chain where the one that is killed left it.
#[tokio::test]
async fn another_replica_goes_on_with_a_composite_agents_run() {
    let redis = durable().await;
    let model = HttpServer::start(|request| !is_list(request), play).await;
    let config = format!("{}{AGENTS}", declaration(model.address()));
    let mut first = TestServer::builder(&config)
        .store(&redis.url())
        .env("LOOPGATE_FAILPOINT", "composite.turn_made:3")
        .start()
        .await;
    let second = TestServer::builder(&config).store(&redis.url()).start().await;
    let _ = accept(&first).await;
    assert!(dies_within(&mut first, REACHED).await, "the replica does not die");
    let run = accept(&second).await.expect("it was accepted");
    let run = ended(&second, &run).await;
    assert_eq!((&run["status"], &run["output_text"]), (&json!("completed"), &json!("2")), "{run}");
    let runs = second.get("/v1/runs?limit=100").await.ok();
    assert_eq!(runs["data"].as_array().expect("it is a list").len(), 7);
}

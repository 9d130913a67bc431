//! What servers use outside of themselves fails: tools do what they are asked and their answers get lost, the upstream
//! breaks off what it bills. Nothing is done twice, and what was billed is charged.

use serde_json::json;

use super::scaled;
use crate::support::TestServer;
use crate::support::cluster::client::Client;
use crate::support::cluster::harm::{Break, Loss};
use crate::support::cluster::plan::{Plan, Tool};
use crate::support::cluster::{Job, TestServices, hold};
use crate::support::redis::durable;
use crate::support::seed::Seed;

/// Lets these jobs run on one server, with each policy for unknown outcomes, and asks the checker.
async fn outlasts(name: &str, config: impl FnOnce(String) -> String, jobs: impl Fn(&str) -> Vec<Job>) {
    let seed = Seed::of_this_run().part(name);
    let (services, redis) = (TestServices::start().await, durable().await);
    let server = TestServer::builder(&config(services.config())).store(&redis.url()).start().await;
    let mut client = Client::new(vec![server.url().to_owned()]);
    let mut traces = Vec::new();
    let mut in_flight = Vec::new();
    for policy in ["fail", "tell_model"] {
        client.agent = json!({"on_unknown_outcome": policy});
        let jobs = jobs(&format!("{name}-{policy}"));
        TestServices::open_sessions(server.url(), &jobs).await;
        in_flight.push(TestServices::launch(&client, &seed, jobs));
    }
    for clients in in_flight {
        traces.extend(clients.finished().await);
    }
    let mut evidence = services.evidence(&client, traces).await;
    evidence.all_runs = Some(services.probe(&evidence, &redis.url()).await);
    hold(name, &evidence);
}

#[tokio::test]
async fn an_answer_of_a_tool_that_is_lost_repeats_nothing_that_must_not_be() {
    // A tool that says nothing is given up soon.
    let config = |config: String| config.replace("effect = ", "timeout = \"2s\"\neffect = ");
    outlasts("lost-answers", config, |name| {
        // Of two calls of a tool with side effects, the second is not made if the outcome of the first is unknown and
        // the run fails of it.
        let harms = Loss::ALL.into_iter().flat_map(|loss| Tool::ALL.map(|tool| [(loss, tool, 1), (loss, tool, 2)]));
        let job = |(number, (loss, tool, calls))| {
            let plan = Plan::new(format!("{name}-{number}")).with_tools(2, &[tool]).with_loss(loss).with_delay(20);
            (Plan { calls, ..plan }, (number % 3 == 0).then(|| format!("{name}-s{number}")))
        };
        harms.flatten().enumerate().map(job).collect()
    })
    .await;
}

#[tokio::test]
async fn what_the_upstream_bills_is_charged_however_its_answers_break() {
    let mut seed = Seed::of_this_run().part("broken-answers");
    let rounds: Vec<[Break; 2]> =
        (0..scaled(8, 60)).map(|_| [*seed.pick(&Break::ALL), *seed.pick(&Break::ALL)]).collect();
    outlasts(
        "broken-answers",
        // An upstream that falls silent is given up soon.
        |config| config.replace("models = [\"test\"]\n", "models = [\"test\"]\nidle_timeout = \"2s\"\n"),
        |name| {
            // Each way alone, and then together.
            let alone = Break::ALL.map(|breaks| [breaks, Break::Whole]);
            let breaks = alone.iter().chain(&rounds).enumerate();
            let job = |(number, breaks): (usize, &[Break; 2])| {
                let plan = Plan::new(format!("{name}-{number}")).with_tools(1, &[Tool::ALL[number % 3]]);
                (plan.with_text(12, 10).with_breaks(breaks), (number % 2 == 0).then(|| format!("{name}-s{number}")))
            };
            breaks.map(job).collect()
        },
    )
    .await;
}

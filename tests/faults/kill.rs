//! One server and its embedded store: the process dies at every place at which it can, and a new life of
//! it goes on.

use std::time::Duration;

use loopgate::failpoint::FAILPOINTS;
use serde_json::json;

use super::{dies_within, is_full};
use crate::support::TestServer;
use crate::support::cluster::client::Client;
use crate::support::cluster::plan::{Plan, Tool};
use crate::support::cluster::{TestServices, hold};
use crate::support::seed::Seed;

/// How long a run may take to reach the place at which it is to die.
const REACHED: Duration = Duration::from_secs(10);

/// Places that no run comes to whose key has no budget.
const OF_BUDGETS: [&str; 2] = ["step.reserved", "step.before_settle"];
/// Places around the first call of a run, which differ where no budget can refuse it: then its step begins in the commit
/// that creates the run.
const AROUND_THE_FIRST_CALL: [&str; 3] = ["run.created", "model.before_call", "model.answered"];

/// A place, which passage of it, the tool that the runs call, and whether their key has a budget.
#[derive(Debug, Clone, Copy)]
struct Death {
    point: &'static str,
    nth: u64,
    tool: Tool,
    has_budget: bool,
}

/// Runs die at `death` and are gone on with; at places of a resumption, this dies as well.
async fn dies_and_goes_on(death: Death, seed: &Seed) {
    let Death { point, nth, tool, has_budget } = death;
    let budget = if has_budget { "" } else { "-without-budget" };
    let name = format!("kill-{point}-{nth}-{}{budget}", tool.name());
    let seed = seed.part(&name);
    let services = TestServices::start().await;
    let in_resumption = point.starts_with("resume.");
    let first = if in_resumption { "model.delta_recorded:4".to_owned() } else { format!("{point}:{nth}") };
    let config = if has_budget { services.config() } else { services.config_under("") };
    let builder = TestServer::builder(&config).keep_port().env("LOOPGATE_FAILPOINT", &first);
    let mut server = builder.start().await;
    let mut client = Client::new(vec![server.url().to_owned()]);
    client.max_wait = Duration::from_secs(40);
    // Who is told that an outcome is unknown goes on, who is not fails: both must end.
    client.agent = if seed.clone().below(2) == 0 { json!({}) } else { json!({"on_unknown_outcome": "tell_model"}) };
    let plan = |run: u32| Plan::new(format!("{name}-{run}")).with_tools(2, &[tool]).with_text(4, 20).with_delay(30);
    let jobs = (0..3).map(|run| (plan(run), (run > 0).then(|| format!("{name}-{run}"))));
    let in_flight = TestServices::launch(&client, &seed, jobs.collect());
    assert!(dies_within(&mut server, REACHED).await, "no run came to {first}");
    if in_resumption {
        server.next_env(&[("LOOPGATE_FAILPOINT", &format!("{point}:{nth}"))]);
        let _ = server.try_restart().await;
        assert!(dies_within(&mut server, REACHED).await, "no resumption came to {point}");
    }
    server.next_env(&[]);
    server.restart().await;
    let seen = in_flight.finished().await;
    let evidence = services.evidence(&client, seen).await;
    hold(&name, &evidence);
}

async fn matrix(deaths: Vec<Death>) {
    let seed = Seed::of_this_run();
    let mut deaths = deaths.into_iter();
    let mut under_way = tokio::task::JoinSet::new();
    loop {
        while under_way.len() < 4
            && let Some(death) = deaths.next()
        {
            let seed = seed.clone();
            under_way.spawn(async move { dies_and_goes_on(death, &seed).await });
        }
        match under_way.join_next().await {
            Some(Ok(())) => {}
            Some(Err(failure)) => std::panic::resume_unwind(failure.into_panic()),
            None => return,
        }
    }
}

#[tokio::test]
async fn a_server_that_dies_at_any_failpoint_resumes_its_runs() {
    let mut deaths = Vec::new();
    for (index, point) in FAILPOINTS.iter().enumerate() {
        for (number, tool) in Tool::ALL.into_iter().enumerate() {
            // A sample has each place once, with one tool or another.
            let is_sampled = number == index % Tool::ALL.len();
            for has_budget in [true, false] {
                let is_there = has_budget || !OF_BUDGETS.contains(point);
                let is_sampled = is_sampled && (has_budget || AROUND_THE_FIRST_CALL.contains(point));
                for nth in [1, 2] {
                    if is_there && (is_full() || is_sampled && nth == 1) {
                        deaths.push(Death { point, nth, tool, has_budget });
                    }
                }
            }
        }
    }
    matrix(deaths).await;
}

//! What goes wrong inside of one process, and harms nothing else: a run panics, the work beside all runs panics, the
//! operator has no patience.

use std::time::Duration;

use serde_json::json;

use super::mixed;
use crate::support::TestServer;
use crate::support::cluster::client::Client;
use crate::support::cluster::plan::Plan;
use crate::support::cluster::{TestServices, hold};
use crate::support::seed::Seed;

/// How long a server may take to end that is told twice to do so.
const AT_ONCE: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_panic_in_one_run_fails_that_run_alone() {
    let mut seed = Seed::of_this_run().part("panic");
    let services = TestServices::start().await;
    let builder = TestServer::builder(&services.config()).env("LOOPGATE_FAILPOINT", "model.delta_recorded:9:panic");
    let mut server = builder.start().await;
    let client = Client::new(vec![server.url().to_owned()]);
    let jobs = mixed("panic", 12, &mut seed, 20);
    TestServices::open_sessions(server.url(), &jobs).await;
    let seen = TestServices::launch(&client, &seed, jobs).finished().await;
    assert!(!server.has_ended(), "the process ended");
    let mut evidence = services.evidence(&client, seen).await;
    evidence.allowed_reasons.push("internal_error".to_owned());
    // Others may fail because the answer of a tool was lost.
    let panicked = evidence.runs.values().filter(|run| run.object["stop_reason"] == "internal_error").count();
    assert_eq!(panicked, 1, "one run panicked");
    hold("panic", &evidence);
}

/// Renewals that end with a panic begin again, long before a lease runs out.
#[tokio::test]
async fn a_panic_in_the_renewal_of_leases_costs_no_lease() {
    let seed = Seed::of_this_run().part("renewals");
    let services = TestServices::start().await;
    let builder = TestServer::builder(&services.config()).env("LOOPGATE_FAILPOINT", "leases.before_renewal:2:panic");
    let server = builder.start().await;
    let client = Client::new(vec![server.url().to_owned()]);
    // Longer than a lease lasts.
    let jobs = (0..4).map(|run| (Plan::new(format!("renewals-{run}")).with_text(150, 100), None)).collect();
    let seen = TestServices::launch(&client, &seed, jobs).finished().await;
    let evidence = services.evidence(&client, seen).await;
    // A panic is logged without its words, so the line does not name the failpoint. No other is armed.
    assert!(server.output().contains("src/failpoint.rs"), "the failpoint was not reached:\n{}", server.output());
    let figures = hold("renewals", &evidence);
    assert_eq!(figures.takeovers.len(), 0, "a lease was lost");
}

#[tokio::test]
async fn a_server_that_is_told_twice_to_end_leaves_its_runs_to_the_next() {
    let mut seed = Seed::of_this_run().part("told-twice");
    let services = TestServices::start().await;
    let mut server = TestServer::builder(&services.config()).keep_port().start().await;
    let mut client = Client::new(vec![server.url().to_owned()]);
    client.agent = json!({"on_unknown_outcome": "tell_model"});
    let mut jobs = mixed("told-twice", 12, &mut seed, 40);
    jobs.push((Plan::new("told-twice-long").with_text(200, 50), None));
    TestServices::open_sessions(server.url(), &jobs).await;
    let in_flight = TestServices::launch(&client, &seed, jobs);
    tokio::time::sleep(Duration::from_millis(600 + seed.below(400))).await;
    server.sigterm();
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.sigterm();
    let ended = tokio::time::timeout(AT_ONCE, server.ended()).await;
    assert!(ended.expect("it does not wait for its runs").success());
    server.restart().await;
    let seen = in_flight.finished().await;
    let evidence = services.evidence(&client, seen).await;
    hold("told-twice", &evidence);
}

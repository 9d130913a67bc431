//! No crash, failover, partition or rolling restart loses a run, repeats a side effect or tears a stream.
//!
//! Every test here lets many runs go on at once, does them some harm, and then asks the checker
//! (`support/cluster/checker`) whether all promises were kept. A test is repeated by its seed, which a failure
//! names: `LOOPGATE_TEST_SEED`. `LOOPGATE_FAULTS=full` runs everything; without it a sample is run.

mod apis;
mod approvals;
mod balanced;
mod bounds;
mod cancelled;
mod chaos;
mod cluster;
mod compaction;
mod composites;
mod counters;
mod delegation;
mod flush;
mod guardrails;
mod handoffs;
mod hooks;
mod inside;
mod kill;
mod large;
mod mutations;
mod network;
mod outage;
mod outside;
mod pending;
mod refusals;
mod schedules;
mod shared;
mod takeover;
mod trees;

use std::time::Duration;

use crate::support::TestServer;
use crate::support::cluster::Job;
use crate::support::cluster::harm::{Break, Loss};
use crate::support::cluster::plan::{Plan, Tool};
use crate::support::seed::Seed;

/// Whether everything is to be run, however long it takes.
fn is_full() -> bool {
    std::env::var("LOOPGATE_FAULTS").is_ok_and(|value| value == "full")
}

/// `sample`, or `full` where everything is to be run.
fn scaled<T>(sample: T, full: T) -> T {
    if is_full() { full } else { sample }
}

/// Many runs, each unlike the others: some plain, some with tools of every kind; half of them in sessions,
/// two in each of these, one after the other.
fn mixed(name: &str, count: u64, seed: &mut Seed, pace_ms: u64) -> Vec<Job> {
    let mut jobs = Vec::new();
    for number in 0..count {
        let rounds = u32::try_from(seed.below(4)).expect("it is below 4");
        let mut tools = Tool::ALL.to_vec();
        tools.rotate_left(usize::try_from(seed.below(3)).expect("it is below 3"));
        let pieces = 3 + u32::try_from(seed.below(12)).expect("it is below 12");
        let mut plan = Plan::new(format!("{name}-{number}")).with_tools(rounds, &tools);
        plan = plan.with_text(pieces, pace_ms / 2 + seed.below(pace_ms + 1)).with_delay(seed.below(150));
        plan.calls = 1 + u32::try_from(seed.below(2)).expect("it is below 2");
        // Some lose answers of tools, and for some the upstream breaks off what it bills.
        if seed.below(4) == 0 {
            plan = plan.with_loss(*seed.pick(&[Loss::Reset, Loss::Half, Loss::Gateway]));
        }
        if seed.below(4) == 0 {
            plan = plan.with_breaks(&[*seed.pick(&Break::NOTICED_AT_ONCE)]);
        }
        let session = (number % 2 == 0).then(|| format!("{name}-s{}", number / 4));
        jobs.push((plan, session));
    }
    jobs
}

/// Returns whether the server ended by itself within `max_wait`.
async fn dies_within(server: &mut TestServer, max_wait: Duration) -> bool {
    let deadline = tokio::time::Instant::now() + max_wait;
    while !server.has_ended() {
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    true
}

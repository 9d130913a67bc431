//! No crash, failover, partition or rolling restart loses a run, repeats a side effect or tears a stream.
//!
//! Every test here lets many runs go on at once, does them some harm, and then asks the checker
//! (`support/fleet/checker`) whether all promises were kept. A test is repeated by its seed, which a failure
//! names: `LOOPGATE_TEST_SEED`. `LOOPGATE_FAULTS=full` runs everything; without it a sample is run.

mod kill;

use std::time::Duration;

use crate::support::Server;

/// Whether everything is to be run, however long it takes.
fn is_full() -> bool {
    std::env::var("LOOPGATE_FAULTS").is_ok_and(|value| value == "full")
}

/// Returns whether the server ended by itself within `patience`.
async fn dies_within(server: &mut Server, patience: Duration) -> bool {
    let deadline = tokio::time::Instant::now() + patience;
    while !server.has_ended() {
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    true
}

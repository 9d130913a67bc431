//! The runs that are under way.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::super::client::{Client, RequestError};
use super::super::process::Failure;
use super::super::runs::shared::{RUNS, Run, failure};

/// Most runs that are shown.
pub(super) const MOST: usize = 20;

/// How long it is asked how far the runs of one list came, which takes a read of each run's events.
const DETAILS: Duration = Duration::from_millis(500);

/// The runs that are under way, the newest first.
#[derive(Debug)]
pub(super) struct LiveRuns {
    client: Client,
    found: Result<Found, RequestError>,
    /// When they are asked for next.
    due: Instant,
}

/// What the list says.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Found {
    #[serde(rename = "data")]
    pub(super) runs: Vec<Run>,
    /// Whether there are more than these, or may be.
    pub(super) has_more: bool,
}

impl LiveRuns {
    pub(super) fn new(client: Client) -> Self {
        Self { client, found: Ok(Found::default()), due: Instant::now() }
    }

    /// Asks for them, if it is time.
    pub(super) async fn look(&mut self) {
        let began = Instant::now();
        if began < self.due {
            return;
        }
        let limit = MOST.to_string();
        let mut found: Result<Found, _> = self.client.get(&RUNS, &[("status", "in_progress"), ("limit", &limit)]).await;
        for run in found.iter_mut().flat_map(|found| &mut found.runs) {
            if began.elapsed() > DETAILS {
                break;
            }
            // One that has just ended is shown as it was listed.
            if let Ok(detailed) = self.client.get::<Run>(&[RUNS[0], RUNS[1], &run.id], &[]).await
                && detailed.is_under_way()
            {
                *run = detailed;
            }
        }
        self.found = found;
        self.due = Instant::now() + 9 * began.elapsed();
    }

    /// What was found, or why nothing was.
    pub(super) fn found(&self) -> Result<&Found, &RequestError> {
        self.found.as_ref()
    }

    /// The failure of a command that could not list them.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.found.as_ref().err().map(failure)
    }
}

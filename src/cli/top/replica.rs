//! A replica whose metrics are read.

use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::Instant;

use super::super::client::{Client, RequestError};
use super::metrics::Figures;
use super::watch::Watch;

/// How long a replica may take to answer. Not a setting: all that depends on it is how soon the others are drawn.
const PATIENCE: Duration = Duration::from_secs(3);

/// A replica, and what was seen of it.
#[derive(Debug)]
pub(super) struct Replica {
    client: Client,
    since: Instant,
    watch: Watch,
    state: State,
}

/// What came of the last look.
#[derive(Debug)]
enum State {
    /// There was none.
    Unknown,
    Answers,
    /// Why its metrics could not be read.
    Fails(String),
}

impl Replica {
    pub(super) fn new(client: Client) -> Self {
        Self { client, since: Instant::now(), watch: Watch::default(), state: State::Unknown }
    }

    /// Reads its metrics.
    pub(super) async fn look(&mut self) {
        let request = self.client.request(Method::GET, &["metrics"], &[]).timeout(PATIENCE);
        let page = match self.client.send(request).await {
            Ok(response) => response.text().await.map_err(|error| self.client.unreachable(&error)),
            Err(error) => Err(error),
        };
        self.state = match page.map(|page| Figures::read(&page)) {
            Ok(Some(figures)) => {
                self.watch.saw(self.since.elapsed(), figures);
                State::Answers
            }
            Ok(None) => State::Fails("has no metrics of Loopgate".to_owned()),
            Err(error) => State::Fails(why(&error)),
        };
    }

    pub(super) fn url(&self) -> String {
        self.client.url()
    }

    pub(super) fn answers(&self) -> bool {
        matches!(self.state, State::Answers)
    }

    /// Why its metrics could not be read.
    pub(super) fn failure(&self) -> Option<&str> {
        match &self.state {
            State::Fails(why) => Some(why),
            State::Unknown | State::Answers => None,
        }
    }

    /// What was seen of it, if it answers.
    pub(super) fn seen(&self) -> Option<&Watch> {
        self.answers().then_some(&self.watch)
    }
}

/// Why metrics could not be read. The replica is named beside it.
fn why(error: &RequestError) -> String {
    match error {
        RequestError::Unreachable { cause, .. } => format!("does not answer: {cause}"),
        RequestError::Refused { status: StatusCode::NOT_FOUND, .. } => {
            "has no metrics at this address; are they at metrics.listen?".to_owned()
        }
        RequestError::Refused { status: status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN), message } => {
            format!("{status}: {message}")
        }
        RequestError::Refused { .. } | RequestError::Malformed { .. } | RequestError::Ended { .. } => error.to_string(),
    }
}

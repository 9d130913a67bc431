//! `loopgate runs follow`.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use clap::Args;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::super::client::{Client, RequestError};
use super::super::frames::{Frame, Frames};
use super::super::process::{Failure, complain, say, takes_colours};
use super::super::screen::Screen;
use super::super::story::{Detail, Event, Story, Told};
use super::super::text::clean_json;
use super::shared::{Named, about, code_of, failure, read};

/// How long a server is looked for that was there before. Not a setting: a restart takes less, and the command can be given
/// again.
const MOST_ABSENT: Duration = Duration::from_secs(60);
/// The first pause between two attempts; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The server sends something every 15 s. A connection that is silent for longer is broken.
const MOST_SILENT: Duration = Duration::from_secs(40);

/// Watch a run until it ends.
#[derive(Debug, Args)]
pub(in crate::cli) struct Follow {
    #[command(flatten)]
    named: Named,

    /// Begin after the event with this number
    #[arg(long, value_name = "EVENT", default_value_t = 0)]
    after: u64,

    /// Print each event as JSON on one line
    #[arg(long)]
    json: bool,
}

/// How far the run was followed.
struct Following<'a> {
    follow: &'a Follow,
    client: Client,
    last: u64,
    story: Story,
    screen: Screen,
}

/// What a connection came to.
enum Broken {
    /// The connection ended before the run did, and something came of it or nothing.
    Early { progressed: bool },
    /// The run ended so.
    Ended(String),
}

pub(super) async fn run(follow: &Follow) -> Result<(), Failure> {
    let client = follow.named.target.client()?;
    let screen = Screen::new(takes_colours(stdout().is_terminal()), |line| say(line));
    let mut following = Following { follow, client, last: follow.after, story: Story::new(Detail::All), screen };
    let status = following.until_it_ends().await?;
    match code_of(&status) {
        0 => Ok(()),
        code => Err(Failure::code(code)),
    }
}

impl Following<'_> {
    /// Follows over as many connections as it takes. Returns the status that the run ended with.
    async fn until_it_ends(&mut self) -> Result<String, Failure> {
        let (mut was_there, mut absent_since, mut pause) = (false, Instant::now(), PAUSE);
        loop {
            match self.connection().await {
                Ok(Broken::Ended(status)) => return Ok(status),
                Ok(Broken::Early { progressed }) => {
                    was_there = true;
                    if progressed {
                        (absent_since, pause) = (Instant::now(), PAUSE);
                    }
                }
                Err(error) => {
                    if !was_there || !error.is_temporary() || absent_since.elapsed() >= MOST_ABSENT {
                        return Err(failure(&error));
                    }
                }
            }
            if pause == PAUSE {
                complain("(the connection broke; trying again)");
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Follows until the connection ends.
    async fn connection(&mut self) -> Result<Broken, RequestError> {
        let request = about(&self.client, Method::GET, &self.follow.named.id, &["events"]);
        let request = request.header("accept", "text/event-stream").header("last-event-id", self.last);
        let answered = timeout(MOST_SILENT, self.client.send(request)).await;
        let mut response = answered.map_err(|_| self.silent())??;
        if response.status() == StatusCode::NO_CONTENT {
            return self.ended_before().await;
        }
        let (mut frames, before) = (Frames::default(), self.last);
        while let Ok(Ok(Some(bytes))) = timeout(MOST_SILENT, response.chunk()).await {
            let malformed = |error: &dyn std::fmt::Display| RequestError::Malformed {
                url: self.client.url(),
                cause: error.to_string(),
            };
            frames.push(&bytes).map_err(|error| malformed(&error))?;
            while let Some(frame) = frames.next() {
                if let Some(status) = self.take(&frame) {
                    return Ok(Broken::Ended(status));
                }
            }
        }
        Ok(Broken::Early { progressed: self.last > before })
    }

    /// Shows an event. Returns the run's status if it was the last one.
    fn take(&mut self, frame: &Frame) -> Option<String> {
        // What is no JSON object is the closing `[DONE]`, which comes after the last event.
        let event: Event = serde_json::from_str(&frame.data).ok()?;
        self.last = frame.id.unwrap_or(self.last);
        let told = self.story.tell(&event);
        if self.follow.json {
            say(clean_json(&frame.data));
        }
        let mut ended = None;
        for told in told {
            if !self.follow.json {
                self.screen.show(&told);
            }
            if let Told::End { status, error, .. } = told {
                if let Some(error) = error.filter(|_| !self.follow.json) {
                    self.screen.note(&error);
                }
                ended = Some(status);
            }
        }
        ended
    }

    /// The status of a run all of whose events were seen.
    async fn ended_before(&mut self) -> Result<Broken, RequestError> {
        let id = &self.follow.named.id;
        let run: Value = self.client.get(&["v1", "runs", id], &[]).await?;
        let malformed = |failure: Failure| RequestError::Malformed { url: self.client.url(), cause: failure.message };
        let status = read(&run).map_err(malformed)?.status;
        if !self.follow.json {
            self.screen.note(&format!("{status}; there are no further events"));
        }
        Ok(Broken::Ended(status))
    }

    fn silent(&self) -> RequestError {
        let cause = format!("no answer within {} s", MOST_SILENT.as_secs());
        RequestError::Unreachable { url: self.client.url(), cause }
    }
}

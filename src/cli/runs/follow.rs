//! `loopgate runs follow`.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use clap::Args;
use http::{Method, StatusCode, header};
use reqwest::Response;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::super::client::{Client, RequestError};
use super::super::frames::{Frame, Frames};
use super::super::process::{Failure, complain, say, takes_colours};
use super::super::screen::Screen;
use super::super::story::{Detail, Event, Story, Told};
use super::super::text::{clean_json, line};
use super::patience::{Came, Patience};
use super::shared::{Named, code_of, failure, read};

/// The server sends something every 15 s. A connection that is silent for longer is broken.
const MOST_SILENT: Duration = Duration::from_secs(40);

const EVENT_STREAM: &str = "text/event-stream";
/// Most characters that are shown of a word of the server's.
const MOST_SHOWN: usize = 100;

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
    /// The run's status, if the last event that was seen is an ending. It need not be the run's last event: a run that
    /// waited for its client goes on once its client answers.
    ending: Option<String>,
    story: Story,
    screen: Screen,
}

/// What a connection came to.
enum Broken {
    /// The connection ended before the stream did.
    Early(Came),
    /// The run ended so.
    Ended(String),
}

/// What an event of the stream means for it.
enum Taken {
    /// There is more to come.
    Event,
    /// The stream is at its end.
    Done,
    /// The server ends the stream, because of this.
    Error(String),
}

pub(super) async fn run(follow: &Follow) -> Result<(), Failure> {
    let client = follow.named.target.client()?;
    let screen = Screen::new(takes_colours(stdout().is_terminal()), |line| say(line));
    let story = Story::new(Detail::All);
    let mut following = Following { follow, client, last: follow.after, ending: None, story, screen };
    let status = following.until_it_ends().await?;
    match code_of(&status) {
        0 => Ok(()),
        code => Err(Failure::code(code)),
    }
}

impl Following<'_> {
    /// Follows over as many connections as it takes. Returns the status that the run ended with.
    async fn until_it_ends(&mut self) -> Result<String, Failure> {
        let mut patience = Patience::new(Instant::now());
        loop {
            match self.connection().await {
                Ok(Broken::Ended(status)) => return Ok(status),
                Ok(Broken::Early(came)) => {
                    if !patience.stream_broke(came, Instant::now()) {
                        return Err(failure(&self.malformed(&"its streams end at once, without an event")));
                    }
                }
                Err(error) => {
                    if !error.is_temporary() || !patience.outlasts_failure(Instant::now()) {
                        return Err(failure(&error));
                    }
                }
            }
            if patience.is_fresh() {
                complain("(the connection broke; trying again)");
            }
            sleep(patience.pause()).await;
        }
    }

    /// Follows until the connection ends.
    async fn connection(&mut self) -> Result<Broken, RequestError> {
        // As JSON, events are shown that the agent's setting shows.
        let shown: &[_] = if self.follow.json { &[] } else { &[("delegate_events", "true")] };
        let request = self.client.request(Method::GET, &["v1", "runs", &self.follow.named.id, "events"], shown);
        let request = request.header("accept", EVENT_STREAM).header("last-event-id", self.last);
        let answered = timeout(MOST_SILENT, self.client.send(request)).await;
        let mut response = answered.map_err(|_| self.silent())??;
        if response.status() == StatusCode::NO_CONTENT {
            return self.ended_before().await;
        }
        self.expect_stream(&response)?;
        let (mut frames, before, opened) = (Frames::default(), self.last, Instant::now());
        let mut heard = Duration::ZERO;
        while let Ok(Ok(Some(bytes))) = timeout(MOST_SILENT, response.chunk()).await {
            heard = opened.elapsed();
            frames.push(&bytes).map_err(|error| self.malformed(&error))?;
            while let Some(frame) = frames.next() {
                match self.take(&frame) {
                    Taken::Event => {}
                    Taken::Done => return self.ended_before().await,
                    Taken::Error(message) => return Err(RequestError::Ended { message }),
                }
            }
        }
        Ok(Broken::Early(Came { progressed: self.last > before, heard }))
    }

    /// Fails if this is another page than a run's events.
    fn expect_stream(&self, response: &Response) -> Result<(), RequestError> {
        let sent =
            response.headers().get(header::CONTENT_TYPE).and_then(|sent| sent.to_str().ok()).unwrap_or("nothing");
        let essence = sent.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case(EVENT_STREAM) {
            return Ok(());
        }
        Err(self.malformed(&format_args!("{} instead of {EVENT_STREAM}", line(sent, MOST_SHOWN))))
    }

    /// Shows an event.
    fn take(&mut self, frame: &Frame) -> Taken {
        if frame.data == "[DONE]" {
            return Taken::Done;
        }
        let Ok(event) = serde_json::from_str::<Event>(&frame.data) else { return Taken::Event };
        if let Some(message) = event.stream_error() {
            return Taken::Error(message);
        }
        self.last = frame.id.unwrap_or(self.last);
        let told = self.story.tell(&event);
        if self.follow.json {
            say(clean_json(&frame.data));
        }
        self.ending = None;
        for told in told {
            if !self.follow.json {
                self.screen.show(&told);
            }
            if let Told::End { status, error, .. } = told {
                if let Some(error) = error.filter(|_| !self.follow.json) {
                    self.screen.note(&error);
                }
                self.ending = Some(status);
            }
        }
        Taken::Event
    }

    /// How a run ended all of whose events were seen.
    async fn ended_before(&mut self) -> Result<Broken, RequestError> {
        if let Some(status) = self.ending.take() {
            return Ok(Broken::Ended(status));
        }
        let id = &self.follow.named.id;
        let run: Value = self.client.get(&["v1", "runs", id], &[]).await?;
        let status = read(&run).map_err(|failure| self.malformed(&failure.message))?.status;
        if !self.follow.json {
            self.screen.note(&format!("{}; there are no further events", line(&status, MOST_SHOWN)));
        }
        Ok(Broken::Ended(status))
    }

    fn malformed(&self, cause: &dyn std::fmt::Display) -> RequestError {
        RequestError::Malformed { url: self.client.url(), cause: cause.to_string() }
    }

    fn silent(&self) -> RequestError {
        let cause = format!("no answer within {} s", MOST_SILENT.as_secs());
        RequestError::Unreachable { url: self.client.url(), cause }
    }
}

//! Records what the model says while it arrives.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;

use crate::agent::context::turn::TurnBuffer;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::recorder::Recorder;
use crate::agent::drive::signals::Interruption;
use crate::agent::drive::when_woken::WhenWoken;
use crate::failpoint;
use crate::llm::{Delta, DeltaStream, ModelError, ModelErrorKind, ModelTurn, Spent};

/// How often text is recorded that no reader here passes on before the run ends. It is a second, and not the whole turn,
/// for readers at other replicas and for what a crash would leave unread. Not a setting: nothing that a caller of
/// such a run sees depends on it.
const PACE_UNSTREAMED: Duration = Duration::from_secs(1);

/// When the text that the model has said is recorded.
struct Pacing {
    /// The last time, or when the model was asked.
    since: Instant,
    has_recorded: bool,
    /// The time between two pieces that are shown at once.
    pace: Duration,
}

impl Pacing {
    /// Of a model that is asked now.
    fn from_now(pace: Duration) -> Self {
        Self { since: Instant::now(), has_recorded: false, pace }
    }

    /// What the model has said is recorded.
    fn note_record(&mut self) {
        (self.since, self.has_recorded) = (Instant::now(), true);
    }

    /// When what was said since is to be recorded. The first text that is shown at once does not wait.
    fn due(&self, is_streamed: bool) -> Instant {
        match (is_streamed, self.has_recorded) {
            (true, false) => self.since,
            (true, true) => self.since + self.pace,
            (false, _) => self.since + PACE_UNSTREAMED,
        }
    }
}

/// How a model call ended.
pub(super) enum End {
    /// With a whole turn.
    Finished(Box<ModelTurn>),
    /// So.
    Failed(ModelError),
    /// The run did not wait for it.
    Interrupted(Interruption),
}

/// Records the model's answer while it arrives until it ends or the run is interrupted: whenever it is due, all that waits.
/// What is left in the buffer at the end is the caller's to record.
pub(super) async fn listen(
    driver: &mut Driver,
    buffer: &mut TurnBuffer,
    deltas: &mut DeltaStream,
) -> Result<End, Exit> {
    let mut interrupted = WhenWoken::new(driver.signals.interrupted());
    let mut pacing = Pacing::from_now(driver.recorder.store().pace());
    let mut timer = pin!(tokio::time::sleep_until(pacing.since));
    loop {
        let due = pacing.due(driver.recorder.tail().is_streamed());
        let end = if buffer.has_news() && Instant::now() >= due {
            // Boxed, as a run waits for its model far longer than for its store.
            let end = Box::pin(record_news(&mut driver.recorder, buffer, deltas)).await?;
            pacing.note_record();
            end
        } else {
            if buffer.has_news() && timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            tokio::select! {
                biased;
                delta = deltas.next() => take_delta(buffer, delta),
                interruption = &mut interrupted => Some(End::Interrupted(interruption)),
                () = &mut timer, if buffer.has_news() => None,
            }
        };
        if let Some(end) = end {
            return Ok(end);
        }
    }
}

/// Records all that waits in the buffer, in one commit. The deltas that arrive meanwhile wait for the next; `Some` if the
/// answer ended with one of them.
pub(super) async fn record_news(
    recorder: &mut Recorder,
    buffer: &mut TurnBuffer,
    deltas: &mut DeltaStream,
) -> Result<Option<End>, Exit> {
    let mut end = None;
    let mut record = pin!(recorder.record_with(buffer.take_news(), |tx| tx));
    loop {
        tokio::select! {
            biased;
            recorded = &mut record => {
                recorded?;
                failpoint::hit("model.delta_recorded");
                return Ok(end);
            }
            delta = deltas.next(), if end.is_none() => end = take_delta(buffer, delta),
        }
    }
}

/// Adds a delta to the buffer; `Some` if the answer ended with it.
pub(super) fn take_delta(buffer: &mut TurnBuffer, delta: Option<Result<Delta, ModelError>>) -> Option<End> {
    match delta {
        Some(Ok(Delta::Finished(turn))) => return Some(End::Finished(turn)),
        Some(Ok(delta)) => buffer.push(delta),
        Some(Err(error)) => return Some(End::Failed(error)),
        None => {
            let message = "the model's stream ended before its turn was finished";
            return Some(End::Failed(ModelError::new(ModelErrorKind::Transient, message).having(Spent::Unknown)));
        }
    }
    None
}

//! Reads an upstream's answer as it arrives: timeouts, kinds of answers, and how they end.

use std::sync::Arc;
use std::time::Duration;

use async_stream::try_stream;
use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::call::Call;
use super::decode::{Decode, Progress};
use super::fault::Fault;
use super::fault::MAX_TURN;
use super::open::{Form, Opened, Seat, open};
use super::upstream::Upstream;
use crate::llm::{Delta, DeltaStream, ModelError, ModelTurn, Spent};

/// How long the usage may take to follow the finish reason.
const USAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of the body may take to follow the last event: read, it lets the connection be used again.
const END_TIMEOUT: Duration = Duration::from_millis(10);

/// Makes a call and reads the answer as `decoder` does.
pub fn ask<D: Decode>(upstream: Arc<Upstream>, call: Call, deadline: Instant, decoder: D) -> DeltaStream {
    Box::pin(try_stream! {
        let opened = open(upstream, call, deadline).await?;
        let mut answer = Answer { opened, deadline, decoder };
        yield Delta::Begun;
        let mut deltas = Vec::new();
        loop {
            let more = answer.read(&mut deltas).await;
            for delta in deltas.drain(..) {
                yield delta;
            }
            if !more? {
                break;
            }
        }
        yield Delta::Finished(Box::new(answer.finish()?));
    })
}

/// A model's answer while it arrives.
struct Answer<D> {
    opened: Opened,
    deadline: Instant,
    decoder: D,
}

impl<D: Decode> Answer<D> {
    /// Reads what arrives next and adds what it says to `deltas`. Returns whether more may follow;
    /// deltas said before a failure are there as well.
    async fn read(&mut self, deltas: &mut Vec<Delta>) -> Result<bool, ModelError> {
        let Opened { seat, body, timer, .. } = &mut self.opened;
        let arrived = match timer.wait_for(&seat.upstream, body.chunk()).await {
            Ok(Ok(arrived)) => match self.take(arrived, deltas) {
                Ok(progress) => Ok(progress),
                // What an upstream says after the end of a turn may take back its calls.
                Err(fault) if self.decoder.has_calls() => return Err(self.failed(self.upstream().fault(&fault))),
                Err(fault) => Err(self.upstream().fault(&fault)),
            },
            Ok(Err(error)) => Err(self.upstream().broken_off(&error)),
            Err(silent) => Err(silent),
        };
        match arrived {
            Ok(Progress::Done) => {
                let end = Instant::now() + END_TIMEOUT;
                // Whether it comes or not makes no difference to the answer.
                let _ = timeout_at(end, self.opened.body.chunk()).await;
                Ok(false)
            }
            Ok(Progress::Spoke | Progress::Silent) => Ok(true),
            Err(_) if self.decoder.is_finished() => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The turn, once nothing more follows.
    fn finish(self) -> Result<ModelTurn, ModelError> {
        let Self { opened: Opened { seat, .. }, decoder, deadline } = self;
        let usage = decoder.usage();
        match decoder.finish() {
            Ok(turn) => {
                seat.finish();
                Ok(turn)
            }
            Err(fault) => {
                // What is told of an answer that broke off is not all of it.
                let usage = usage.filter(|_| fault != Fault::Truncated);
                Err(ModelError { usage, ..failed(&seat, deadline, seat.upstream.fault(&fault)) })
            }
        }
    }

    fn upstream(&self) -> &Upstream {
        &self.opened.seat.upstream
    }

    fn failed(&self, error: ModelError) -> ModelError {
        failed(&self.opened.seat, self.deadline, error)
    }

    fn take(&mut self, arrived: Option<Bytes>, deltas: &mut Vec<Delta>) -> Result<Progress, Fault> {
        let progress = match (&mut self.opened.form, arrived) {
            (Form::Events, Some(bytes)) => self.decoder.feed(&bytes, deltas)?,
            (Form::Events, None) => Progress::Done,
            (Form::Whole(body), Some(bytes)) => {
                if body.len() + bytes.len() > MAX_TURN {
                    return Err(Fault::TooLong);
                }
                body.extend_from_slice(&bytes);
                Progress::Spoke
            }
            (Form::Whole(body), None) => {
                self.decoder.feed_whole(body, deltas)?;
                Progress::Done
            }
        };
        if progress == Progress::Spoke || !self.opened.timer.begun {
            let idle = self.upstream().idle_timeout;
            let timeout = if self.decoder.is_finished() { idle.min(USAGE_TIMEOUT) } else { idle };
            self.opened.timer.renew(timeout);
        }
        Ok(progress)
    }
}

/// The error of an answer that failed after it began, of which its address is told.
fn failed(seat: &Seat, deadline: Instant, error: ModelError) -> ModelError {
    // A refusal in place of an answer costs no more than its input.
    let error = if error.spent == Spent::Input { error } else { error.having(Spent::Unknown) };
    // If the run's time is up, that is nothing about the upstream.
    if Instant::now() < deadline { seat.break_off(error) } else { error }
}

//! Questions of tools to the user, while their calls go on.
//!
//! A question is recorded before a user can see it, and what becomes of it before its tool is told. So a replica that dies meanwhile
//! leaves no more behind than a call whose answer is lost. Answers arrive as commands, which are read at once while a question is
//! open. A question that is closed without an answer is closed only after all commands that are there: of an answer that was taken
//! in time, none comes too late.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::agent::drive::asked::unanswered;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::lifecycle::Ending;
use crate::agent::machine::Run;
use crate::tools::{AskedQuestion, UserQuestion};
use crate::types::tool_question::{ToolQuestion, Unanswered, UserAnswer};
use crate::types::{CallId, Event, ToolCall};

/// Most questions that wait to be recorded.
const MAX_WAITING: usize = 4;
/// How much longer a question is open than it may be answered, so that what arrived in time is stored by then.
const GRACE: Duration = Duration::from_secs(1);

/// The questions of a batch of calls.
pub(super) struct Questions {
    /// Where its calls ask.
    asking: mpsc::Sender<AskedQuestion>,
    asked: mpsc::Receiver<AskedQuestion>,
    open: Vec<Open>,
    ending: Ending,
}

/// A question that a user may answer.
struct Open {
    id: String,
    call: CallId,
    until: Instant,
    reply: oneshot::Sender<UserAnswer>,
}

/// What happened to the questions of a batch.
pub(super) enum Happened {
    /// A call asks.
    Asked(AskedQuestion),
    /// The time of a question is up.
    Expired,
    /// A command arrived, which may be an answer.
    Told,
    /// The process is about to end, and waits for no user.
    Ending,
}

impl Questions {
    /// No questions yet, of calls that may ask.
    pub(super) fn new(driver: &Driver) -> Self {
        let (asking, asked) = mpsc::channel(MAX_WAITING);
        Self { asking, asked, open: Vec::new(), ending: driver.signals.ending.clone() }
    }

    /// Where a call asks.
    pub(super) fn asking(&self) -> mpsc::Sender<AskedQuestion> {
        self.asking.clone()
    }

    /// Waits until something happens to them, of which the commands of the run are a part.
    pub(super) async fn next(&mut self, commands: &mut watch::Receiver<u64>) -> Happened {
        let Self { asked, open, ending, .. } = self;
        let Some(first) = open.iter().map(|open| open.until).min() else {
            // It holds a sender itself, so there is always another.
            return asked.recv().await.map_or(Happened::Ending, Happened::Asked);
        };
        if ending.is_ending() {
            return Happened::Ending;
        }
        tokio::select! {
            biased;
            Ok(()) = commands.changed() => Happened::Told,
            () = ending.announced() => Happened::Ending,
            () = tokio::time::sleep_until(first) => Happened::Expired,
            Some(question) = asked.recv() => Happened::Asked(question),
        }
    }

    /// Records what happened, and tells the tools what became of their questions.
    async fn take(&mut self, driver: &mut Driver, happened: Happened) -> Result<(), Exit> {
        match happened {
            Happened::Asked(asked) => self.open(driver, asked).await?,
            Happened::Told => {
                driver.read_commands().await?;
                driver.recorder.flush().await?;
            }
            Happened::Expired => {
                let now = Instant::now();
                self.give_up(driver, Unanswered::Expired, |open| open.until <= now).await?;
            }
            Happened::Ending => self.give_up(driver, Unanswered::Shutdown, |_| true).await?,
        }
        self.pass_on(driver.recorder.run());
        Ok(())
    }

    /// Shows a question to the user, unless no user has time for it.
    async fn open(&mut self, driver: &mut Driver, asked: AskedQuestion) -> Result<(), Exit> {
        let AskedQuestion { call, question: UserQuestion { server, message, schema }, within, reply } = asked;
        let run = driver.recorder.run();
        let left = driver.signals.deadline.saturating_duration_since(Instant::now()).saturating_sub(GRACE);
        let within = within.min(left);
        let Some(name) = run.tool_of(&call).filter(|_| !within.is_zero() && !driver.signals.ending.is_ending()) else {
            return Ok(());
        };
        let (id, step, name) = (run.next_question(), run.step(), name.to_owned());
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let expires_ms = driver.recorder.store().now_ms().saturating_add(within_ms);
        let until = Instant::now() + within + GRACE;
        let call_id = call.clone();
        let question = ToolQuestion { id: id.clone(), step, call_id, name, server, message, schema, expires_ms };
        driver.recorder.record(Event::QuestionAsked(Box::new(question))).await?;
        self.open.push(Open { id, call, until, reply });
        Ok(())
    }

    /// Records that no user answered those of `which`, once all commands are read that are there.
    async fn give_up(
        &mut self,
        driver: &mut Driver,
        why: Unanswered,
        which: impl Fn(&Open) -> bool,
    ) -> Result<(), Exit> {
        loop {
            let run = driver.recorder.run();
            let events: Vec<Event> =
                self.open.iter().filter(|open| which(open)).filter_map(|open| unanswered(run, &open.id, why)).collect();
            if events.is_empty() || driver.record_unless_told(events, |tx| tx).await? {
                // What was applied meanwhile is recorded before a tool is told.
                return Ok(driver.recorder.flush().await?);
            }
        }
    }

    /// Has it be recorded with the next event that these were not answered.
    fn close(&mut self, driver: &mut Driver, why: Unanswered, which: impl Fn(&Open) -> bool) {
        for open in self.open.extract_if(.., |open| which(open)) {
            if let Some(event) = unanswered(driver.recorder.run(), &open.id, why) {
                driver.recorder.queue(event);
            }
        }
    }

    /// Tells the tools what became of their questions.
    fn pass_on(&mut self, run: &Run) {
        for open in self.open.extract_if(.., |open| run.question_answer(&open.id).is_some()) {
            if let Some(answer) = run.question_answer(&open.id) {
                // A call that ended meanwhile does not listen.
                let _ = open.reply.send(answer.clone());
            }
        }
    }
}

/// Records what happened to the questions of a batch, if its calls may ask, and tells the tools what became of them.
pub(super) async fn take(
    questions: Option<&mut Questions>,
    driver: &mut Driver,
    happened: Happened,
) -> Result<(), Exit> {
    match questions {
        Some(questions) => questions.take(driver, happened).await,
        None => Ok(()),
    }
}

/// A call has ended: what it asked before is of no use any more.
pub(super) fn end_call(questions: Option<&mut Questions>, driver: &mut Driver, call: &ToolCall) {
    if let Some(questions) = questions {
        questions.close(driver, Unanswered::CallEnded, |open| open.call == call.id);
    }
}

/// The run stops.
pub(super) fn stop(questions: Option<&mut Questions>, driver: &mut Driver) {
    if let Some(questions) = questions {
        questions.close(driver, Unanswered::RunStopped, |_| true);
    }
}

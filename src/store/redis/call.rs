//! Carrying out one operation: finding its server, asking, and asking again while the time lasts.
//!
//! What was sent and not answered may have happened. It is asked for again with the same identity, and
//! the scripts tell whether it was done before; so nothing happens twice, and the answer is the truth.

use std::time::Duration;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use tokio::time::{Instant, timeout_at};

use super::fault::{Fault, Trouble, is_unknown_script};
use super::lane::Wait;
use super::node::Purpose;
use super::scripts::Lua;
use super::topology::Topology;
use crate::store::Unavailable;
use crate::types::pauses::Pauses;

/// How much later than asked a server may stop waiting for replicas: it looks ten times a second.
const SLACK: Duration = Duration::from_millis(150);

/// The least time in which it is worth asking once more.
const ATTEMPT: Duration = Duration::from_millis(200);

/// Pauses before asking again a server that could not do it just now.
const PAUSES: Pauses = Pauses::new(Duration::from_millis(10), Duration::from_millis(200));

/// One operation in one slot.
#[derive(Debug)]
pub(super) struct Call {
    /// Where what it is about lies.
    pub(super) slot: u16,
    /// Whom it does not wait behind.
    pub(super) purpose: Purpose,
    /// Whether a replica must have it before it counts, if there are replicas.
    pub(super) confirmed: bool,
    /// What is to be done.
    pub(super) work: Work,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Work {
    /// A script, its keys, and its arguments after the first one, which has an R if it may have been run
    /// before, and a C if a replica must have what it answers.
    Run(&'static Lua, Vec<String>, Vec<Bytes>),
    /// Plain reads; asking twice does no harm.
    Read(Pipeline),
}

/// Carries it out. Answers what the server said to each command, none of it an error.
pub(super) async fn call(topology: &Topology, call: &Call) -> Result<Vec<Value>, Unavailable> {
    let mut attempts = Attempts { topology, call, deadline: Instant::now() + call.purpose.time().0, sent: false };
    let mut pauses = PAUSES;
    loop {
        let (what, pause) = match attempts.next().await {
            Ok(answers) => return Ok(answers),
            Err(Fault::Refused(what)) => return Err(Unavailable(what)),
            Err(Fault::Lost(what)) => (what, Duration::ZERO),
            Err(Fault::Unconfirmed(what) | Fault::Moved(what) | Fault::Demoted(what)) => {
                topology.refresh();
                (what, pauses.draw())
            }
            Err(Fault::Busy(what)) => (what, pauses.draw()),
        };
        if Instant::now() + pause + ATTEMPT > attempts.deadline {
            return Err(Unavailable(what));
        }
        tokio::time::sleep(pause).await;
    }
}

/// How an operation has gone so far.
struct Attempts<'a> {
    topology: &'a Topology,
    call: &'a Call,
    deadline: Instant,
    /// It was sent, and may have happened.
    sent: bool,
}

impl Attempts<'_> {
    /// Asks once.
    async fn next(&mut self) -> Result<Vec<Value>, Fault> {
        let wait = if self.sent { Wait::On } else { Wait::Briefly };
        let node = self.in_time(self.topology.node(self.call.slot, wait)).await?;
        let mut lane = node.lane(self.call.purpose);
        let mut link = self.in_time(lane.link(wait)).await?;
        // Only a server that was connected to has told whether it has replicas.
        let confirming = if self.call.confirmed { node.confirming() } else { None };
        if let Some(confirming) = &confirming {
            lane = confirming.lane;
            link = self.in_time(lane.link(wait)).await?;
        }

        let now = Instant::now();
        let end = self.deadline.min(now + self.call.purpose.time().1);
        // Asking again makes another write to be confirmed, so one attempt waits as long as it may.
        let confirm = confirming.as_ref().map(|_| end.saturating_duration_since(now).saturating_sub(SLACK));
        let exchange = self.call.exchange(&mut link.connection, self.sent, confirm);
        let Ok(result) = timeout_at(end, exchange).await else {
            self.sent = true;
            if !link.was_heard_since(now) {
                lane.give_up(link.number);
            }
            return Err(Fault::Lost(format!("{} did not answer in time", node.host)));
        };
        match &result {
            Err(Fault::Lost(_)) => {
                self.sent = true;
                lane.give_up(link.number);
            }
            Err(Fault::Unconfirmed(_)) => {
                self.sent = true;
                link.heard();
            }
            Err(Fault::Demoted(_)) => node.renew(),
            Ok(_) => link.heard(),
            Err(Fault::Moved(_) | Fault::Busy(_) | Fault::Refused(_)) => {}
        }
        result
    }

    /// Waits no longer than the operation may take.
    async fn in_time<T>(&self, found: impl Future<Output = Result<T, Trouble>>) -> Result<T, Fault> {
        match timeout_at(self.deadline, found).await {
            Ok(found) => found.map_err(|trouble| Fault::Refused(trouble.to_string())),
            Err(_) => Err(Fault::Refused("no connection in time".to_owned())),
        }
    }
}

impl Call {
    /// Sends it and reads the answers.
    async fn exchange(
        &self,
        connection: &mut MultiplexedConnection,
        repeated: bool,
        confirm: Option<Duration>,
    ) -> Result<Vec<Value>, Fault> {
        let mut answers = self.send(connection, repeated, confirm, false).await?;
        if matches!(answers.first(), Some(Value::ServerError(error)) if is_unknown_script(error)) {
            answers = self.send(connection, repeated, confirm, true).await?;
        }
        let confirmation = confirm.and_then(|_| answers.pop());
        for answer in &answers {
            if let Value::ServerError(error) = answer {
                return Err(Fault::refusal(error));
            }
        }
        match confirmation {
            None => Ok(answers),
            Some(Value::Int(replicas)) if replicas > 0 => Ok(answers),
            Some(_) => Err(Fault::Unconfirmed("no replica confirmed it in time".to_owned())),
        }
    }

    /// Sends it, with the whole script if the server does not know that.
    async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        repeated: bool,
        confirm: Option<Duration>,
        whole: bool,
    ) -> Result<Vec<Value>, Fault> {
        let run;
        let pipeline = match &self.work {
            Work::Read(pipeline) => pipeline,
            Work::Run(script, keys, arguments) => {
                let (name, script) = if whole { ("EVAL", script.source) } else { ("EVALSHA", script.hash()) };
                let circumstances = match (repeated, confirm.is_some()) {
                    (false, false) => "",
                    (true, false) => "R",
                    (false, true) => "C",
                    (true, true) => "RC",
                };
                let bytes = keys.iter().map(String::len).chain(arguments.iter().map(Bytes::len)).sum::<usize>();
                let mut command = Cmd::with_capacity(4 + keys.len() + arguments.len(), 16 + script.len() + bytes);
                command.arg(name).arg(script).arg(keys.len()).arg(keys).arg(circumstances);
                for argument in arguments {
                    command.arg(&argument[..]);
                }
                let mut pipeline = Pipeline::with_capacity(2);
                pipeline.add_command(command);
                if let Some(confirm) = confirm {
                    // No time at all would mean without end.
                    let most = u64::try_from(confirm.as_millis()).unwrap_or(u64::MAX).max(1);
                    pipeline.cmd("WAIT").arg(1).arg(most);
                }
                run = pipeline;
                &run
            }
        };
        let answers = connection.send_packed_commands(pipeline, 0, pipeline.len()).await;
        answers.map_err(|error| Fault::of(&error))
    }
}

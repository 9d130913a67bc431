//! Carries out one operation: finds its server, sends the request, and sends it again until its deadline.
//!
//! A request that was sent and not answered may have been carried out. It is sent again under the same name, and
//! the scripts know by the name whether they carried it out before. So an operation never happens twice, and its
//! answer says what became of it.

use std::time::Duration;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use tokio::time::{Instant, timeout_at};

use super::connection::Wait;
use super::error::{AttemptError, ConnectionError, is_unknown_script};
use super::node::Purpose;
use super::scripts::Lua;
use super::topology::Topology;
use crate::store::Unavailable;
use crate::types::pauses::Pauses;

/// How much longer than asked a server may wait for replicas: Redis checks the time ten times a second,
/// so this is a fact of the server and no setting.
const SLACK: Duration = Duration::from_millis(150);

/// A request is not sent again with less than this left until its deadline. Not a setting: it only
/// makes sense beside the deadlines in `Purpose::time`, which follow from what clients are promised.
const MIN_ATTEMPT: Duration = Duration::from_millis(200);

/// Pauses before a request is sent again to a server that could not carry it out.
const PAUSES: Pauses = Pauses::new(Duration::from_millis(10), Duration::from_millis(200));

/// One operation in one slot.
#[derive(Debug)]
pub(super) struct Call {
    /// The slot of its partition.
    pub(super) slot: u16,
    /// The kind of request, which chooses the connection and the deadline.
    pub(super) purpose: Purpose,
    /// Whether a replica must confirm it, if the primary has replicas.
    pub(super) confirmed: bool,
    /// What to do.
    pub(super) work: Work,
}

/// What a [`Call`] does.
#[derive(Debug)]
pub(super) enum Work {
    /// Runs a script with these keys and arguments. Before the arguments stands one more: it contains an R if the
    /// script may have been run before, and a C if a replica must confirm what the script answers.
    Run(&'static Lua, Vec<String>, Vec<Bytes>),
    /// Plain reads, which may be repeated.
    Read(Pipeline),
}

/// Carries a call out. Returns the server's answer to each command; none of them is an error.
pub(super) async fn call(topology: &Topology, call: &Call) -> Result<Vec<Value>, Unavailable> {
    let mut attempts = Attempts { topology, call, deadline: Instant::now() + call.purpose.time().0, sent: false };
    let mut pauses = PAUSES;
    loop {
        let (what, pause) = match attempts.next().await {
            Ok(answers) => return Ok(answers),
            Err(AttemptError::Refused(what)) => return Err(Unavailable(what)),
            Err(AttemptError::Lost(what)) => (what, Duration::ZERO),
            Err(AttemptError::Unconfirmed(what) | AttemptError::Moved(what) | AttemptError::Demoted(what)) => {
                topology.refresh();
                (what, pauses.draw())
            }
            Err(AttemptError::Busy(what)) => (what, pauses.draw()),
        };
        if Instant::now() + pause + MIN_ATTEMPT > attempts.deadline {
            return Err(Unavailable(what));
        }
        tokio::time::sleep(pause).await;
    }
}

/// The attempts at one operation.
struct Attempts<'a> {
    topology: &'a Topology,
    call: &'a Call,
    deadline: Instant,
    /// The request was sent before, and may have been carried out.
    sent: bool,
}

impl Attempts<'_> {
    /// Makes one attempt.
    async fn next(&mut self) -> Result<Vec<Value>, AttemptError> {
        let wait = if self.sent { Wait::UntilDeadline } else { Wait::Briefly };
        let node = self.in_time(self.topology.node(self.call.slot, wait)).await?;
        let mut connection = node.connection(self.call.purpose);
        let mut open = self.in_time(connection.open(wait)).await?;
        // A server says whether it has replicas when a connection to it is opened: so not before this line.
        let confirming = if self.call.confirmed { node.confirming() } else { None };
        if let Some(confirming) = &confirming {
            connection = confirming.connection;
            open = self.in_time(connection.open(wait)).await?;
        }

        let now = Instant::now();
        let end = self.deadline.min(now + self.call.purpose.time().1);
        // Each attempt waits for its own write to be confirmed, so the attempt waits as long as it may.
        let confirm = confirming.as_ref().map(|_| end.saturating_duration_since(now).saturating_sub(SLACK));
        let exchange = self.call.exchange(&mut open.multiplexed, self.sent, confirm);
        let Ok(result) = timeout_at(end, exchange).await else {
            self.sent = true;
            if !open.answered_since(now) {
                connection.replace(open.number);
            }
            return Err(AttemptError::Lost(format!("{} did not answer in time", node.host)));
        };
        match &result {
            Err(AttemptError::Lost(_)) => {
                self.sent = true;
                connection.replace(open.number);
            }
            Err(AttemptError::Unconfirmed(_)) => {
                self.sent = true;
                open.note_answer();
            }
            Err(AttemptError::Demoted(_)) => node.reconnect(),
            Ok(_) => open.note_answer(),
            Err(AttemptError::Moved(_) | AttemptError::Busy(_) | AttemptError::Refused(_)) => {}
        }
        result
    }

    /// Waits for `found`, at most until the deadline.
    async fn in_time<T>(&self, found: impl Future<Output = Result<T, ConnectionError>>) -> Result<T, AttemptError> {
        match timeout_at(self.deadline, found).await {
            Ok(found) => found.map_err(|error| AttemptError::Refused(error.to_string())),
            Err(_) => Err(AttemptError::Refused("no connection in time".to_owned())),
        }
    }
}

impl Call {
    /// Sends the request and reads the answers.
    async fn exchange(
        &self,
        connection: &mut MultiplexedConnection,
        repeated: bool,
        confirm: Option<Duration>,
    ) -> Result<Vec<Value>, AttemptError> {
        let mut answers = self.send(connection, repeated, confirm, false).await?;
        if matches!(answers.first(), Some(Value::ServerError(error)) if is_unknown_script(error)) {
            answers = self.send(connection, repeated, confirm, true).await?;
        }
        let confirmation = confirm.and_then(|_| answers.pop());
        for answer in &answers {
            if let Value::ServerError(error) = answer {
                return Err(AttemptError::refusal(error));
            }
        }
        match confirmation {
            None => Ok(answers),
            Some(Value::Int(replicas)) if replicas > 0 => Ok(answers),
            Some(_) => Err(AttemptError::Unconfirmed("no replica confirmed it in time".to_owned())),
        }
    }

    /// Sends the request. `whole` sends the script's source, for a server that does not know its hash.
    async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        repeated: bool,
        confirm: Option<Duration>,
        whole: bool,
    ) -> Result<Vec<Value>, AttemptError> {
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
                    // To WAIT, zero milliseconds mean without end.
                    let most = u64::try_from(confirm.as_millis()).unwrap_or(u64::MAX).max(1);
                    pipeline.cmd("WAIT").arg(1).arg(most);
                }
                run = pipeline;
                &run
            }
        };
        let answers = connection.send_packed_commands(pipeline, 0, pipeline.len()).await;
        answers.map_err(|error| AttemptError::of(&error))
    }
}

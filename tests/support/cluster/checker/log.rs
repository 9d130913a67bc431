//! Reads a run's log, and checks that one hand has written it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Complaints, Promise, clip};
use crate::support::Frame;
use crate::support::cluster::evidence::RunView;
use crate::support::cluster::tools::Dispatch;
use crate::support::journal::{Ending, Entry};

/// A run's log.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The events as they stand; number `n` is at `n - 1`.
    pub(super) events: Vec<Frame>,
    /// The steps in the order in which they began.
    pub(super) steps: Vec<Step>,
    /// How often the run was taken up again.
    pub(super) resumed: usize,
    /// How often the upstream was asked once more within a step.
    pub(super) retried: usize,
    /// How often it went on with another model.
    pub(super) fell_back: usize,
    /// The data of the last event, if it is one that ends a run.
    pub(super) terminal: Option<Value>,
}

/// One model call with its tools.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
    pub(super) end: StepEnd,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum StepEnd {
    /// It did not.
    #[default]
    Open,
    Completed,
    Discarded,
    /// The run was stopped in the middle of the answer, of which the beginning is kept.
    Interrupted,
}

/// A call of a server-side tool.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Value,
    pub(super) result: Option<CallResult>,
    /// Whether the run was taken up again between call and result.
    pub(super) interrupted: bool,
    /// Whether the tool was asked, last of all, without that its whole answer got out in time.
    pub(super) lost: bool,
}

/// What a call came to.
#[derive(Debug)]
pub(super) struct CallResult {
    pub(super) content: String,
    pub(super) is_error: bool,
    /// Whether it says that the outcome of the call is unknown.
    pub(super) is_unknown: bool,
}

impl CallResult {
    /// What an event says.
    pub(super) fn read(event: &Value) -> Self {
        let (is_error, is_unknown) = (event["is_error"] == true, event["outcome_unknown"] == true);
        Self { content: string(&event["content"]), is_error, is_unknown }
    }
}

impl Call {
    /// Whether nobody but the tool can know what became of it.
    pub(super) fn is_open(&self) -> bool {
        self.interrupted || self.lost
    }
}

/// An event as a list of events has it: a row of text says its number too, which is the frame's id in a stream.
pub(super) fn row(event: &Frame) -> Value {
    let mut row = data(event);
    if event.name.is_empty()
        && let Some(members) = row.as_object_mut()
    {
        members.insert("seq".to_owned(), event.id.into());
    }
    row
}

impl Log {
    /// The log as all replicas have it.
    pub(super) fn read(view: &RunView, complaints: &mut Complaints<'_>) -> Self {
        let mut streams = view.streams.iter();
        let Some((first, events)) = streams.next() else {
            complaints.add(Promise::Streams, "its log could not be read afterwards");
            return Self::default();
        };
        for (other, others) in streams {
            if let Some(at) = first_difference(events, others) {
                let (here, there) = (show(events.get(at)), show(others.get(at)));
                let what = format!("event {} reads otherwise at {first} than at {other}: {here} / {there}", at + 1);
                complaints.add(Promise::Streams, what);
            }
        }
        let listed: Vec<String> = view.list.iter().map(Value::to_string).collect();
        let streamed: Vec<String> = events.iter().map(|event| row(event).to_string()).collect();
        if let Some(at) = first_difference(&listed, &streamed) {
            let what = format!(
                "event {} of its list is {:?}, and {:?} of its stream",
                at + 1,
                listed.get(at),
                streamed.get(at)
            );
            complaints.add(Promise::Streams, clip(&what));
        }
        let mut log = Self { events: events.clone(), ..Self::default() };
        for event in events {
            log.take(event, complaints);
        }
        log
    }

    /// Whether the run ended otherwise than completed.
    pub(super) fn has_failed(&self) -> bool {
        self.terminal.as_ref().is_some_and(|terminal| terminal["type"] != "run.completed")
    }

    /// How many steps were discarded because their driver went on with them no further.
    pub(super) fn interrupted_steps(&self) -> usize {
        let is_interrupted = |event: &&Frame| event.name == "step.discarded" && data(event)["reason"] == "interrupted";
        self.events.iter().filter(is_interrupted).count()
    }

    fn take(&mut self, event: &Frame, complaints: &mut Complaints<'_>) {
        let data = data(event);
        let mut wrong = |what: &str| complaints.add(Promise::Writer, format!("{what}: {}", show(Some(event))));
        if self.terminal.is_some() {
            wrong("an event follows the last one");
        }
        let is_text = event.name.is_empty();
        if !is_text && (data["type"] != event.name.as_str() || data["seq"].as_u64() != event.id) {
            wrong("an event's name or number is not that of its data");
        }
        let number = if is_text { &data["loopgate"]["step"] } else { &data["step"] }.as_u64();
        let open = self.steps.last_mut().filter(|step| step.end == StepEnd::Open);
        match (event.name.as_str(), number, open) {
            ("run.started", None, None)
            | ("budget.warning", _, _)
            | ("input.flagged" | "input.truncated", None, _)
            | ("context.pruned" | "compaction.started" | "compaction.failed" | "context.compacted", Some(_), None) => {}
            ("run.resumed", None, open) => {
                self.resumed += 1;
                for call in open.into_iter().flat_map(|step| &mut step.calls) {
                    call.interrupted |= call.result.is_none();
                }
            }
            ("provider.fallback", Some(_), None) => self.fell_back += 1,
            ("step.started", Some(number), None) => {
                if self.steps.last().map_or(0, |step| step.number) + 1 != number {
                    wrong("a step's number is not one above the last");
                }
                self.steps.push(Step { number, ..Step::default() });
            }
            (name, Some(number), Some(step)) if step.number == number => match name {
                "" => step.text.push_str(data["choices"][0]["delta"]["content"].as_str().unwrap_or_default()),
                "step.completed" if data["finish_reason"] == "interrupted" => step.end = StepEnd::Interrupted,
                "step.completed" => step.end = StepEnd::Completed,
                "step.discarded" => step.end = StepEnd::Discarded,
                "tool.call" => step.calls.push(Call {
                    id: string(&data["call_id"]),
                    name: string(&data["name"]),
                    arguments: data["arguments"].clone(),
                    ..Call::default()
                }),
                "tool.result" => {
                    let result = CallResult::read(&data);
                    let call = step.calls.iter_mut().find(|call| call.id == data["call_id"]);
                    match call.map(|call| call.result.replace(result)) {
                        Some(None) => {}
                        Some(Some(_)) => wrong("a call has two results"),
                        None => wrong("a result has no call"),
                    }
                }
                "provider.retry" => self.retried += 1,
                "thinking.delta" | "tool.call.delta" => {}
                _ => wrong("an event stands where it cannot"),
            },
            ("run.completed" | "run.incomplete" | "run.cancelled" | "run.failed" | "run.requires_action", None, _) => {
                self.terminal = Some(data);
            }
            _ => wrong("an event stands where it cannot"),
        }
    }

    /// Takes note of which answers were lost on their way from the tools. One that a tool ended after the client first asked for
    /// the run's end, at `cancelled_ms`, may have come to a driver that had stopped the call; so may one that never began.
    pub(super) fn lose(&mut self, run: &str, tools: &[Entry<Dispatch>], cancelled_ms: Option<u64>) {
        for call in self.steps.iter_mut().flat_map(|step| &mut step.calls) {
            let last = tools.iter().rfind(|entry| entry.what.run == run && entry.what.call == call.id);
            call.lost = last.map_or(cancelled_ms.is_some(), |entry| match entry.ended {
                Some((ended_ms, Ending::Finished)) => cancelled_ms.is_some_and(|asked_ms| asked_ms <= ended_ms),
                Some(_) | None => true,
            });
        }
    }

    /// Every call of every step.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.steps.iter().flat_map(|step| &step.calls)
    }
}

/// One writer: numbers without gaps, one beginning, one end, nothing twice.
pub(super) fn check_writers(log: &Log, complaints: &mut Complaints<'_>) {
    for (event, number) in log.events.iter().zip(1..) {
        if event.id != Some(number) {
            complaints.add(Promise::Writer, format!("the event at place {number} of its log is {}", show(Some(event))));
            break;
        }
    }
    let starts = log.events.iter().filter(|event| event.name == "run.started").count();
    if !log.events.is_empty() && (starts != 1 || log.events[0].name != "run.started") {
        complaints.add(
            Promise::Writer,
            format!("its log says {starts} times that it began, and first {}", show(log.events.first())),
        );
    }
    let mut ids = BTreeSet::new();
    for call in log.calls().filter(|call| !ids.insert(&call.id)) {
        complaints.add(Promise::Writer, format!("the call {} stands twice in its log", call.id));
    }
}

/// An event's data as JSON.
pub(super) fn data(event: &Frame) -> Value {
    serde_json::from_str(&event.data).unwrap_or_default()
}

/// An event in a sentence.
pub(super) fn show(event: Option<&Frame>) -> String {
    match event {
        Some(event) => clip(&format!("{} {:?} {}", event.id.unwrap_or_default(), event.name, event.data)),
        None => "nothing".to_owned(),
    }
}

fn first_difference<T: PartialEq>(left: &[T], right: &[T]) -> Option<usize> {
    (0..left.len().max(right.len())).find(|at| left.get(*at) != right.get(*at))
}

/// A text, or nothing.
pub(super) fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

//! Checks what clients of each API were told against the run's log.

use std::collections::BTreeMap;

use serde_json::Value;

use super::log::{Call, Log, StepEnd, string};
use super::{Complaints, Promise, clip};
use crate::support::Frame;
use crate::support::cluster::apis::{Asked, Asking, Attempt, BodyEnd, Dialect, Ended, Made, Told};
use crate::support::cluster::evidence::{ClientTrace, RunView};

/// How streams that cannot take back what they said tell that it is void, in the dialects that have such streams.
pub(super) const VOID: [&str; 2] =
    ["The text that was sent so far is void.", "What the model said is void, and this stream cannot take it back."];

/// What counts of a run, by its log.
struct Truth<'a> {
    said: String,
    answer: String,
    calls: Vec<&'a Call>,
}

/// Every attempt told what the log says as far as it came, the last one told all of it, and so do the other ways to read
/// the run.
pub(super) fn check_asked(trace: &ClientTrace, view: &RunView, log: &Log, complaints: &mut Complaints<'_>) {
    let Some(asked) = &trace.asked else { return };
    let kept = || log.steps.iter().filter(|step| step.end == StepEnd::Completed);
    let truth = Truth {
        said: kept().map(|step| step.text.as_str()).collect(),
        answer: log.terminal.as_ref().map(|terminal| string(&terminal["output_text"])).unwrap_or_default(),
        calls: kept().flat_map(|step| &step.calls).collect(),
    };
    for (attempt, count) in asked.attempts.iter().zip(1..) {
        check_attempt(attempt, complaints);
        check_status(attempt, complaints);
        if attempt.status == 200 {
            let told = asked.told_by(count);
            check_end(attempt, asked.asking.dialect, &told, complaints);
            check_failure(attempt, asked.asking, &told, log, complaints);
            check_told(&attempt.request, &told, &truth, complaints);
        }
    }
    check_numbers(asked, complaints);
    if asked.told().ended != Ended::Whole {
        let last = asked.attempts.last().map(|attempt| (&attempt.request, attempt.status, &attempt.end));
        complaints.add(Promise::Runs, format!("its client never had the whole answer; at last {last:?}"));
        return;
    }
    if view.object["output_text"] != *truth.answer {
        let what = format!("the run itself says {}, and its log {:?}", view.object["output_text"], truth.answer);
        complaints.add(Promise::Streams, clip(&what));
    }
    check_elsewhere(asked, &truth, complaints);
}

/// The run reads the same in the other ways in which its client read it.
fn check_elsewhere(asked: &Asked, truth: &Truth<'_>, complaints: &mut Complaints<'_>) {
    let mut whole = |what: &str, told: &Told| {
        check_told(what, told, truth, complaints);
        if told.ended != Ended::Whole {
            complaints.add(Promise::Streams, format!("{what} does not tell the whole run: {:?}", told.ended));
        }
    };
    if let Some(path) = asked.stored_path() {
        whole(&path, &asked.stored.as_ref().map(|stored| Dialect::Responses.told_whole(stored)).unwrap_or_default());
    }
    match &asked.elsewhere {
        Some((dialect, attempt)) => {
            let told = dialect.told(&attempt.frames);
            whole(&attempt.request, &told);
            check_attempt(attempt, complaints);
        }
        None => complaints.add(Promise::Streams, "it was read in no other way"),
    }
}

/// Nothing came that is no event, and no body ended in the middle of one as if it were whole.
fn check_attempt(attempt: &Attempt, complaints: &mut Complaints<'_>) {
    let Attempt { request, oddities, end, .. } = attempt;
    for oddity in oddities {
        complaints.add(Promise::Streams, clip(&format!("{request}: {oddity}")));
    }
    if *end == BodyEnd::Torn {
        complaints
            .add(Promise::Streams, format!("{request}: its body ended as if it were whole, in the middle of an event"));
    }
}

/// What ends as if it were whole is whole, or says that it is not: that it failed, or to readers that come back by
/// themselves that they are to do so.
fn check_end(attempt: &Attempt, dialect: Dialect, told: &Told, complaints: &mut Complaints<'_>) {
    let comes_back = dialect == Dialect::Native || dialect == Dialect::Chat && attempt.after.is_some();
    let says_so = attempt.is_moved && comes_back;
    // An answer in one piece may say how far it is.
    let is_cut_short = attempt.body.is_none() && matches!(told.ended, Ended::Not | Ended::Almost) && !says_so;
    if attempt.end == BodyEnd::Whole && is_cut_short {
        let last = attempt.frames.last().map(|frame| &frame.data);
        let what = format!("{}: its body ended as if it were whole, after {last:?}", attempt.request);
        complaints.add(Promise::Streams, clip(&what));
    }
}

/// Only a replica that leaves, or has no room, refuses what is sent again. A client's session has the client's run alone, so no
/// other run stands in its way.
fn check_status(attempt: &Attempt, complaints: &mut Complaints<'_>) {
    let Attempt { request, status, body, .. } = attempt;
    if (*status >= 500 && *status != 503) || *status == 409 {
        let body = body.as_ref().map(Value::to_string).unwrap_or_default();
        complaints.add(Promise::Streams, clip(&format!("{request} was answered by {status}: {body}")));
    }
}

/// What says that it cannot be told has a reason: its replica leaves, or what was said became void and cannot be taken back.
fn check_failure(attempt: &Attempt, asking: Asking, told: &Told, log: &Log, complaints: &mut Complaints<'_>) {
    let Ended::Failed(why) = &told.ended else { return };
    let says_void = asking.cannot_void() && VOID.iter().any(|words| why.contains(words));
    let is_void = says_void && log.steps.iter().any(|step| step.end == StepEnd::Discarded);
    if !is_void && !why.contains("shutting down") {
        let what = format!("{}: it failed for no reason: {why}", attempt.request);
        complaints.add(Promise::Streams, clip(&what));
    }
}

/// What was told is what happened: all of it if it is told to its end, and else as far as it is told.
fn check_told(request: &str, told: &Told, truth: &Truth<'_>, complaints: &mut Complaints<'_>) {
    let Told { said, answer, calls, ended, oddities } = told;
    let is_whole = *ended == Ended::Whole;
    let mut add = |what: String| complaints.add(Promise::Streams, clip(&format!("{request}: {what}")));
    for oddity in oddities {
        add(oddity.clone());
    }
    if let Some(said) = said
        && !(if is_whole { *said == truth.said } else { truth.said.starts_with(said) })
    {
        add(format!("it says {said:?}, and the run said {:?}", truth.said));
    }
    if is_whole && answer.as_ref().is_some_and(|answer| *answer != truth.answer) {
        add(format!("its answer is {answer:?}, and the run's {:?}", truth.answer));
    }
    if is_whole && said.is_none() && answer.is_none() {
        add("it tells no text".to_owned());
    }
    for what in calls.iter().flat_map(|calls| odd_calls(calls, is_whole, truth)) {
        add(what);
    }
}

/// What is wrong with the calls that a client was told of, in a dialect that tells what they came to. What is told to its end
/// tells all of them, each with its result.
fn odd_calls(calls: &[Made], is_whole: bool, truth: &Truth<'_>) -> Vec<String> {
    let mut odd = Vec::new();
    if is_whole && calls.len() != truth.calls.len() {
        odd.push(format!("it tells {} calls, and the run made {}", calls.len(), truth.calls.len()));
    }
    let mut left = truth.calls.clone();
    let (told, untold): (Vec<&Made>, Vec<_>) = calls.iter().partition(|call| call.content.is_some());
    // Those without a result may be any that the others are not.
    for Made { id, name, content } in told.into_iter().chain(untold) {
        let is_it =
            |call: &&Call| call.name == *name && content.as_ref().is_none_or(|content| *content == content_of(call));
        let Some(place) = left.iter().position(is_it) else {
            odd.push(format!(
                "it tells a call of {name}, {id}, with the result {content:?}, which the run did not make"
            ));
            continue;
        };
        let call = left.remove(place);
        if is_whole && content.is_none() && call.result.is_some() {
            odd.push(format!("it does not tell what its call of {name}, {id}, came to: {:?}", content_of(call)));
        }
    }
    odd
}

/// What a call came to by the log.
fn content_of(call: &Call) -> &str {
    call.result.as_ref().map_or("", |result| &result.content)
}

/// An event has the same number and says the same whenever it is told, and a stream goes on behind the number that its
/// client has.
fn check_numbers(asked: &Asked, complaints: &mut Complaints<'_>) {
    let dialect = asked.asking.dialect;
    let mut seen: BTreeMap<u64, &Frame> = BTreeMap::new();
    for attempt in &asked.attempts {
        let mut last = attempt.after;
        for frame in &attempt.frames {
            let Some(number) = dialect.number(frame).filter(|_| !dialect.is_beside(frame)) else { continue };
            if last.is_some_and(|last| number <= last) {
                let what = format!("{}: it tells the event {number} behind {last:?}", attempt.request);
                complaints.add(Promise::Streams, what);
            }
            last = Some(number);
            let before = seen.entry(number).or_insert(frame);
            if *before != frame && !is_failure(before) && !is_failure(frame) {
                let (now, before) = (&frame.data, &before.data);
                let what = format!("{}: the event {number} is {now}, and was {before}", attempt.request);
                complaints.add(Promise::Streams, clip(&what));
            }
        }
    }
}

/// Whether an event says that what was said is void, which readers that come later are not told.
fn is_failure(frame: &Frame) -> bool {
    serde_json::from_str::<Value>(&frame.data).is_ok_and(|data| !data["error"].is_null() && data["type"].is_null())
}

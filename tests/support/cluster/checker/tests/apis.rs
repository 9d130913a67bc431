//! What the checker believes of answers in every dialect, and which lies it does not.

mod answers;

use serde_json::json;

use super::super::apis::VOID;
use super::super::{Promise, check};
use super::recorded::{RUN, good, plan, rewrite};
use crate::support::Frame;
use crate::support::cluster::apis::{Asked, Asking, Attempt, BodyEnd, Dialect, Form, Request};
use crate::support::cluster::evidence::Evidence;

/// So many events came before the first connection was cut: some text of the first turn.
const BEFORE: usize = 11;

fn attempt(request: &str, after: Option<u64>, frames: Vec<Frame>, end: BodyEnd) -> Attempt {
    Attempt { status: 200, frames, end, ..Attempt::begun(request.to_owned(), after) }
}

/// The run, as asked for so: its first connection was cut in the middle, and the second held.
fn told(asking: Asking) -> Evidence {
    let (evidence, plan) = (good(), plan());
    let log = evidence.runs[RUN].streams["http://a"].clone();
    let Asking { dialect, form, reads_on } = asking;
    let mut asked = Asked::new(asking);
    let cut = || BodyEnd::Cut("it was reset".to_owned());
    match form {
        Form::Streamed | Form::Background => {
            let frames = answers::streamed(dialect, &plan, &log);
            let (before, rest) = frames.split_at(BEFORE);
            asked.attempts.push(attempt("POST first", None, before.to_vec(), cut()));
            let Request::Read(_, Some(after)) = asked.next(Some(RUN), Some("s1")) else {
                asked.attempts.push(attempt("second", None, frames.clone(), BodyEnd::Whole));
                return finish(evidence, asked);
            };
            assert!(reads_on);
            asked.attempts.push(attempt("GET second", Some(after), rest.to_vec(), BodyEnd::Whole));
        }
        Form::Whole | Form::Polled => {
            let first = Attempt { status: 0, ..attempt("POST first", None, Vec::new(), cut()) };
            asked.attempts.push(first);
            let body = Some(answers::whole(dialect, form, &plan));
            asked.attempts.push(Attempt { body, ..attempt("second", None, Vec::new(), BodyEnd::Whole) });
        }
    }
    finish(evidence, asked)
}

fn finish(mut evidence: Evidence, mut asked: Asked) -> Evidence {
    let plan = plan();
    if asked.asking.dialect == Dialect::Responses {
        asked.stored = Some(answers::whole(Dialect::Responses, Form::Whole, &plan));
    }
    let elsewhere = answers::streamed(Dialect::AgUi, &plan, &[]);
    asked.elsewhere = Some((Dialect::AgUi, attempt("GET elsewhere", None, elsewhere, BodyEnd::Whole)));
    evidence.clients[0].asked = Some(asked);
    evidence.runs.get_mut(RUN).unwrap().object["output_text"] = json!(plan.text(plan.rounds));
    evidence
}

fn asked(evidence: &mut Evidence) -> &mut Asked {
    evidence.clients[0].asked.as_mut().unwrap()
}

fn last(evidence: &mut Evidence) -> &mut Attempt {
    asked(evidence).attempts.last_mut().unwrap()
}

/// What a replica says that leaves.
const LEAVES: &str = "the server is shutting down; follow the run through another replica";

/// Ends the first stream with an error, as its dialect says that.
fn fail_first(evidence: &mut Evidence, why: &str) {
    let dialect = asked(evidence).asking.dialect;
    let first = &mut asked(evidence).attempts[0];
    let number = first.frames.last().and_then(|frame| dialect.number(frame));
    let error = match dialect {
        Dialect::Chat | Dialect::Native => json!({"error": {"message": why}}),
        Dialect::Responses => json!({"type": "error", "sequence_number": number, "message": why}),
        Dialect::Messages => json!({"type": "error", "error": {"message": why}}),
        Dialect::AiSdk => json!({"type": "error", "errorText": why}),
        Dialect::AgUi => json!({"type": "RUN_ERROR", "message": why}),
    };
    let is_named = matches!(dialect, Dialect::Responses | Dialect::Messages);
    let name = if is_named { "error".to_owned() } else { String::new() };
    first.frames.push(Frame { id: None, name, data: error.to_string() });
    first.end = BodyEnd::Whole;
}

/// Whether this lie is found in the answer to every way to ask that it can be told in.
fn find(can_be_told: impl Fn(Asking) -> bool, what: &[&str], lie: impl Fn(&mut Evidence)) {
    for asking in Asking::ALL.into_iter().filter(|asking| can_be_told(*asking)) {
        let mut evidence = told(asking);
        lie(&mut evidence);
        let found = check(&evidence);
        let is_found = |violation: &super::super::Violation| {
            let is_promised = matches!(violation.promise, Promise::Streams | Promise::Runs);
            is_promised && what.iter().any(|what| violation.what.contains(what))
        };
        assert!(found.iter().any(is_found), "{what:?} was not found of {asking:?}, but {found:#?}");
    }
}

fn is_stream(asking: Asking) -> bool {
    matches!(asking.form, Form::Streamed | Form::Background)
}

fn all(_: Asking) -> bool {
    true
}

/// Replaces words in an attempt.
fn replace(attempt: &mut Attempt, from: &str, to: &str) {
    for frame in &mut attempt.frames {
        frame.data = frame.data.replace(from, to);
    }
    attempt.body = attempt.body.take().map(|body| serde_json::from_str(&body.to_string().replace(from, to)).unwrap());
}

#[test]
fn what_went_well_is_good_in_every_dialect() {
    for asking in Asking::ALL {
        assert_eq!(check(&told(asking)), [], "{asking:?}");
    }
}

/// A replica that leaves says so beside the response, which goes on behind its last number at another.
#[test]
fn a_response_that_is_read_on_behind_an_error_beside_it_is_good() {
    let goes_on = |asking: &Asking| asking.dialect == Dialect::Responses && is_stream(*asking) && asking.reads_on;
    let asking = Asking::ALL.into_iter().find(goes_on).unwrap();
    let mut evidence = told(asking);
    fail_first(&mut evidence, LEAVES);
    assert_eq!(check(&evidence), []);
}

#[test]
fn an_answer_that_is_another_than_the_runs_is_found() {
    let words = ["it says", "its answer is"];
    find(all, &words, |e| replace(last(e), "r1.3.2", "r1.3.9"));
    // A piece that is left out, or there twice.
    find(all, &words, |e| replace(last(e), "r1.3.2 ", ""));
    find(all, &words, |e| replace(last(e), "r1.3.2 ", "r1.3.2 r1.3.2 "));
    // The void text of the driver that died.
    find(
        |asking| asking.dialect == Dialect::AiSdk,
        &words,
        |e| {
            last(e).frames.retain(|frame| !frame.data.contains("data-loopgate"));
        },
    );
    find(
        |asking| asking.dialect == Dialect::Responses && is_stream(asking),
        &["it says", "the items before it"],
        |e| {
            replace(last(e), "\"incomplete\"", "\"completed\"");
            replace(&mut asked(e).attempts[0], "\"incomplete\"", "\"completed\"");
        },
    );
    find(all, &["the run itself says"], |e| e.runs.get_mut(RUN).unwrap().object["output_text"] = json!("x"));
}

#[test]
fn what_a_connection_told_before_it_was_cut_counts() {
    find(is_stream, &["it says", "is not what its deltas say"], |e| {
        for from in ["r1.0.0", "r1.0.1"] {
            let before = asked(e).attempts[0].clone();
            replace(&mut asked(e).attempts[0], from, "r1.0.9");
            assert_ne!(asked(e).attempts[0], before);
        }
    });
    // What was told of an event is told again.
    let has_numbers = |asking: Asking| {
        let is_numbered = matches!(asking.dialect, Dialect::Chat | Dialect::Native | Dialect::Responses);
        is_numbered && is_stream(asking) && !asking.reads_on
    };
    find(has_numbers, &["and was"], |e| replace(&mut asked(e).attempts[0], "r1.0.0", "r1.0.9"));
}

#[test]
fn a_torn_stream_is_found() {
    find(is_stream, &["in the middle of an event"], |e| last(e).end = BodyEnd::Torn);
    find(is_stream, &["in the middle of an event"], |e| asked(e).attempts[0].end = BodyEnd::Torn);
    find(is_stream, &["ended as if it were whole"], |e| asked(e).attempts[0].end = BodyEnd::Whole);
    find(is_stream, &["ended as if it were whole"], |e| drop(last(e).frames.pop()));
    // Only readers that come back by themselves are sent elsewhere.
    let stays = |asking: Asking| is_stream(asking) && asking.dialect != Dialect::Native;
    find(stays, &["ended as if it were whole"], |e| {
        let first = &mut asked(e).attempts[0];
        (first.end, first.is_moved) = (BodyEnd::Whole, true);
    });
    find(is_stream, &["no event at all"], |e| last(e).oddities.push("no event at all".to_owned()));
    find(is_stream, &["is no object"], |e| {
        let at = last(e).frames.len() - 3;
        last(e).frames[at].data.pop();
    });
    // Half an event, and success after it.
    find(is_stream, &["is no object", "gap", "otherwise"], |e| {
        let mut half = last(e).frames[1].clone();
        half.data.truncate(9);
        last(e).frames.insert(1, half);
    });
}

#[test]
fn a_success_after_a_failure_or_after_the_end_is_found() {
    find(is_stream, &["follows a failure", "it ends where it cannot", "never had the whole answer"], |e| {
        let error = match asked(e).asking.dialect {
            Dialect::Chat | Dialect::Native => json!({"error": {"message": "void"}}),
            Dialect::Responses => json!({"type": "error", "sequence_number": 6}),
            Dialect::Messages => json!({"type": "error", "error": {"type": "api_error"}}),
            Dialect::AiSdk => json!({"type": "error", "errorText": "void"}),
            Dialect::AgUi => json!({"type": "RUN_ERROR"}),
        };
        let name = error["type"].as_str().filter(|name| *name == "error").unwrap_or_default().to_owned();
        last(e).frames.insert(1, Frame { id: None, name, data: error.to_string() });
    });
    find(is_stream, &["follows the last one", "follows no last event"], |e| {
        let again = last(e).frames.last().unwrap().clone();
        last(e).frames.push(again);
    });
    let is_plain = |asking: Asking| !is_stream(asking);
    find(is_plain, &["never had the whole answer"], |e| {
        for (from, to) in [
            ("\"stop\"", "\"length\""),
            ("end_turn", "max_tokens"),
            ("\"status\":\"completed\",\"type\"", "\"x\":\"x\",\"type\""),
        ] {
            replace(last(e), from, to);
        }
        last(e).body.as_mut().unwrap()["status"] = json!("incomplete");
    });
}

#[test]
fn a_refusal_or_a_failure_without_a_reason_is_found() {
    for status in [500, 502, 504, 409] {
        let found = format!("was answered by {status}");
        find(all, &[&found], |e| {
            let refused = Attempt { status, ..attempt("POST again", None, Vec::new(), BodyEnd::Whole) };
            asked(e).attempts.insert(1, refused);
        });
    }
}

/// The run of the evidence has a step that became void.
#[test]
fn what_became_void_excuses_only_a_stream_that_cannot_take_it_back_and_says_so() {
    let why = &["it failed for no reason"];
    for words in VOID {
        find(|asking| is_stream(asking) && !asking.cannot_void(), why, |e| fail_first(e, words));
        find(Asking::cannot_void, why, |e| {
            fail_first(e, words);
            // The log of a run without a step that became void.
            rewrite(e, |log| log.retain(|event| event.name != "step.discarded"));
        });
    }
    find(is_stream, why, |e| fail_first(e, "the run's log ended without its last event"));
    for asking in Asking::ALL.into_iter().filter(|asking| asking.cannot_void()) {
        let mut evidence = told(asking);
        fail_first(&mut evidence, if asking.dialect == Dialect::Chat { VOID[0] } else { VOID[1] });
        assert_eq!(check(&evidence), [], "{asking:?} cannot take back what became void");
    }
}

#[test]
fn an_answer_that_never_came_to_its_end_is_found() {
    find(all, &["never had the whole answer"], |e| drop(asked(e).attempts.pop()));
    find(all, &["never had the whole answer"], |e| asked(e).attempts.clear());
    find(all, &["never had the whole answer"], |e| last(e).status = 503);
    find(is_stream, &["never had the whole answer"], |e| {
        let kept = last(e).frames.len() - 2;
        last(e).frames.truncate(kept);
        last(e).end = BodyEnd::Cut("it was reset".to_owned());
    });
    find(all, &["made another run as well"], |e| e.clients[0].runs.push("run_2".to_owned()));
    find(all, &["no client has this run"], |e| drop(e.runs.insert("run_2".to_owned(), e.runs[RUN].clone())));
}

/// Whether calls are told, with what they came to.
fn tells_calls(asking: Asking) -> bool {
    let is_told = !matches!((asking.dialect, asking.form), (Dialect::Native, Form::Whole));
    is_told && asking.dialect != Dialect::Chat
}

/// Leaves out what the calls came to.
fn leave_results_out(attempt: &mut Attempt) {
    let results = ["\"tool-output-available\"", "\"TOOL_CALL_RESULT\"", "\"tool.result\""];
    attempt.frames.retain(|frame| !results.iter().any(|result| frame.data.contains(result)));
    replace(attempt, "\"output\":\"", "\"left_out\":\"");
    replace(attempt, "mcp_tool_result", "mcp_tool_left_out");
}

#[test]
fn a_whole_answer_that_does_not_tell_what_calls_came_to_is_found() {
    find(tells_calls, &["it does not tell what its call of put, "], |e| leave_results_out(last(e)));
    find(all, &["GET elsewhere: it does not tell what its call of look, "], |e| {
        leave_results_out(&mut asked(e).elsewhere.as_mut().unwrap().1);
    });
    let is_stored = |asking: Asking| asking.dialect == Dialect::Responses;
    find(is_stored, &["/v1/responses/resp_1: it does not tell what its call of book, "], |e| {
        let stored = asked(e).stored.take().unwrap().to_string().replace("\"output\":\"", "\"left_out\":\"");
        asked(e).stored = serde_json::from_str(&stored).ok();
    });
}

/// One that failed has an error where the others have an output.
#[test]
fn what_a_failed_call_came_to_is_told_in_a_response_too() {
    for asking in Asking::ALL.into_iter().filter(|asking| asking.dialect == Dialect::Responses) {
        let mut evidence = told(asking);
        let error = |result: &str| format!("\"error\":{{\"content\":[{{\"text\":\"{result}\"}}]}}");
        let result = "look r1.0.0";
        assert!(plan().tasks(0).iter().any(|(tool, task)| task.answer(*tool) == result));
        for attempt in &mut asked(&mut evidence).attempts {
            replace(attempt, &format!("\"output\":\"{result}\""), &error(result));
        }
        assert_eq!(check(&evidence), [], "{asking:?}");
        replace(last(&mut evidence), &error(result), &error("it failed"));
        let found = check(&evidence);
        assert!(found.iter().any(|violation| violation.what.contains("which the run did not make")), "{found:#?}");
    }
}

#[test]
fn calls_that_are_not_the_runs_are_found() {
    find(tells_calls, &["which the run did not make"], |e| replace(last(e), "put r1.1.0", "put r1.1.9"));
    find(tells_calls, &["which the run did not make"], |e| {
        for name in ["name", "toolName", "toolCallName"] {
            replace(last(e), &format!("\"{name}\":\"book\""), &format!("\"{name}\":\"look\""));
        }
    });
    let is_ui = |asking: Asking| matches!(asking.dialect, Dialect::AiSdk | Dialect::AgUi);
    find(is_ui, &["it tells 4 calls"], |e| {
        let is_begin = |frame: &Frame| frame.data.contains("tool-input") || frame.data.contains("TOOL_CALL_START");
        let at = last(e).frames.iter().position(is_begin).unwrap();
        let again = last(e).frames[at].clone();
        last(e).frames.insert(at, again);
    });
    find(is_ui, &["it tells 2 calls", "a result has no call"], |e| {
        let is_begin = |frame: &Frame| frame.data.contains("tool-input") || frame.data.contains("TOOL_CALL_START");
        let at = last(e).frames.iter().position(is_begin).unwrap();
        last(e).frames.remove(at);
    });
    find(
        |asking| asking.dialect == Dialect::AiSdk,
        &["its client is to make this call"],
        |e| {
            replace(last(e), "\"providerExecuted\":true", "\"providerExecuted\":false");
        },
    );
}

#[test]
fn a_stream_that_does_not_go_on_where_its_reader_is_is_found() {
    let goes_on = |asking: Asking| is_stream(asking) && asking.reads_on;
    let by_number = |asking: Asking| goes_on(asking) && matches!(asking.dialect, Dialect::Chat | Dialect::Responses);
    let words = ["it says", "a gap", "behind", "is not what its deltas say"];
    find(by_number, &words, |e| drop(last(e).frames.remove(0)));
    find(by_number, &words, |e| {
        let before = asked(e).attempts[0].frames[BEFORE - 1].clone();
        last(e).frames.insert(0, before);
    });
    find(by_number, &words, |e| last(e).frames.swap(0, 1));
    let anew = |asking: Asking| is_stream(asking) && !by_number(asking);
    find(anew, &["otherwise", "speaks", "a gap"], |e| drop(last(e).frames.drain(..3)));
}

#[test]
fn another_way_to_read_the_run_that_tells_something_else_is_found() {
    find(all, &["it was read in no other way"], |e| asked(e).elsewhere = None);
    find(all, &["GET elsewhere: it says"], |e| {
        replace(&mut asked(e).elsewhere.as_mut().unwrap().1, "r1.2.1", "r1.2.0");
    });
    find(all, &["GET elsewhere does not tell the whole run"], |e| {
        drop(asked(e).elsewhere.as_mut().unwrap().1.frames.pop());
    });
    let is_stored = |asking: Asking| asking.dialect == Dialect::Responses;
    find(is_stored, &["/v1/responses/resp_1 does not tell the whole run"], |e| asked(e).stored = None);
    find(is_stored, &["/v1/responses/resp_1: it says"], |e| {
        let stored = asked(e).stored.take().unwrap().to_string().replace("r1.3.3", "r1.3.0");
        asked(e).stored = serde_json::from_str(&stored).ok();
    });
}

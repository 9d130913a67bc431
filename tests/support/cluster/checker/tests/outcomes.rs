//! What the checker believes of calls that have another result than their tool's answer, and which lies it does not.

use serde_json::{Value, json};

use super::super::{Promise, check};
use super::Doctor;
use super::recorded::{RUN, change_data, good, recorded, renumber, rewrite, session};
use crate::support::Frame;
use crate::support::cluster::evidence::{Cancellation, Evidence};
use crate::support::cluster::plan::{Plan, Tool};
use crate::support::journal::Ending;

/// Changes the log's result of `book`, the last call.
fn change_result(evidence: &mut Evidence, change: impl Fn(&mut Value)) {
    rewrite(evidence, |log| {
        let at = log.iter().rposition(|event| event.name == "tool.result").unwrap();
        change_data(&mut log[at..], "tool.result", &change);
    });
}

/// Lets the last call, of `book`, have this error for its result, in the log and in the history.
fn tell(evidence: &mut Evidence, content: &str) {
    change_result(evidence, |data| {
        data["content"] = json!(content);
        data["is_error"] = json!(true);
    });
    let told = session(evidence).messages.iter_mut().rfind(|message| message["role"] == "tool").unwrap();
    told["content"] = json!(content);
}

/// Whether this promise is found to be broken.
fn is_found(evidence: &Evidence, promise: Promise, what: &str) -> bool {
    check(evidence).iter().any(|found| found.promise == promise && found.what.contains(what))
}

/// After a crash within `book` its outcome is unknown, and the model is told so.
fn unknown() -> Evidence {
    let (mut evidence, told) = (good(), "Whether it took effect is unknown.");
    tell(&mut evidence, told);
    change_result(&mut evidence, |data| data["outcome_unknown"] = json!(true));
    evidence.model.last_mut().unwrap().what.results[2] = told.to_owned();
    rewrite(&mut evidence, |log| {
        let at = log.iter().rposition(|event| event.name == "tool.result").unwrap();
        let data = json!({"type": "run.resumed", "run_id": RUN}).to_string();
        log.insert(at, Frame { id: None, name: "run.resumed".to_owned(), data });
        renumber(log);
    });
    evidence
}

/// The run was cancelled before `book` was made.
fn unmade() -> Evidence {
    let mut evidence = good();
    tell(&mut evidence, "The call was not made: the run is stopping.");
    evidence.tools.retain(|entry| entry.what.tool != Tool::Book);
    evidence.model.pop();
    session(&mut evidence).messages.pop();
    rewrite(&mut evidence, |log| {
        let last_step = log.iter().rposition(|event| event.name == "step.started").unwrap();
        let end = log.len() - 1;
        log.drain(last_step..end);
        renumber(log);
    });
    end_as(&mut evidence, "cancelled", "cancelled");
    evidence.allowed_reasons.push("cancelled".to_owned());
    evidence
}

/// Of two calls of `book` in a turn the first lost its answer, and the run failed of that before the second was made.
fn behind_a_lost_one() -> Evidence {
    let mut evidence = recorded(&Plan { calls: 2, ..Plan::new("r1").with_tools(1, &[Tool::Book]) });
    tell(&mut evidence, "The call was not made: the run is stopping.");
    evidence.tools.pop();
    evidence.tools[0].ended = Some((2, Ending::Dropped));
    evidence.model.pop();
    let told = "Whether it took effect is unknown.";
    session(&mut evidence).messages.pop();
    session(&mut evidence).messages[2]["content"] = json!(told);
    rewrite(&mut evidence, |log| {
        change_data(log, "tool.result", |data| {
            data["content"] = json!(told);
            (data["is_error"], data["outcome_unknown"]) = (json!(true), json!(true));
        });
        let last_step = log.iter().rposition(|event| event.name == "step.started").unwrap();
        let end = log.len() - 1;
        log.drain(last_step..end);
        renumber(log);
    });
    end_as(&mut evidence, "failed", "outcome_unknown");
    evidence.clients[0].fails_if_unknown = true;
    evidence
}

/// Lets the run end so.
fn end_as(evidence: &mut Evidence, status: &str, reason: &str) {
    rewrite(evidence, |log| {
        let end = log.last_mut().unwrap();
        end.name = format!("run.{status}");
        let mut data: Value = serde_json::from_str(&end.data).unwrap();
        data["type"] = json!(end.name);
        data["agent"]["status"] = json!(status);
        data["agent"]["stop_reason"] = json!(reason);
        end.data = data.to_string();
    });
    let object = &mut evidence.runs.get_mut(RUN).unwrap().object;
    (object["status"], object["stop_reason"]) = (json!(status), json!(reason));
}

/// The same where the client cancelled the run.
fn cancelled() -> Evidence {
    let mut evidence = unmade();
    evidence.allowed_reasons.clear();
    evidence.clients[0].cancellation =
        Some(Cancellation { first_ms: 2, asked_ms: 2, answered_ms: 4, status: "cancelled".to_owned() });
    evidence
}

#[test]
fn a_run_that_its_client_cancelled_may_be_cancelled_and_has_stopped_by_then() {
    assert_eq!(check(&cancelled()), []);
    let late = |asked_ms| {
        Some(Cancellation { first_ms: asked_ms, asked_ms, answered_ms: 90_000, status: "cancelled".to_owned() })
    };
    let mut evidence = cancelled();
    evidence.clients[0].cancellation = late(2);
    evidence.tools.last_mut().unwrap().at_ms = 20_002;
    assert_eq!(check(&evidence), [], "its replica had died");
    let lies: [(Promise, &str, Doctor); 6] = [
        (Promise::Runs, "it ended as", |e| e.clients[0].cancellation = None),
        (Promise::Runs, "its cancellation was answered with completed", |e| {
            e.clients[0].cancellation.as_mut().unwrap().status = "completed".to_owned();
        }),
        (Promise::Steps, "turn 2 was asked for 3 ms after it was to be", |e| e.model.last_mut().unwrap().at_ms = 5),
        (Promise::Tools, "put was asked for call_1 3 ms after", |e| e.tools.last_mut().unwrap().at_ms = 5),
        (Promise::Tools, "put was asked for call_1 20001 ms after", |e| {
            e.clients[0].cancellation.as_mut().unwrap().answered_ms = 90_000;
            e.tools.last_mut().unwrap().at_ms = 20_003;
        }),
        (Promise::Steps, "it is charged 3 tokens, and the upstream bills", |e| {
            rewrite(e, |log| change_data(log, "run.cancelled", |data| data["usage"]["total_tokens"] = json!(3)));
        }),
    ];
    for (promise, what, lie) in lies {
        let mut evidence = cancelled();
        lie(&mut evidence);
        assert!(is_found(&evidence, promise, what), "{what}: {:?}", check(&evidence));
    }
}

#[test]
fn an_answer_that_ends_after_the_run_was_to_end_may_be_unheard() {
    let stopped_at = |first_ms| {
        let mut evidence = cancelled();
        evidence.tools = good().tools;
        let book = evidence.tools.iter_mut().find(|entry| entry.what.tool == Tool::Book).unwrap();
        (book.at_ms, book.ended) = (1, Some((3, Ending::Finished)));
        tell(&mut evidence, "The call was stopped with the run. Whether it took effect is unknown.");
        change_result(&mut evidence, |data| data["outcome_unknown"] = json!(true));
        evidence.clients[0].cancellation.as_mut().unwrap().first_ms = first_ms;
        evidence
    };
    for asked_ms in [2, 3] {
        assert_eq!(check(&stopped_at(asked_ms)), [], "asked at {asked_ms}");
    }
    assert!(is_found(&stopped_at(4), Promise::Tools, "has the result"), "it had ended before");
    let mut evidence = stopped_at(2);
    evidence.tools.retain(|entry| entry.what.tool != Tool::Book);
    assert_eq!(check(&evidence), [], "it was stopped on its way");
    change_result(&mut evidence, |data| data["outcome_unknown"] = json!(false));
    assert!(
        is_found(&evidence, Promise::Tools, "has the result"),
        "that a write was stopped is not that nothing was sent"
    );
}

#[test]
fn an_unknown_outcome_is_good_where_there_was_a_crash() {
    assert_eq!(check(&unknown()), []);
    let lies: [Doctor; 4] = [
        |evidence| {
            rewrite(evidence, |log| {
                let at = log.iter().rposition(|event| event.name == "run.resumed").unwrap();
                log.remove(at);
                renumber(log);
            });
        },
        |evidence| change_result(evidence, |data| data["is_error"] = json!(false)),
        |evidence| change_result(evidence, |data| data["outcome_unknown"] = json!(false)),
        |evidence| change_result(evidence, |data| data["content"] = json!("It could not be reached.")),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let mut evidence = unknown();
        lie(&mut evidence);
        assert!(is_found(&evidence, Promise::Tools, "has the result"), "lie {number} is believed");
    }
    let mut evidence = unknown();
    evidence.model.last_mut().unwrap().what.results[2] = "book r1.2.0".to_owned();
    assert!(is_found(&evidence, Promise::Steps, "with the results"), "the model was told something else");
}

#[test]
fn a_run_fails_of_an_unknown_outcome_where_it_is_to_and_nowhere_else() {
    let mut evidence = unknown();
    evidence.clients[0].fails_if_unknown = true;
    assert!(is_found(&evidence, Promise::Runs, "it was to fail of an unknown outcome"), "it went on");
    let mut evidence = unknown();
    end_as(&mut evidence, "failed", "outcome_unknown");
    assert!(is_found(&evidence, Promise::Runs, "it was not to fail of an unknown outcome"), "it failed");
    evidence.clients[0].fails_if_unknown = true;
    assert!(!is_found(&evidence, Promise::Runs, "unknown outcome"), "{:#?}", check(&evidence));
}

#[test]
fn a_lost_answer_of_a_reader_is_no_proof_that_nothing_was_sent() {
    let told = |content: &str| {
        let mut evidence = good();
        let look = evidence.tools.iter_mut().find(|entry| entry.what.tool == Tool::Look).unwrap();
        look.ended = Some((2, Ending::Dropped));
        rewrite(&mut evidence, |log| {
            change_data(log, "tool.result", |data| {
                data["content"] = json!(content);
                data["is_error"] = json!(true);
            });
        });
        is_found(&evidence, Promise::Tools, "of look has the result")
    };
    assert!(!told("The service behind `look` broke off its answer, HTTP 200 OK."));
    assert!(told("The service behind `look` could not be reached. Nothing was sent."));
}

#[test]
fn a_call_that_was_not_made_is_good_where_the_run_stopped_and_its_tool_was_not_asked() {
    assert_eq!(check(&unmade()), []);
    let lies: [(&str, Doctor); 5] = [
        ("the tool was asked", |evidence| evidence.tools = good().tools),
        ("the run completed", |evidence| end_as(evidence, "completed", "done")),
        ("the run has no end", |evidence| rewrite(evidence, |log| drop(log.pop()))),
        ("it went well", |evidence| change_result(evidence, |data| data["is_error"] = json!(false))),
        ("another error", |evidence| change_result(evidence, |data| data["content"] = json!("It failed."))),
    ];
    for (what, lie) in lies {
        let mut evidence = unmade();
        lie(&mut evidence);
        assert!(is_found(&evidence, Promise::Tools, "of book has the result"), "{what}, which is believed");
    }
}

#[test]
fn a_call_behind_one_whose_outcome_is_unknown_is_truly_not_made_where_the_run_fails_of_that() {
    assert_eq!(check(&behind_a_lost_one()), []);
    let lies: [(&str, Doctor); 5] = [
        ("the second was made", |evidence| {
            let mut second = evidence.tools[0].clone();
            (second.what.task.index, second.what.call, second.what.key) = (1, "call_1".into(), "call_1".into());
            evidence.tools.push(second);
        }),
        ("the outcome of the second is unknown", |evidence| {
            tell(evidence, "Whether it took effect is unknown.");
            change_result(evidence, |data| data["outcome_unknown"] = json!(true));
        }),
        ("the first was not made", |evidence| {
            rewrite(evidence, |log| {
                change_data(log, "tool.result", |data| {
                    data["content"] = json!("The call was not made: the run is stopping.");
                    data["outcome_unknown"] = json!(false);
                });
            });
        }),
        ("the first was answered", |evidence| {
            evidence.tools[0].ended = Some((2, Ending::Finished));
        }),
        ("the run went on", |evidence| end_as(evidence, "completed", "done")),
    ];
    for (what, lie) in lies {
        let mut evidence = behind_a_lost_one();
        lie(&mut evidence);
        assert!(is_found(&evidence, Promise::Tools, "of book has the result"), "{what}, which is believed");
    }
}

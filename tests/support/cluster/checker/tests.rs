//! Shows that the checker finds nothing where nothing is wrong, and each broken promise where one was broken.

mod apis;
mod counted;
mod outcomes;
mod recorded;

use serde_json::json;

use super::{Promise, Violation, check};
use crate::support::cluster::evidence::{End, Evidence, Probe, Window};
use crate::support::cluster::harm::Break;
use crate::support::cluster::plan::{Plan, Tool};
use recorded::{RUN, change_data, dispatches, good, longer, plan, probe, remove, renumber, repeat, rewrite, session};

#[test]
fn what_went_well_is_good() {
    assert_eq!(check(&good()), []);
    let mut rewritten = good();
    rewrite(&mut rewritten, |_| {});
    assert_eq!(check(&rewritten), []);
}

type Doctor = fn(&mut Evidence);

/// Each doctor's damage is found, as this promise broken in these words.
fn find(promise: Promise, doctored: &[(&str, Doctor)]) {
    for (what, doctor) in doctored {
        let mut evidence = good();
        doctor(&mut evidence);
        let found = check(&evidence);
        let is_found = found.iter().any(|violation| violation.promise == promise && violation.what.contains(what));
        assert!(is_found, "{promise:?} {what:?} was not found, but {found:#?}");
    }
}

#[test]
fn two_writers_are_found() {
    find(
        Promise::Writer,
        &[
            ("at place 8", |e| rewrite(e, |log| log[7].id = Some(9))),
            ("says 2 times that it began", |e| rewrite(e, |log| repeat(log, "run.started"))),
            ("follows the last one", |e| rewrite(e, |log| repeat(log, "run.completed"))),
            ("stands where it cannot", |e| rewrite(e, |log| repeat(log, "step.started"))),
            ("one above the last", |e| {
                rewrite(e, |log| change_data(log, "step.started", |data| data["step"] = json!(3)));
            }),
            ("a call has two results", |e| rewrite(e, |log| repeat(log, "tool.result"))),
            ("a result has no call", |e| rewrite(e, |log| remove(log, "tool.call"))),
            ("stands twice in its log", |e| rewrite(e, |log| repeat(log, "tool.call"))),
            ("not that of its data", |e| {
                rewrite(e, |log| change_data(log, "run.started", |data| data["seq"] = json!(9)));
            }),
        ],
    );
}

#[test]
fn a_conversation_that_was_shortened_twice_is_found() {
    find(
        Promise::Runs,
        &[("it was shortened 2 times, and its runs say []", |e| {
            e.sessions.values_mut().for_each(|session| session.object["compactions"] = json!(2));
        })],
    );
}

#[test]
fn repeated_steps_and_missing_charges_are_found() {
    find(
        Promise::Steps,
        &[
            ("where its plan says", |e| {
                rewrite(e, |log| {
                    let at = log.iter().rposition(|event| event.name.is_empty()).unwrap();
                    log.insert(at, log[at].clone());
                    renumber(log);
                });
            }),
            ("after 3 of 4 turns", |e| {
                rewrite(e, |log| {
                    let from = log.iter().rposition(|event| event.name == "step.started").unwrap();
                    let end = log.len() - 1;
                    log.drain(from..end);
                    renumber(log);
                });
            }),
            ("its output is", |e| {
                rewrite(e, |log| change_data(log, "run.completed", |data| data["output_text"] = json!("x")));
            }),
            ("where its plan has", |e| {
                rewrite(e, |log| change_data(log, "tool.call", |data| data["arguments"]["round"] = json!(7)));
            }),
            ("of these were recorded before", |e| e.model.push(e.model[0].clone())),
            ("it is charged 60 tokens, and the upstream bills 62", |e| e.model[1].what.tokens = 31),
            ("it is charged 60 tokens, and the upstream bills 61", |e| e.model[0].what.input = 21),
            ("it is charged 16 tokens of output, and showed at least 17", |e| {
                rewrite(e, |log| {
                    change_data(log, "run.completed", |data| data["usage"]["completion_tokens"] = json!(16));
                });
            }),
            ("as if these were known", |e| {
                rewrite(e, |log| change_data(log, "run.completed", |data| data["usage"]["estimated"] = json!(null)));
            }),
            ("with the results", |e| e.model[3].what.results[0] = "look r1.0.0, or not".to_owned()),
            ("with the results", |e| drop(e.model[4].what.results.pop())),
            ("with the results", |e| e.model[4].what.round = 5),
            ("bills 40, with 0 estimates", |e| {
                e.drivers_stayed = true;
                e.model.remove(0);
            }),
            ("bills 41, with 1 estimates", |e| {
                rewrite(e, |log| {
                    change_data(log, "run.completed", |data| data["usage"]["total_tokens"] = json!(60_000));
                });
            }),
        ],
    );
}

/// A message that comes when a run is about to end makes it call its model once more.
#[test]
fn a_turn_beyond_the_plan_needs_a_message_that_was_taken() {
    let steered = |turns, messages| {
        let mut evidence = longer(turns);
        evidence.steered.insert(RUN.to_owned(), messages);
        evidence
    };
    for (turns, messages) in [(0, 0), (0, 1), (1, 1), (1, 2)] {
        assert_eq!(check(&steered(turns, messages)), [], "{turns} turns more with {messages} messages");
    }
    let is_found = |evidence: &Evidence, what: &str| {
        let found = check(evidence);
        let is_it = |violation: &Violation| violation.promise == Promise::Steps && violation.what.contains(what);
        assert!(found.iter().any(is_it), "{what:?} was not found, but {found:#?}");
    };
    is_found(&steered(1, 0), "after 5 of 4 turns, and took messages 0 times");
    is_found(&steered(2, 1), "after 6 of 4 turns, and took messages 1 times");
    is_found(&longer(1), "after 5 of 4 turns");
    let mut of_another = longer(1);
    of_another.steered.insert("run_2".to_owned(), 1);
    is_found(&of_another, "after 5 of 4 turns");
    let mut early = steered(1, 1);
    let plan = plan();
    rewrite(&mut early, |log| {
        change_data(log, "run.completed", |data| data["output_text"] = json!(plan.text(plan.rounds)));
    });
    is_found(&early, "its output is");
}

/// A driver that lost the store heard the answer, and could not record it. What it read of the input is charged all the same.
#[test]
fn of_an_interrupted_call_the_input_is_charged_at_least() {
    let complaints = |input: u64| {
        let mut evidence = good();
        rewrite(&mut evidence, |log| {
            change_data(log, "step.discarded", |data| data["reason"] = json!("interrupted"));
        });
        (evidence.model[1].what.input, evidence.model[1].what.tokens) = (input, input + 10);
        let found = check(&evidence).into_iter().map(|violation| violation.what);
        found.filter(|what| what.starts_with("it is charged 60 tokens, and the upstream bills")).collect::<Vec<_>>()
    };
    assert!(complaints(29).is_empty());
    assert_eq!(complaints(30), ["it is charged 60 tokens, and the upstream bills 71"]);
}

#[test]
fn wrong_dispatches_are_found() {
    find(
        Promise::Tools,
        &[
            ("book was asked again", |e| {
                let again = e.tools.iter().find(|entry| entry.what.tool == Tool::Book).unwrap().clone();
                e.tools.push(again);
            }),
            ("book was asked again", |e| {
                let mut again = e.tools.iter().find(|entry| entry.what.tool == Tool::Book).unwrap().clone();
                again.what.call = "call_other".to_owned();
                again.what.key = "call_other".to_owned();
                e.tools.push(again);
            }),
            ("with the key other after", |e| dispatches(e, Tool::Put).key = "other".to_owned()),
            ("a key of something else", |e| dispatches(e, Tool::Book).key = "call_0".to_owned()),
            ("without a key", |e| dispatches(e, Tool::Look).key = String::new()),
            ("which is not in its log", |e| dispatches(e, Tool::Look).call = "call_9".to_owned()),
            ("was dispatched 4 times", |e| {
                let again = e.tools.iter().find(|entry| entry.what.tool == Tool::Put).unwrap().clone();
                e.tools.extend([again.clone(), again]);
            }),
            ("has the result", |e| {
                rewrite(e, |log| change_data(log, "tool.result", |data| data["content"] = json!("x")));
            }),
            ("under fence 4 after", |e| dispatches(e, Tool::Book).fence = Some("4".to_owned())),
            ("without a fence", |e| dispatches(e, Tool::Look).fence = None),
            ("has the result", |e| {
                rewrite(e, |log| change_data(log, "tool.result", |data| data["outcome_unknown"] = json!(true)));
            }),
            ("an task of r2", |e| dispatches(e, Tool::Look).task.tag = "r2".to_owned()),
        ],
    );
}

#[test]
fn torn_streams_are_found() {
    find(
        Promise::Streams,
        &[
            ("where 7 was next", |e| drop(e.clients[0].readings[1].events.remove(0))),
            ("again, after 6", |e| {
                let last = e.clients[0].readings[0].events[5].clone();
                e.clients[0].readings[1].events.insert(0, last);
                e.clients[0].readings[1].after = 5;
            }),
            ("its log has", |e| e.clients[0].readings[0].events[2].1.data = "{}".to_owned()),
            ("no more after event", |e| drop(e.clients[0].readings[1].events.pop())),
            ("which is not the last", |e| e.clients[0].readings[0].end = End::Done),
            ("reads otherwise at", |e| drop(e.runs.get_mut(RUN).unwrap().streams.get_mut("http://b").unwrap().pop())),
            ("of its list is", |e| e.runs.get_mut(RUN).unwrap().list[3] = json!(1)),
            ("could not be read afterwards", |e| e.runs.get_mut(RUN).unwrap().streams.clear()),
            ("1 times to begin anew", |e| e.clients[0].resets = 1),
            ("3 times to begin anew", |e| {
                (e.forgotten, e.clients[0].resets) = (vec![Window { from_ms: 0, to_ms: 9 }; 2], 3);
            }),
            ("answered 409", |e| e.clients[0].complaints.push("a answered 409".to_owned())),
        ],
    );
}

/// The run is asked for at 0, accepted at 1, its model is asked at 1, and it ends at 9.
#[test]
fn what_a_store_forgot_excuses_nothing_that_was_acknowledged_before_or_after() {
    let shown: Doctor = |e| e.model[3].what.results[0] = "look r1.0.0, or not".to_owned();
    let anew: Doctor = |e| e.clients[0].resets = 1;
    let unlisted: Doctor = |e| session(e).runs.clear();
    let lies = [
        (shown, "with the results", 1),
        (anew, "1 times to begin anew", 9),
        (unlisted, "the list of its runs lacks", 1),
    ];
    for (lie, what, last) in lies {
        for (from_ms, to_ms, is_excused) in [(0, 1, true), (last, 99, true), (last + 1, 99, false)] {
            let mut evidence = good();
            lie(&mut evidence);
            evidence.forgotten = vec![Window { from_ms, to_ms }];
            let is_found = check(&evidence).iter().any(|violation| violation.what.contains(what));
            assert_eq!(is_found, !is_excused, "{what}: {from_ms} to {to_ms}");
        }
    }
    let mut evidence = good();
    evidence.model.iter_mut().for_each(|call| call.at_ms = 8);
    (evidence.forgotten, evidence.clients[0].asked_ms) = (vec![Window { from_ms: 0, to_ms: 7 }], 0);
    shown(&mut evidence);
    assert!(check(&evidence).iter().any(|violation| violation.what.contains("with the results")), "it was asked later");
}

#[test]
fn overdrawn_budgets_are_found() {
    find(
        Promise::Budgets,
        &[
            ("it has 59 total_tokens, and the runs 60 together", |e| {
                e.usage = Some(json!({"runs": 1, "total_tokens": 59}));
            }),
            ("it has 2 runs, and the runs 1 together", |e| e.usage = Some(json!({"runs": 2, "total_tokens": 60}))),
            ("it has 0 runs, and the runs 1 together", |e| e.usage = Some(json!(null))),
            ("it took 60 tokens of 50", |e| {
                rewrite(e, |log| {
                    change_data(log, "run.completed", |data| data["agent"]["budget"]["token_limit"] = json!(50));
                });
            }),
            ("its budget counts 59 of 60", |e| {
                rewrite(e, |log| {
                    change_data(log, "run.completed", |data| data["agent"]["budget"]["tokens_used"] = json!(59));
                });
            }),
            ("its runs took 60 tokens of 50", |e| {
                session(e).object["budget"] = json!({"token_limit": 50, "tokens_remaining": 0});
            }),
            ("its key is charged 60 tokens, and the upstream bills 61", |e| {
                (e.model[0].what.breaks, e.model[0].what.billed) = (Break::Cut, 21);
            }),
            ("more is reserved", |e| session(e).probe.enough_left = 429),
            ("with enough left", |e| e.all_runs = Some(Probe { enough_left: 429, ..probe() })),
            ("with nothing left", |e| session(e).probe.nothing_left = 200),
            ("has no room", |e| {
                session(e).probe.told = "the budget has no room for this request: 55 of 60 tokens used".to_owned();
            }),
            ("it counts 70 tokens", |e| session(e).object["usage"]["total_tokens"] = json!(70)),
            ("its budget counts 61 of 60", |e| {
                rewrite(e, |log| {
                    change_data(log, "run.completed", |data| data["agent"]["budget"]["tokens_used"] = json!(61));
                });
            }),
            ("10 tokens left of 100", |e| session(e).object["budget"]["tokens_remaining"] = json!(10)),
            ("it counts 50 tokens", |e| session(e).object["usage"]["total_tokens"] = json!(50)),
        ],
    );
}

#[test]
fn lost_runs_and_damaged_histories_are_found() {
    find(
        Promise::Runs,
        &[
            ("has no last event", |e| rewrite(e, |log| remove(log, "run.completed"))),
            ("never saw it end", |e| e.clients[0].ended_ms = None),
            ("and the run itself", |e| e.runs.get_mut(RUN).unwrap().object["status"] = json!("in_progress")),
            ("it ended as", |e| {
                rewrite(e, |log| {
                    change_data(log, "run.completed", |data| data["agent"]["stop_reason"] = json!("cancelled"));
                });
                e.runs.get_mut(RUN).unwrap().object["stop_reason"] = json!("cancelled");
            }),
            ("its last event is", |e| {
                rewrite(e, |log| {
                    let end = log.iter_mut().find(|event| event.name == "run.completed").unwrap();
                    end.name = "run.incomplete".to_owned();
                    end.data = end.data.replace("run.completed", "run.incomplete");
                });
            }),
            ("the list of its runs lacks run_1", |e| session(e).runs.clear()),
            ("turn 1 calls", |e| session(e).messages[3]["content"] = json!("")),
            ("makes the call", |e| session(e).messages[1]["tool_calls"][0]["function"]["name"] = json!("book")),
            ("makes the call", |e| {
                let call = &mut session(e).messages[1]["tool_calls"][0]["function"];
                call["arguments"] = json!(call["arguments"].as_str().unwrap().replace("r1", "r2"));
            }),
            ("and in its log", |e| session(e).messages[6]["content"] = json!("Whether it took effect is unknown.")),
            ("has no result", |e| rewrite(e, |log| remove(log, "tool.result"))),
            ("made another run", |e| e.clients[0].runs.push("run_2".to_owned())),
            ("no client has this run", |e| drop(e.runs.insert("run_2".to_owned(), e.runs[RUN].clone()))),
            ("by a run that no client has", |e| dispatches(e, Tool::Look).run = "run_2".to_owned()),
            ("which is r1's", |e| {
                let mut other = e.clients[0].clone();
                other.plan.tag = "r2".to_owned();
                e.clients.push(other);
            }),
            ("never accepted", |e| e.clients[0].runs.clear()),
            ("which begins no run", |e| drop(session(e).messages.remove(0))),
            ("has the result", |e| drop(session(e).messages.remove(2))),
            ("ends after 6 messages", |e| drop(session(e).messages.pop())),
            ("has the run r1 twice", |e| {
                let again = session(e).messages.clone();
                session(e).messages.extend(again);
            }),
            ("lacks the run r1", |e| session(e).messages.clear()),
            ("which nobody asked for", |e| {
                let other = Plan::new("r7");
                session(e).messages.push(json!({"role": "user", "content": other.to_string()}));
                session(e).messages.push(json!({"role": "assistant", "content": other.text(0)}));
            }),
            ("which no client has", |e| session(e).runs.push("run_2".to_owned())),
            ("it does not exist", |e| session(e).object = json!({"error": "no such session"})),
            ("still holds it", |e| session(e).object["active_run_id"] = json!(RUN)),
            ("asked wrongly", |e| e.model[0].what.faults.push("no messages".to_owned())),
        ],
    );
}

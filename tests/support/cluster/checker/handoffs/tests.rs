//! Shows that the checker of handoffs believes a run that was handed off as promised, and no lie about one.

use serde_json::json;

use super::*;

/// Something that is not so.
type Lie = fn(&mut HandoffEvidence);

/// A run that `front` hands to `billing`, which hands it to `support`. A call of `billing` was cut off and made again, and one handoff
/// was refused.
fn honest() -> HandoffEvidence {
    let call =
        |id: &str, to: &str| json!({"type": "tool.call", "call_id": id, "name": "handoff", "arguments": {"agent": to}});
    let result =
        |id: &str, is_error| json!({"type": "tool.result", "call_id": id, "name": "handoff", "is_error": is_error});
    let handoff = |id: &str, from: &str, to: &str| json!({"type": "handoff", "call_id": id, "from": from, "to": to});
    let step = || json!({"type": "step.started"});
    let events = vec![
        json!({"type": "run.started"}),
        step(),
        call("a", "billing"),
        call("b", "support"),
        handoff("a", "front", "billing"),
        result("a", false),
        result("b", true),
        step(),
        json!({"type": "step.discarded"}),
        step(),
        call("c", "support"),
        handoff("c", "billing", "support"),
        result("c", false),
        step(),
        json!({"type": "run.completed"}),
    ];
    let mut honest = HandoffEvidence {
        first: "front".into(),
        status: "completed".into(),
        agent: "support".into(),
        output: "support: done".into(),
        session_agent: "support".into(),
        events,
        asked: ["front", "billing", "billing", "support"].map(str::to_owned).to_vec(),
    };
    number_events(&mut honest);
    honest
}

fn number_events(evidence: &mut HandoffEvidence) {
    for (event, number) in evidence.events.iter_mut().zip(1..) {
        event["seq"] = json!(number);
    }
}

/// Writes an event once more, or something in its place, as a server would that did so.
fn write(evidence: &mut HandoffEvidence, at: usize, event: Option<Value>) {
    let event = event.unwrap_or_else(|| evidence.events[at].clone());
    evidence.events.insert(at + 1, event);
    number_events(evidence);
}

#[test]
fn the_checker_of_handoffs_believes_no_lie() {
    assert_eq!(check_handoffs(&honest()), [""; 0]);
    let lies: [(&str, Lie); 19] = [
        ("hands the run off again", |run| write(run, 4, None)),
        ("hands the run off again", |run| {
            write(run, 5, Some(json!({"type": "handoff", "call_id": "a", "from": "billing", "to": "support"})));
        }),
        ("has 2 results", |run| write(run, 5, None)),
        ("has 0 results", |run| {
            run.events.remove(5);
            number_events(run);
        }),
        ("and handed off: true", |run| run.events[5]["is_error"] = json!(true)),
        ("and handed off: false", |run| run.events[6]["is_error"] = json!(false)),
        ("front hands the run to support, and it is billing's", |run| run.events[11]["from"] = json!("front")),
        ("hands the run to billing, and it is billing's", |run| run.events[11]["to"] = json!("billing")),
        ("by \"a\", which is", |run| run.events[2]["arguments"]["agent"] = json!("support")),
        ("by \"a\", which is", |run| run.events[2]["name"] = json!("calculator")),
        ("by \"x\", which is None", |run| run.events[4]["call_id"] = json!("x")),
        // The next agent is asked as the one before, or the one before once more.
        ("the model was asked as [\"front\", \"billing\"]", |run| run.asked[3] = "billing".into()),
        ("the model was asked as [\"front\", \"billing\", \"front\", \"support\"]", |run| {
            run.asked[2] = "front".into();
        }),
        ("the model was asked 5 times", |run| run.asked.push("support".into())),
        ("the run is billing's", |run| run.agent = "billing".into()),
        ("its session is front's", |run| run.session_agent = "front".into()),
        ("support has the last word", |run| run.output = "billing: done".into()),
        ("it is failed", |run| run.status = "failed".into()),
        ("it has the events", |run| drop(run.events.remove(8))),
    ];
    for (words, lie) in lies {
        let mut evidence = honest();
        lie(&mut evidence);
        let wrong = check_handoffs(&evidence);
        assert!(wrong.iter().any(|wrong| wrong.contains(words)), "it believes that {words}, and says {wrong:#?}");
    }
}

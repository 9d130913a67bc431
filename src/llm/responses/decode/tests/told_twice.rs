//! What is told more than once: as a delta, with a whole item, and with the whole response.

use super::*;

/// The arguments of a call that is told so.
fn arguments_of(events: &[Value]) -> String {
    let turn = turn(events).unwrap();
    let [call] = turn.calls().collect::<Vec<_>>()[..] else { panic!("{turn:?}") };
    call.arguments.clone()
}

#[test]
fn arguments_that_are_whole_when_a_call_begins_are_not_added_to() {
    let whole = "{\"a\":1}";
    let (begun, end) = (added(0, call("f", whole)), completed(&[]));
    let deltas = [arguments(0, "{\"a\""), arguments(0, ":1}")];
    let done = done(0, call("f", whole));
    for events in [
        vec![begun.clone(), deltas[0].clone(), deltas[1].clone(), done.clone(), end.clone()],
        vec![begun.clone(), deltas[0].clone(), deltas[1].clone(), end.clone()],
        vec![begun.clone(), done, end.clone()],
        vec![begun.clone(), super::done(0, call("f", "")), end.clone()],
        vec![begun.clone(), completed(&[call("f", whole)])],
        vec![begun, end.clone()],
        vec![added(0, call("f", "{\"a\"")), deltas[1].clone(), end.clone()],
        vec![added(0, call("f", "{}")), deltas[0].clone(), deltas[1].clone(), end],
    ] {
        assert_eq!(arguments_of(&events), whole, "{events:?}");
    }
}

/// As the API's own libraries do.
#[test]
fn arguments_are_in_the_end_what_the_whole_item_says() {
    for (said, whole, shown) in [("{\"a\":", "{\"a\":1}", "{\"a\":1}"), ("{\"a\":2}", "{\"a\":1}", "{\"a\":2}")] {
        for last in [done(0, call("f", whole)), completed(&[call("f", whole)])] {
            let events = [added(0, call("f", "")), arguments(0, said), last, completed(&[])];
            assert_eq!(arguments_of(&events), whole);
            let Delta::CallArguments { delta, .. } = &decode([stream(&events).as_bytes()]).0[0] else { panic!() };
            assert_eq!(delta, shown);
        }
    }
}

#[test]
fn a_phase_that_comes_with_the_whole_message_goes_back_with_it() {
    let mut whole = message("One moment.");
    whole["phase"] = json!("commentary");
    for last in [done(0, whole.clone()), completed(&[whole.clone()])] {
        let events = [added(0, message("")), text(0, "One moment."), last, completed(&[])];
        assert_eq!(turn(&events).unwrap().parts, [said_in("commentary", "One moment.")]);
    }
    let mut begun = message("");
    begun["phase"] = json!("final_answer");
    let events = [added(0, begun.clone()), text(0, "One moment."), done(0, whole), completed(&[])];
    assert_eq!(turn(&events).unwrap().parts, [said_in("commentary", "One moment.")]);
    let events = [added(0, begun), text(0, "So."), done(0, message("So.")), completed(&[])];
    assert_eq!(turn(&events).unwrap().parts, [said_in("final_answer", "So.")]);
}

#[test]
fn a_last_event_says_by_its_kind_how_the_answer_ended_if_it_has_no_status() {
    let bare = |kind: &str| {
        let mut response = response("", &[]);
        response.as_object_mut().unwrap().remove("status");
        response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        json!({ "type": format!("response.{kind}"), "response": response })
    };
    let end = |kind| turn(&[added(0, message("")), text(0, "hi"), bare(kind)]).map(|turn| turn.end);
    assert_eq!(end("completed"), Ok(TurnEnd::Stop));
    assert_eq!(end("incomplete"), Ok(TurnEnd::Length));
    assert!(matches!(end("failed"), Err(Fault::Reported(_))));
}

#[test]
fn an_answer_whose_usage_cannot_be_read_is_an_answer_without_usage() {
    for wrong in [json!({ "input_tokens": -1, "output_tokens": 2 }), json!({ "input_tokens": 12.0 }), json!("7")] {
        let mut last = completed(&[]);
        last["response"]["usage"] = wrong.clone();
        let turn = turn(&[added(0, message("")), text(0, "hi"), last]).unwrap();
        assert_eq!((&*turn.text(), turn.usage), ("hi", None), "{wrong}");
    }
}

#[test]
fn a_failure_tells_what_the_answer_took() {
    let mut failed = response("failed", &[]);
    failed["error"] = json!({ "code": "server_error", "message": "Oh" });
    let failed = json!({ "type": "response.failed", "response": failed });
    let Err(Fault::Reported(report)) = turn(&[added(0, message("")), text(0, "half"), failed]) else { panic!() };
    assert_eq!((report.usage(), report.spent_within()), (Some(usage()), Spent::Unknown));
}

/// An error in place of an answer is a refusal of the request, which was read.
#[test]
fn an_error_before_anything_of_an_answer_costs_no_more_than_its_input() {
    let error = |code: &str| json!({ "type": "error", "code": code, "message": "No" });
    for (code, begun, spent) in [
        ("invalid_prompt", vec![], Spent::Input),
        ("invalid_prompt", vec![added(0, reasoning(&[], ""))], Spent::Unknown),
        ("server_error", vec![], Spent::Unknown),
    ] {
        let fault = turn(&[&begun_by(&begun)[..], &[error(code)]].concat()).unwrap_err();
        assert_eq!(fault.spent(), spent, "{code} after {begun:?}");
    }
}

fn begun_by(events: &[Value]) -> Vec<Value> {
    [&begun()[..], events].concat()
}

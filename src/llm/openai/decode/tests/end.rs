//! What the end of a turn does to its calls.

use super::*;

#[test]
fn a_content_filter_takes_the_calls_back_and_leaves_the_text() {
    let turn = turn(&[said(json!({ "content": "I pay" })), call(0, "a", "pay", "{}"), ended("content_filter")]);
    assert_eq!((turn.calls().count(), &*turn.text(), &turn.end), (0, "I pay", &TurnEnd::ContentFilter));
}

#[test]
fn nothing_but_the_usage_counts_after_the_end() {
    let late = [said(json!({ "content": " more", "reasoning": "hm" })), call(0, "a", "pay", "{}")];
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 1 } });
    let chunks = [&[said(json!({ "content": "Done." })), ended("stop")], &late[..], &[usage]].concat();
    let (deltas, turn) = decode([stream(&chunks).as_bytes()]);
    let turn = turn.unwrap();
    assert_eq!((turn.calls().count(), turn.parts.len(), &*turn.text()), (0, 1, "Done."));
    assert_eq!(turn.usage.map(|usage| usage.total()), Some(4));
    assert_eq!(deltas, [Delta::Text("Done.".to_owned())]);
}

#[test]
fn what_comes_with_the_finish_reason_counts() {
    let mut last = call(0, "a", "pay", "{}");
    last["choices"][0]["finish_reason"] = json!("tool_calls");
    assert_eq!(turn(&[last]).calls().count(), 1);
}

#[test]
fn calls_before_an_unknown_finish_reason_are_a_fault() {
    let long = "banana".repeat(20);
    let (_, failed) = decode([stream(&[call(0, "a", "pay", "{}"), ended(&long)]).as_bytes()]);
    let Err(Fault::UnknownEnd(shown)) = failed else { panic!("{failed:?}") };
    assert_eq!(shown, long[..40]);
    let fault = Fault::UnknownEnd("banana".to_owned()).to_string();
    assert_eq!(
        fault,
        "ended its turn with the finish reason \"banana\", which is not known, so that its tool calls are not made"
    );
    let text = turn(&[said(json!({ "content": "hi" })), ended("banana")]);
    assert_eq!((&*text.text(), &text.end), ("hi", &TurnEnd::Other("banana".to_owned())), "a text is a text");
}

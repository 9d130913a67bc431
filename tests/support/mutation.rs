//! Streams of an upstream that are almost right: valid ones of the chat dialect, changed here and there as seeds say.

use serde_json::{Value, json};

use super::seed::Seed;

/// What a stream says, event by event: the payload of each `data:` line.
pub(crate) type Events = Vec<String>;

/// A valid stream: some text, at times reasoning, at times calls of `calculator`, the usage and the end.
pub(crate) fn valid(seed: &mut Seed, calls: u64) -> Events {
    let chunk = |choices: Value, usage: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test", "choices": choices,
               "usage": usage})
    };
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null);
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}))];
    if seed.below(3) == 0 {
        events.push(delta(json!({"reasoning_content": "Let me think. "})));
    }
    for number in 0..=seed.below(5) {
        events.push(delta(json!({"content": format!("wörd{number} ")})));
    }
    for index in 0..calls {
        let (head, tail) = ("{\"expression\": \"1 ", "+ 1\"}");
        let function = json!({"name": "calculator", "arguments": head});
        let id = format!("call_{index}");
        let call = json!({"index": index, "id": id, "type": "function", "function": function});
        events.push(delta(json!({"tool_calls": [call]})));
        events.push(delta(json!({"tool_calls": [{"index": index, "function": {"arguments": tail}}]})));
    }
    let reason = if calls == 0 { "stop" } else { "tool_calls" };
    events.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}]), Value::Null));
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29});
    events.push(chunk(json!([]), usage));
    events.iter().map(Value::to_string).chain(["[DONE]".to_owned()]).collect()
}

/// The events as bytes of a stream, with one to three changes: of whole events, of values within them, of bytes.
pub(crate) fn mutated(mut events: Events, seed: &mut Seed) -> Vec<u8> {
    let changes = 1 + seed.below(3);
    let mut byte_changes = 0;
    for _ in 0..changes {
        match seed.below(3) {
            0 => change_events(&mut events, seed),
            1 => change_value(&mut events, seed),
            _ => byte_changes += 1,
        }
    }
    let end = *seed.pick(&["\n\n", "\n\n", "\n\n", "\r\n\r\n", "\r\r", "\n", "\n\n\n"]);
    let line = |event: &String| format!("data: {event}{end}");
    let mut bytes: Vec<u8> = events.iter().map(line).collect::<String>().into_bytes();
    for _ in 0..byte_changes {
        change_bytes(&mut bytes, seed);
    }
    bytes
}

/// A place in something of this length.
fn place(length: usize, seed: &mut Seed) -> usize {
    usize::try_from(seed.below(length as u64)).expect("it is below a length")
}

fn change_events(events: &mut Events, seed: &mut Seed) {
    if events.is_empty() {
        return;
    }
    let (at, other) = (place(events.len(), seed), place(events.len(), seed));
    match seed.below(6) {
        0 => drop(events.remove(at)),
        1 => events.insert(other, events[at].clone()),
        2 => events.swap(at, other),
        3 => events.truncate(at),
        4 => {
            let odd = *seed.pick(&[
                "{\"error\": {\"message\": \"overloaded\", \"code\": 529}}",
                "{}",
                "null",
                "[]",
                "\"text\"",
                "{\"choices\": []}",
                "{\"choices\": [{\"index\": 7, \"delta\": {\"content\": \"x\"}}]}",
                "{\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"content_filter\"}]}",
                "[DONE]",
            ]);
            events.insert(at, odd.to_owned());
        }
        _ => events.insert(at, "x".repeat(place(100_000, seed))),
    }
}

/// Puts something else in the place of a value somewhere within an event.
fn change_value(events: &mut Events, seed: &mut Seed) {
    if events.is_empty() {
        return;
    }
    let at = place(events.len(), seed);
    let Ok(mut event) = serde_json::from_str::<Value>(&events[at]) else { return };
    let mut pointer = String::new();
    for _ in 0..seed.below(6) {
        let names: Vec<String> = match event.pointer(&pointer) {
            Some(Value::Object(members)) => members.keys().cloned().collect(),
            Some(Value::Array(entries)) => (0..entries.len()).map(|index| index.to_string()).collect(),
            _ => Vec::new(),
        };
        if names.is_empty() {
            break;
        }
        pointer = format!("{pointer}/{}", seed.pick(&names));
    }
    let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
    match event.pointer_mut(parent) {
        Some(Value::Object(members)) if !name.is_empty() && seed.below(4) == 0 => {
            let member = members.remove(name).unwrap_or_default();
            if seed.below(2) == 0 {
                members.insert(format!("{name}_"), member);
            }
        }
        _ => *event.pointer_mut(&pointer).expect("the path was walked") = odd_value(seed),
    }
    events[at] = event.to_string();
}

fn odd_value(seed: &mut Seed) -> Value {
    let mut nested = json!(1);
    for _ in 0..seed.below(200) {
        nested = json!([nested]);
    }
    let odd = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!("stop"),
        json!("{\"expression\":"),
        json!("\u{0}\u{feff}\u{202e}💥"),
        json!("x".repeat(place(50_000, seed))),
        json!([]),
        json!([[], {}]),
        json!({}),
        json!({"content": {"a": 1}}),
        nested,
    ];
    seed.pick(&odd).clone()
}

fn change_bytes(bytes: &mut Vec<u8>, seed: &mut Seed) {
    if bytes.is_empty() {
        return;
    }
    let at = place(bytes.len(), seed);
    let end = (at + 1 + place(40, seed)).min(bytes.len());
    match seed.below(6) {
        0 => bytes[at] ^= 1 << seed.below(8),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        3 => bytes.truncate(at),
        4 => {
            let odd =
                *seed.pick(&[&b"\xff\xfe"[..], b"\0", b"\r", b"\n", b"\n\n", b"data:", b"event: error\n", b": \n\n"]);
            bytes.splice(at..at, odd.iter().copied());
        }
        _ => {
            let noise: Vec<u8> = (0..place(64, seed)).map(|_| seed.next().to_le_bytes()[0]).collect();
            bytes.splice(at..at, noise);
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_changes_and_others_make_others() {
    let stream = |number| {
        let mut seed = Seed::new(number);
        let events = valid(&mut seed, 1);
        mutated(events, &mut seed)
    };
    let streams: std::collections::BTreeSet<_> = (0..200).map(stream).collect();
    assert_eq!(stream(7), stream(7));
    assert!(streams.len() > 190, "{} of 200 differ", streams.len());
}

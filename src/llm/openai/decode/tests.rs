use proptest::prelude::*;
use serde_json::{Value, json};

use self::recorded::recorded;
use super::*;
use crate::llm::http::fault::{MAX_CALLS, MAX_TURN};
use crate::llm::sse::SseError;
use crate::llm::{ModelCall, ModelErrorKind, ModelPart, testing};
use crate::types::TurnEnd;
use crate::types::conversation::{Part, PartKind};

mod end;
mod order;
mod recorded;
mod repeated;

/// A stream of these chunks, as OpenAI frames it.
fn stream(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

/// A chunk with all that OpenAI sends around a delta.
fn said(delta: impl Into<Value>) -> Value {
    let delta: Value = delta.into();
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_760_000_000, "model": "m",
        "service_tier": "default", "system_fingerprint": null, "obfuscation": "xxxx", "usage": null,
        "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": null }],
    })
}

fn ended(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn call(index: impl Into<Value>, id: impl Into<Value>, name: impl Into<Value>, arguments: impl Into<Value>) -> Value {
    let function = json!({ "name": name.into(), "arguments": arguments.into() });
    said(
        json!({ "tool_calls": [{ "index": index.into(), "id": id.into(), "type": "function", "function": function }] }),
    )
}

/// What comes of a stream that arrives in these pieces.
fn decode<'c>(pieces: impl IntoIterator<Item = &'c [u8]>) -> (Vec<Delta>, Result<ModelTurn, Fault>) {
    testing::decode(Decoder::default(), pieces)
}

fn turn(chunks: &[Value]) -> ModelTurn {
    decode([stream(chunks).as_bytes()]).1.unwrap()
}

/// The calls of these chunks and how they end, as name and arguments.
fn calls(chunks: &[Value], reason: &str) -> Vec<(String, String)> {
    let chunks = [chunks, &[ended(reason)]].concat();
    turn(&chunks).calls().map(|call| (call.name.clone(), call.arguments.clone())).collect()
}

fn owned<const N: usize>(calls: [(&str, &str); N]) -> Vec<(String, String)> {
    calls.map(|(name, arguments)| (name.to_owned(), arguments.to_owned())).to_vec()
}

#[test]
fn a_stream_means_the_same_wherever_it_is_cut() {
    testing::means_the_same_wherever_it_is_cut(Decoder::default, recorded());
}

#[test]
fn a_stream_that_breaks_off_has_no_turn_before_its_finish_reason() {
    for (name, stream, expected) in recorded() {
        let word = if expected.end == TurnEnd::ToolCalls { "tool_calls" } else { "stop" };
        let reason = format!("\"finish_reason\":\"{word}\"");
        let finish = stream.find(&reason).unwrap();
        let mut ends_early = 0;
        for end in 0..stream.len() {
            let turn = decode([&stream.as_bytes()[..end]]).1;
            if end <= finish {
                assert_eq!(turn, Err(Fault::Truncated), "{name} ended at {end}");
            } else if let Ok(turn) = turn {
                // All that may be missing then is the usage.
                assert_eq!(&turn.parts, &expected.parts, "{name} ended at {end}");
                ends_early += 1;
            }
        }
        assert!(ends_early > 0, "{name} needs no [DONE]");
    }
}

#[test]
fn done_is_not_a_finish_reason() {
    let chunks = [said(json!({ "content": "hi" })), call(0, "a", "add", "{}")];
    assert_eq!(decode([stream(&chunks).as_bytes()]).1, Err(Fault::Truncated));
    assert_eq!(decode([]).1, Err(Fault::Truncated));
}

#[test]
fn what_arrives_together_is_one_delta() {
    let chunks = [said(json!({ "content": "a" })), said(json!({ "content": "b" })), said(json!({ "reasoning": "c" }))];
    let arguments = |index: u8, piece: &str| call(index, (), (), piece);
    let begun = [call(0, "x", "f", "{"), arguments(0, "}"), arguments(1, "1"), arguments(1, "2")];
    let (deltas, _) = decode([stream(&[&chunks[..], &begun].concat()).as_bytes()]);
    let expected = [
        Delta::Text("ab".to_owned()),
        Delta::Thinking("c".to_owned()),
        Delta::CallArguments { index: 0, delta: "{}".to_owned() },
        Delta::CallArguments { index: 1, delta: "12".to_owned() },
    ];
    assert_eq!(deltas, expected);
}

#[test]
fn only_what_is_said_counts_as_speaking() {
    let mut decoder = Decoder::default();
    let mut feed = |text: &str| decoder.feed(text.as_bytes(), &mut Vec::new()).unwrap();
    let frame = |chunk: Value| format!("data: {chunk}\n\n");
    assert_eq!(feed(": ping\n\n"), Progress::Silent);
    assert_eq!(feed("data:\n\n"), Progress::Silent);
    assert_eq!(feed(&frame(said(json!({ "content": "", "role": "assistant", "tool_calls": [] })))), Progress::Silent);
    assert_eq!(feed(&frame(json!({ "choices": [], "usage": { "prompt_tokens": 1 } }))), Progress::Silent);
    assert_eq!(feed(&frame(said(json!({ "content": "x" })))), Progress::Spoke);
    assert_eq!(feed(&frame(call(0, "a", "add", ""))), Progress::Spoke);
    assert_eq!(feed(&frame(ended("stop"))), Progress::Spoke);
    assert_eq!(feed("data: [DONE]\n\ndata: nonsense\n\n"), Progress::Done);
}

#[test]
fn pieces_without_an_index_find_their_call() {
    let pieces = [
        call((), "a", "add", ""),
        call((), (), (), "{\"a\""),
        call(0, (), (), ":1}"),
        call((), "b", "sub", ""),
        call((), (), (), "{}"),
    ];
    assert_eq!(calls(&pieces, "tool_calls"), owned([("add", "{\"a\":1}"), ("sub", "{}")]));
}

#[test]
fn pieces_with_ids_find_their_call_in_any_order() {
    let pieces = [call(0, "a", "add", "{"), call(0, "b", "sub", "["), call(0, "a", (), "}"), call(0, "b", (), "]")];
    assert_eq!(calls(&pieces, "tool_calls"), owned([("add", "{}"), ("sub", "[]")]));
}

#[test]
fn an_id_may_come_late_and_a_name_twice() {
    let pieces = [call(0, "", "add", ""), call(0, "a", "add", "{\"a\":"), call(0, "a", "add", "1}")];
    assert_eq!(calls(&pieces, "stop"), owned([("add", "{\"a\":1}")]));
}

#[test]
fn whole_calls_in_one_place_stay_apart() {
    for id in [Value::Null, json!(""), json!("call_1")] {
        for index in [Value::Null, json!(0)] {
            let whole = |name: &str, arguments: Value| call(index.clone(), id.clone(), name, arguments);
            let pieces = [whole("add", json!("{\"a\":1}")), whole("add", json!({ "a": 2 })), whole("sub", json!("{}"))];
            let expected = owned([("add", "{\"a\":1}"), ("add", "{\"a\":2}"), ("sub", "{}")]);
            assert_eq!(calls(&pieces, "stop"), expected, "{id} {index}");
        }
    }
}

#[test]
fn one_id_at_two_indices_is_two_calls() {
    let pieces = [
        call(0, "call", "add", ""),
        call(1, "call", "sub", ""),
        call(0, "call", (), "{\"a\":1}"),
        call(1, "call", (), "{\"b\":1}"),
    ];
    assert_eq!(calls(&pieces, "stop"), owned([("add", "{\"a\":1}"), ("sub", "{\"b\":1}")]));
}

#[test]
fn a_call_that_is_sent_again_is_not_made_again() {
    for (id, index) in [(json!("a"), json!(0)), (Value::Null, json!(0)), (json!(""), Value::Null)] {
        let whole = call(index, id, "add", "{\"a\":1}");
        assert_eq!(calls(&[whole.clone(), whole.clone()], "stop"), owned([("add", "{\"a\":1}")]), "{whole}");
    }
}

#[test]
fn equal_calls_at_two_indices_are_two_calls() {
    let whole = |index: u8| call(index, (), "add", "{\"a\":1}");
    let pieces = [whole(0), whole(1), whole(1), whole(0)];
    assert_eq!(calls(&pieces, "stop"), owned([("add", "{\"a\":1}"), ("add", "{\"a\":1}")]));
}

#[test]
fn a_name_may_come_in_pieces_until_the_arguments_begin() {
    let pieces = [call(0, "a", "pa", ""), call(0, (), "y", ""), call(0, (), (), "{"), call(0, (), "pay", "}")];
    assert_eq!(calls(&pieces, "stop"), owned([("pay", "{}")]));
    let at_once = [call(0, "a", "pa", ""), call(0, "a", "y", "{\"a\":1}")];
    assert_eq!(calls(&at_once, "stop"), owned([("pay", "{\"a\":1}")]));
}

#[test]
fn malformed_arguments_are_kept_unless_the_upstream_cut_them() {
    let pieces = [call(0, "a", "whole", "{\"a\":1}"), call(1, "b", "half", "{\"a\":"), call(2, "c", "none", ())];
    let all = owned([("whole", "{\"a\":1}"), ("half", "{\"a\":"), ("none", "{}")]);
    for reason in ["tool_calls", "stop", "function_call"] {
        assert_eq!(calls(&pieces, reason), all);
    }
    let last = call(3, "d", "last", "{}");
    for reason in ["length", "max_tokens"] {
        let kept = calls(&[&pieces[..], std::slice::from_ref(&last)].concat(), reason);
        assert_eq!(kept, owned([("whole", "{\"a\":1}")]), "no call is given another one's number");
    }
}

#[test]
fn an_empty_piece_is_no_call() {
    assert_eq!(calls(&[call(0, "", "", ""), call((), (), (), ())], "stop"), owned([]));
}

/// Mistral's reasoning models write so.
#[test]
fn content_that_is_a_list_is_text_and_thinking() {
    let chunk = |content: Value| json!({ "choices": [{ "index": 0, "delta": { "content": content } }] });
    let thinks = |text: &str| json!([{ "type": "thinking", "thinking": [{ "type": "text", "text": text }] }]);
    let says = json!([{ "type": "text", "text": "So " }, { "type": "reference", "reference_ids": [1] }]);
    let events = [chunk(thinks("Let me ")), chunk(thinks("see")), chunk(says), chunk(json!("it is.")), ended("stop")];
    let expected = ModelTurn::of("Let me see", "So it is.", Vec::new());
    assert_eq!(turn(&events).parts, expected.parts);
    let content = json!([{ "type": "thinking", "thinking": "Let me see" }, { "type": "text", "text": "So it is." }]);
    let message = json!({ "role": "assistant", "content": content });
    let whole = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
    let mut decoder = Decoder::default();
    decoder.feed_whole(whole.to_string().as_bytes(), &mut Vec::new()).unwrap();
    assert_eq!(decoder.finish().map(|turn| turn.parts), Ok(expected.parts));
    let odd = json!({ "choices": [{ "delta": { "content": [1] , "tool_calls": 7 } }] });
    assert_eq!(decode([stream(&[odd]).as_bytes()]).1, Err(Fault::NotAChunk));
}

/// xAI counts so: the total is that of all three.
#[test]
fn reasoning_that_is_counted_beside_the_output_is_added_to_it() {
    let output = |total: u64| {
        let details = json!({ "reasoning_tokens": 2809 });
        let usage = json!({ "prompt_tokens": 10120, "completion_tokens": 3000, "total_tokens": total,
            "completion_tokens_details": details });
        let usage = turn(&[ended("stop"), json!({ "choices": [], "usage": usage })]).usage.unwrap();
        (usage.completion_tokens, usage.reasoning_tokens)
    };
    assert_eq!(output(10_120 + 3_000 + 2_809), (5_809, 2_809));
    assert_eq!(output(10_120 + 3_000), (3_000, 2_809));
    assert_eq!(output(0), (3_000, 2_809));
}

#[test]
fn the_first_finish_reason_and_the_last_usage_count() {
    let usage = |tokens: u64| json!({ "choices": [], "usage": { "prompt_tokens": tokens, "completion_tokens": 1 } });
    let turn = turn(&[usage(1), ended(""), ended("tool_calls"), ended("stop"), usage(7), json!({ "usage": null })]);
    assert_eq!(turn.end, TurnEnd::ToolCalls);
    assert_eq!(turn.usage.unwrap().prompt_tokens, 7);
    assert_eq!(self::turn(&[ended("stop")]).usage, None);
}

#[test]
fn other_alternatives_are_left_out_and_refusals_are_no_text() {
    let other = json!({ "choices": [
        { "index": 1, "delta": { "content": "no" }, "finish_reason": "length" },
        { "index": 0, "delta": { "content": "I " } },
        { "delta": { "refusal": "won't" } },
    ] });
    let turn = turn(&[other, json!({}), json!({ "choices": null }), ended("stop")]);
    let refusal = ModelPart::Part(PartKind::Refusal("won't".into()).into());
    assert_eq!((turn.parts, turn.end), (vec![ModelPart::Part(Part::text("I ")), refusal], TurnEnd::Stop));
}

#[test]
fn a_whole_completion_is_a_turn_too() {
    let completion = json!({
        "object": "chat.completion", "usage": { "prompt_tokens": 3, "completion_tokens": 4 },
        "choices": [{ "index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "so", "reasoning": null,
            "tool_calls": [{ "id": "a", "type": "function", "function": { "name": "add", "arguments": "{}" } }],
        } }],
    });
    let (mut decoder, mut deltas) = (Decoder::default(), Vec::new());
    decoder.feed_whole(completion.to_string().as_bytes(), &mut deltas).unwrap();
    let arguments = Delta::CallArguments { index: 0, delta: "{}".to_owned() };
    assert_eq!(deltas, [Delta::Text("so".to_owned()), arguments]);
    let turn = decoder.finish().unwrap();
    assert_eq!(
        turn.calls().cloned().collect::<Vec<_>>(),
        [ModelCall { name: "add".to_owned(), arguments: "{}".to_owned() }]
    );
    assert_eq!(turn.usage.map(|usage| usage.total()), Some(7));
}

#[test]
fn an_error_in_place_of_a_chunk_is_the_end() {
    for body in [
        r#"{"error":{"message":"out of memory","code":null}}"#,
        r#"{"error":"out of memory","choices":[]}"#,
        r#"{"object":"error","message":"out of memory","code":500}"#,
    ] {
        let text = format!("data: {}\n\nevent: error\ndata: {body}\n\n", said(json!({ "content": "hi" })));
        let (deltas, turn) = decode([text.as_bytes()]);
        assert_eq!(deltas, [Delta::Text("hi".to_owned())], "what came before is passed on");
        let Err(Fault::Reported(report)) = turn else { panic!("{turn:?}") };
        assert_eq!(report.to_string(), "failed: out of memory");
        assert_eq!(report.kind(None), ModelErrorKind::Transient);
    }
    let fine = json!({ "error": null, "choices": [{ "finish_reason": "stop" }] });
    assert_eq!(turn(&[fine]).end, TurnEnd::Stop);
}

#[test]
fn malformed_chunks_are_faults() {
    for event in [
        "nonsense",
        "7",
        "[]x",
        "{",
        r#"{"choices":{}}"#,
        r#"{"choices":[{"delta":{"content":7}}]}"#,
        "{\"a\":\"\u{1}\"}",
    ] {
        let text = format!("data: {event}\n\n");
        assert_eq!(decode([text.as_bytes()]).1, Err(Fault::NotAChunk), "{event}");
    }
    assert_eq!(decode([&b"data: {\"choices\":[{\"delta\":{\"content\":\"\xC3\"}}]}\n\n"[..]]).1, Err(Fault::NotAChunk));
}

#[test]
fn a_turn_is_bounded() {
    let piece = said(json!({ "content": "x".repeat(128 << 10) }));
    let most = vec![piece; MAX_TURN / (128 << 10)];
    assert_eq!(
        decode([stream(&[&most[..], &[said(json!({ "content": "x" }))]].concat()).as_bytes()]).1,
        Err(Fault::TooLong)
    );
    assert_eq!(decode([stream(&most).as_bytes()]).1, Err(Fault::Truncated));

    let many = (0..=MAX_CALLS).map(|n| call(n, format!("id{n}"), "f", "")).collect::<Vec<_>>();
    assert_eq!(decode([stream(&many).as_bytes()]).1, Err(Fault::TooManyCalls));
    assert_eq!(calls(&many[..MAX_CALLS], "stop").len(), MAX_CALLS);

    let wide = said(json!({ "content": "x".repeat(300 << 10) }));
    assert_eq!(decode([stream(&[wide]).as_bytes()]).1, Err(Fault::Unreadable(SseError::EventTooLong(256 << 10))));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>, size in 1..64_usize) {
        decode(bytes.chunks(size)).1.ok();
    }

    #[test]
    fn arbitrary_pieces_of_calls_do_not_panic(
        pieces in prop::collection::vec(
            (prop::option::of(-1..3_i64), prop::option::of("[ab]?"), prop::option::of("[fg]?"), prop::option::of("[{}1]{0,2}")),
            0..30,
        ),
    ) {
        let pieces: Vec<_> = pieces
            .into_iter()
            .map(|(index, id, name, arguments)| call(index, id, name, arguments))
            .collect();
        let calls = calls(&pieces, "length");
        prop_assert!(calls.iter().all(|(_, arguments)| serde_json::from_str::<Value>(arguments).is_ok()));
    }

    #[test]
    fn a_damaged_stream_does_not_panic(which in 0..7_usize, at: prop::sample::Index, byte: u8) {
        let mut bytes = recorded().swap_remove(which).1.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        decode(bytes.chunks(7)).1.ok();
    }
}

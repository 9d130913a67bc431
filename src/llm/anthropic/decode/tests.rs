use serde_json::{Value, json};

use super::*;
use crate::llm::http::fault::{MAX_CALLS, MAX_TURN};
use crate::llm::sse::SseError;
use crate::llm::{ModelCall, ModelErrorKind, ModelPart, testing};
use crate::types::conversation::{Part, PartKind, Proof, Seal, Thinking};
use crate::types::{TurnEnd, Usage};

const AUTHOR: &str = "claude";

/// A stream of these events, as the API frames it.
fn stream(events: &[Value]) -> String {
    let framed = events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    framed.collect::<Vec<_>>().concat()
}

fn started() -> Value {
    let usage = json!({ "input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 30, "output_tokens": 1 });
    json!({ "type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage,
    } })
}

fn block(index: u64, block: impl Into<Value>) -> Value {
    let block: Value = block.into();
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn delta(index: u64, delta: impl Into<Value>) -> Value {
    let delta: Value = delta.into();
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn text(index: u64, text: &str) -> Value {
    delta(index, json!({ "type": "text_delta", "text": text }))
}

fn input(index: u64, piece: &str) -> Value {
    delta(index, json!({ "type": "input_json_delta", "partial_json": piece }))
}

fn over(index: u64) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

fn tool(index: u64, name: &str) -> Value {
    block(index, json!({ "type": "tool_use", "id": format!("toolu_{index}"), "name": name, "input": {} }))
}

fn ended(reason: &str) -> [Value; 2] {
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    let usage = json!({ "output_tokens": 15 });
    [json!({ "type": "message_delta", "delta": delta, "usage": usage }), json!({ "type": "message_stop" })]
}

fn usage() -> Usage {
    let (cached_tokens, cache_write_tokens) = (30, 20);
    Usage { prompt_tokens: 60, completion_tokens: 15, cached_tokens, cache_write_tokens, ..Usage::default() }
}

fn sealed(text: &str, proof: Proof) -> ModelPart {
    let seal = Some(Box::new(Seal { author: AUTHOR.to_owned(), id: None, proof }));
    ModelPart::Part(PartKind::Thinking(Thinking { text: text.to_owned(), seal }).into())
}

fn called(name: &str, arguments: &str) -> ModelPart {
    ModelPart::Call(ModelCall { name: name.to_owned(), arguments: arguments.to_owned() })
}

fn said(text: &str) -> ModelPart {
    ModelPart::Part(Part::text(text))
}

/// Streams with everything that the API documents, each with its turn.
fn recorded() -> Vec<(&'static str, String, ModelTurn)> {
    let turn = |parts, end| ModelTurn { parts, usage: Some(usage()), end };
    let ping = json!({ "type": "ping" });
    let plain = [
        vec![started(), block(0, json!({ "type": "text", "text": "" })), ping.clone()],
        vec![text(0, "Grüße, "), text(0, "\"world\" "), text(0, "🙂\n"), text(0, "ab"), text(0, "cd"), over(0)],
        ended("end_turn").to_vec(),
    ];
    let thinks = |piece: &str| delta(0, json!({ "type": "thinking_delta", "thinking": piece }));
    let signs = |piece: &str| delta(0, json!({ "type": "signature_delta", "signature": piece }));
    let tools = [
        vec![started(), block(0, json!({ "type": "thinking", "thinking": "", "signature": "" }))],
        vec![thinks("Let "), thinks("me"), thinks(" see"), signs("EqQB"), signs("Cg=="), over(0)],
        vec![block(1, json!({ "type": "redacted_thinking", "data": "Emw=" })), over(1)],
        vec![block(2, json!({ "type": "text", "text": "" })), text(2, "One moment."), over(2)],
        vec![tool(3, "add"), input(3, ""), input(3, "{\"a\": 1"), input(3, "7}"), over(3), ping],
        vec![tool(4, "now"), over(4)],
        ended("tool_use").to_vec(),
    ];
    let search = json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {} });
    let found = json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{ "url": "u" }] });
    let paused = [
        vec![started(), json!({ "type": "news", "delta": "of no kind that is known", "index": "x" })],
        vec![block(0, search), input(0, "{\"query\":"), input(0, "\"x\"}"), over(0), block(1, found.clone()), over(1)],
        vec![block(2, json!({ "type": "text", "text": "", "citations": [] }))],
        vec![delta(2, json!({ "type": "citations_delta", "citation": { "type": "char_location" } })), text(2, "So")],
        ended("pause_turn").to_vec(),
    ];
    let unknown = |json: Value| {
        let json = serde_json::value::to_raw_value(&json).unwrap();
        let kind = PartKind::Unknown {
            dialect: crate::types::conversation::Dialect::AnthropicMessages,
            member: "content".to_owned(),
            json: crate::types::json::RawValueEq(json),
        };
        ModelPart::Part(kind.into())
    };
    let asked =
        json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "x" } });
    vec![
        ("plain", stream(&plain.concat()), turn(vec![said("Grüße, \"world\" 🙂\nabcd")], TurnEnd::Stop)),
        (
            "tools",
            stream(&tools.concat()),
            turn(
                vec![
                    sealed("Let me see", Proof::Signature("EqQBCg==".to_owned())),
                    sealed("", Proof::Encrypted("Emw=".to_owned())),
                    said("One moment."),
                    called("add", "{\"a\": 17}"),
                    called("now", "{}"),
                ],
                TurnEnd::ToolCalls,
            ),
        ),
        ("paused", stream(&paused.concat()), turn(vec![unknown(asked), unknown(found), said("So")], TurnEnd::Paused)),
    ]
}

/// What comes of a stream that arrives in these pieces.
fn decode<'c>(pieces: impl IntoIterator<Item = &'c [u8]>) -> (Vec<Delta>, Result<ModelTurn, Fault>) {
    testing::decode(Decoder::new(AUTHOR.into()), pieces)
}

fn turn(events: &[Value]) -> Result<ModelTurn, Fault> {
    decode([stream(events).as_bytes()]).1
}

#[test]
fn a_stream_means_the_same_wherever_it_is_cut() {
    testing::means_the_same_wherever_it_is_cut(|| Decoder::new(AUTHOR.into()), recorded());
}

#[test]
fn a_stream_that_breaks_off_has_no_turn_before_its_stop_reason() {
    for (name, stream, expected) in recorded() {
        let reason = stream.find("\"stop_reason\":\"").unwrap();
        for end in 0..stream.len() {
            let turn = decode([&stream.as_bytes()[..end]]).1;
            if end <= reason {
                assert_eq!(turn, Err(Fault::Truncated), "{name} ended at {end}");
            } else if let Ok(turn) = turn {
                assert_eq!(turn, expected, "{name} ended at {end}");
            }
        }
        let without_last = stream.rsplit_once("event: message_stop").unwrap().0;
        assert_eq!(decode([without_last.as_bytes()]).1, Ok(expected), "{name} without its last event");
    }
}

#[test]
fn everything_that_is_said_becomes_deltas_in_its_order() {
    let [_, (_, stream, _), _] = <[_; 3]>::try_from(recorded()).unwrap();
    let arguments = |index, delta: &str| Delta::CallArguments { index, delta: delta.to_owned() };
    let expected =
        [Delta::Thinking("Let me see".to_owned()), Delta::Text("One moment.".to_owned()), arguments(0, "{\"a\": 17}")];
    assert_eq!(decode([stream.as_bytes()]).0, expected);
}

#[test]
fn of_the_events_that_say_one_token_each_only_the_first_is_parsed() {
    let mut decoder = Decoder::new(AUTHOR.into());
    let begun = stream(&[started(), block(0, json!({ "type": "text", "text": "" }))]);
    decoder.feed(begun.as_bytes(), &mut Vec::new()).unwrap();
    let events =
        (0..100_usize).map(|token| text(0, &format!("token {token}{}", ["", "\n", " \"it\""][token % 3])).to_string());
    let parsed = events.filter(|event| {
        let is_parsed = decoder.reader.surroundings.piece_of(event.as_bytes()).is_none();
        decoder.feed(format!("data: {event}\n\n").as_bytes(), &mut Vec::new()).unwrap();
        is_parsed
    });
    assert_eq!(parsed.count(), 1);
}

#[test]
fn a_block_that_has_the_number_of_another_is_added_to_alone() {
    let block = || block(0, json!({ "type": "text", "text": "" }));
    let call = tool(0, "f");
    let events = [vec![started(), block(), text(0, "a"), text(0, "b"), call, text(0, "lost"), block(), text(0, "c")]];
    let turn = turn(&[events.concat(), ended("tool_use").to_vec()].concat()).unwrap();
    assert_eq!(turn.parts, [said("ab"), called("f", "{}"), said("c")]);
}

#[test]
fn blocks_that_are_told_by_turns_are_added_to_each() {
    let block = |index| block(index, json!({ "type": "text", "text": "" }));
    // More than is kept of an event.
    let long = "x".repeat(3_000);
    let events =
        [started(), block(0), block(1), text(0, "a"), text(1, &long), text(0, "b"), text(1, "c"), text(0, "d")];
    let turn = turn(&[&events[..], &ended("end_turn")].concat()).unwrap();
    assert_eq!(turn.parts, [said("abd"), said(&format!("{long}c"))]);
}

#[test]
fn a_whole_message_is_read_as_its_stream_is() {
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use", "stop_sequence": null,
        "content": [
            { "type": "thinking", "thinking": "Let me see", "signature": "EqQBCg==" },
            { "type": "redacted_thinking", "data": "Emw=" },
            { "type": "text", "text": "One moment." },
            { "type": "tool_use", "id": "toolu_3", "name": "add", "input": { "a": 17 } },
            { "type": "tool_use", "id": "toolu_4", "name": "now", "input": {} },
        ],
        "usage": { "input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 30, "output_tokens": 15 },
    });
    let (mut decoder, mut deltas) = (Decoder::new(AUTHOR.into()), Vec::new());
    decoder.feed_whole(message.to_string().as_bytes(), &mut deltas).unwrap();
    let [_, (_, _, mut expected), _] = <[_; 3]>::try_from(recorded()).unwrap();
    expected.parts[3] = called("add", "{\"a\":17}");
    assert_eq!(decoder.finish(), Ok(expected));
    assert_eq!(deltas.len(), 3);

    let mut decoder = Decoder::new(AUTHOR.into());
    let error = json!({ "type": "error", "error": { "type": "api_error", "message": "no" } });
    assert!(matches!(decoder.feed_whole(error.to_string().as_bytes(), &mut deltas), Err(Fault::Reported(_))));
    assert_eq!(decoder.feed_whole(b"{\"object\":\"chat.completion\"}", &mut deltas), Err(Fault::NotAnEvent(API)));
}

#[test]
fn a_turn_that_was_cut_short_keeps_its_whole_calls_alone() {
    let begun = [started(), tool(0, "a"), input(0, "{\"x\":1}"), over(0), tool(1, "b"), input(1, "{\"x\":")];
    for (reason, end, names) in [
        ("max_tokens", TurnEnd::Length, &["a"][..]),
        ("model_context_window_exceeded", TurnEnd::Length, &["a"]),
        ("refusal", TurnEnd::ContentFilter, &[]),
        ("tool_use", TurnEnd::ToolCalls, &["a", "b"]),
        ("stop_sequence", TurnEnd::Stop, &["a", "b"]),
    ] {
        let turn = turn(&[&begun[..], &ended(reason)].concat()).unwrap();
        let found: Vec<_> = turn.calls().map(|call| call.name.as_str()).collect();
        assert_eq!((found.as_slice(), turn.end.clone()), (names, end), "{reason}");
    }
    let unknown = turn(&[&begun[..], &ended("eclipse")].concat());
    assert_eq!(unknown, Err(Fault::UnknownEnd("eclipse".to_owned())));
    let text = turn(&[&[started(), block(0, json!({ "type": "text", "text": "hi" }))][..], &ended("eclipse")].concat());
    assert_eq!(text.unwrap().end, TurnEnd::Other("eclipse".to_owned()));
}

#[test]
fn of_each_kind_of_tokens_the_most_counts_in_whichever_event_it_comes() {
    let told = json!({ "input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 30,
        "output_tokens": 15, "output_tokens_details": { "thinking_tokens": 5 } });
    let zeros = json!({ "input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        "output_tokens": 0, "output_tokens_details": { "thinking_tokens": 0 } });
    for (first, last) in [(&told, &zeros), (&zeros, &told)] {
        let begun = json!({ "type": "message_start", "message": { "content": [], "usage": first } });
        let [mut ended, over] = ended("end_turn");
        ended["usage"] = last.clone();
        let usage = Usage { reasoning_tokens: 5, ..usage() };
        assert_eq!(turn(&[begun, ended, over]).unwrap().usage, Some(usage), "{first} {last}");
    }
}

#[test]
fn an_error_in_the_middle_is_told_with_its_kind() {
    for (kind, expected) in [
        ("overloaded_error", ModelErrorKind::Transient),
        ("api_error", ModelErrorKind::Transient),
        ("rate_limit_error", ModelErrorKind::Transient),
        ("invalid_request_error", ModelErrorKind::Rejected),
        ("request_too_large", ModelErrorKind::Rejected),
        ("billing_error", ModelErrorKind::Rejected),
    ] {
        let error =
            json!({ "type": "error", "error": { "type": kind, "message": "Overloaded" }, "request_id": "req_1" });
        let events = [started(), block(0, json!({ "type": "text", "text": "" })), text(0, "half"), error];
        let (deltas, turn) = decode([stream(&events).as_bytes()]);
        assert_eq!(deltas, [Delta::Text("half".to_owned())], "{kind}");
        let Err(Fault::Reported(report)) = turn else { panic!("{turn:?}") };
        assert_eq!((report.to_string().as_str(), report.kind(None)), ("failed: Overloaded", expected), "{kind}");
    }
}

#[test]
fn nothing_that_is_no_event_passes_and_nothing_is_without_bound() {
    for event in [
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "no block" } }),
        json!({ "type": "content_block_delta", "delta": { "type": "text_delta", "text": "no index" } }),
        json!({ "type": "content_block_start", "index": 0 }),
        json!({ "type": "content_block_start", "index": -1, "content_block": { "type": "text" } }),
        json!({ "type": "message_delta", "delta": "end_turn" }),
        json!({ "type": "message_delta", "delta": { "stop_reason": 7 } }),
    ] {
        assert_eq!(turn(&[started(), event.clone()]), Err(Fault::NotAnEvent(API)), "{event}");
    }
    for text in ["data: [DONE]\n\n", "data: {\n\n", "data: 7\n\n", "data: {\"type\":\"ping\",\"x\":\"\u{fffd}\n\n"] {
        assert_eq!(decode([text.as_bytes()]).1, Err(Fault::NotAnEvent(API)), "{text}");
    }
    assert_eq!(decode([&b"data: {\"type\":\"\xC3\"}\n\n"[..]]).1, Err(Fault::NotAnEvent(API)));

    let calls: Vec<Value> = (0..=MAX_CALLS as u64).map(|index| tool(index, "f")).collect();
    assert_eq!(turn(&calls), Err(Fault::TooManyCalls));
    let blocks = vec![block(0, json!({ "type": "text", "text": "" })); MAX_TURN / 100];
    assert_eq!(turn(&blocks), Err(Fault::TooLong));
    let long = "x".repeat(200_000);
    let endless: Vec<Value> = std::iter::once(block(0, json!({ "type": "text", "text": "" })))
        .chain((0..50).map(|_| text(0, &long)))
        .collect();
    assert_eq!(turn(&endless), Err(Fault::TooLong));
    let event = text(0, &"x".repeat(300_000));
    assert_eq!(turn(&[event]), Err(Fault::Unreadable(SseError::EventTooLong(256 << 10))));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let events = format!("data: {{\"type\":\"news\",\"x\":{deep}}}\n\n") + &stream(&ended("end_turn"));
    assert_eq!(decode([events.as_bytes()]).1.map(|turn| turn.end), Ok(TurnEnd::Stop));
}

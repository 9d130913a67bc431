mod bounds;
mod manners;
mod told_twice;

use serde_json::{Value, json};

use super::*;
use crate::llm::{ModelCall, ModelErrorKind, ModelPart, Spent};
use crate::types::conversation::{Dialect, Extra, Part, PartKind, Proof, Seal, Thinking};
use crate::types::json::{Members, RawValueEq};
use crate::types::{TurnEnd, Usage};

const AUTHOR: &str = "openai/gpt-5";

/// A stream of these events, numbered and framed as the API does.
fn stream(events: &[Value]) -> String {
    let framed = events.iter().enumerate().map(|(number, event)| {
        let mut event = event.clone();
        event["sequence_number"] = number.into();
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
    });
    framed.collect::<Vec<_>>().concat()
}

fn begun() -> [Value; 2] {
    let response =
        json!({ "id": "resp_1", "object": "response", "status": "in_progress", "output": [], "usage": null });
    ["response.created", "response.in_progress"].map(|kind| json!({ "type": kind, "response": response }))
}

fn added(index: u64, item: impl Into<Value>) -> Value {
    let item: Value = item.into();
    json!({ "type": "response.output_item.added", "output_index": index, "item": item })
}

fn done(index: u64, item: impl Into<Value>) -> Value {
    let item: Value = item.into();
    json!({ "type": "response.output_item.done", "output_index": index, "item": item })
}

fn delta(kind: &str, index: u64, delta: &str) -> Value {
    let part = if kind.starts_with("reasoning_summary") { "summary_index" } else { "content_index" };
    json!({ "type": format!("response.{kind}.delta"), "item_id": "x", "output_index": index, part: 0, "delta": delta })
}

fn text(index: u64, said: &str) -> Value {
    let mut event = delta("output_text", index, said);
    event["logprobs"] = json!([]);
    event
}

fn arguments(index: u64, piece: &str) -> Value {
    delta("function_call_arguments", index, piece)
}

fn message(said: &str) -> Value {
    let content = json!([{ "type": "output_text", "text": said, "annotations": [] }]);
    let content = if said.is_empty() { json!([]) } else { content };
    json!({ "id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content })
}

fn call(name: &str, arguments: &str) -> Value {
    json!({ "id": format!("fc_{name}"), "type": "function_call", "call_id": format!("call_{name}"), "name": name,
        "arguments": arguments })
}

fn reasoning(summary: &[&str], encrypted: &str) -> Value {
    let summary: Vec<_> = summary.iter().map(|text| json!({ "type": "summary_text", "text": text })).collect();
    json!({ "id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": encrypted })
}

fn told() -> Value {
    json!({ "input_tokens": 60, "input_tokens_details": { "cached_tokens": 30, "cache_write_tokens": 20 },
        "output_tokens": 15, "output_tokens_details": { "reasoning_tokens": 5 }, "total_tokens": 75 })
}

fn usage() -> Usage {
    Usage {
        prompt_tokens: 60,
        completion_tokens: 15,
        cached_tokens: 30,
        cache_write_tokens: 20,
        reasoning_tokens: 5,
        estimated: false,
    }
}

fn response(status: &str, output: &[Value]) -> Value {
    json!({ "id": "resp_1", "object": "response", "status": status, "output": output, "usage": told(), "error": null })
}

fn completed(output: &[Value]) -> Value {
    json!({ "type": "response.completed", "response": response("completed", output) })
}

fn cut_short(reason: &str, output: &[Value]) -> Value {
    let mut response = response("incomplete", output);
    response["incomplete_details"] = json!({ "reason": reason });
    json!({ "type": "response.incomplete", "response": response })
}

fn sealed(text: &str, encrypted: &str) -> ModelPart {
    let proof = Proof::Encrypted(encrypted.to_owned());
    let seal = Some(Box::new(Seal { author: AUTHOR.to_owned(), id: Some("rs_1".to_owned()), proof }));
    ModelPart::Part(PartKind::Thinking(Thinking { text: text.to_owned(), seal }).into())
}

fn called(name: &str, arguments: &str) -> ModelPart {
    ModelPart::Call(ModelCall { name: name.to_owned(), arguments: arguments.to_owned() })
}

fn said(text: &str) -> ModelPart {
    ModelPart::Part(Part::text(text))
}

/// Text of a message with this phase.
fn said_in(phase: &str, text: &str) -> ModelPart {
    let json = serde_json::value::to_raw_value(phase).unwrap();
    let extra = Extra::new(Dialect::OpenaiResponses, Members(vec![("phase".to_owned(), RawValueEq(json))]));
    ModelPart::Part(Part { kind: PartKind::Text(text.to_owned()), extra })
}

/// Streams with everything that the API documents of functions and text, each with its turn.
fn recorded() -> [(&'static str, String, ModelTurn); 3] {
    let turn = |(events, parts, end): (Vec<Value>, Vec<ModelPart>, TurnEnd)| {
        (stream(&[&begun()[..], &events].concat()), ModelTurn { parts, usage: Some(usage()), end })
    };
    [("plain", turn(plain())), ("tools", turn(tools())), ("refused", turn(refused()))]
        .map(|(name, (stream, turn))| (name, stream, turn))
}

fn plain() -> (Vec<Value>, Vec<ModelPart>, TurnEnd) {
    let part = |kind: &str| {
        json!({ "type": format!("response.content_part.{kind}"), "output_index": 0, "content_index": 0,
            "part": { "type": "output_text", "text": "Grüße", "annotations": [] } })
    };
    let whole = "Grüße, \"world\" 🙂\nabcd";
    let events = [
        vec![added(0, message("")), part("added"), json!({ "type": "keepalive" })],
        vec![text(0, "Grüße, "), text(0, "\"world\" "), text(0, "🙂\n"), text(0, "ab"), text(0, "cd")],
        vec![json!({ "type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": whole })],
        vec![part("done"), done(0, message(whole)), completed(&[message(whole)])],
    ];
    (events.concat(), vec![said(whole)], TurnEnd::Stop)
}

fn tools() -> (Vec<Value>, Vec<ModelPart>, TurnEnd) {
    let summary = |index: u64, piece: &str| {
        let mut event = delta("reasoning_summary_text", 0, piece);
        event["summary_index"] = index.into();
        event
    };
    let mut aside = message("One moment.");
    aside["phase"] = "commentary".into();
    let mut aside_begun = aside.clone();
    aside_begun["content"] = json!([]);
    let thought = reasoning(&["Let me see", "And so"], "gAAAAB==");
    let add = call("add", "{\"a\": 17}");
    let all = json!({ "type": "response.function_call_arguments.done", "output_index": 2, "arguments": "{\"a\": 17}" });
    let events = [
        vec![added(0, reasoning(&[], "gAA")), summary(0, "Let "), summary(0, "me"), summary(0, " see")],
        vec![summary(1, "And so"), done(0, thought.clone())],
        vec![added(1, aside_begun), text(1, "One moment."), done(1, aside.clone())],
        vec![added(2, call("add", "")), arguments(2, "{\"a\": 1"), arguments(2, "7}"), all, done(2, add.clone())],
        vec![added(3, call("now", "")), done(3, call("now", ""))],
        vec![completed(&[thought, aside, add, call("now", "")])],
    ];
    let parts = vec![
        sealed("Let me see\n\nAnd so", "gAAAAB=="),
        said_in("commentary", "One moment."),
        called("add", "{\"a\": 17}"),
        called("now", "{}"),
    ];
    (events.concat(), parts, TurnEnd::ToolCalls)
}

fn refused() -> (Vec<Value>, Vec<ModelPart>, TurnEnd) {
    let refusal = json!({ "id": "msg_1", "type": "message", "role": "assistant", "content": [
        { "type": "output_text", "text": "Well. ", "annotations": [] }, { "type": "refusal", "refusal": "I can't." } ] });
    let declines = |piece: &str| {
        let mut event = delta("refusal", 0, piece);
        event["content_index"] = 1.into();
        event
    };
    let events = [
        vec![added(0, message("")), text(0, "Well. "), declines("I "), declines("can't."), done(0, refusal.clone())],
        vec![json!({ "type": "response.output_text.annotation.added", "delta": { "of": "no kind" } })],
        vec![completed(&[refusal])],
    ];
    let declined = ModelPart::Part(PartKind::Refusal("I can't.".to_owned()).into());
    (events.concat(), vec![said("Well. "), declined], TurnEnd::Stop)
}

/// What comes of a stream that arrives in these pieces.
fn decode<'c>(pieces: impl IntoIterator<Item = &'c [u8]>) -> (Vec<Delta>, Result<ModelTurn, Fault>) {
    let (mut decoder, mut deltas) = (Decoder::new(AUTHOR.into()), Vec::new());
    for piece in pieces {
        match decoder.feed(piece, &mut deltas) {
            Ok(Progress::Done) => break,
            Ok(Progress::Spoke | Progress::Silent) => {}
            Err(fault) => return (deltas, Err(fault)),
        }
    }
    (deltas, decoder.finish())
}

fn turn(events: &[Value]) -> Result<ModelTurn, Fault> {
    decode([stream(events).as_bytes()]).1
}

#[test]
fn a_stream_means_the_same_wherever_it_is_cut() {
    for (name, stream, expected) in recorded() {
        let bytes = stream.as_bytes();
        for cut in 0..=bytes.len() {
            let (before, after) = bytes.split_at(cut);
            assert_eq!(decode([before, after]).1.as_ref(), Ok(&expected), "{name} cut at {cut}");
        }
        let (deltas, turn) = decode(bytes.chunks(1));
        assert_eq!(turn.as_ref(), Ok(&expected), "{name} byte by byte");
        let texts =
            deltas.iter().filter_map(|delta| if let Delta::Text(text) = delta { Some(text.as_str()) } else { None });
        assert_eq!(texts.collect::<String>(), expected.text(), "{name}");
    }
}

#[test]
fn a_stream_that_breaks_off_has_no_turn() {
    for (name, stream, expected) in recorded() {
        // The last event lacks nothing but the empty line that ends it.
        for end in 0..stream.len() - 1 {
            let turn = decode([&stream.as_bytes()[..end]]).1;
            assert_eq!(turn, Err(Fault::Truncated), "{name} ended at {end}");
        }
        let with_done = format!("{stream}data: [DONE]\n\n");
        assert_eq!(decode([with_done.as_bytes()]).1, Ok(expected), "{name}");
        let (unfinished, _) = stream.split_once("event: response.completed").unwrap();
        let unfinished = format!("{unfinished}data: [DONE]\n\n");
        assert_eq!(decode([unfinished.as_bytes()]).1, Err(Fault::Truncated), "{name}");
    }
}

#[test]
fn everything_that_is_said_becomes_deltas_in_its_order() {
    let [_, (_, tools, _), (_, refused, _)] = recorded();
    let expected = [
        Delta::Thinking("Let me see\n\nAnd so".to_owned()),
        Delta::Text("One moment.".to_owned()),
        Delta::CallArguments { index: 0, delta: "{\"a\": 17}".to_owned() },
    ];
    assert_eq!(decode([tools.as_bytes()]).0, expected);
    let expected = [Delta::Text("Well. ".to_owned()), Delta::Refusal("I can't.".to_owned())];
    assert_eq!(decode([refused.as_bytes()]).0, expected);
}

#[test]
fn of_the_events_that_say_one_token_each_only_the_first_is_parsed() {
    for (kind, item) in [("output_text", message("")), ("reasoning_summary_text", reasoning(&[], ""))] {
        let events = (8..200).map(|number| {
            let mut event = delta(kind, 0, &format!("token {number}"));
            event["sequence_number"] = number.into();
            event.to_string()
        });
        let mut decoder = Decoder::new(AUTHOR.into());
        decoder.feed(stream(&[added(0, item)]).as_bytes(), &mut Vec::new()).unwrap();
        let parsed = events.filter(|event| {
            let is_parsed = decoder.reader.surroundings.piece_of(event.as_bytes()).is_none();
            decoder.feed(format!("data: {event}\n\n").as_bytes(), &mut Vec::new()).unwrap();
            is_parsed
        });
        assert_eq!(parsed.count(), 1, "{kind}");
    }
}

#[test]
fn items_that_are_told_by_turns_are_added_to_each() {
    // More than is kept of an event.
    let long = "x".repeat(3_000);
    let items = [added(0, message("")), added(1, message(""))];
    let events = [text(0, "a"), text(1, &long), text(0, "b"), text(1, "c"), text(0, "d")];
    let turn = turn(&[&items[..], &events, &[completed(&[])]].concat()).unwrap();
    assert_eq!(turn.parts, [said("abd"), said(&format!("{long}c"))]);
}

#[test]
fn what_no_delta_said_is_read_where_it_is_told_as_a_whole() {
    let [_, (_, _, expected), _] = recorded();
    let mut aside = message("One moment.");
    aside["phase"] = "commentary".into();
    let items = [reasoning(&["Let me see", "And so"], "gAAAAB=="), aside, call("add", "{\"a\": 17}"), call("now", "")];
    let in_items: Vec<Value> = (0..).zip(&items).map(|(index, item)| done(index, item.clone())).collect();
    for events in [[&in_items[..], &[completed(&[])]].concat(), vec![completed(&items)]] {
        assert_eq!(turn(&events).as_ref(), Ok(&expected), "{events:?}");
    }
    let (mut decoder, mut deltas) = (Decoder::new(AUTHOR.into()), Vec::new());
    decoder.feed_whole(response("completed", &items).to_string().as_bytes(), &mut deltas).unwrap();
    assert_eq!(decoder.finish(), Ok(expected));
    assert_eq!(deltas.len(), 3);

    let mut decoder = Decoder::new(AUTHOR.into());
    let error = json!({ "error": { "type": "server_error", "message": "no" } });
    assert!(matches!(decoder.feed_whole(error.to_string().as_bytes(), &mut deltas), Err(Fault::Reported(_))));
    let running = response("in_progress", &items).to_string();
    assert_eq!(decoder.feed_whole(running.as_bytes(), &mut deltas), Err(Fault::Truncated));
    assert_eq!(decoder.feed_whole(b"{\"object\":\"chat.completion\"}", &mut deltas), Err(Fault::NotAnEvent(API)));
}

#[test]
fn a_turn_that_was_cut_short_keeps_its_whole_calls_alone() {
    let begun = [added(0, call("a", "")), arguments(0, "{\"x\":1}"), added(1, call("b", "")), arguments(1, "{\"x\":")];
    for (last, end, names) in [
        (cut_short("max_output_tokens", &[]), TurnEnd::Length, &["a"][..]),
        (cut_short("content_filter", &[]), TurnEnd::ContentFilter, &[]),
        (completed(&[]), TurnEnd::ToolCalls, &["a", "b"]),
    ] {
        let turn = turn(&[&begun[..], std::slice::from_ref(&last)].concat()).unwrap();
        let found: Vec<_> = turn.calls().map(|call| call.name.as_str()).collect();
        assert_eq!((found.as_slice(), turn.end.clone()), (names, end), "{last}");
    }
    let unknown = turn(&[&begun[..], &[cut_short("eclipse", &[])]].concat());
    assert_eq!(unknown, Err(Fault::UnknownEnd("eclipse".to_owned())));
    for (reason, expected) in [("eclipse", "eclipse"), ("", "incomplete")] {
        let text = turn(&[added(0, message("")), text(0, "hi"), cut_short(reason, &[])]).unwrap();
        assert_eq!(text.end, TurnEnd::Other(expected.to_owned()));
    }
}

#[test]
fn an_error_in_the_middle_is_told_with_its_kind() {
    let failed = |code: &str| {
        let mut response = response("failed", &[]);
        response["error"] = json!({ "code": code, "message": "Overloaded" });
        json!({ "type": "response.failed", "response": response })
    };
    let flat = |code: &str| json!({ "type": "error", "code": code, "message": "Overloaded", "param": null });
    let nested = |code: &str| json!({ "type": "error", "error": { "type": code, "message": "Overloaded" } });
    let untyped = |code: &str| json!({ "type": "", "error": { "code": code, "message": "Overloaded" } });
    for (code, expected, status) in [
        ("server_error", ModelErrorKind::Transient, None),
        ("rate_limit_exceeded", ModelErrorKind::Transient, None),
        ("vector_store_timeout", ModelErrorKind::Transient, None),
        ("invalid_prompt", ModelErrorKind::Rejected, Some(400)),
        ("invalid_image_url", ModelErrorKind::Rejected, Some(400)),
        ("image_too_large", ModelErrorKind::Rejected, Some(400)),
        ("empty_image_file", ModelErrorKind::Rejected, Some(400)),
        ("bio_policy", ModelErrorKind::Rejected, Some(400)),
        ("data_residency_mismatch", ModelErrorKind::Rejected, None),
        ("insufficient_quota", ModelErrorKind::Rejected, None),
        ("context_length_exceeded", ModelErrorKind::ContextLength, None),
    ] {
        for error in [failed(code), flat(code), nested(code), untyped(code)] {
            let events = [added(0, message("")), text(0, "half"), error.clone()];
            let (deltas, turn) = decode([stream(&events).as_bytes()]);
            assert_eq!(deltas, [Delta::Text("half".to_owned())], "{error}");
            let Err(Fault::Reported(report)) = turn else { panic!("{turn:?}") };
            let found = (report.to_string(), report.kind(None), report.status());
            assert_eq!(found, ("failed: Overloaded".to_owned(), expected, status), "{error}");
        }
    }
}

#[test]
fn nothing_that_is_no_event_passes() {
    for event in [
        text(7, "no item"),
        json!({ "type": "response.output_text.delta", "output_index": 0, "delta": { "text": "x" } }),
        json!({ "type": "response.output_text.delta", "output_index": -1, "delta": "x" }),
        json!({ "type": "response.output_item.added", "output_index": 1 }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": { "type": 7 } }),
        json!({ "type": "response.completed" }),
        json!({ "type": "response.completed", "response": 7 }),
        json!({ "type": "response.completed", "response": { "status": "completed", "output": [7] } }),
    ] {
        assert_eq!(turn(&[added(0, message("")), event.clone()]), Err(Fault::NotAnEvent(API)), "{event}");
    }
    for text in ["data: {\n\n", "data: 7\n\n", "data: {\"choices\":[]\n\n"] {
        assert_eq!(decode([text.as_bytes()]).1, Err(Fault::NotAnEvent(API)), "{text}");
    }
    assert_eq!(decode([&b"data: {\"type\":\"\xC3\"}\n\n"[..]]).1, Err(Fault::NotAnEvent(API)));

    let event = text(0, &"x".repeat(MAX_EVENT));
    assert!(matches!(turn(&[event]), Err(Fault::Unreadable(_))));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let events = format!("data: {{\"type\":\"news\",\"x\":{deep}}}\n\n") + &stream(&[completed(&[])]);
    assert_eq!(decode([events.as_bytes()]).1.map(|turn| turn.end), Ok(TurnEnd::Stop));
}

#[test]
fn the_last_event_may_repeat_a_long_answer() {
    let long = "x".repeat(400_000);
    let mut events = vec![added(0, message(""))];
    events.extend((0..400).map(|_| text(0, &long[..1_000])));
    events.extend([done(0, message(&long)), completed(&[message(&long)])]);
    assert_eq!(turn(&events).map(|turn| turn.text().len()), Ok(400_000));
}

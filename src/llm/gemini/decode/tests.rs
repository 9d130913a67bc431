use serde_json::{Value, json};

use super::*;
use crate::llm::http::fault::{MAX_CALLS, MAX_TURN};
use crate::llm::{ModelCall, ModelErrorKind, ModelPart, testing};
use crate::types::conversation::{Dialect, Part, PartKind, Proof, Seal, Thinking};
use crate::types::json::RawValueEq;
use crate::types::{TurnEnd, Usage};

mod end;
mod repeated;

const AUTHOR: &str = "gemini/m";

/// A stream of these chunks, as the API frames it.
fn stream(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect::<Vec<_>>().concat()
}

/// A chunk of these parts, with the usage so far.
fn chunk(parts: &[Value]) -> Value {
    json!({
        "candidates": [{ "content": { "parts": parts, "role": "model" }, "index": 0 }],
        "usageMetadata": { "promptTokenCount": 60, "candidatesTokenCount": 1, "totalTokenCount": 61,
            "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": 60 }] },
        "modelVersion": "gemini-3-flash-preview", "responseId": "r1",
    })
}

/// The last chunk, with the usage of the whole turn.
fn ended(parts: &[Value], reason: &str) -> Value {
    let mut last = chunk(parts);
    last["candidates"][0]["finishReason"] = json!(reason);
    last["usageMetadata"] = json!({ "promptTokenCount": 60, "cachedContentTokenCount": 30, "candidatesTokenCount": 10,
        "thoughtsTokenCount": 5, "totalTokenCount": 75 });
    last
}

fn usage() -> Usage {
    let (cached_tokens, reasoning_tokens) = (30, 5);
    Usage { prompt_tokens: 60, completion_tokens: 15, cached_tokens, reasoning_tokens, ..Usage::default() }
}

fn text(text: &str) -> Value {
    json!({ "text": text })
}

fn thought(text: &str) -> Value {
    json!({ "text": text, "thought": true })
}

fn call(name: &str, args: &Value) -> Value {
    json!({ "functionCall": { "name": name, "args": args, "id": format!("id-{name}") } })
}

fn signed(mut part: Value, signature: &str) -> Value {
    part["thoughtSignature"] = json!(signature);
    part
}

fn thinking(text: &str, proof: Option<Proof>) -> ModelPart {
    let seal = proof.map(|proof| Box::new(Seal { author: AUTHOR.to_owned(), id: None, proof }));
    ModelPart::Part(PartKind::Thinking(Thinking { text: text.to_owned(), seal }).into())
}

fn before(signature: &str) -> ModelPart {
    thinking("", Some(Proof::Following(signature.to_owned())))
}

fn alone(signature: &str) -> ModelPart {
    thinking("", Some(Proof::Signature(signature.to_owned())))
}

fn called(name: &str, arguments: &str) -> ModelPart {
    ModelPart::Call(ModelCall { name: name.to_owned(), arguments: arguments.to_owned() })
}

fn said(text: &str) -> ModelPart {
    ModelPart::Part(Part::text(text))
}

fn ends(parts: Vec<ModelPart>, end: TurnEnd) -> ModelTurn {
    ModelTurn { parts, usage: Some(usage()), end }
}

/// Streams with everything that the API documents, each with its turn.
fn recorded() -> [(&'static str, String, ModelTurn); 3] {
    [plain(), tools(), signatures()]
}

fn plain() -> (&'static str, String, ModelTurn) {
    let chunks = [
        chunk(&[thought("**Greeting**\n")]),
        chunk(&[thought("Let me see")]),
        chunk(&[text("Grüße, "), text("\"world\" ")]),
        chunk(&[text("🙂\n")]),
        ended(&[signed(text(""), "EqQB")], "STOP"),
    ];
    let parts = vec![thinking("**Greeting**\nLet me see", None), said("Grüße, \"world\" 🙂\n"), alone("EqQB")];
    ("plain", stream(&chunks), ends(parts, TurnEnd::Stop))
}

fn tools() -> (&'static str, String, ModelTurn) {
    let chunks = [
        chunk(&[text("One moment.")]),
        chunk(&[signed(call("add", &json!({ "a": 17, "b": [] })), "Cg==")]),
        chunk(&[call("now", &json!({}))]),
        ended(&[json!({ "functionCall": { "name": "bare" } })], "STOP"),
    ];
    let add = called("add", "{\"a\":17,\"b\":[]}");
    let parts = vec![said("One moment."), before("Cg=="), add, called("now", "{}"), called("bare", "{}")];
    ("tools", stream(&chunks), ends(parts, TurnEnd::ToolCalls))
}

fn signatures() -> (&'static str, String, ModelTurn) {
    let code = json!({ "executableCode": { "language": "PYTHON", "code": "print(6*7)" } });
    let chunks = [
        chunk(&[signed(thought("hm"), "AAAA"), thought("so")]),
        chunk(&[signed(code.clone(), "BBBB"), signed(text("42"), "CCCC"), text(" it is")]),
        ended(&[json!({ "thoughtSignature": "DDDD" }), text("")], "STOP"),
    ];
    let json = RawValueEq(serde_json::value::to_raw_value(&code).unwrap());
    let unknown = PartKind::Unknown { dialect: Dialect::GeminiContents, member: "parts".to_owned(), json };
    let signed = thinking("hm", Some(Proof::Signature("AAAA".to_owned())));
    let parts = vec![
        signed,
        thinking("so", None),
        before("BBBB"),
        ModelPart::Part(unknown.into()),
        before("CCCC"),
        said("42"),
        said(" it is"),
        alone("DDDD"),
    ];
    ("signatures", stream(&chunks), ends(parts, TurnEnd::Stop))
}

/// What comes of a stream that arrives in these pieces.
fn decode<'c>(pieces: impl IntoIterator<Item = &'c [u8]>) -> (Vec<Delta>, Result<ModelTurn, Fault>) {
    testing::decode(Decoder::new(AUTHOR.into(), true), pieces)
}

fn turn(chunks: &[Value]) -> Result<ModelTurn, Fault> {
    decode([stream(chunks).as_bytes()]).1
}

#[test]
fn a_stream_means_the_same_wherever_it_is_cut() {
    testing::means_the_same_wherever_it_is_cut(|| Decoder::new(AUTHOR.into(), true), recorded());
}

#[test]
fn a_stream_that_breaks_off_has_no_turn_before_its_finish_reason() {
    for (name, stream, expected) in recorded() {
        // Only the last chunk has one. It counts with the empty line after it, which a carriage return alone may end.
        let whole = stream.len() - 1;
        for end in 0..=stream.len() {
            let turn = decode([&stream.as_bytes()[..end]]).1;
            let expected = if end < whole { Err(Fault::Truncated) } else { Ok(expected.clone()) };
            assert_eq!(turn, expected, "{name} ended at {end}");
        }
    }
}

#[test]
fn everything_that_is_said_becomes_deltas_in_its_order() {
    let [(_, plain, _), (_, tools, _), _] = recorded();
    let arguments = |index, delta: &str| Delta::CallArguments { index, delta: delta.to_owned() };
    assert_eq!(
        decode([plain.as_bytes()]).0,
        [Delta::Thinking("**Greeting**\nLet me see".to_owned()), Delta::Text("Grüße, \"world\" 🙂\n".to_owned())]
    );
    assert_eq!(
        decode([tools.as_bytes()]).0,
        [
            Delta::Text("One moment.".to_owned()),
            arguments(0, "{\"a\":17,\"b\":[]}"),
            arguments(1, "{}"),
            arguments(2, "{}"),
        ]
    );
}

#[test]
fn a_whole_answer_is_read_as_its_stream_is_also_as_a_list_of_chunks() {
    let parts =
        [text("One moment."), signed(call("add", &json!({ "a": 17, "b": [] })), "Cg=="), call("now", &json!({}))];
    let last = [json!({ "functionCall": { "name": "bare", "args": null } })];
    let (_, _, expected) = tools();
    let whole = ended(&[&parts[..], &last].concat(), "STOP");
    for json in [whole, json!([chunk(&parts), ended(&last, "STOP")])] {
        let (mut decoder, mut deltas) = (Decoder::new(AUTHOR.into(), true), Vec::new());
        decoder.feed_whole(json.to_string().as_bytes(), &mut deltas).unwrap();
        assert_eq!((decoder.finish().as_ref(), deltas.len()), (Ok(&expected), 4), "{json}");
    }
    let mut decoder = Decoder::new(AUTHOR.into(), true);
    for json in ["[{\"error\":{\"code\":500,\"message\":\"no\"}}]", "{\"error\":{\"code\":500,\"message\":\"no\"}}"] {
        assert!(matches!(decoder.feed_whole(json.as_bytes(), &mut Vec::new()), Err(Fault::Reported(_))), "{json}");
    }
    assert_eq!(decoder.feed_whole(b"{\"candidates\":7}", &mut Vec::new()), Err(Fault::NotAnEvent(API)));
}

#[test]
fn a_turn_ends_for_the_reason_that_its_upstream_gives() {
    let begun = [chunk(&[text("So"), signed(call("a", &json!({})), "AA==")])];
    for (reason, end, calls) in [
        ("STOP", TurnEnd::ToolCalls, 1),
        ("MAX_TOKENS", TurnEnd::Length, 1),
        ("SAFETY", TurnEnd::ContentFilter, 0),
        ("RECITATION", TurnEnd::ContentFilter, 0),
        ("BLOCKLIST", TurnEnd::ContentFilter, 0),
        ("PROHIBITED_CONTENT", TurnEnd::ContentFilter, 0),
        ("SPII", TurnEnd::ContentFilter, 0),
    ] {
        let turn = turn(&[&begun[..], &[ended(&[], reason)]].concat()).unwrap();
        assert_eq!((turn.end.clone(), turn.calls().count()), (end, calls), "{reason}");
        assert_eq!(turn.parts.len(), 1 + 2 * calls, "a call that is taken back takes its signature along: {reason}");
    }
    let other = |reason: &str, begun: &[Value]| turn(&[begun, &[ended(&[], reason)]].concat());
    assert_eq!(other("LANGUAGE", &begun), Err(Fault::UnknownEnd("LANGUAGE".to_owned())));
    assert_eq!(other("LANGUAGE", &[]).unwrap().end, TurnEnd::Other("LANGUAGE".to_owned()));
    assert_eq!(other("FINISH_REASON_UNSPECIFIED", &begun), Err(Fault::Truncated));

    let mut malformed = ended(&[], "MALFORMED_FUNCTION_CALL");
    malformed["candidates"][0]["finishMessage"] = json!("Malformed function call: print(");
    let fault = turn(&[malformed]).unwrap_err();
    let says =
        "could not use the tool call that its model wrote: MALFORMED_FUNCTION_CALL Malformed function call: print(";
    assert_eq!(fault.to_string(), says);
    assert_eq!(other("UNEXPECTED_TOOL_CALL", &[]), Err(Fault::UnusableCall("UNEXPECTED_TOOL_CALL".to_owned())));
}

#[test]
fn a_request_that_is_blocked_is_answered_with_nothing() {
    for reason in ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT"] {
        let blocked = json!({ "promptFeedback": { "blockReason": reason, "safetyRatings": [] },
            "usageMetadata": { "promptTokenCount": 7, "totalTokenCount": 7 } });
        let usage = Some(Usage { prompt_tokens: 7, ..Usage::default() });
        assert_eq!(
            turn(&[blocked]),
            Ok(ModelTurn { parts: Vec::new(), usage, end: TurnEnd::ContentFilter }),
            "{reason}"
        );
    }
    let feedback = json!({ "promptFeedback": { "safetyRatings": [] } });
    assert_eq!(turn(&[feedback]), Err(Fault::Truncated));
}

#[test]
fn of_each_kind_of_tokens_the_most_counts_and_reasoning_is_output() {
    let told = json!({ "promptTokenCount": 60, "cachedContentTokenCount": 30, "candidatesTokenCount": 10,
        "thoughtsTokenCount": 5, "toolUsePromptTokenCount": 8 });
    let none = json!({ "promptTokenCount": 60 });
    for (first, second) in [(&told, &none), (&none, &told)] {
        let (mut begun, mut last) = (chunk(&[text("a")]), ended(&[], "STOP"));
        (begun["usageMetadata"], last["usageMetadata"]) = (first.clone(), second.clone());
        let usage = Usage { prompt_tokens: 68, ..usage() };
        assert_eq!(turn(&[begun, last]).unwrap().usage, Some(usage), "{first} {second}");
    }
    assert_eq!(turn(&[json!({ "candidates": [{ "finishReason": "STOP" }] })]).unwrap().usage, None);
}

#[test]
fn where_one_call_is_asked_for_the_turn_ends_with_its_first() {
    let calls = [signed(call("a", &json!({ "x": 1 })), "AA=="), call("b", &json!({}))];
    let (mut decoder, mut deltas) = (Decoder::new(AUTHOR.into(), false), Vec::new());
    decoder.feed(stream(&[chunk(&calls), ended(&[call("c", &json!({}))], "STOP")]).as_bytes(), &mut deltas).unwrap();
    assert_eq!(decoder.finish().unwrap().parts, [before("AA=="), called("a", "{\"x\":1}")]);
    assert_eq!(deltas, [Delta::CallArguments { index: 0, delta: "{\"x\":1}".to_owned() }]);
}

#[test]
fn an_error_in_the_middle_is_told_with_its_kind_and_wait() {
    for (code, status, expected) in [
        (503, "UNAVAILABLE", ModelErrorKind::Transient),
        (429, "RESOURCE_EXHAUSTED", ModelErrorKind::Transient),
        (500, "INTERNAL", ModelErrorKind::Transient),
        (400, "INVALID_ARGUMENT", ModelErrorKind::Rejected),
        (404, "NOT_FOUND", ModelErrorKind::Rejected),
    ] {
        let delay = json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s" });
        let error = json!({ "code": code, "message": "No.", "status": status, "details": [delay] });
        let (deltas, turn) = decode([stream(&[chunk(&[text("half")]), json!({ "error": error })]).as_bytes()]);
        assert_eq!(deltas, [Delta::Text("half".to_owned())], "{status}");
        let Err(Fault::Reported(report)) = turn else { panic!("{turn:?}") };
        assert_eq!((report.to_string().as_str(), report.kind(None)), ("failed: No.", expected), "{status}");
        assert_eq!(report.retry_after(), Some(std::time::Duration::from_millis(34_500)), "{status}");
    }
}

#[test]
fn nothing_that_is_no_answer_passes_and_nothing_is_without_bound() {
    for event in [
        json!({ "candidates": "none" }),
        json!({ "candidates": [{ "finishReason": 7 }] }),
        json!({ "candidates": [{ "content": { "parts": [{ "text": 7 }] } }] }),
        json!({ "candidates": [{ "content": { "parts": ["text"] } }] }),
        json!({ "candidates": [{ "content": { "parts": [{ "functionCall": { "name": {} } }] } }] }),
        json!({ "usageMetadata": { "promptTokenCount": -1 } }),
    ] {
        assert_eq!(turn(&[chunk(&[text("a")]), event.clone()]), Err(Fault::NotAnEvent(API)), "{event}");
    }
    for text in ["data: DONE\n\n", "data: {\n\n", "data: 7\n\n"] {
        assert_eq!(decode([text.as_bytes()]).1, Err(Fault::NotAnEvent(API)), "{text}");
    }
    let of_another = json!({ "candidates": [{ "index": 1, "content": { "parts": [{ "text": "b" }] } }] });
    assert_eq!(turn(&[of_another, ended(&[text("a")], "STOP")]).unwrap().text(), "a");

    let calls = vec![call("f", &json!({})); MAX_CALLS + 1];
    assert_eq!(turn(&[chunk(&calls)]), Err(Fault::TooManyCalls));
    let signatures = vec![chunk(&vec![json!({ "thoughtSignature": "A" }); 1_000]); MAX_TURN / 100_000];
    assert_eq!(turn(&signatures), Err(Fault::TooLong));
}

#[test]
fn a_call_may_be_as_long_as_a_turn() {
    let args = json!({ "content": "x\n".repeat(150 << 10) });
    let (_, turn) = decode([stream(&[ended(&[call("write", &args)], "STOP")]).as_bytes()]);
    assert_eq!(turn.unwrap().parts, [called("write", &args.to_string())]);
}

#[test]
fn the_total_tells_what_else_is_counted_as_output() {
    for (told, expected) in [
        // Reasoning that is not counted of its own.
        (
            json!({ "promptTokenCount": 19_588, "candidatesTokenCount": 69, "totalTokenCount": 19_801 }),
            (19_588, 213, 144),
        ),
        // Reasoning that is counted among what is said.
        (
            json!({ "promptTokenCount": 60, "candidatesTokenCount": 15, "thoughtsTokenCount": 5, "totalTokenCount": 75 }),
            (60, 15, 5),
        ),
        (
            json!({ "promptTokenCount": 60, "candidatesTokenCount": 10, "thoughtsTokenCount": 5, "totalTokenCount": 75 }),
            (60, 15, 5),
        ),
        (
            json!({ "promptTokenCount": 60, "toolUsePromptTokenCount": 8, "candidatesTokenCount": 10, "thoughtsTokenCount": 5,
                "totalTokenCount": 83 }),
            (68, 15, 5),
        ),
        // A total without the reasoning, and one that is less than its parts.
        (
            json!({ "promptTokenCount": 60, "candidatesTokenCount": 2, "thoughtsTokenCount": 5, "totalTokenCount": 62 }),
            (60, 7, 5),
        ),
        (json!({ "promptTokenCount": 60, "candidatesTokenCount": 10, "totalTokenCount": 1 }), (60, 10, 0)),
        (json!({ "promptTokenCount": 60, "thoughtsTokenCount": 67, "totalTokenCount": 127 }), (60, 67, 67)),
        (json!({ "promptTokenCount": 60, "totalTokenCount": 70 }), (60, 10, 0)),
    ] {
        let mut last = ended(&[text("a")], "STOP");
        last["usageMetadata"] = told.clone();
        let usage = turn(&[last]).unwrap().usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens), expected, "{told}");
    }
}

#[test]
fn a_part_of_nulls_is_no_part() {
    let nothing =
        [json!({ "text": null }), json!({ "text": null, "functionCall": null, "inlineData": null }), json!({})];
    let parts = [&nothing[..], &[text("a")]].concat();
    assert_eq!(turn(&[ended(&parts, "STOP")]).unwrap().parts, [said("a")]);
    let signed = signed(json!({ "text": null }), "AA==");
    assert_eq!(turn(&[ended(&[signed], "STOP")]).unwrap().parts, [alone("AA==")]);
}

#[test]
fn a_tool_has_its_own_name_again() {
    let calls = [call("_21st_magic", &json!({})), call("_own", &json!({}))];
    assert_eq!(turn(&[ended(&calls, "STOP")]).unwrap().parts, [called("21st_magic", "{}"), called("_own", "{}")]);
}

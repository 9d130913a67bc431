//! What each model of the scripted upstream says, in the bytes that OpenAI would send.
//!
//! The load client reads from here what a right answer is, so that no server is measured giving
//! a wrong one.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

/// The models, by what a request to them puts a server through.
pub(crate) const MODELS: [&str; 10] = [PLAIN, TOOLS3, TOOLS30, LOOP, CHAT, BURST100, BURST1000, PACED100, LIVE, STALL];
/// A short answer of ten tokens.
pub(crate) const PLAIN: &str = "plain";
/// Two rounds with one calculator call each, then a short answer.
pub(crate) const TOOLS3: &str = "tools3";
/// Thirty rounds with one calculator call each, then a short answer.
pub(crate) const TOOLS30: &str = "tools30";
/// Three rounds with one call of an HTTP tool each, then an answer of twenty tokens.
pub(crate) const LOOP: &str = "loop";
/// An answer of twenty tokens.
pub(crate) const CHAT: &str = "chat";
/// A hundred tokens at once.
pub(crate) const BURST100: &str = "burst100";
/// A thousand tokens at once.
pub(crate) const BURST1000: &str = "burst1000";
/// A hundred tokens, one every 2 ms.
pub(crate) const PACED100: &str = "paced100";
/// As many tokens as a person reads: 20 a second, for 15 seconds.
pub(crate) const LIVE: &str = "live";
/// One token, then silence until the client goes.
pub(crate) const STALL: &str = "stall";

const PACE: Duration = Duration::from_millis(2);
const LIVE_PACE: Duration = Duration::from_millis(50);

/// The tool that [`LOOP`] calls. The scripted upstream answers it, too.
pub(crate) const MULTIPLY: &str = "multiply";
/// Where.
pub(crate) const MULTIPLY_PATH: &str = "/tools/multiply";

/// Where the scripted upstream takes traces, as a collector does.
pub(crate) const TRACES_PATH: &str = "/v1/traces";

/// What the calls of `tools3` compute. They differ, lest a guard against loops steps in.
const EXPRESSIONS: [&str; 2] = ["1234 * 5678", "4321 * 8765"];
/// What the calls of `loop` multiply.
const FACTORS: [(u64, u64); 3] = [(1234, 5678), (4321, 8765), (17, 19)];

const WORDS: [&str; 10] =
    [" A", " river", " that", " \"bends\"", " is", " long", ";\n", " one", " in Åmot", " is short."];

/// One streamed answer of the upstream.
#[derive(Clone)]
pub(crate) struct Script {
    /// The server-sent events, each with its blank line.
    pub(crate) events: Vec<Bytes>,
    /// The wait before each event from the third to the last token; none if all come at once.
    pub(crate) pace: Option<Duration>,
    /// Whether the response stays open after the last event.
    pub(crate) stalls: bool,
}

impl Script {
    /// What `model` answers to a conversation that holds `tool_results` messages of tools.
    pub(crate) fn of(model: &str, tool_results: usize) -> Option<Self> {
        let at_once = |events| Some(Self { events, pace: None, stalls: false });
        if let Some((tool, arguments)) = call(model, tool_results) {
            return at_once(tool_call(model, tool_results, tool, &arguments));
        }
        match model {
            PLAIN | TOOLS3 | TOOLS30 | LOOP | CHAT | BURST100 | BURST1000 => at_once(text(model, tokens(model))),
            PACED100 => Some(Self { events: text(model, tokens(model)), pace: Some(PACE), stalls: false }),
            LIVE => Some(Self { events: text(model, tokens(model)), pace: Some(LIVE_PACE), stalls: false }),
            STALL => Some(Self { events: text(model, 1).drain(..2).collect(), pace: None, stalls: true }),
            _ => None,
        }
    }
}

/// The same answer in one piece.
pub(crate) fn whole(model: &str, tool_results: usize) -> Bytes {
    let (message, finish_reason) = match call(model, tool_results) {
        Some((tool, arguments)) => {
            let function = json!({"name": tool, "arguments": arguments});
            let call = json!({"id": format!("call_{tool_results}"), "type": "function", "function": function});
            (json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [call]}), "tool_calls")
        }
        None => (json!({"role": "assistant", "content": answer(model), "refusal": null}), "stop"),
    };
    let tokens = tokens(model);
    json!({
        "id": "chatcmpl-CZ4gN1lQ0sW8dYk5v2bJ7tRfXh3mE", "object": "chat.completion", "created": 1_780_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 60, "completion_tokens": tokens, "total_tokens": 60 + tokens},
        "service_tier": "default", "system_fingerprint": "fp_5d1e8c0b2a",
    })
    .to_string()
    .into()
}

/// What the tool of [`LOOP`] answers.
pub(crate) fn product(arguments: &[u8]) -> Option<String> {
    let arguments: Value = serde_json::from_slice(arguments).ok()?;
    let product = arguments["a"].as_u64()?.checked_mul(arguments["b"].as_u64()?)?;
    Some(json!({"product": product}).to_string())
}

/// The tool that `model` calls after so many results, and its arguments; `None` once it answers.
fn call(model: &str, tool_results: usize) -> Option<(&'static str, String)> {
    match model {
        TOOLS3 => {
            let expression = EXPRESSIONS.get(tool_results)?;
            Some(("calculator", json!({"expression": expression}).to_string()))
        }
        TOOLS30 if tool_results < 30 => {
            Some(("calculator", json!({"expression": format!("{} * 5678", 1234 + tool_results)}).to_string()))
        }
        LOOP => {
            let (a, b) = FACTORS.get(tool_results)?;
            Some((MULTIPLY, json!({"a": a, "b": b}).to_string()))
        }
        _ => None,
    }
}

/// The text that a client must have received when the answer is over.
pub(crate) fn answer(model: &str) -> String {
    (0..tokens(model)).map(token).collect()
}

/// How many tokens the last turn has. What stands after a dash in a model's name is the dialect that it answers in.
pub(crate) fn tokens(model: &str) -> usize {
    match model.split('-').next().unwrap_or_default() {
        BURST100 | PACED100 => 100,
        BURST1000 => 1000,
        LIVE => 300,
        LOOP | CHAT => 20,
        _ => 10,
    }
}

/// The first number in the question, of four digits.
pub(crate) const NUMBER: &str = "1234";

/// The request that every server gets. A stream is asked for with its usage, so that every server gets the same answer.
pub(crate) fn request(model: &str, streamed: bool) -> Bytes {
    let question =
        format!("What is {NUMBER} * 5678, and what is 4321 * 8765? Use the calculator, then tell me about rivers.");
    let mut request = json!({
        "model": model,
        "messages": [
            {"role": "system", "content": "You are a careful assistant. Answer in one or two sentences."},
            {"role": "user", "content": question},
        ],
    });
    if streamed {
        request["stream"] = true.into();
        request["stream_options"] = json!({"include_usage": true});
    }
    request.to_string().into()
}

pub(crate) fn token(index: usize) -> &'static str {
    WORDS[index % WORDS.len()]
}

/// The role, so many tokens, the finish, the usage, the end.
fn text(model: &str, tokens: usize) -> Vec<Bytes> {
    let mut events = vec![delta(model, r#"{"role":"assistant","content":"","refusal":null}"#)];
    let content = |index| format!(r#"{{"content":{}}}"#, Value::from(token(index)));
    events.extend((0..tokens).map(|index| delta(model, &content(index))));
    events.extend(ending(model, "stop", tokens));
    events
}

/// A call whose arguments arrive in pieces.
fn tool_call(model: &str, round: usize, tool: &str, arguments: &str) -> Vec<Bytes> {
    let call =
        format!(r#"{{"index":0,"id":"call_{round}","type":"function","function":{{"name":"{tool}","arguments":""}}}}"#);
    let mut events = vec![delta(model, &format!(r#"{{"role":"assistant","content":null,"tool_calls":[{call}]}}"#))];
    for piece in arguments.as_bytes().chunks(4) {
        let piece = Value::from(String::from_utf8_lossy(piece));
        let piece = format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{piece}}}}}]}}"#);
        events.push(delta(model, &piece));
    }
    events.extend(ending(model, "tool_calls", arguments.len() / 4));
    events
}

fn ending(model: &str, finish_reason: &str, tokens: usize) -> [Bytes; 3] {
    let total = 60 + tokens;
    let finish = format!(r#"{{"index":0,"delta":{{}},"logprobs":null,"finish_reason":"{finish_reason}"}}"#);
    let usage = format!(
        r#"{{"prompt_tokens":60,"completion_tokens":{tokens},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":0,"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}"#
    );
    [chunk(model, &finish, "null"), chunk(model, "", &usage), Bytes::from_static(b"data: [DONE]\n\n")]
}

fn delta(model: &str, delta: &str) -> Bytes {
    chunk(model, &format!(r#"{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}"#), "null")
}

/// Written by hand, for the keys' order is OpenAI's, too.
fn chunk(model: &str, choice: &str, usage: &str) -> Bytes {
    let event = format!(
        r#"data: {{"id":"chatcmpl-CZ4gN1lQ0sW8dYk5v2bJ7tRfXh3mE","object":"chat.completion.chunk","created":1780000000,"model":"{model}","service_tier":"default","system_fingerprint":"fp_5d1e8c0b2a","choices":[{choice}],"usage":{usage}}}"#
    );
    Bytes::from(event + "\n\n")
}

use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::llm::{Place, testing};
use crate::types::conversation::Dialect;
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::{Conversation, Message, Role, TurnEnd};

const TOOLS: [&str; 3] = ["calculator", "current_time", "get_weather"];

fn request(messages: &[Value], tools: &[&str]) -> ModelRequest {
    let tool = |name: &&str| Arc::new(ToolDefinition { name: (*name).to_owned(), ..ToolDefinition::default() });
    ModelRequest {
        conversation: conversation(messages),
        tools: tools.iter().map(tool).collect(),
        max_tokens: Some(1_000),
        deadline: Instant::now() + Duration::from_mins(1),
        ..testing::request("demo", [])
    }
}

/// Messages as they would have arrived.
fn conversation(messages: &[Value]) -> Conversation {
    let read = |message: &Value| {
        let role = serde_json::from_value(message["role"].clone()).unwrap_or(Role::User);
        let json = serde_json::value::to_raw_value(message).unwrap();
        let weight = json.get().len();
        Message::from_valid_json(role, Dialect::OpenaiChat, json, weight)
    };
    messages.iter().map(read).collect()
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// The messages that calls and their results make, each result being `answer`'s.
fn continued(messages: &mut Vec<Value>, turn: &ModelTurn, answer: impl Fn(&ModelCall) -> String) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for (index, call) in turn.calls().enumerate() {
        let id = format!("call_{}_{index}", messages.len());
        let function = json!({ "name": call.name, "arguments": call.arguments });
        calls.push(json!({ "id": id, "type": "function", "function": function }));
        results.push(json!({ "role": "tool", "tool_call_id": id, "content": answer(call) }));
    }
    messages.push(json!({ "role": "assistant", "content": null, "tool_calls": calls }));
    messages.extend(results);
}

async fn deltas(request: ModelRequest) -> Vec<Delta> {
    let model = DemoModel { word_delay: Duration::ZERO };
    model.stream(request).map(|delta| delta.unwrap()).collect().await
}

/// The finished turn, after a look at whether it is what was streamed.
async fn turn(request: ModelRequest) -> ModelTurn {
    let mut deltas = deltas(request).await;
    let Some(Delta::Finished(turn)) = deltas.pop() else { panic!("it does not finish") };
    let (mut said, mut arguments) = (String::new(), vec![String::new(); turn.calls().count()]);
    for delta in deltas {
        match delta {
            Delta::Text(text) => said += &text,
            Delta::CallArguments { index, delta } => arguments[index] += &delta,
            other @ (Delta::Queued
            | Delta::Dequeued { .. }
            | Delta::Begun
            | Delta::Refusal(_)
            | Delta::Thinking(_)
            | Delta::Retry { .. }
            | Delta::Finished(_)) => {
                panic!("{other:?}")
            }
        }
    }
    assert_eq!(said, turn.text());
    assert_eq!(arguments, turn.calls().map(|call| call.arguments.clone()).collect::<Vec<_>>());
    assert!(turn.text().starts_with(SIGNATURE) || SIGNATURE.starts_with(&*turn.text()), "{}", turn.text());
    *turn
}

fn calls(turn: &ModelTurn) -> Vec<(&str, &str)> {
    turn.calls().map(|call| (call.name.as_str(), call.arguments.as_str())).collect()
}

#[tokio::test]
async fn calls_two_tools_at_once_and_answers_from_their_results() {
    let mut messages = vec![user("What is 1234 * 5678, and what time is it in Oslo?")];
    let first = turn(request(&messages, &TOOLS)).await;
    let expected = [("calculator", r#"{"expression":"1234 * 5678"}"#), ("current_time", r#"{"timezone":"Oslo"}"#)];
    assert_eq!(calls(&first), expected);
    assert_eq!((&*first.text(), &first.end), ("", &TurnEnd::ToolCalls));
    continued(&mut messages, &first, |call| match call.name.as_str() {
        "calculator" => "7006652".into(),
        _ => "2026-11-21T23:05:12+01:00 (Saturday, Europe/Oslo)".into(),
    });
    let second = turn(request(&messages, &TOOLS)).await;
    let text = "[demo model] 1234 * 5678 = 7006652. It is 2026-11-21T23:05:12+01:00 (Saturday, Europe/Oslo).";
    assert_eq!((&*second.text(), &second.end), (text, &TurnEnd::Stop));
    let usage = second.usage.unwrap();
    assert!(usage.prompt_tokens > first.usage.unwrap().prompt_tokens && usage.completion_tokens > 10, "{usage:?}");
}

#[tokio::test]
async fn one_call_at_a_time_where_asked() {
    let mut messages = vec![user("What is 2 + 3 and 4 * 5?")];
    let ask = |messages: &[Value]| ModelRequest { parallel_tool_calls: false, ..request(messages, &TOOLS) };
    for expression in ["2 + 3", "4 * 5"] {
        let turn = turn(ask(&messages)).await;
        assert_eq!(calls(&turn), [("calculator", json!({ "expression": expression }).to_string().as_str())]);
        continued(&mut messages, &turn, |_| "a failure".into());
    }
    let last = turn(ask(&messages)).await;
    assert_eq!(last.text(), "[demo model] calculator says: a failure calculator says: a failure");
}

#[tokio::test]
async fn counts_one_step_at_a_time_and_says_how_far_it_came() {
    let mut messages = vec![user("Count to 3!")];
    for number in 0..3 {
        let turn = turn(request(&messages, &TOOLS)).await;
        assert_eq!(calls(&turn), [("calculator", format!("{{\"expression\":\"{number} + 1\"}}").as_str())]);
        continued(&mut messages, &turn, |_| (number + 1).to_string());
        if number == 1 {
            let closing = self::turn(request(&messages, &[])).await;
            assert_eq!(closing.text(), "[demo model] I counted to 2: 1, 2.");
        }
    }
    assert_eq!(turn(request(&messages, &TOOLS)).await.text(), "[demo model] I counted to 3: 1, 2, 3.");
}

#[tokio::test]
async fn remembers_a_name() {
    let mut messages = vec![user("Hi! My name is Ada.")];
    assert_eq!(turn(request(&messages, &TOOLS)).await.text(), "[demo model] Nice to meet you, Ada.");
    messages.push(json!({ "role": "assistant", "content": "Nice to meet you, Ada." }));
    messages.push(json!({ "role": "user", "content": [{ "type": "image_url", "image_url": {} }, { "type": "text", "text": "Who am I?" }] }));
    assert_eq!(turn(request(&messages, &TOOLS)).await.text(), "[demo model] Your name is Ada.");
    let stranger = turn(request(&[user("What is my name?")], &[])).await;
    assert_eq!(stranger.text(), "[demo model] You have not told me your name yet.");
}

#[tokio::test]
async fn calls_a_clients_tool_by_name() {
    let mut messages = vec![user("Please call get_weather with {\"city\": \"Oslo\", \"n\": 2 + 3}")];
    assert_eq!(calls(&turn(request(&messages, &["get_weather"])).await), [("get_weather", "{}")]);
    // A newcomer learns of it from the answer to a greeting.
    let help = turn(request(&[user("Hello")], &[])).await.text().into_owned();
    let (_, example) = help.split_once("if you name it: ").expect("it is told");
    assert_eq!(calls(&turn(request(&[user(example)], &TOOLS)).await), [("get_weather", r#"{"city": "Oslo"}"#)]);
    messages[0] = user("Please call get_weather with {\"city\": \"Oslo 1 + 1\"}, then use calculator on 2 + 2.");
    let turn_ = turn(request(&messages, &TOOLS)).await;
    assert_eq!(calls(&turn_), [("get_weather", r#"{"city": "Oslo 1 + 1"}"#)]);
    continued(&mut messages, &turn_, |_| "sunny".into());
    assert_eq!(turn(request(&messages, &TOOLS)).await.text(), "[demo model] get_weather says: sunny");
}

#[tokio::test]
async fn says_that_it_is_a_demo() {
    for (question, tools) in [("Hello", &TOOLS[..]), ("What is 2 + 2?", &[]), ("", &TOOLS[..])] {
        let turn = turn(request(&[user(question)], tools)).await;
        assert!(turn.text().contains("built-in demo") && turn.text().contains("Try"), "{}", turn.text());
    }
    assert!(turn(request(&[], &[])).await.text().contains("built-in demo"));
}

#[tokio::test]
async fn a_tool_choice_is_followed() {
    let ask = |tool_choice: ToolChoice| ModelRequest {
        tool_choice,
        ..request(&[user("What is 2 + 2 and what time is it?")], &TOOLS)
    };
    assert!(turn(ask(ToolChoice::None)).await.calls().next().is_none());
    assert_eq!(turn(ask(ToolChoice::Auto)).await.calls().count(), 2);
    let one = ask(ToolChoice::Function("current_time".into()));
    assert_eq!(calls(&turn(one).await), [("current_time", "{}")]);
    let other = ask(ToolChoice::Function("get_weather".into()));
    assert_eq!(calls(&turn(other).await), [("get_weather", "{}")]);
    let some = ModelRequest { conversation: conversation(&[user("Hello")]), ..ask(ToolChoice::Required) };
    assert_eq!(calls(&turn(some).await), [("calculator", "{}")]);
}

#[tokio::test]
async fn stops_where_the_tokens_end() {
    for max_tokens in 0..12 {
        let text = turn(ModelRequest { max_tokens: Some(max_tokens), ..request(&[], &[]) });
        let calls = turn(ModelRequest {
            max_tokens: Some(max_tokens),
            ..request(&[user("What is 1111111111 + 2222222222?")], &TOOLS)
        });
        let (text, calls) = tokio::join!(text, calls);
        assert_eq!(text.end, TurnEnd::Length);
        assert!(text.usage.unwrap().completion_tokens <= max_tokens);
        assert!(calls.usage.unwrap().completion_tokens <= max_tokens);
        let whole = calls.calls().next().is_some_and(|call| call.arguments.ends_with('}'));
        assert_eq!(calls.end, if whole { TurnEnd::ToolCalls } else { TurnEnd::Length });
    }
}

#[tokio::test(start_paused = true)]
async fn words_come_one_after_the_other() {
    let begun = Instant::now();
    let mut stream = DemoModel::default().stream(request(&[user("My name is Ada.")], &[]));
    let mut words = Vec::new();
    while let Some(Delta::Text(word)) = stream.next().await.transpose().unwrap() {
        words.push((word, begun.elapsed().as_millis()));
    }
    assert_eq!(words[..3], [("[demo ".to_owned(), 15), ("model] ".to_owned(), 30), ("Nice ".to_owned(), 45)]);
}

#[tokio::test]
async fn what_it_cannot_read_is_an_error() {
    let broken = ModelRequest { ..request(&[json!({ "role": "nobody" })], &[]) };
    let error = DemoModel::default().stream(broken).next().await.unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Rejected);
    assert!(error.message.starts_with("The demo model cannot read the request: "), "{error}");
}

#[tokio::test]
async fn what_it_cannot_do_is_refused_by_its_place_and_what_changes_nothing_is_named() {
    let model = DemoModel::default();
    let text = json!({ "type": "text", "text": "What is it?" });
    for (part, what) in [
        (json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0KGgo=" } }), "no pictures"),
        (json!({ "type": "input_audio", "input_audio": { "data": "UklGRg==", "format": "wav" } }), "no sound"),
        (json!({ "type": "file", "file": { "file_id": "file-1" } }), "no files"),
    ] {
        let messages: Vec<Message> =
            conversation(&[user("hi"), json!({ "role": "user", "content": [text, part] })]).iter().cloned().collect();
        let Unsupported { place, message } =
            model.refuses(&Sampling::default(), &messages).expect("it cannot see or hear");
        assert_eq!(place, Place::Part { message: 1, part: 1 });
        assert!(message.contains(what), "{message}");
        assert_eq!(model.refuses_part(&messages[1]).map(|(part, _)| part), Some(1));
        assert_eq!(model.refuses_part(&messages[0]), None);
    }
    let sampling = |members: Value| serde_json::from_value::<Sampling>(members).unwrap();
    let format = sampling(json!({ "response_format": "json_object" }));
    let refused = model.refuses(&format, &[]).map(|refused| refused.place);
    assert_eq!(refused, Some(Place::Member("response_format")));
    let plain = sampling(json!({ "temperature": 0.5, "verbosity": "low", "seed": 7, "user": "ada", "stop": "!" }));
    assert_eq!(model.refuses(&plain, &[]), None);
    assert_eq!(model.unsent("demo", &plain), ["temperature", "verbosity"]);
}

#[tokio::test]
async fn an_answer_ends_before_the_first_of_the_texts_that_end_it() {
    let answer = async |stop: Value| {
        let sampling = Arc::new(serde_json::from_value::<Sampling>(json!({ "stop": stop })).unwrap());
        turn(ModelRequest { sampling, ..request(&[user("My name is Ada")], &[]) }).await
    };
    let whole = "[demo model] Nice to meet you, Ada.";
    assert_eq!(answer(json!([""])).await.text(), whole);
    assert_eq!(answer(json!("meet")).await.text(), "[demo model] Nice to ");
    let ended = answer(json!(["Ada", "you"])).await;
    assert_eq!((ended.text().as_ref(), &ended.end), ("[demo model] Nice to meet ", &TurnEnd::Stop));
}

//! The rules by which the demo model answers.

use serde::Deserialize;
use serde_json::json;

use crate::llm::demo::transcript::{Called, Transcript};
use crate::llm::demo::{arithmetic, phrases};
use crate::llm::{ModelCall, ModelRequest};
use crate::types::offer::ToolChoice;

/// The tools of the server that the rules know.
const CALCULATOR: &str = "calculator";
const CURRENT_TIME: &str = "current_time";
/// Most calls that one question makes at once.
const MAX_CALLS: usize = 16;
/// Most numbers or characters of a result that an answer repeats.
const MAX_COUNTED: usize = 20;
const MAX_REPEATED_CHARS: usize = 500;

const HELP: &str = "Hello! I am Loopgate's built-in demo, not a language model: I follow a few rules and call real \
    tools. Try \"What is 1234 * 5678, and what time is it in Oslo?\" or \"Count to 5\", or tell me \"My name is Ada\" \
    and ask for it later in the same session. I call any tool that I am offered if you name it: \"Call get_weather with \
    {\"city\": \"Oslo\"}\".";

/// A whole turn.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    /// An answer.
    Text(String),
    /// At least one call.
    Calls(Vec<ModelCall>),
}

/// Which tools may be called, and how.
#[derive(Debug)]
pub(super) struct Offer {
    tools: Vec<String>,
    choice: ToolChoice,
    parallel: bool,
}

impl Offer {
    pub(super) fn of(request: &ModelRequest) -> Self {
        let tools = request.tools.tools().map(|tool| tool.name.clone()).collect();
        Self { tools, choice: request.tool_choice.clone(), parallel: request.parallel_tool_calls }
    }

    fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool == name)
    }
}

/// The reply to a conversation.
pub(super) fn reply(transcript: &Transcript, offer: &Offer) -> Reply {
    let calls = next_calls(transcript, offer);
    if calls.is_empty() { Reply::Text(text(transcript)) } else { Reply::Calls(calls) }
}

/// The calls that the question still needs: it was asked for all of them, so those made are counted off.
fn next_calls(transcript: &Transcript, offer: &Offer) -> Vec<ModelCall> {
    let question = transcript.question();
    let made = transcript.calls.len();
    if offer.tools.is_empty() || matches!(offer.choice, ToolChoice::None) {
        return Vec::new();
    }
    if let Some(end) = phrases::count_to(question).filter(|_| offer.has(CALCULATOR)) {
        let number = u64::try_from(made).unwrap_or(u64::MAX);
        return if number < end { vec![add_one(number)] } else { Vec::new() };
    }
    let mut wanted = wanted_calls(question, offer);
    match &offer.choice {
        ToolChoice::Function(name) => {
            wanted.retain(|call| call.name == *name);
            if wanted.is_empty() {
                wanted.push(ModelCall { name: name.clone(), arguments: "{}".into() });
            }
        }
        ToolChoice::Required if wanted.is_empty() => {
            wanted.extend(offer.tools.first().map(|name| ModelCall { name: name.clone(), arguments: "{}".into() }));
        }
        ToolChoice::Required | ToolChoice::Auto | ToolChoice::None => {}
    }
    let at_once = if offer.parallel { MAX_CALLS } else { 1 };
    wanted.into_iter().take(MAX_CALLS).skip(made).take(at_once).collect()
}

fn wanted_calls(question: &str, offer: &Offer) -> Vec<ModelCall> {
    let mut calls = phrases::named_calls(question, &offer.tools);
    // The two tools below are better served by what the question says.
    calls.retain(|call| call.arguments != "{}" || !matches!(call.name.as_str(), CALCULATOR | CURRENT_TIME));
    if !calls.is_empty() {
        return calls;
    }
    if offer.has(CALCULATOR) {
        calls.extend(arithmetic::expressions(question).into_iter().map(|expression| calculate(&expression)));
    }
    if offer.has(CURRENT_TIME) {
        calls.extend(phrases::times(question).into_iter().map(|place| {
            let arguments = place.map_or_else(|| json!({}), |place| json!({ "timezone": place }));
            ModelCall { name: CURRENT_TIME.into(), arguments: arguments.to_string() }
        }));
    }
    calls
}

fn add_one(number: u64) -> ModelCall {
    calculate(&format!("{number} + 1"))
}

fn calculate(expression: &str) -> ModelCall {
    ModelCall { name: CALCULATOR.into(), arguments: json!({ "expression": expression }).to_string() }
}

/// A sentence for each thing that was asked or found.
fn text(transcript: &Transcript) -> String {
    let question = transcript.question();
    let mut sentences = Vec::new();
    if let Some(name) = phrases::own_name(question) {
        sentences.push(format!("Nice to meet you, {name}."));
    }
    if phrases::count_to(question).is_some() && transcript.results().next().is_some() {
        sentences.push(counted(transcript));
    } else {
        sentences.extend(transcript.results().map(|(call, result)| told(call, result)));
    }
    if phrases::asks_own_name(question) {
        let name = transcript.user.iter().rev().find_map(|said| phrases::own_name(said));
        sentences.push(match name {
            Some(name) => format!("Your name is {name}."),
            None => "You have not told me your name yet.".into(),
        });
    }
    if sentences.is_empty() { HELP.into() } else { sentences.join(" ") }
}

fn counted(transcript: &Transcript) -> String {
    let numbers: Vec<&str> = transcript.results().map(|(_, result)| result).collect();
    let last = shortened(numbers.last().copied().unwrap_or_default());
    let shown: Vec<String> = numbers.iter().take(MAX_COUNTED).map(|number| shortened(number)).collect();
    let more = if numbers.len() > MAX_COUNTED { ", …" } else { "" };
    format!("I counted to {last}: {}{more}.", shown.join(", "))
}

fn told(call: &Called, result: &str) -> String {
    #[derive(Deserialize, Default)]
    struct Arguments {
        expression: Option<String>,
    }
    let result = shortened(result);
    let value = result.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let Arguments { expression } = serde_json::from_str(&call.arguments).unwrap_or_default();
    match (call.name.as_str(), expression) {
        (CALCULATOR, Some(expression)) if value => format!("{expression} = {result}."),
        (CURRENT_TIME, _) if value => format!("It is {result}."),
        (name, _) => format!("{name} says: {result}"),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_REPEATED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

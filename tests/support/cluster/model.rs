//! The fake upstream's answers where many runs go on at once: what it says follows from the conversation alone,
//! so the same request gets the same answer, whichever replica asks and however often.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::Plan;
use crate::support::Reply;
use crate::support::http::{HttpServer, Request};
use crate::support::journal::Entry;
use crate::support::upstream::{declaration, faults, is_list, list};

/// One call of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModelCall {
    /// The plan that it follows.
    pub(crate) tag: String,
    /// The turn that it asks for: how often the model has spoken since the user did.
    pub(crate) round: u32,
    /// Tokens that it takes.
    pub(crate) tokens: u64,
    /// The tools' answers that it shows the model, in their order.
    pub(crate) results: Vec<String>,
    /// What is wrong with it.
    pub(crate) faults: Vec<String>,
}

/// The server. Its model is called `test`. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct ModelServer(HttpServer);

impl ModelServer {
    /// Listens on a free port of 127.0.0.1.
    pub(crate) async fn start() -> Self {
        Self(HttpServer::start(|request| Question::read(request).is_some(), answer).await)
    }

    /// Its declaration for a server's configuration.
    pub(crate) fn config(&self) -> String {
        declaration(self.0.address())
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<Entry<ModelCall>> {
        let call = |request: &Request| Question::read(request).map(Question::call);
        self.0.exchanges().into_iter().filter_map(|entry| entry.and_then(call)).collect()
    }
}

/// A request for a completion, and the plan that its last message of the user holds.
struct Question {
    request: Value,
    plan: Plan,
    /// How often the model has spoken since the user did.
    round: u32,
    results: Vec<String>,
    /// Tokens in and out.
    usage: (u64, u64),
}

impl Question {
    fn read(request: &Request) -> Option<Self> {
        let request = request.json();
        let messages = request["messages"].as_array()?;
        let asked = messages.iter().rposition(|message| message["role"] == "user")?;
        let plan: Plan = messages[asked]["content"].as_str()?.parse().ok()?;
        let since = &messages[asked + 1..];
        let spoken = since.iter().filter(|message| message["role"] == "assistant").count();
        let results = since.iter().filter(|message| message["role"] == "tool");
        let results = results.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect();
        let usage = plan.usage(messages.len());
        Some(Self { plan, round: u32::try_from(spoken).unwrap_or(u32::MAX), results, usage, request })
    }

    fn call(self) -> ModelCall {
        let (input, output) = self.usage;
        let faults = faults(&self.request);
        ModelCall { tag: self.plan.tag, round: self.round, tokens: input + output, results: self.results, faults }
    }
}

fn answer(request: &Request) -> Reply {
    if is_list(request) {
        return list();
    }
    let Some(Question { plan, round, usage: (input, output), .. }) = Question::read(request) else {
        return Reply::error(400, "no_plan", "the user has no plan");
    };
    let pace = Duration::from_millis(plan.pace_ms);
    let mut reply = Reply::stream();
    for piece in 0..plan.pieces {
        reply = reply.text(&plan.piece(round, piece)).pause(pace);
    }
    let tasks = plan.tasks(round);
    for (index, (tool, task)) in tasks.iter().enumerate() {
        let arguments = serde_json::to_string(task).expect("it is plain data");
        reply = reply.tool_call(index, &format!("call_{index}"), tool.name(), &arguments);
    }
    reply.finish(if tasks.is_empty() { "stop" } else { "tool_calls" }).usage(input, output).done()
}

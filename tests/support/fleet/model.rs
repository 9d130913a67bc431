//! A server of models that answers by what the conversation holds, and remembers nothing but a journal:
//! the same request gets the same answer, whichever replica asks and however often.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::journal::{Entry, Journal};
use super::plan::Plan;
use crate::support::upstream::faults;

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
pub(crate) struct ModelServer {
    address: SocketAddr,
    journal: Journal<ModelCall>,
    _tasks: JoinSet<()>,
}

impl ModelServer {
    /// Listens on a free port of 127.0.0.1.
    pub(crate) async fn start() -> Self {
        let journal = Journal::default();
        let models = json!({"object": "list", "data": [{"id": "test", "object": "model"}]});
        let router = Router::new()
            .route("/v1/models", get(|| async { Json(models) }))
            .route("/v1/chat/completions", post(complete))
            .with_state(journal.clone());
        let (address, tasks) = super::serve(router).await;
        Self { address, journal, _tasks: tasks }
    }

    /// Its declaration for a server's configuration.
    pub(crate) fn config(&self) -> String {
        format!("[upstreams.fleet]\nbase_url = \"http://{}/v1\"\nmodels = [\"test\"]\n", self.address)
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<Entry<ModelCall>> {
        self.journal.entries()
    }
}

async fn complete(State(journal): State<Journal<ModelCall>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let asked = messages.iter().rposition(|message| message["role"] == "user");
    let Some(Ok(plan)) = asked.map(|at| messages[at]["content"].as_str().unwrap_or_default().parse::<Plan>()) else {
        let error = json!({"message": "the user has no plan", "type": "invalid_request_error", "code": "no_plan"});
        return (StatusCode::BAD_REQUEST, Json(json!({"error": error}))).into_response();
    };
    let since = &messages[asked.map_or(0, |at| at + 1)..];
    let spoken = since.iter().filter(|message| message["role"] == "assistant").count();
    let round = u32::try_from(spoken).unwrap_or(u32::MAX);
    let results = since.iter().filter(|message| message["role"] == "tool");
    let (input, output) = plan.usage(messages.len());
    let exchange = journal.begin(ModelCall {
        tag: plan.tag.clone(),
        round,
        tokens: input + output,
        results: results.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect(),
        faults: faults(&request),
    });
    let body = async_stream::stream! {
        for piece in 0..plan.pieces {
            yield Ok::<_, Infallible>(delta(&json!({"content": plan.piece(round, piece)})));
            tokio::time::sleep(Duration::from_millis(plan.pace_ms)).await;
        }
        let errands = plan.errands(round);
        for (index, (tool, errand)) in errands.iter().enumerate() {
            let arguments = serde_json::to_string(errand).expect("it is plain data");
            let function = json!({"name": tool.name(), "arguments": arguments});
            let id = format!("call_{index}");
            let call = json!({"index": index, "id": id, "type": "function", "function": function});
            yield Ok(delta(&json!({"tool_calls": [call]})));
        }
        let reason = if errands.is_empty() { "stop" } else { "tool_calls" };
        yield Ok(chunk(&json!([{"index": 0, "delta": {}, "finish_reason": reason}]), &Value::Null));
        let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
        yield Ok(chunk(&json!([]), &usage));
        yield Ok(Bytes::from_static(b"data: [DONE]\n\n"));
        exchange.finish();
    };
    ([("content-type", "text/event-stream")], Body::from_stream(body)).into_response()
}

fn delta(delta: &Value) -> Bytes {
    chunk(&json!([{"index": 0, "delta": delta, "finish_reason": null}]), &Value::Null)
}

fn chunk(choices: &Value, usage: &Value) -> Bytes {
    let chunk = json!({
        "id": "chatcmpl-fleet", "object": "chat.completion.chunk", "created": 1_700_000_000,
        "model": "test", "choices": choices, "usage": usage,
    });
    Bytes::from(format!("data: {chunk}\n\n"))
}

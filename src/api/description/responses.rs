//! What responses have beside their bodies: statuses of refusals, headers, and links to the operations that take their
//! ids.

use serde_json::Value;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::link::LinkBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::response::Response;
use utoipa::openapi::{Components, ContentBuilder, ObjectBuilder, Ref, RefOr, ResponseBuilder, Type};

/// The refusals of every operation that asks for a key: status, name, meaning and the headers of its own.
const REFUSALS: [(&str, &str, &str, &[&str]); 5] = [
    ("400", "Invalid", "The request is not valid", &["x-should-retry"]),
    ("401", "Unauthorized", "The API key is missing or not valid", &["www-authenticate"]),
    ("429", "TooMuch", "The key asks too often, or a budget is used up", &["retry-after", "x-should-retry"]),
    ("4XX", "Refused", "The request was refused", &["retry-after", "x-should-retry"]),
    ("5XX", "Failed", "The server, its store or the upstream failed", &["retry-after", "x-should-retry"]),
];
/// What the names of refusals in Anthropic's shape begin with.
const MESSAGES: &str = "Message";
/// The headers of responses.
const HEADERS: [(&str, Type, &str); 18] = [
    ("x-request-id", Type::String, "Names the request; the caller's own id if it sent one"),
    ("x-loopgate-run-id", Type::String, "The run"),
    ("x-loopgate-session-id", Type::String, "The run's session, if it has one"),
    (
        "x-loopgate-trace-id",
        Type::String,
        "The run's trace, while traces are sent or if its request had a `traceparent`",
    ),
    ("idempotent-replayed", Type::String, "`true` where an earlier request with the same key was answered so"),
    ("x-ratelimit-limit-requests", Type::Integer, "Requests a minute, where they are limited"),
    ("x-ratelimit-remaining-requests", Type::Integer, "How many more are taken now"),
    ("x-ratelimit-reset-requests", Type::String, "Until all of them are taken again, in milliseconds, as `12ms`"),
    (
        "x-ratelimit-limit-tokens",
        Type::Integer,
        "The token budget of the key or session of which the least is left, where there is one",
    ),
    ("x-ratelimit-remaining-tokens", Type::Integer, "What is neither used nor reserved of it"),
    ("x-ratelimit-reset-tokens", Type::String, "Until it begins anew, in seconds, as `12s`, if it does"),
    ("x-ratelimit-limit-cost", Type::Number, "The same of cost budgets, in US dollars"),
    ("x-ratelimit-remaining-cost", Type::Number, "What is neither used nor reserved of it"),
    ("x-ratelimit-reset-cost", Type::String, "Until it begins anew, in seconds, as `12s`, if it does"),
    (
        "x-loopgate-budget-warning",
        Type::String,
        "The budgets of which four fifths are used, as `key tokens, session cost`",
    ),
    ("retry-after", Type::Integer, "Seconds after which to try again, where waiting helps"),
    ("x-should-retry", Type::String, "`false` where sending the request again cannot help"),
    ("www-authenticate", Type::String, "How to send a key"),
];
/// The headers of every response to a request that shows a key.
const OF_CALLERS: [&str; 4] =
    ["x-request-id", "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
/// The headers of responses about a run.
const OF_A_RUN: [&str; 3] = ["x-loopgate-run-id", "x-loopgate-session-id", "x-loopgate-trace-id"];
/// The headers of responses to requests that begin a run or continue it.
const OF_BUDGETS: [&str; 7] = [
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-limit-cost",
    "x-ratelimit-remaining-cost",
    "x-ratelimit-reset-cost",
    "x-loopgate-budget-warning",
];
/// The header that makes a request safe to send again.
const KEY: &str = "idempotency-key";
/// What takes a run's id.
const RUN_OPERATIONS: [&str; 4] = ["getRun", "followRun", "cancelRun", "steerRun"];
/// What takes a session's id.
const SESSION_OPERATIONS: [&str; 4] = ["getSession", "listSessionMessages", "forkSession", "exportSession"];

/// Declares the headers and refusals that operations refer to.
pub fn declare(components: &mut Components) {
    for (name, kind, meaning) in HEADERS {
        let schema = ObjectBuilder::new().schema_type(kind).build();
        let header = HeaderBuilder::new().schema(Some(schema)).description(Some(meaning)).build();
        components.headers.insert(name.to_owned(), header.into());
    }
    for (prefix, schema) in [("", "ErrorBody"), (MESSAGES, "MessagesErrorBody")] {
        for (_, name, meaning, headers) in REFUSALS {
            let body = ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build();
            let mut refusal = ResponseBuilder::new().description(meaning).content("application/json", body).build();
            add_headers(&mut refusal, &OF_CALLERS);
            add_headers(&mut refusal, headers);
            components.responses.insert([prefix, name].concat(), refusal.into());
        }
    }
}

/// Says that the operation may be refused.
pub fn refuse(operation: &mut Operation) {
    let is_of_messages = operation.tags.iter().flatten().any(|tag| tag == "messages");
    let prefix = if is_of_messages { MESSAGES } else { "" };
    for (status, name, ..) in REFUSALS {
        let reference = Ref::from_response_name([prefix, name].concat());
        operation.responses.responses.insert(status.to_owned(), reference.into());
    }
}

/// Names the headers of the operation's own responses, and what takes the ids in them.
pub fn complete(operation: &mut Operation) {
    let id = operation.operation_id.clone().unwrap_or_default();
    let is_guarded = operation.security.is_some();
    let mut parameters = operation.parameters.iter().flatten();
    let takes_key = parameters.any(|parameter| matches!(parameter, RefOr::T(parameter) if parameter.name == KEY));
    for response in operation.responses.responses.values_mut() {
        let RefOr::T(response) = response else { continue };
        add_headers(response, if is_guarded { &OF_CALLERS } else { &OF_CALLERS[..1] });
        if takes_key {
            add_headers(response, &["idempotent-replayed"]);
        }
        match id.as_str() {
            "createAgentCompletion" | "createChatCompletion" | "createMessage" => {
                let is_run = !response.content.contains_key("text/event-stream");
                add_headers(response, &OF_A_RUN);
                add_headers(response, &OF_BUDGETS);
                link(
                    response,
                    &RUN_OPERATIONS,
                    if is_run { "$response.body#/id" } else { "$response.body#/agent/run_id" },
                );
            }
            "sendChat" | "runAgUi" => {
                add_headers(response, &OF_A_RUN);
                add_headers(response, &OF_BUDGETS);
            }
            "followRun" | "resumeChat" => add_headers(response, &OF_A_RUN),
            "steerRun" => {
                add_headers(response, &OF_A_RUN);
                link(response, &RUN_OPERATIONS, "$response.body#/id");
            }
            "getRun" | "cancelRun" => link(response, &RUN_OPERATIONS, "$response.body#/id"),
            "createSession" | "forkSession" | "importSession" | "getSession" | "patchSession" => {
                link(response, &SESSION_OPERATIONS, "$response.body#/id");
            }
            _ => {}
        }
    }
}

fn add_headers(response: &mut Response, names: &[&str]) {
    for name in names {
        let reference = Ref::new(format!("#/components/headers/{name}"));
        response.headers.insert((*name).to_owned(), RefOr::Ref(reference));
    }
}

fn link(response: &mut Response, operations: &[&str], id: &str) {
    for operation in operations {
        let link = LinkBuilder::new().operation_id(*operation).parameter("id", Value::from(id)).build();
        response.links.insert((*operation).to_owned(), link.into());
    }
}

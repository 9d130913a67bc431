//! The items of a response's output.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::api::wire::responses::{id, tool_names};
use crate::types::response::ResponseTerms;
use crate::types::{ToolCall, ToolOutcome};

/// How far an item came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    /// It is being written or made.
    InProgress,
    /// It is whole.
    Completed,
    /// It broke off.
    Incomplete,
    /// It is a call that failed.
    Failed,
}

/// What a message is to its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The model went on to call tools.
    Commentary,
    /// It is the answer.
    FinalAnswer,
}

/// A part of a message.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart<'a> {
    /// Text.
    OutputText {
        /// The text.
        text: &'a str,
        /// None.
        annotations: [(); 0],
        /// None.
        logprobs: [(); 0],
    },
    /// Text in which the model declines.
    Refusal {
        /// The text.
        refusal: &'a str,
    },
}

impl<'a> ContentPart<'a> {
    /// A part with this text.
    pub fn of(text: &'a str, is_refusal: bool) -> Self {
        if is_refusal {
            Self::Refusal { refusal: text }
        } else {
            Self::OutputText { text, annotations: [], logprobs: [] }
        }
    }
}

/// A part of reasoning.
#[derive(Debug, Clone, Serialize)]
pub struct SummaryPart<'a> {
    r#type: &'static str,
    text: &'a str,
}

impl<'a> SummaryPart<'a> {
    /// A part with this text.
    pub fn of(text: &'a str) -> Self {
        Self { r#type: "summary_text", text }
    }
}

/// An item.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputItem<'a> {
    /// What the model says.
    Message {
        /// Its id.
        id: &'a str,
        /// How far it came.
        status: ItemStatus,
        /// `assistant`.
        role: &'static str,
        /// What is said.
        content: Vec<ContentPart<'a>>,
        /// What it is to the response, once that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<Phase>,
    },
    /// What the model thought.
    Reasoning {
        /// Its id.
        id: &'a str,
        /// How far it came.
        status: ItemStatus,
        /// What is shown of it.
        summary: Vec<SummaryPart<'a>>,
    },
    /// A call that the server makes.
    McpCall(McpCall<'a>),
    /// A call that waits for an approval.
    McpApprovalRequest {
        /// The id that the answer names.
        id: String,
        /// Where the tool is.
        server_label: &'a str,
        /// The tool.
        name: &'a str,
        /// The arguments that it would be called with.
        arguments: &'a str,
    },
    /// A call that the client is to make.
    FunctionCall {
        /// Its id.
        id: &'a str,
        /// The id that the output names.
        call_id: &'a str,
        /// Where the function is, if it is in a namespace.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<&'a str>,
        /// The function.
        name: &'a str,
        /// Its arguments.
        arguments: &'a str,
        /// How far it came.
        status: ItemStatus,
    },
    /// A call of a custom tool that the client is to make.
    CustomToolCall {
        /// Its id.
        id: &'a str,
        /// The id that the output names.
        call_id: &'a str,
        /// The tool.
        name: &'a str,
        /// What it is called with.
        input: &'a str,
        /// How far it came.
        status: ItemStatus,
    },
}

/// A call that the server makes.
#[derive(Debug, Clone, Serialize)]
pub struct McpCall<'a> {
    /// Its id.
    pub id: String,
    /// Where the tool is.
    pub server_label: &'a str,
    /// The tool.
    pub name: &'a str,
    /// The arguments.
    pub arguments: &'a str,
    /// What it came to.
    pub output: Option<String>,
    /// How it failed.
    pub error: Option<CallError>,
    /// The approval that it needed.
    pub approval_request_id: Option<String>,
    /// How far it came.
    pub status: ItemStatus,
}

/// How a call failed.
#[derive(Debug, Clone, Serialize)]
pub struct CallError {
    r#type: &'static str,
    content: [ErrorText; 1],
}

#[derive(Debug, Clone, Serialize)]
struct ErrorText {
    r#type: &'static str,
    text: String,
}

impl<'a> McpCall<'a> {
    /// A call that has begun.
    pub fn begun(call: &'a ToolCall, terms: &'a ResponseTerms, needed_approval: bool) -> Self {
        let (server_label, name) = tool_names::shown(&call.name, terms);
        Self {
            id: id::of_call("mcp", &call.id),
            server_label,
            name,
            arguments: "",
            output: None,
            error: None,
            approval_request_id: needed_approval.then(|| id::of_call("mcpr", &call.id)),
            status: ItemStatus::InProgress,
        }
    }

    /// The same call once it has ended so; `None` if it broke off.
    #[must_use]
    pub fn ended(self, call: &'a ToolCall, outcome: Option<&ToolOutcome>) -> Self {
        let call = Self { arguments: &call.arguments, ..self };
        match outcome {
            None => Self { status: ItemStatus::Incomplete, ..call },
            Some(outcome) if outcome.is_error => {
                let text = ErrorText { r#type: "text", text: outcome.text().into_owned() };
                let error = CallError { r#type: "mcp_tool_execution_error", content: [text] };
                Self { error: Some(error), status: ItemStatus::Failed, ..call }
            }
            Some(outcome) => Self { output: Some(outcome.text().into_owned()), status: ItemStatus::Completed, ..call },
        }
    }
}

/// A call that the client is to make, as it is shown to it.
#[derive(Debug)]
pub struct ClientCall<'a> {
    id: String,
    call_id: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
    /// The arguments, or the text that a custom tool is called with.
    pub text: String,
    /// Whether it is of a custom tool.
    pub is_custom: bool,
}

impl<'a> ClientCall<'a> {
    /// A call, as the request declared its tool.
    pub fn of(call: &'a ToolCall, terms: &'a ResponseTerms) -> Self {
        let is_custom = terms.custom.contains(&call.name);
        let place = terms.namespaced.get(&call.name);
        Self {
            id: id::of_call(if is_custom { "ctc" } else { "fc" }, &call.id),
            call_id: call.id.as_str(),
            namespace: place.map(|(namespace, _)| namespace.as_str()),
            name: place.map_or(call.name.as_str(), |(_, own)| own),
            text: if is_custom { input_of(&call.arguments) } else { call.arguments.clone() },
            is_custom,
        }
    }

    /// The id of its item.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The tool.
    pub fn name(&self) -> &str {
        self.name
    }

    /// The item: empty while it begins.
    pub fn item(&self, is_whole: bool) -> OutputItem<'_> {
        let text = if is_whole { self.text.as_str() } else { "" };
        let status = if is_whole { ItemStatus::Completed } else { ItemStatus::InProgress };
        let Self { id, call_id, namespace, name, .. } = self;
        if self.is_custom {
            return OutputItem::CustomToolCall { id, call_id, name, input: text, status };
        }
        OutputItem::FunctionCall { id, call_id, namespace: *namespace, name, arguments: text, status }
    }
}

/// The text that a custom tool is called with.
fn input_of(arguments: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Arguments {
        input: String,
    }
    serde_json::from_str::<Arguments>(arguments).map_or_else(|_| arguments.to_owned(), |read| read.input)
}

/// An item as it is kept.
pub fn kept(item: &OutputItem<'_>) -> Box<RawValue> {
    to_raw_value(item).expect("items hold only strings")
}

//! A model request as the body of `POST …/chat/completions`.

use super::messages::manner::json_for;
use super::{messages, sampling, tools};
use crate::config::ChatManner;
use crate::llm::ModelRequest;

/// The JSON body, which asks for a stream or for an answer `in_one_piece`, of the model that signs as `author`. Messages that
/// were encoded before are copied.
pub(super) fn body(
    request: &ModelRequest,
    chat: &ChatManner,
    takes_unknown: bool,
    in_one_piece: bool,
    author: &str,
) -> String {
    let parameters = sampling::members(&request.sampling, chat, takes_unknown);
    let tools = if request.tools.is_empty() { "" } else { tools::json(&request.tools) };
    let mut body = String::with_capacity(
        256 + request.model.len()
            + request.conversation.iter().map(|message| messages::json(message).len() + 1).sum::<usize>()
            + tools.len()
            + parameters.len(),
    );
    let mut add = |parts: &[&str]| parts.iter().for_each(|part| body.push_str(part));
    let model = serde_json::Value::from(request.model.as_str()).to_string();
    let streamed = match (in_one_piece, chat.stream_options) {
        (true, _) => "",
        (false, true) => ",\"stream\":true,\"stream_options\":{\"include_usage\":true}",
        (false, false) => ",\"stream\":true",
    };
    add(&["{\"model\":", &model, streamed]);
    if let Some(most) = request.max_tokens {
        add(&[",\"", chat.output_bound, "\":", &most.to_string()]);
    }
    if !parameters.is_empty() {
        add(&[",", &parameters]);
    }
    if !tools.is_empty() {
        add(&[",\"tools\":", tools]);
        if let Some(choice) = tools::choice(&request.tool_choice) {
            add(&[",\"tool_choice\":", &choice]);
        }
        // True is the default, and some reasoning models do not accept the member at all.
        if !request.parallel_tool_calls && chat.parallel_tool_calls {
            add(&[",\"parallel_tool_calls\":false"]);
        }
    }
    let mut before = ",\"messages\":[";
    for message in request.conversation.iter() {
        add(&[before, &json_for(message, chat, author)]);
        before = ",";
    }
    add(&[if before == "," { "]}" } else { ",\"messages\":[]}" }]);
    body
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::llm::testing;
    use crate::types::offer::{ToolChoice, ToolDefinition};
    use crate::types::sampling::Sampling;
    use crate::types::{Message, Role};

    fn request() -> ModelRequest {
        ModelRequest {
            tool_choice: ToolChoice::Required,
            max_tokens: Some(77),
            parallel_tool_calls: false,
            ..testing::request("odd \"name\"", ["hi", "ho"].map(|text| Message::text(Role::User, text)))
        }
    }

    fn parsed(request: &ModelRequest, chat: &ChatManner) -> Value {
        serde_json::from_str(&body(request, chat, false, false, "")).unwrap()
    }

    #[test]
    fn without_tools_nothing_is_said_of_them() {
        let expected = json!({
            "model": "odd \"name\"", "stream": true, "stream_options": { "include_usage": true },
            "max_tokens": 77, "messages": [{ "role": "user", "content": "hi" }, { "role": "user", "content": "ho" }],
        });
        assert_eq!(parsed(&request(), &ChatManner::COMPATIBLE), expected);
    }

    #[test]
    fn everything_offered_is_sent() {
        let request = ModelRequest {
            tools: [Arc::new(ToolDefinition { name: "f".into(), ..ToolDefinition::default() })].into_iter().collect(),
            sampling: Arc::new(Sampling { temperature: Some(0.2), seed: Some(7), ..Sampling::default() }),
            ..request()
        };
        let body = parsed(&request, &ChatManner::OPENAI);
        assert_eq!(body["tools"], json!([{ "type": "function", "function": { "name": "f" } }]));
        assert_eq!(body["tool_choice"], "required");
        assert_eq!(body["parallel_tool_calls"], false);
        assert_eq!((&body["temperature"], &body["seed"]), (&json!(0.2), &json!(7)));
        assert_eq!((&body["max_completion_tokens"], body.get("max_tokens")), (&json!(77), None));

        let free =
            ModelRequest { parallel_tool_calls: true, tool_choice: ToolChoice::Auto, max_tokens: None, ..request };
        let body = parsed(&free, &ChatManner::COMPATIBLE);
        assert_eq!((body.get("max_completion_tokens"), body.get("max_tokens")), (None, None));
        assert_eq!((body.get("parallel_tool_calls"), body.get("tool_choice")), (None, None));
    }
}

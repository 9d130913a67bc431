//! A model request as the body of `POST …/chat/completions`.

use super::messages::manner::json_for;
use super::messages::pictures::Pictures;
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
    let mut body = String::with_capacity(
        256 + request.model.len()
            + request.conversation.iter().map(|message| messages::json(message).len() + 1).sum::<usize>()
            + tools::pieces(&request.tools).map(|piece| piece.len() + 1).sum::<usize>()
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
    if !request.tools.is_empty() {
        let mut before = ",\"tools\":[";
        for piece in tools::pieces(&request.tools) {
            add(&[before, piece]);
            before = ",";
        }
        add(&["]"]);
        if let Some(choice) = tools::choice(&request.tool_choice) {
            add(&[",\"tool_choice\":", &choice]);
        }
        // True is the default, and some reasoning models do not accept the member at all.
        if !request.parallel_tool_calls && chat.parallel_tool_calls {
            add(&[",\"parallel_tool_calls\":false"]);
        }
    }
    let (mut before, mut pictures) = (",\"messages\":[", Pictures::default());
    for message in request.conversation.iter() {
        if chat.pictures
            && let Some(shown) = pictures.before(message)
        {
            add(&[before, &shown]);
            before = ",";
        }
        add(&[before, &json_for(message, chat, author)]);
        before = ",";
    }
    if let Some(shown) = pictures.rest() {
        add(&[before, &shown]);
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
    use crate::types::conversation::{Part, PartKind, Source, ToolResult};
    use crate::types::offer::{ToolChoice, ToolDefinition};
    use crate::types::sampling::Sampling;
    use crate::types::{CallId, Message, Role};

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

    fn picture(call: &CallId, media_type: &str) -> Message {
        let source = Source::Base64 { media_type: media_type.into(), data: "AAAA".into() };
        let parts = vec![Part::text("look"), PartKind::Image { source, detail: None }.into()];
        Message::result(ToolResult { call: call.clone(), parts, structured: None, is_error: false })
    }

    #[test]
    fn pictures_of_results_follow_them_in_a_message_of_the_user() {
        let calls = ["c1", "c2", "c3"].map(CallId::foreign);
        let results =
            [picture(&calls[0], "image/png"), Message::tool(&calls[1], "2"), picture(&calls[2], "image/tiff")];
        let after = Message::text(Role::User, "and now?");
        let messages: Vec<Message> = results.iter().cloned().chain([after, results[0].clone()]).collect();
        let request = ModelRequest { conversation: messages.into_iter().collect(), ..request() };
        let body = parsed(&request, &ChatManner::OPENAI);
        let result = |call: &str, text: &str| json!({ "role": "tool", "tool_call_id": call, "content": text });
        let shown = json!({ "role": "user", "content": [
            { "type": "text", "text": "[Shown by the result of the tool call c1:]" },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } },
        ] });
        let told = [
            result("c1", "look\n[image, image/png, 3 bytes]"),
            result("c2", "2"),
            result("c3", "look\n[image, image/tiff, 3 bytes]"),
        ];
        let after = json!({ "role": "user", "content": "and now?" });
        let [first, second, third] = told;
        let with = json!([first, second, third, shown, after, first, shown]);
        assert_eq!(body["messages"], with);
        let without = json!([first, second, third, after, first]);
        assert_eq!(parsed(&request, &ChatManner::COMPATIBLE)["messages"], without);
    }
}

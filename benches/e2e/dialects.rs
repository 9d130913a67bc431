//! What the scripted upstream says in other dialects than OpenAI's chat completions, in the bytes that their vendors would send.

use bytes::Bytes;
use serde_json::Value;

use crate::script::{self, token, tokens};

/// A dialect, and the upstream of Loopgate's configuration that speaks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Responses.
    Responses,
    /// The Gemini API.
    Gemini,
}

/// All of them.
pub(crate) const ALL: [Dialect; 3] = [Dialect::Messages, Dialect::Responses, Dialect::Gemini];

/// What every one of them answers.
const MODELS: [&str; 2] = [script::CHAT, script::BURST100];

impl Dialect {
    /// A model, as it is called at the upstream of this dialect.
    pub(crate) fn model(self, model: &str) -> String {
        let suffix = match self {
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
        };
        format!("{model}-{suffix}")
    }

    /// What a request may take of instructions at most, for each that a request in OpenAI's chat completions takes.
    pub(crate) fn most(self) -> f64 {
        match self {
            Self::Messages => 1.1,
            Self::Responses | Self::Gemini => 1.2,
        }
    }

    /// Its upstream in Loopgate's configuration.
    pub(crate) fn configuration(self, upstream: std::net::SocketAddr) -> String {
        let (kind, version) = match self {
            Self::Messages => ("anthropic", "v1"),
            Self::Responses => ("openai_responses", "v1"),
            Self::Gemini => ("gemini", "v1beta"),
        };
        let models = MODELS.map(|model| self.model(model));
        format!(
            "\n[upstreams.{kind}]\nkind = \"{kind}\"\nbase_url = \"http://{upstream}/{version}\"\n\
             api_key_env = \"OPENAI_API_KEY\"\nmodels = {models:?}\n"
        )
    }

    /// The dialect of a request to this path, and the model if the path names it.
    pub(crate) fn of_path(path: &str) -> Option<(Self, Option<&str>)> {
        match path {
            "/v1/messages" => Some((Self::Messages, None)),
            "/v1/responses" => Some((Self::Responses, None)),
            _ => {
                let model = path.strip_prefix("/v1beta/models/")?.strip_suffix(":streamGenerateContent")?;
                Some((Self::Gemini, Some(model)))
            }
        }
    }

    /// What a model answers, event by event.
    pub(crate) fn events(self, model: &str) -> Vec<Bytes> {
        let count = tokens(model);
        let said: Vec<Value> = (0..count).map(|index| token(index).into()).collect();
        let events = match self {
            Self::Messages => messages(model, &said),
            Self::Responses => responses(model, &said),
            Self::Gemini => gemini(model, &said),
        };
        events.into_iter().map(Bytes::from).collect()
    }
}

/// An event with its name, which is the type that its data begins with.
fn named(kind: &str, rest: &str) -> String {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{rest}}}\n\n")
}

fn messages(model: &str, said: &[Value]) -> Vec<String> {
    let usage = r#""usage":{"input_tokens":60,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":1,"service_tier":"standard"}"#;
    let message = format!(
        r#","message":{{"model":"{model}","id":"msg_01WkYsDMWKvRPHdYVtGnTwzQ","type":"message","role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,{usage}}}"#
    );
    let block = r#","index":0,"content_block":{"type":"text","text":""}"#;
    let ended = format!(
        r#","delta":{{"stop_reason":"end_turn","stop_sequence":null}},"usage":{{"input_tokens":60,"output_tokens":{}}}"#,
        said.len()
    );
    let delta =
        |text| named("content_block_delta", &format!(r#","index":0,"delta":{{"type":"text_delta","text":{text}}}"#));
    let mut events = vec![named("message_start", &message), named("content_block_start", block), named("ping", "")];
    events.extend(said.iter().map(delta));
    events.extend([
        named("content_block_stop", r#","index":0"#),
        named("message_delta", &ended),
        named("message_stop", ""),
    ]);
    events
}

fn responses(model: &str, said: &[Value]) -> Vec<String> {
    let id = "msg_68af4030baa48193b0b43b4c2a176a1a0ea1";
    let text = Value::from(said.iter().filter_map(Value::as_str).collect::<String>());
    let part = |text: &str| format!(r#"{{"type":"output_text","annotations":[],"logprobs":[],"text":{text}}}"#);
    let item = |status: &str, content: &str| {
        format!(r#"{{"id":"{id}","type":"message","status":"{status}","content":[{content}],"role":"assistant"}}"#)
    };
    let response = |status: &str, output: &str, usage: &str| {
        format!(
            r#","response":{{"id":"resp_68af4030592c81938ec0a5fbab4a3e9f05438e46b5f69a3b","object":"response","created_at":1780000000,"status":"{status}","background":false,"error":null,"incomplete_details":null,"instructions":null,"max_output_tokens":null,"model":"{model}","output":[{output}],"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{{"effort":null,"summary":null}},"store":false,"temperature":1.0,"text":{{"format":{{"type":"text"}},"verbosity":"medium"}},"tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled","usage":{usage},"user":null,"metadata":{{}}}}"#
        )
    };
    let usage = format!(
        r#"{{"input_tokens":60,"input_tokens_details":{{"cached_tokens":0}},"output_tokens":{},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}}"#,
        said.len(),
        60 + said.len()
    );
    let place = format!(r#","item_id":"{id}","output_index":0,"content_index":0"#);
    let whole = item("completed", &part(&text.to_string()));
    let mut events = vec![
        ("response.created", response("in_progress", "", "null")),
        ("response.in_progress", response("in_progress", "", "null")),
        ("response.output_item.added", format!(r#","output_index":0,"item":{}"#, item("in_progress", ""))),
        ("response.content_part.added", format!(r#"{place},"part":{}"#, part("\"\""))),
    ];
    let delta = |text| ("response.output_text.delta", format!(r#"{place},"delta":{text},"logprobs":[]"#));
    events.extend(said.iter().map(delta));
    events.extend([
        ("response.output_text.done", format!(r#"{place},"text":{text},"logprobs":[]"#)),
        ("response.content_part.done", format!(r#"{place},"part":{}"#, part(&text.to_string()))),
        ("response.output_item.done", format!(r#","output_index":0,"item":{whole}"#)),
        ("response.completed", response("completed", &whole, &usage)),
    ]);
    let numbered =
        |(number, (kind, rest)): (usize, (&str, String))| named(kind, &format!(r#","sequence_number":{number}{rest}"#));
    events.into_iter().enumerate().map(numbered).collect()
}

fn gemini(model: &str, said: &[Value]) -> Vec<String> {
    let chunk = |(index, text): (usize, &Value)| {
        let (count, total) = (index + 1, index + 61);
        let reason = if count == said.len() { r#","finishReason":"STOP""# } else { "" };
        format!(
            r#"data: {{"candidates": [{{"content": {{"parts": [{{"text": {text}}}],"role": "model"}}{reason},"index": 0}}],"usageMetadata": {{"promptTokenCount": 60,"candidatesTokenCount": {count},"totalTokenCount": {total},"promptTokensDetails": [{{"modality": "TEXT","tokenCount": 60}}]}},"modelVersion": "{model}","responseId": "mTq0aKCpJ7mUxN8PveWuyQk"}}"#
        ) + "\r\n\r\n"
    };
    said.iter().enumerate().map(chunk).collect()
}

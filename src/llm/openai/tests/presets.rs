//! What is sent to each known server, as a file with its preset declares it.

use insta::assert_snapshot;

use super::*;
use crate::config::{Options, Settings, UpstreamKind};
use crate::net::testing;
use crate::types::conversation::{Dialect, Extra, PartKind, Parts, Proof, Seal, Thinking};
use crate::types::offer::ToolDefinition;
use crate::types::sampling::Sampling;
use crate::types::{CallId, Conversation, Role, ToolCall};

/// Instructions, a question, a call that the model made after it had thought, and the call's result.
fn conversation() -> Conversation {
    let id = CallId::foreign("call_1");
    let seal = Some(Box::new(Seal { author: "x/m".to_owned(), id: None, proof: Proof::Unsigned }));
    let call = ToolCall { id: id.clone(), name: "f".into(), arguments: "{}".into() };
    let list = vec![PartKind::Thinking(Thinking { text: "hm".into(), seal }).into(), PartKind::ToolCall(call).into()];
    [
        Message::text(Role::Developer, "Be kind."),
        Message::text(Role::User, "hi"),
        Message::from_parts(Role::Assistant, Parts { list, extra: Extra::default() }),
        Message::tool(&id, "2"),
    ]
    .into_iter()
    .collect()
}

/// The roles of messages, with what some servers want of them otherwise.
fn in_short(messages: &Value) -> String {
    let in_short = |message: &Value| {
        let ids = [
            &message["role"],
            &message["reasoning_content"],
            &message["tool_calls"][0]["id"],
            &message["tool_call_id"],
        ];
        ids.iter().filter_map(|value| value.as_str()).collect::<Vec<_>>().join(":")
    };
    messages.as_array().unwrap().iter().map(in_short).collect::<Vec<_>>().join(" ")
}

/// One request that says much, as it reaches an upstream of this preset at this path.
async fn sent(preset: &str, path: &str, more: &str) -> String {
    let (address, requests) = testing::serve([vec![full_stream()]]).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("loopgate.toml");
    let text = format!("[upstreams.x]\npreset = \"{preset}\"\nbase_url = \"http://{address}{path}\"\n{more}");
    std::fs::write(&file, text).unwrap();
    let options = Options { config: Some(file), ..Options::default() };
    let is_key = |name: &str| name.ends_with("_API_KEY") || name.starts_with("LM_") || name.starts_with("AWS_");
    let settings = Settings::load(&options, &|name| is_key(name).then(|| "secret".to_owned())).unwrap();
    let UpstreamKind::OpenAi(config) = &settings.upstreams[0].kind else { panic!("expected openai") };
    let model = OpenAiModel::new("x", config, http_client(LONG).unwrap()).unwrap();

    let tool = Arc::new(ToolDefinition { name: "f".into(), ..ToolDefinition::default() });
    let extra = Extra::new(Dialect::OpenaiChat, serde_json::from_str("{\"top_k\":40}").unwrap());
    let (user, verbosity) = (Some("ada".into()), Some("low".into()));
    let sampling = Sampling { seed: Some(7), user, verbosity, extra, ..Sampling::default() };
    let unsent = model.unsent("m", &sampling).join(", ");
    let request = ModelRequest {
        conversation: conversation(),
        tools: [tool].into_iter().collect(),
        sampling: Arc::new(sampling),
        parallel_tool_calls: false,
        ..request()
    };
    drop(model.stream(request).collect::<Vec<_>>().await);
    let request = requests.await.unwrap().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let target = head.lines().next().unwrap_or_default().replace(" HTTP/1.1", "");
    let key = head.lines().find(|line| line.contains("secret")).unwrap_or("no key");
    let body: Value = serde_json::from_str(body).unwrap();
    let told = body.as_object().unwrap().iter().filter(|(name, _)| !["messages", "tools"].contains(&name.as_str()));
    let told: Vec<_> = told.map(|(name, value)| format!("{name}={value}")).collect();
    let (told, messages) = (told.join(" "), in_short(&body["messages"]));
    format!("{preset}: {target} | {key} | {told} | {messages} | unsent: {unsent}").trim_end().to_owned()
}

#[tokio::test]
async fn each_preset_is_sent_what_its_server_takes() {
    let mut told = Vec::new();
    for (preset, path) in [
        ("ollama", "/v1"),
        ("llama-cpp", "/v1"),
        ("vllm", "/v1"),
        ("sglang", "/v1"),
        ("lm-studio", "/v1"),
        ("openrouter", "/api/v1"),
        ("deepseek", "/v1"),
        ("groq", "/openai/v1"),
        ("mistral", "/v1"),
        ("together", "/v1"),
        ("xai", "/v1"),
        ("azure", "/openai/v1"),
        ("bedrock", "/v1"),
    ] {
        told.push(sent(preset, path, "").await);
    }
    told.push(sent("azure", "/openai", "api_version = \"2024-10-21\"").await);
    assert_snapshot!(told.join("\n"), @r#"
    ollama: POST /v1/chat/completions | authorization: Bearer secret | max_tokens=10 model="m" seed=7 stream=true stream_options={"include_usage":true} top_k=40 user="ada" verbosity="low" | developer user assistant:call_1 tool:call_1 | unsent:
    llama-cpp: POST /v1/chat/completions | authorization: Bearer secret | max_tokens=10 model="m" parallel_tool_calls=false seed=7 stream=true stream_options={"include_usage":true} top_k=40 user="ada" verbosity="low" | developer user assistant:call_1 tool:call_1 | unsent:
    vllm: POST /v1/chat/completions | authorization: Bearer secret | max_tokens=10 model="m" parallel_tool_calls=false seed=7 stream=true stream_options={"include_usage":true} top_k=40 user="ada" verbosity="low" | developer user assistant:call_1 tool:call_1 | unsent:
    sglang: POST /v1/chat/completions | no key | max_tokens=10 model="m" parallel_tool_calls=false seed=7 stream=true stream_options={"include_usage":true} top_k=40 user="ada" verbosity="low" | developer user assistant:call_1 tool:call_1 | unsent:
    lm-studio: POST /v1/chat/completions | authorization: Bearer secret | max_tokens=10 model="m" seed=7 stream=true stream_options={"include_usage":true} top_k=40 user="ada" verbosity="low" | developer user assistant:call_1 tool:call_1 | unsent:
    openrouter: POST /api/v1/chat/completions | authorization: Bearer secret | max_tokens=10 model="m" parallel_tool_calls=false seed=7 stream=true stream_options={"include_usage":true} top_k=40 user="ada" verbosity="low" | developer user assistant:call_1 tool:call_1 | unsent:
    deepseek: POST /v1/chat/completions | authorization: Bearer secret | max_tokens=10 model="m" seed=7 stream=true stream_options={"include_usage":true} top_k=40 user="ada" verbosity="low" | system user assistant:hm:call_1 tool:call_1 | unsent:
    groq: POST /openai/v1/chat/completions | authorization: Bearer secret | max_completion_tokens=10 model="m" parallel_tool_calls=false seed=7 stream=true stream_options={"include_usage":true} top_k=40 user="ada" | developer user assistant:call_1 tool:call_1 | unsent: verbosity
    mistral: POST /v1/chat/completions | authorization: Bearer secret | max_tokens=10 model="m" parallel_tool_calls=false random_seed=7 stream=true top_k=40 | system user assistant:sPnjkEYJU tool:sPnjkEYJU | unsent: user, verbosity
    together: POST /v1/chat/completions | authorization: Bearer secret | max_tokens=10 model="m" parallel_tool_calls=false seed=7 stream=true stream_options={"include_usage":true} top_k=40 user="ada" verbosity="low" | developer user assistant:call_1 tool:call_1 | unsent:
    xai: POST /v1/chat/completions | authorization: Bearer secret | max_tokens=10 model="m" parallel_tool_calls=false seed=7 stream=true stream_options={"include_usage":true} top_k=40 user="ada" verbosity="low" | developer user assistant:call_1 tool:call_1 | unsent:
    azure: POST /openai/v1/chat/completions | api-key: secret | max_completion_tokens=10 model="m" parallel_tool_calls=false seed=7 stream=true stream_options={"include_usage":true} user="ada" verbosity="low" | developer user assistant:call_1 tool:call_1 | unsent:
    bedrock: POST /v1/chat/completions | authorization: Bearer secret | max_tokens=10 model="m" parallel_tool_calls=false seed=7 stream=true stream_options={"include_usage":true} top_k=40 user="ada" verbosity="low" | developer user assistant:call_1 tool:call_1 | unsent:
    azure: POST /openai/deployments/m/chat/completions?api-version=2024-10-21 | api-key: secret | max_completion_tokens=10 model="m" parallel_tool_calls=false seed=7 stream=true stream_options={"include_usage":true} user="ada" verbosity="low" | developer user assistant:call_1 tool:call_1 | unsent:
    "#);
}

#[test]
fn what_a_server_has_not_is_refused_by_name_unless_it_asks_for_nothing() {
    let mut config = config(http("http://127.0.0.1:1/v1"));
    config.chat.refused = &["logit_bias", "logprobs"];
    config.chat.left_out = &["user", "store"];
    let model = OpenAiModel::new("test", &config, http_client(SHORT).unwrap()).unwrap();
    let asked = |extra: Value| {
        let extra = Extra::new(Dialect::OpenaiChat, serde_json::from_value(extra).unwrap());
        Sampling { user: Some("ada".into()), extra, ..Sampling::default() }
    };
    let harmless = asked(json!({ "logprobs": false, "logit_bias": {}, "store": true }));
    assert_eq!(model.refuses(&harmless, &[]), None);
    assert_eq!(model.unsent("m", &harmless), ["user", "store"]);
    assert_eq!(sampling::members(&harmless, &config.chat, true), "", "not even harmless values are sent");
    let refused = model.refuses(&asked(json!({ "logprobs": true })), &[]).unwrap();
    let message = "the upstream test has no `logprobs`: leave it out".to_owned();
    assert_eq!(refused, Unsupported { place: Place::Member("logprobs"), message });
}

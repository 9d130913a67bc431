//! Clients of OpenAI's dialect, and an upstream that speaks the Gemini API.

use serde_json::{Value, json};

use crate::support::chat::{
    ask_in_turn, chunks, half_answers_are_asked_for_again, refuses_each, refuses_second_part, told, with,
};
use crate::support::{Gemini, Reply, TestServer};

const CHAT: &str = "/v1/chat/completions";
const AGENT: &str = "/v1/agent/completions";
const MODEL: &str = "google/gemini-3-flash";
const OLDER: &str = "google/gemini-2.5-pro";

fn ask(content: impl Into<Value>) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": content.into()}]})
}

fn says(text: &str) -> Reply {
    Reply::gemini().text_part(text).gemini_end("STOP")
}

fn sum(expression: &str) -> Value {
    json!({"expression": expression})
}

#[tokio::test]
async fn an_answer_its_usage_and_its_cost_reach_the_caller() {
    let upstream = Gemini::start([says("Grüße"), says("Grüße")]).await;
    let price = "[models.\"gemini-3-flash\".price]\ninput = 1\ncached_input = 0.1\noutput = 10\n";
    let server = TestServer::start(&format!("{}{price}", upstream.config())).await;
    let answer = server.post(CHAT, &ask("Hi")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Grüße");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(100), &json!(20)));
    assert_eq!(usage["prompt_tokens_details"], json!({"cached_tokens": 60}));
    assert_eq!(usage["completion_tokens_details"], json!({"reasoning_tokens": 5}));
    // 40 tokens for a dollar a million, 60 for 0.10, and 20 of output, thought ones too, for 10.
    let answer = server.post(AGENT, &ask("Hi")).await.ok();
    assert_eq!(answer["agent"]["cost_usd"], 0.000_246, "{answer}");
}

#[tokio::test]
async fn parallel_calls_go_through_the_tool_loop_with_their_signature_and_are_answered_together() {
    let calls = Reply::gemini().part(&json!({"text": "Let me see", "thought": true})).text_part("One moment.");
    let calls =
        calls.call_part("calculator", &sum("6 * 7"), Some("EqQBCg==")).call_part("calculator", &sum("2 + 2"), None);
    let upstream = Gemini::start([calls.gemini_end("STOP"), says("42 and 4")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let request =
        with(ask("What is 6 * 7, and 2 + 2?"), &json!({"reasoning_effort": "low", "agent": {"session_id": "s"}}));
    let answer = server.post(AGENT, &request).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "42 and 4", "{answer}");

    let [first, second] = <[Value; 2]>::try_from(upstream.requests()).expect("there were two model calls");
    let thinking = json!({"thinkingLevel": "low", "includeThoughts": true});
    assert_eq!(first["generationConfig"]["thinkingConfig"], thinking);
    assert_eq!(first["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]["type"], "object");
    let turn = &second["contents"][1]["parts"];
    assert_eq!(turn[0], json!({"text": "One moment."}), "what was not signed is not sent back: {turn}");
    assert_eq!((&turn[1]["functionCall"]["args"], &turn[1]["thoughtSignature"]), (&sum("6 * 7"), &json!("EqQBCg==")));
    assert_eq!((&turn[2]["functionCall"]["args"], turn[2].get("thoughtSignature")), (&sum("2 + 2"), None));
    let results = second["contents"][2]["parts"].as_array().expect("results are a list");
    let told: Vec<_> = results.iter().map(|part| &part["functionResponse"]["response"]["output"]).collect();
    assert_eq!(told, ["42", "4"]);
}

#[tokio::test]
async fn a_stream_of_chunks_is_that_of_any_other_upstream_with_one_call_where_one_is_asked_for() {
    let call = Reply::gemini().text_part("So: ").call_part("lookup", &json!({"q": "x"}), Some("EqQB"));
    let upstream = Gemini::start([call.call_part("lookup", &json!({"q": "y"}), None).gemini_end("STOP")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let tools = json!([{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}]);
    let members = json!({"stream": true, "tools": tools, "parallel_tool_calls": false, "tool_choice": "required"});
    let (text, arguments, finish) = told(&chunks(&server, &with(ask("Hi"), &members)).await);
    assert_eq!((text.as_str(), arguments.as_str(), finish), ("So: ", "{\"q\":\"x\"}", json!("tool_calls")));
    let choice = json!({"functionCallingConfig": {"mode": "ANY"}});
    assert_eq!(upstream.requests()[0]["toolConfig"], choice);
}

#[tokio::test]
async fn media_reach_the_model_and_what_it_cannot_take_is_refused_before_it_is_asked() {
    let upstream = Gemini::start([says("A cat.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let sound = |format: &str| json!({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": format}});
    let file = |data: &str| json!({"type": "file", "file": {"file_data": data, "filename": "a"}});
    let question = json!({"type": "text", "text": "What is it?"});
    let parts = [
        question.clone(),
        image("data:image/png;base64,iVBORw0KGgo="),
        sound("wav"),
        file("data:application/pdf;base64,JVBERi0="),
    ];
    server.post(CHAT, &ask(parts.to_vec())).await.ok();
    let sent = upstream.requests()[0]["contents"][0]["parts"].clone();
    assert_eq!(sent[1], json!({"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}));
    assert_eq!(sent[2]["inlineData"]["mimeType"], "audio/wav");
    assert_eq!(sent[3]["inlineData"]["mimeType"], "application/pdf");

    let id = json!({"type": "file", "file": {"file_id": "file-1"}});
    for (part, says) in [
        (image("data:image/tiff;base64,SUkq"), "not as image/tiff"),
        (file("data:application/zip;base64,UEs="), "not as application/zip"),
        (id, "file_data"),
        (file("ftp://files.example/a.pdf"), "https:// or http://"),
    ] {
        refuses_second_part(&server, &ask(vec![question.clone(), part]), [says, "google"]).await;
    }
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn members_without_a_counterpart_are_refused_by_name_and_hints_are_told_to_be_left_out() {
    let upstream = Gemini::start([says("Hi")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let members = [
        ("seed", json!(1_u64 << 40)),
        ("logit_bias", json!({"50256": -100})),
        ("prediction", json!({"type": "content", "content": "x"})),
        ("reasoning_effort", json!("enormous")),
        ("modalities", json!(["text", "audio"])),
        ("min_p", json!(0.1)),
        ("thinking", json!({"type": "enabled", "budget_tokens": 1024})),
        ("chat_template_kwargs", json!({"enable_thinking": false})),
    ];
    refuses_each(&server, &ask("Hi"), members).await;
    assert!(upstream.requests().is_empty());
    let harmless = json!({
        "frequency_penalty": 0, "logit_bias": {}, "logprobs": false, "temperature": 1.5, "top_k": 40, "verbosity": "low",
        "min_p": 0, "chat_id": "c", "stop": ["END"], "user": "ada", "seed": 7,
    });
    let answer = server.post(AGENT, &with(ask("Hi"), &harmless)).await.ok();
    let said =
        "the upstream google was not sent these members, which it or its model does not take: verbosity, user, chat_id";
    assert!(answer["agent"]["warnings"].as_array().is_some_and(|all| all.contains(&said.into())), "{answer}");
    let mut config = upstream.requests().remove(0)["generationConfig"].take();
    config.as_object_mut().expect("it is an object").remove("maxOutputTokens");
    assert_eq!(config, json!({"temperature": 1.5, "topK": 40, "stopSequences": ["END"], "seed": 7}));
}

#[tokio::test]
async fn what_the_upstream_holds_back_ends_as_filtered_and_a_call_that_it_cannot_read_is_asked_for_again() {
    let stopped = Reply::gemini().text_part("I").gemini_end("SAFETY");
    let blocked = Reply::gemini().gemini_chunk(&json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}));
    let malformed = Reply::gemini().gemini_end("MALFORMED_FUNCTION_CALL");
    let cut = Reply::gemini().text_part("I am").gemini_end("MAX_TOKENS");
    let upstream = Gemini::start([stopped, blocked, malformed, says("Whole"), cut]).await;
    let server = TestServer::start(&upstream.config()).await;
    for (reason, text) in [("content_filter", "I"), ("content_filter", ""), ("stop", "Whole"), ("length", "I am")] {
        let answer = server.post(CHAT, &ask("Hi")).await.ok();
        let choice = &answer["choices"][0];
        assert_eq!(
            (&choice["finish_reason"], choice["message"]["content"].as_str().unwrap_or_default()),
            (&json!(reason), text)
        );
    }
    assert_eq!(upstream.requests().len(), 5);
}

/// What such an answer took is told to its end, so neither an estimate nor all that it was allowed is charged.
#[tokio::test]
async fn an_answer_that_cannot_be_used_is_charged_what_the_upstream_says_that_it_took() {
    let malformed = || Reply::gemini().gemini_end("MALFORMED_FUNCTION_CALL");
    let unknown = Reply::gemini().call_part("calculator", &sum("1"), Some("Cg==")).gemini_end("LANGUAGE");
    let upstream = Gemini::start([malformed(), unknown, says("Whole")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let answer = server.post(AGENT, &with(ask("Hi"), &json!({"max_completion_tokens": 5_000}))).await.ok();
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(300), &json!(60)), "{answer}");
    assert_eq!(usage["prompt_tokens_details"], json!({"cached_tokens": 180}));
    let warnings = answer["agent"]["warnings"].to_string();
    assert!(!warnings.contains("estimate"), "{warnings}");
}

/// What no list knows is not guessed: such a model takes what its upstream takes.
#[tokio::test]
async fn a_model_that_no_list_knows_is_neither_bounded_nor_disbelieved() {
    let model = "google/gemini-flash-latest";
    let usage = json!({"promptTokenCount": 300_000, "candidatesTokenCount": 2, "totalTokenCount": 300_002});
    let candidate = json!({"content": {"parts": [{"text": "Long."}]}, "finishReason": "STOP"});
    let long = Reply::gemini().gemini_chunk(&json!({"candidates": [candidate], "usageMetadata": usage}));
    let upstream = Gemini::start([long]).await;
    let server = TestServer::start(&upstream.config()).await;
    let request = with(ask("x".repeat(1_000_000)), &json!({"model": model, "max_completion_tokens": 32_000}));
    let answer = server.post(AGENT, &request).await.ok();
    assert_eq!(upstream.requests()[0]["generationConfig"]["maxOutputTokens"], 32_000);
    assert_eq!(answer["usage"]["prompt_tokens"], 300_000, "{}", answer["agent"]["warnings"]);
}

#[tokio::test]
async fn an_overloaded_upstream_is_asked_again_and_an_error_in_the_middle_is_told() {
    let limited = || {
        let delay = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.01s"});
        let error = json!({"code": 429, "message": "Quota.", "status": "RESOURCE_EXHAUSTED", "details": [delay]});
        Reply::json(429, &json!({"error": error}))
    };
    let error = json!({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}});
    let begun = || Reply::gemini().text_part("Half");
    let broken = || begun().gemini_chunk(&error);
    let replies =
        [limited(), limited(), says("Hi"), broken(), begun().cut(), says("Whole"), broken(), begun().cut(), broken()];
    let upstream = Gemini::start(replies).await;
    let server = TestServer::start(&upstream.config()).await;
    let answer = server.post(CHAT, &ask("Hi")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Hi");
    assert_eq!(upstream.requests().len(), 3);

    half_answers_are_asked_for_again(&server, &ask("Hi"), "The model is overloaded.").await;
}

/// Only the model that signed its thinking gets the signatures back; the others are told that a call has none.
#[tokio::test]
async fn signatures_are_for_the_model_that_wrote_them_alone() {
    let signed = || Reply::gemini().text_part("So").part(&json!({"text": "", "thoughtSignature": "EqQB"}));
    let called = signed().call_part("calculator", &sum("6 * 7"), Some("Cg==")).gemini_end("STOP");
    let upstream = Gemini::start([called, says("42"), says("Hi"), says("Hi")]).await;
    let server = TestServer::start(&upstream.config()).await;
    ask_in_turn(&server, &ask("Hi"), &[MODEL, OLDER, MODEL]).await;
    let signatures: Vec<_> =
        upstream.requests().iter().map(|body| body.to_string().matches("Signature").count()).collect();
    assert_eq!(signatures, [0, 2, 1, 2]);
    let other = upstream.requests()[2].to_string();
    assert!(!other.contains("EqQB") && !other.contains("Cg=="), "{other}");
}

/// The upstream refuses a call without one, whether or not its model's name tells how new the model is.
#[tokio::test]
async fn a_client_that_keeps_its_own_history_cannot_bring_signatures_so_the_model_is_told_that_there_are_none() {
    let upstream = Gemini::start([says("No rain"), says("No rain"), says("No rain")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}});
    for model in [MODEL, OLDER, "google/gemini-flash-latest"] {
        let messages = json!([
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "no"},
        ]);
        server.post(CHAT, &json!({"model": model, "messages": messages})).await.ok();
        let asked = upstream.requests().pop().expect("it was asked");
        assert!(asked["contents"][1]["parts"][0]["thoughtSignature"].is_string(), "{model}: {asked}");
    }
}

#[tokio::test]
async fn an_error_in_the_middle_that_is_no_event_is_told_and_its_wait_is_kept() {
    let error = |code: u16, status: &str, details: Value| {
        let error = json!({"error": {"code": code, "message": "Not now.", "status": status, "details": details}});
        Reply::gemini().bytes(format!("{error:#}\n"))
    };
    let delay = json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.01s"}]);
    let limited = error(429, "RESOURCE_EXHAUSTED", delay);
    let upstream = Gemini::start([limited, says("Hi"), error(400, "INVALID_ARGUMENT", json!([]))]).await;
    let server = TestServer::start(&upstream.config()).await;
    let answer = server.post(CHAT, &ask("Hi")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Hi");
    let refused = server.post(CHAT, &ask("Hi")).await;
    let message = refused.body["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("Not now."), "{message}");
    assert_eq!(upstream.requests().len(), 3, "what is refused is not asked for again");
}

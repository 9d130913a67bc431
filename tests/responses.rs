//! Clients of OpenAI's chat dialect, and an upstream that speaks OpenAI's Responses.

use serde_json::{Value, json};

use crate::support::chat::{
    ask_in_turn, broken_answers_are_told, chunks, refuses_each, refuses_second_part, told, with,
};
use crate::support::{Compatible, Reply, Responses, TestServer};

const CHAT: &str = "/v1/chat/completions";
const AGENT: &str = "/v1/agent/completions";
const MODEL: &str = "respond/gpt-5";

fn ask(content: impl Into<Value>) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": content.into()}]})
}

fn says(text: &str) -> Reply {
    Reply::responses().text_item(0, text).complete()
}

#[tokio::test]
async fn an_answer_its_usage_and_its_cost_reach_the_caller() {
    let upstream = Responses::start([says("Grüße"), says("Grüße")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let answer = server.post(CHAT, &ask("Hi")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Grüße");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(100), &json!(20)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 60);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 5);

    let answer = server.post(AGENT, &ask("Hi")).await.ok().to_string();
    // 40 tokens for 1.25 dollars a million, 60 for 0.125, and 20 of output for 10, rounded up.
    assert!(answer.contains("0.000258"), "{answer}");
}

#[tokio::test]
async fn reasoning_goes_through_the_tool_loop_encrypted_and_parallel_calls_are_answered_together() {
    let calls = Reply::responses().reasoning_item(0, "Let me see", "gAAA==").text_item(1, "One moment.");
    let calls = calls.call_item(2, "calculator", &json!({"expression": "6 * 7"}));
    let calls = calls.call_item(3, "calculator", &json!({"expression": "2 + 2"})).complete();
    let upstream = Responses::start([calls, says("42 and 4")]).await;
    let server = TestServer::start(&format!("{}reasoning_summary = \"auto\"\n", upstream.config())).await;
    let request =
        with(ask("What is 6 * 7, and 2 + 2?"), &json!({"reasoning_effort": "low", "agent": {"session_id": "s"}}));
    let answer = server.post(AGENT, &request).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "42 and 4", "{answer}");

    let [first, second] = <[Value; 2]>::try_from(upstream.requests()).expect("there were two model calls");
    assert_eq!(first["reasoning"], json!({"effort": "low", "summary": "auto"}));
    assert_eq!(first["include"], json!(["reasoning.encrypted_content"]));
    let items = second["input"].as_array().expect("there are items");
    let summary = json!([{"type": "summary_text", "text": "Let me see"}]);
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAA=="});
    assert_eq!(items[1], reasoning);
    assert_eq!(items[2], json!({"type": "message", "role": "assistant", "content": "One moment."}));
    assert_eq!(items[3]["arguments"], "{\"expression\":\"6 * 7\"}");
    assert_eq!([&items[5]["output"], &items[6]["output"]], ["42", "4"]);
}

/// The last event repeats the whole answer. Which of its items were told before is not always said by their number.
#[tokio::test]
async fn what_compatible_servers_tell_twice_is_said_once_and_called_once() {
    let calls = Reply::responses().reasoning_item(0, "Let me see", "gAAA==").text_item(1, "One moment.");
    let calls = calls.call_item(2, "calculator", &json!({"expression": "6 * 7"}));
    let calls = calls.call_item(3, "calculator", &json!({"expression": "2 + 2"})).complete();
    for server in [Compatible::LlamaCpp, Compatible::Sglang] {
        let upstream = Responses::start([calls.clone().told_by(server), says("42 and 4").told_by(server)]).await;
        let gateway = TestServer::start(&upstream.config()).await;
        let chunks = chunks(&gateway, &with(ask("What is 6 * 7, and 2 + 2?"), &json!({"stream": true}))).await;
        let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, "One moment.42 and 4", "{server:?}");

        let [_, second] = <[Value; 2]>::try_from(upstream.requests()).expect("there were two model calls");
        let items = second["input"].as_array().expect("there are items");
        let kinds: Vec<_> = items.iter().filter_map(|item| item["type"].as_str()).collect();
        let expected = ["message", "reasoning", "message", "function_call", "function_call"];
        assert_eq!(kinds[..5], expected, "{server:?}");
        assert_eq!(kinds[5..], ["function_call_output"; 2], "{server:?}");
        assert_eq!(
            [&items[3]["arguments"], &items[4]["arguments"]],
            ["{\"expression\":\"6 * 7\"}", "{\"expression\":\"2 + 2\"}"]
        );
        assert_eq!([&items[5]["output"], &items[6]["output"]], ["42", "4"], "{server:?}");
    }
}

#[tokio::test]
async fn a_stream_of_chunks_is_that_of_any_other_upstream() {
    let call = Reply::responses().reasoning_item(0, "hm", "gAAA==").text_item(1, "So: ");
    let upstream = Responses::start([call.call_item(2, "lookup", &json!({"q": "x"})).complete()]).await;
    let server = TestServer::start(&upstream.config()).await;
    let tools = json!([{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}]);
    let request = with(ask("Hi"), &json!({"stream": true, "tools": tools, "parallel_tool_calls": false}));
    let (text, arguments, finish) = told(&chunks(&server, &request).await);
    assert_eq!((text.as_str(), arguments.as_str(), finish), ("So: ", "{\"q\":\"x\"}", json!("tool_calls")));
    let sent = &upstream.requests()[0];
    assert_eq!((&sent["parallel_tool_calls"], &sent["tools"][0]["strict"]), (&json!(false), &json!(false)));
}

#[tokio::test]
async fn pictures_and_documents_reach_the_model_and_sound_is_refused_before_it_is_asked() {
    let upstream = Responses::start([says("A cat.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let png = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let pdf =
        json!({"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}});
    server.post(CHAT, &ask(json!([{"type": "text", "text": "What is it?"}, png, pdf]))).await.ok();
    let content = upstream.requests()[0]["input"][0]["content"].clone();
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"});
    assert_eq!(content[1], image);
    assert_eq!((&content[2]["type"], &content[2]["filename"]), (&json!("input_file"), &json!("a.pdf")));

    let sound = json!({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}});
    let request = ask(json!([{"type": "text", "text": "What is it?"}, sound]));
    refuses_second_part(&server, &request, ["takes no sound", "respond"]).await;
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn members_without_a_counterpart_are_refused_by_name_and_hints_are_told_to_be_left_out() {
    let upstream = Responses::start([says("Hi")]).await;
    let server = TestServer::start(&format!("{}pass_unknown_members = false\n", upstream.config())).await;
    let nameless = json!({"type": "json_schema", "json_schema": {"name": "a"}});
    let members = [
        ("seed", json!(7)),
        ("stop", json!("END")),
        ("stop", json!(["END"])),
        ("logit_bias", json!({"50256": -100})),
        ("frequency_penalty", json!(0.5)),
        ("presence_penalty", json!(-0.5)),
        ("prediction", json!({"type": "content", "content": "x"})),
        ("web_search_options", json!({})),
        ("response_format", nameless),
        ("top_k", json!(40)),
        ("thinking", json!({"type": "enabled", "budget_tokens": 1024})),
    ];
    refuses_each(&server, &ask("Hi"), members).await;
    assert!(upstream.requests().is_empty());
    let harmless = json!({
        "frequency_penalty": 0, "logit_bias": {}, "logprobs": false, "temperature": 1.5, "top_k": -1, "store": true,
        "chat_id": "c", "verbosity": "low", "stop": [], "user": "ada", "truncation": "auto",
    });
    let answer = server.post(AGENT, &with(ask("Hi"), &harmless)).await.ok();
    let said = "the upstream respond was not sent these members, which it or its model does not take: ";
    let warnings = answer["agent"]["warnings"].as_array().cloned().unwrap_or_default();
    let warning = warnings.iter().filter_map(Value::as_str).find_map(|warning| warning.strip_prefix(said));
    let mut unsent: Vec<_> = warning.unwrap_or_default().split(", ").collect();
    unsent.sort_unstable();
    assert_eq!(unsent, ["chat_id", "store", "temperature"], "the model samples in its own way: {answer}");
    let sent = upstream.requests().remove(0);
    assert_eq!((sent.get("temperature"), &sent["user"], &sent["truncation"]), (None, &json!("ada"), &json!("auto")));
    assert_eq!((&sent["text"], sent.get("top_k")), (&json!({"verbosity": "low"}), None));
}

#[tokio::test]
async fn an_answer_that_was_cut_short_or_declined_says_so() {
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []});
    let declined = Reply::responses().item(0, &item, ("refusal", &["I ", "can't."]), &item).complete();
    let replies = [
        Reply::responses().text_item(0, "Half").incomplete("max_output_tokens"),
        Reply::responses().text_item(0, "Half").incomplete("content_filter"),
        declined,
    ];
    let upstream = Responses::start(replies).await;
    let server = TestServer::start(&upstream.config()).await;
    for expected in ["length", "content_filter"] {
        let answer = server.post(CHAT, &with(ask("Hi"), &json!({"max_completion_tokens": 20}))).await.ok();
        let choice = &answer["choices"][0];
        assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!(expected), &json!("Half")));
    }
    assert_eq!(upstream.requests()[0]["max_output_tokens"], 20);
    let answer = server.post(CHAT, &ask("Hi")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["refusal"], "I can't.", "{answer}");
}

#[tokio::test]
async fn structured_output_is_asked_for_in_the_words_of_the_api() {
    let upstream = Responses::start([says("{\"a\":1}")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": true}});
    let answer = server.post(CHAT, &with(ask("Hi"), &json!({"response_format": format}))).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "{\"a\":1}");
    let expected = json!({"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": true}});
    assert_eq!(upstream.requests()[0]["text"], expected);
}

#[tokio::test]
async fn a_rate_limited_upstream_is_asked_again_and_an_error_in_the_middle_is_told() {
    let limited = || Reply::responses_error(429, "rate_limit_exceeded", "Slow down").header("retry-after", "0.01");
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []});
    let begun = || {
        let added = json!({"type": "response.output_item.added", "output_index": 0, "item": item});
        let half =
            json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Half"});
        Reply::responses().event(&added).event(&half)
    };
    let error = json!({"code": "server_error", "message": "The server had an error"});
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": error}});
    let broken = || begun().event(&failed);
    let replies =
        [limited(), limited(), says("Hi"), broken(), broken(), says("Whole"), broken(), begun().cut(), broken()];
    let upstream = Responses::start(replies).await;
    let server = TestServer::start(&upstream.config()).await;
    let answer = server.post(CHAT, &ask("Hi")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Hi");
    assert_eq!(upstream.requests().len(), 3);

    broken_answers_are_told(&server, &ask("Hi"), "The server had an error").await;
}

/// The key belongs to another organisation now, or the upstream has lost its own key: the session goes on.
#[tokio::test]
async fn reasoning_that_the_upstream_cannot_read_any_more_is_left_out() {
    let think = Reply::responses().reasoning_item(0, "hm", "gAAA==").text_item(1, "So").complete();
    let refusal = |code| Reply::responses_error(400, code, "The encrypted content gAAA... could not be verified.");
    let refused = || refusal("invalid_encrypted_content");
    let replies = [think, refused(), says("Still here"), refused(), refused(), refusal("invalid_request_error")];
    let upstream = Responses::start(replies).await;
    let server = TestServer::start(&upstream.config()).await;
    let request = with(ask("Hi"), &json!({"agent": {"session_id": "s"}}));
    server.post(AGENT, &request).await.ok();
    let answer = server.post(AGENT, &request).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Still here", "{answer}");
    let has_reasoning: Vec<_> = upstream.requests().iter().map(|body| body.to_string().contains("gAAA")).collect();
    assert_eq!(has_reasoning, [false, true, false]);
    // A refusal of the request without reasoning, and any other one, is told.
    for _ in 0..2 {
        let answer = server.post(AGENT, &request).await;
        assert_eq!((answer.status, answer.code()), (400, "request_rejected"), "{}", answer.body);
    }
    assert_eq!(upstream.requests().len(), 6);
}

/// A model may refuse the reasoning of another one, also at the same upstream.
#[tokio::test]
async fn reasoning_is_for_the_model_that_wrote_it_alone() {
    let think = || Reply::responses().reasoning_item(0, "hm", "gAAA==").text_item(1, "So").complete();
    let upstream = Responses::start([think(), says("Hi"), says("Hi")]).await;
    let server = TestServer::start(&upstream.config()).await;
    ask_in_turn(&server, &ask("Hi"), &[MODEL, "respond/gpt-5-mini", MODEL]).await;
    let has_reasoning: Vec<_> = upstream.requests().iter().map(|body| body.to_string().contains("gAAA")).collect();
    assert_eq!(has_reasoning, [false, false, true]);
}

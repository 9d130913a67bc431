//! Clients of OpenAI's dialect, and an upstream that speaks Anthropic's Messages.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::chat::{
    ask_in_turn, broken_answers_are_told, chunks, refuses_each, refuses_second_part, told, with,
};
use crate::support::{Anthropic, Reply, TestServer, Upstream};

const CHAT: &str = "/v1/chat/completions";
const AGENT: &str = "/v1/agent/completions";
const MODEL: &str = "claude/claude-sonnet-4-5";

fn ask(content: impl Into<Value>) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": content.into()}]})
}

fn says(text: &str) -> Reply {
    Reply::anthropic().text_block(0, text).stop("end_turn")
}

#[tokio::test]
async fn an_answer_its_usage_and_its_cost_reach_the_caller() {
    let upstream = Anthropic::start([says("Grüße"), says("Grüße")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let answer = server.post(CHAT, &ask("Hi")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Grüße");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(100), &json!(20)));
    let details = json!({"cached_tokens": 60, "cache_write_tokens": 30});
    assert_eq!(usage["prompt_tokens_details"], details);

    let answer = server.post(AGENT, &ask("Hi")).await.ok();
    // 10 tokens for 3 dollars a million, 60 for 0.30, 30 for 3.75, and 20 of output for 15, rounded up.
    let cost =
        answer["agent"]["report"]["cost_usd"].as_f64().or(answer["agent"]["budget"]["cost_usd"]["used"].as_f64());
    let found = answer.to_string();
    assert!(cost == Some(0.000_461) || found.contains("0.000461"), "{found}");

    let metrics = server.respond(server.request(Method::GET, "/metrics")).await.text().await.expect("it is text");
    for (kind, tokens) in [("input", 20), ("cached_input", 120), ("cache_write", 60), ("output", 40)] {
        let labels = format!("{{upstream=\"claude\",model=\"claude-sonnet-4-5\",kind=\"{kind}\"}}");
        let sample = format!("loopgate_tokens_total{labels} {tokens}\n");
        assert!(metrics.contains(&sample), "{sample} is missing in {metrics}");
    }
}

#[tokio::test]
async fn a_declared_price_charges_cache_writes_by_default_as_the_vendor_does() {
    for (declared, cost) in [("", "0.000461"), ("cache_write = 9\n", "0.000618"), ("cache_write = 3\n", "0.000438")] {
        let upstream = Anthropic::start([says("Hi")]).await;
        let price = "[models.\"claude-sonnet-4-5\".price]\ninput = 3\ncached_input = 0.3\noutput = 15\n";
        let server = TestServer::start(&format!("{}{price}{declared}", upstream.config())).await;
        let answer = server.post(AGENT, &ask("Hi")).await.ok().to_string();
        assert!(answer.contains(cost), "{declared}{answer}");
    }
}

#[tokio::test]
async fn thinking_goes_through_the_tool_loop_with_its_signature_and_parallel_calls_are_answered_together() {
    let calls = Reply::anthropic().thinking_block(0, "Let me see", "EqQBCg==").text_block(1, "One moment.");
    let calls = calls.tool_block(2, "calculator", &json!({"expression": "6 * 7"}));
    let calls = calls.tool_block(3, "calculator", &json!({"expression": "2 + 2"})).stop("tool_use");
    let upstream = Anthropic::start([calls, says("42 and 4")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let request =
        with(ask("What is 6 * 7, and 2 + 2?"), &json!({"reasoning_effort": "low", "agent": {"session_id": "s"}}));
    let answer = server.post(AGENT, &request).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "42 and 4", "{answer}");

    let [first, second] = <[Value; 2]>::try_from(upstream.requests()).expect("there were two model calls");
    assert_eq!(first["thinking"]["type"], "enabled");
    assert_eq!(first["tools"][0]["input_schema"]["type"], "object");
    let turn = &second["messages"][1]["content"];
    assert_eq!(turn[0], json!({"type": "thinking", "thinking": "Let me see", "signature": "EqQBCg=="}));
    assert_eq!(turn[1], json!({"type": "text", "text": "One moment."}));
    assert_eq!(turn[2]["input"], json!({"expression": "6 * 7"}));
    let results = second["messages"][2]["content"].as_array().expect("results are a list");
    let texts: Vec<_> =
        results.iter().map(|result| result["content"][0]["text"].as_str().unwrap_or_default()).collect();
    assert_eq!(texts, ["42", "4"]);
    for (body, count) in [(&first, 2), (&second, 3)] {
        assert_eq!(body.to_string().matches("cache_control").count(), count, "{body}");
    }
}

#[tokio::test]
async fn a_stream_of_chunks_is_that_of_any_other_upstream() {
    let call = Reply::anthropic().thinking_block(0, "hm", "EqQB").text_block(1, "So: ");
    let upstream = Anthropic::start([call.tool_block(2, "lookup", &json!({"q": "x"})).stop("tool_use")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let tools = json!([{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}]);
    let request = with(ask("Hi"), &json!({"stream": true, "tools": tools, "parallel_tool_calls": false}));
    let (text, arguments, finish) = told(&chunks(&server, &request).await);
    assert_eq!((text.as_str(), arguments.as_str(), finish), ("So: ", "{\"q\":\"x\"}", json!("tool_calls")));
    let choice = json!({"type": "auto", "disable_parallel_tool_use": true});
    assert_eq!(upstream.requests()[0]["tool_choice"], choice);
}

#[tokio::test]
async fn pictures_and_documents_reach_the_model_and_what_it_cannot_take_is_refused_before_it_is_asked() {
    let upstream = Anthropic::start([says("A cat.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let png = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let pdf =
        json!({"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}});
    server.post(CHAT, &ask(json!([{"type": "text", "text": "What is it?"}, png, pdf]))).await.ok();
    let content = upstream.requests()[0]["messages"][0]["content"].clone();
    assert_eq!(content[1]["source"], json!({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}));
    assert_eq!((&content[2]["type"], &content[2]["title"]), (&json!("document"), &json!("a.pdf")));

    let sound = json!({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}});
    let id = json!({"type": "file", "file": {"file_id": "file-1"}});
    let tiff = json!({"type": "image_url", "image_url": {"url": "data:image/tiff;base64,SUkq"}});
    for (part, says) in [(sound, "takes no sound"), (id, "file_data"), (tiff, "not as image/tiff")] {
        let request = ask(json!([{"type": "text", "text": "What is it?"}, part]));
        refuses_second_part(&server, &request, [says, "claude"]).await;
    }
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn members_without_a_counterpart_are_refused_by_name_and_hints_are_told_to_be_left_out() {
    let upstream = Anthropic::start([says("Hi")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let members = [
        ("seed", json!(7)),
        ("logit_bias", json!({"50256": -100})),
        ("frequency_penalty", json!(0.5)),
        ("presence_penalty", json!(-0.5)),
        ("prediction", json!({"type": "content", "content": "x"})),
        ("response_format", json!({"type": "json_object"})),
        ("temperature", json!(1.5)),
        ("reasoning_effort", json!("enormous")),
        ("min_p", json!(0.1)),
        ("thinking_config", json!({"thinkingBudget": 100})),
        ("chat_template_kwargs", json!({"enable_thinking": false})),
    ];
    refuses_each(&server, &ask("Hi"), members).await;
    assert!(upstream.requests().is_empty());
    let harmless = json!({
        "frequency_penalty": 0, "logit_bias": {}, "logprobs": false, "temperature": 1, "top_k": 40, "verbosity": "low",
        "min_p": 0, "chat_id": "c", "stop": ["END"], "user": "ada",
    });
    let answer = server.post(AGENT, &with(ask("Hi"), &harmless)).await.ok();
    let said =
        "the upstream claude was not sent these members, which it or its model does not take: verbosity, chat_id";
    assert!(answer["agent"]["warnings"].as_array().is_some_and(|all| all.contains(&said.into())), "{answer}");
    let sent = upstream.requests().remove(0);
    assert_eq!(
        (&sent["top_k"], &sent["stop_sequences"], &sent["metadata"]["user_id"]),
        (&json!(40), &json!(["END"]), &json!("ada"))
    );
}

#[tokio::test]
async fn a_paused_turn_goes_on_and_a_refusal_ends_it() {
    let search = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}});
    let paused = Reply::anthropic().text_block(0, "I look. ").block(1, &search, &[]).stop("pause_turn");
    let refused = Reply::anthropic().stop("refusal");
    let upstream = Anthropic::start([paused, says("Found."), refused]).await;
    let server = TestServer::start(&upstream.config()).await;
    let answer = server.post(CHAT, &ask("Hi")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "I look. Found.", "{answer}");
    assert_eq!(answer["usage"]["completion_tokens"], 40);
    let again = &upstream.requests()[1]["messages"];
    assert_eq!((&again[1]["role"], &again[1]["content"][1]), (&json!("assistant"), &search), "{again}");

    let answer = server.post(CHAT, &ask("Hi")).await.ok();
    assert_eq!(answer["choices"][0]["finish_reason"], "content_filter", "{answer}");
}

#[tokio::test]
async fn an_overloaded_upstream_is_asked_again_and_an_error_in_the_middle_is_told() {
    let overloaded = || Reply::anthropic_error(529, "overloaded_error", "Overloaded").header("retry-after", "0.01");
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let block = json!({"type": "text", "text": ""});
    let begun = || Reply::anthropic().block(0, &block, &[json!({"type": "text_delta", "text": "Half"})]);
    let broken = || begun().event(&error);
    let replies =
        [overloaded(), overloaded(), says("Hi"), broken(), broken(), says("Whole"), broken(), begun().cut(), broken()];
    let upstream = Anthropic::start(replies).await;
    let server = TestServer::start(&upstream.config()).await;
    let answer = server.post(CHAT, &ask("Hi")).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Hi");
    assert_eq!(upstream.requests().len(), 3);

    broken_answers_are_told(&server, &ask("Hi"), "Overloaded").await;
}

/// A model may refuse the thinking of another one, also at the same upstream.
#[tokio::test]
async fn thinking_is_for_the_model_that_wrote_it_alone() {
    let think = || Reply::anthropic().thinking_block(0, "hm", "EqQB").text_block(1, "So").stop("end_turn");
    let upstream = Anthropic::start([think(), says("Hi"), says("Hi")]).await;
    let server = TestServer::start(&upstream.config()).await;
    ask_in_turn(&server, &ask("Hi"), &[MODEL, "claude/claude-opus-5", MODEL]).await;
    let has_thinking: Vec<_> = upstream.requests().iter().map(|body| body.to_string().contains("EqQB")).collect();
    assert_eq!(has_thinking, [false, false, true]);
}

/// Text, calls, results and pictures go everywhere. Thinking goes back only to the model that sealed it.
#[tokio::test]
async fn a_conversation_changes_its_upstream_in_the_middle_and_loses_nothing_that_both_can_carry() {
    let think = |text: &str| Reply::anthropic().thinking_block(0, "hm", "EqQB").text_block(1, text);
    let sum = json!({"expression": "6 * 7"});
    let claude = Anthropic::start([
        think("I add.").tool_block(2, "calculator", &sum).stop("tool_use"),
        think("42").stop("end_turn"),
        says("Bye"),
    ])
    .await;
    let openai =
        Upstream::start([Reply::calls("calculator", &json!({"expression": "2 + 2"})), Reply::says("Four")]).await;
    let server = TestServer::start(&format!("{}{}", claude.config(), openai.config())).await;
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    for (model, content) in [
        (MODEL, json!([{"type": "text", "text": "What is 6 * 7?"}, picture])),
        ("scripted/test", json!("And 2 + 2?")),
        (MODEL, json!("Bye")),
    ] {
        let messages = json!([{"role": "user", "content": content}]);
        let request = json!({"model": model, "messages": messages, "agent": {"session_id": "s"}});
        server.post(AGENT, &request).await.ok();
    }

    let openai = openai.requests().pop().expect("it was asked");
    let roles: Vec<_> = openai["messages"].as_array().into_iter().flatten().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"], "{openai}");
    assert_eq!(openai["messages"][0]["content"][1], picture);
    assert_eq!(openai["messages"][1]["tool_calls"][0]["function"]["arguments"], sum.to_string());
    assert!(!openai.to_string().contains("EqQB"), "no other upstream sees the thinking: {openai}");

    let claude = claude.requests().pop().expect("it was asked");
    let turns = claude["messages"].as_array().expect("there are messages");
    assert_eq!(turns.len(), 9, "{claude}");
    assert_eq!(turns[0]["content"][1]["source"]["data"], "iVBORw0KGgo=");
    assert_eq!(turns[1]["content"][0], json!({"type": "thinking", "thinking": "hm", "signature": "EqQB"}));
    assert_eq!(turns[5]["content"][0]["input"], json!({"expression": "2 + 2"}));
    assert_eq!(turns[6]["content"][0]["content"][0]["text"], "4");
    assert_eq!(turns[7]["content"][0]["text"], "Four");
}

//! Calls that the client makes.

use super::*;
use crate::agent::tests::support::tell_to_stop;
use crate::types::RunId;

fn weather() -> Value {
    json!({
        "type": "function", "name": "weather", "description": "Tells the weather.", "strict": true,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    })
}

fn calling(turns: Vec<Say>) -> Vec<Say> {
    std::iter::once(Say::Calls("", vec![("weather", r#"{"city":"Oslo"}"#)])).chain(turns).collect()
}

fn output(call: &Value, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": call["call_id"], "output": text})
}

#[tokio::test]
async fn a_function_is_called_at_the_end_and_its_output_continues_the_run() {
    let server = Server::new(calling(vec![Say::Text(&["Rain."])]));
    let asked = with(ask("Weather?"), &json!({"tools": [weather()]}));
    let frames = server.stream(&asked).await;
    let first = ended(&frames).clone();
    assert_eq!(
        types(&frames)[2..],
        [
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed"
        ]
    );
    assert_eq!(frames[4]["name"], "weather");
    assert_eq!((&first["status"], &first["agent"]["status"]), (&json!("completed"), &json!("requires_action")));
    let call = &first["output"][0];
    assert_eq!(
        generic(&json!([call, first["id"]])),
        json!([
            {
                "type": "function_call", "id": "fc_R0001", "call_id": "call_R0001", "name": "weather",
                "arguments": r#"{"city":"Oslo"}"#, "status": "completed",
            },
            "resp_R0000",
        ])
        .to_string()
    );
    let answer =
        with(ask(json!([output(call, "rain")])), &json!({"previous_response_id": first["id"], "tools": [weather()]}));
    let second = server.ok(&answer).await;
    assert_eq!(text(&second), "Rain.");
    assert_eq!(second["previous_response_id"], first["id"]);
    assert!(second["id"].as_str().unwrap().ends_with("0001"), "it is the run's second response: {second}");
    assert_eq!(second["usage"]["total_tokens"], 15, "each response counts its own model calls");
    let said: Vec<_> = server.asked().into_iter().map(|(role, text)| format!("{role}: {text}")).collect();
    assert_eq!(said[0], "user: Weather?");
    assert_eq!(said.last().unwrap(), "tool: rain");
    // Both can be read, and streamed, for as long as they are kept.
    assert_eq!((server.get(&first["id"]).await, server.get(&second["id"]).await), (first.clone(), second.clone()));
    assert_eq!(server.replay(first["id"].as_str().unwrap(), None).await, frames);
    assert_eq!(*ended(&server.replay(second["id"].as_str().unwrap(), None).await), second);
}

/// Clients that store nothing send the whole transcript.
#[tokio::test]
async fn a_transcript_leads_back_to_the_run_that_waits() {
    let server = Server::new(calling(vec![Say::Text(&["Rain."])]));
    let unstored = json!({"tools": [weather()], "store": false});
    let first = server.ok(&with(ask("Weather?"), &unstored)).await;
    let call = &first["output"][0];
    let user = json!({"role": "user", "content": "Weather?"});
    let second = server.ok(&with(ask(json!([user, call, output(call, "rain")])), &unstored)).await;
    assert_eq!((text(&second), &second["store"]), ("Rain.".to_owned(), &json!(false)));
    assert_eq!(first["agent"]["run_id"], second["agent"]["run_id"], "it is the same run");
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    let (status, body) = server.call(Method::GET, &path).await;
    assert_eq!((status.as_u16(), &body["error"]["code"]), (404, &json!("response_not_found")));
    let next = json!({"previous_response_id": second["id"]});
    assert_eq!(server.refused(&with(ask("And now?"), &next)).await.1, "previous_response_not_found");
}

#[tokio::test]
async fn outputs_are_asked_for_in_openais_words() {
    let server = Server::new(calling(vec![Say::Text(&["Rain."])]));
    let first = server.ok(&with(ask("Weather?"), &json!({"tools": [weather()]}))).await;
    let call = first["output"][0]["call_id"].as_str().unwrap();
    let previous = json!({"previous_response_id": first["id"]});
    let (status, code, param, message) = server.refused(&with(ask("Never mind."), &previous)).await;
    assert_eq!((status, code.as_str(), param.as_str()), (400, "invalid_value", "input"));
    assert_eq!(message, format!("No tool output found for function call {call}."));
    let other = json!([{"type": "function_call_output", "call_id": "call_x", "output": "rain"}]);
    let (.., message) = server.refused(&with(ask(other.clone()), &previous)).await;
    assert_eq!(message, format!("No tool output found for function call {call}."));
    let (.., message) = server.refused(&ask(other)).await;
    assert_eq!(message, "No tool call found for function call output with call_id call_x.");
    let unpaired = json!([{"type": "function_call", "call_id": "call_y", "name": "weather", "arguments": "{}"}]);
    let (.., message) = server.refused(&ask(unpaired)).await;
    assert_eq!(message, "No tool output found for function call call_y.");
}

/// The run that waited has gone on: another answer to the same calls begins a branch.
#[tokio::test]
async fn calls_may_be_answered_twice_and_each_answer_has_its_own_continuation() {
    let server = Server::new(calling(vec![Say::Text(&["So it is."])]));
    let first = server.ok(&with(ask("Weather?"), &json!({"tools": [weather()]}))).await;
    let answer = |text: &str| {
        let previous = json!({"previous_response_id": first["id"], "tools": [weather()]});
        with(ask(json!([output(&first["output"][0], text)])), &previous)
    };
    let rain = server.ok(&answer("rain")).await;
    let sun = server.ok(&answer("sun")).await;
    assert_eq!(server.asked().last().unwrap().1, "sun");
    assert_ne!(rain["agent"]["run_id"], sun["agent"]["run_id"]);
    assert_eq!(text(&sun), "So it is.");
}

#[tokio::test]
async fn custom_tools_and_namespaces_come_back_as_they_were_declared() {
    let turns = vec![Say::Calls("", vec![("patch", r#"{"input":"*** Begin"}"#), ("crm__find", "{\"id\":1}")])];
    let server = Server::new(turns);
    let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: WORD"});
    let tools = json!([
        {"type": "custom", "name": "patch", "description": "Patches.", "format": grammar},
        {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find", "parameters": null}]},
        {"type": "web_search"},
    ]);
    let frames = server.stream(&with(ask("Go"), &json!({"tools": tools}))).await;
    let response = ended(&frames);
    let [custom, function] = [&response["output"][0], &response["output"][1]];
    assert_eq!(
        (&custom["type"], &custom["name"], &custom["input"]),
        (&json!("custom_tool_call"), &json!("patch"), &json!("*** Begin"))
    );
    assert_eq!((&function["name"], &function["namespace"]), (&json!("find"), &json!("crm")));
    let done = frames.iter().find(|frame| frame["type"] == "response.custom_tool_call_input.done").unwrap();
    assert_eq!(done["input"], "*** Begin");
    assert!(response["agent"]["warnings"].to_string().contains("web_search"), "{response}");
    let offered = server.agent.model.requests.lock()[0].tools.tools().cloned().collect::<Vec<_>>();
    let patch = offered.iter().find(|tool| tool.name == "patch").expect("it is offered");
    assert!(patch.description.as_ref().unwrap().contains("start: WORD"));
    // Both are answered, each by an output of its kind.
    let outputs = json!([
        {"type": "custom_tool_call_output", "call_id": custom["call_id"], "output": "done"},
        {"type": "function_call_output", "call_id": function["call_id"], "output": [{"type": "input_text", "text": "Ada"}]},
    ]);
    let next = server.ok(&with(ask(outputs), &json!({"previous_response_id": response["id"], "tools": tools}))).await;
    assert_eq!(next["status"], "completed");
    let said = server.asked();
    assert_eq!(said.iter().filter(|(role, _)| role == "tool").count(), 2, "{said:?}");
}

/// Outputs of calls that nobody waits for any more begin a branch.
#[tokio::test]
async fn outputs_that_come_after_the_run_was_cancelled_are_taken() {
    let server = Server::new(calling(vec![Say::Text(&["Well."])]));
    let first = server.ok(&with(ask("Weather?"), &json!({"tools": [weather()]}))).await;
    let path = format!("/v1/responses/{}/cancel", first["id"].as_str().unwrap());
    assert_eq!(server.call(Method::POST, &path).await.0, StatusCode::OK);
    let previous = json!({"previous_response_id": first["id"], "tools": [weather()]});
    let late = server.ok(&with(ask(json!([output(&first["output"][0], "rain")])), &previous)).await;
    assert_eq!((text(&late), server.asked().last().unwrap().1.as_str()), ("Well.".to_owned(), "rain"));
    let other = server.ok(&with(ask("Never mind."), &previous)).await;
    assert_eq!((text(&other), server.asked().last().unwrap().1.as_str()), ("Well.".to_owned(), "Never mind."));
}

#[tokio::test]
async fn an_output_before_what_a_model_said_answers_nothing() {
    let server = Server::new(calling(vec![Say::Text(&["Rain."])]));
    let first = server.ok(&with(ask("Weather?"), &json!({"tools": [weather()]}))).await;
    let says = json!({"role": "assistant", "content": "So it rains."});
    let input = json!([output(&first["output"][0], "rain"), says]);
    let refused = server.refused(&with(ask(input), &json!({"previous_response_id": first["id"]}))).await;
    assert_eq!((refused.0, refused.1.as_str(), refused.2.as_str()), (400, "invalid_value", "input"));
}

/// Clients learn of tools while a run waits for them.
#[tokio::test]
async fn a_request_with_other_tools_goes_on_with_another_run() {
    let other = json!({"type": "function", "name": "news"});
    for by_id in [true, false] {
        let server = Server::new(calling(vec![Say::Text(&["Rain."])]));
        let first = server.ok(&with(ask("Weather?"), &json!({"tools": [weather()], "store": by_id}))).await;
        let call = &first["output"][0];
        let tools = json!({"tools": [weather(), other], "store": by_id});
        let next = if by_id {
            with(ask(json!([output(call, "rain")])), &json!({"previous_response_id": first["id"]}))
        } else {
            ask(json!([{"role": "user", "content": "Weather?"}, call, output(call, "rain")]))
        };
        let second = server.ok(&with(next, &tools)).await;
        assert_eq!((text(&second), server.asked().last().unwrap().1.as_str()), ("Rain.".to_owned(), "rain"));
        assert_ne!(first["agent"]["run_id"], second["agent"]["run_id"]);
        assert!(second["agent"]["warnings"].to_string().contains("another run goes on"), "{second}");
        let offered = server.agent.model.requests.lock().last().unwrap().tools.tools().any(|tool| tool.name == "news");
        assert!(offered);
        let path = format!("/v1/runs/{}", first["agent"]["run_id"].as_str().unwrap());
        assert_eq!(server.call(Method::GET, &path).await.1["status"], "cancelled");
    }
}

/// A continued response may need no reader where the run's first one did.
#[tokio::test(start_paused = true)]
async fn a_response_in_the_background_outlives_its_readers_wherever_its_run_began() {
    let late = Say::Late(30_000, Box::new(Say::Text(&["Rain."])));
    let server = Server::new(calling(vec![late]));
    let first = server.ok(&with(ask("Weather?"), &json!({"tools": [weather()]}))).await;
    let more = json!({"previous_response_id": first["id"], "tools": [weather()], "background": true});
    let begun = server.ok(&with(ask(json!([output(&first["output"][0], "rain")])), &more)).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let ended = server.get(&begun["id"]).await;
    assert_eq!((&ended["status"], text(&ended)), (&json!("completed"), "Rain.".to_owned()));
}

/// A request that is sent again is answered with its own response, however far the run has come.
#[tokio::test]
async fn a_request_in_the_background_that_is_sent_again_has_the_same_response() {
    let server = Server::new(calling(vec![Say::Text(&["Rain."])]));
    let body = with(ask("Weather?"), &json!({"tools": [weather()], "background": true}));
    let key = [("idempotency-key", "k-1")];
    let (_, begun) = server.post_with(&body, &key).await;
    let first = server.replay(begun["id"].as_str().unwrap(), None).await;
    let call = &ended(&first)["output"][0];
    let next = json!({"previous_response_id": begun["id"], "tools": [weather()]});
    server.ok(&with(ask(json!([output(call, "rain")])), &next)).await;
    let (status, again) = server.post_with(&body, &key).await;
    assert_eq!((status, &again["id"], &again["output"][0]), (StatusCode::OK, &begun["id"], call));
}

#[tokio::test]
async fn what_is_continued_is_counted() {
    let server = Server::new(calling(vec![Say::Text(&["Rain."])]));
    let first = server.ok(&with(ask("Weather?"), &json!({"tools": [weather()]}))).await;
    let previous = json!({"previous_response_id": first["id"], "tools": [weather()]});
    let count = async |body: &Value| {
        let request = Server::request(&Method::POST, "/v1/responses/input_tokens", Some(body), &[]);
        send(&server.router, request).await
    };
    let (status, few) = count(&with(ask(json!([output(&first["output"][0], "rain")])), &previous)).await;
    assert_eq!(status, StatusCode::OK, "{few}");
    let (_, many) = count(&with(ask(json!([output(&first["output"][0], &"rain ".repeat(500))])), &previous)).await;
    assert!(many["input_tokens"].as_u64() > few["input_tokens"].as_u64(), "{few} {many}");
    let server_of_tools = json!([{"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:1"}]);
    let (status, refused) = count(&with(ask("Hi"), &json!({"tools": server_of_tools}))).await;
    assert_eq!((status.as_u16(), &refused["error"]["param"]), (400, &json!("tools")), "{refused}");
}

/// What a replica leaves that dies between telling a waiting run to stop and recording its end.
#[tokio::test]
async fn a_call_of_a_run_that_was_told_to_stop_is_waited_for_no_more() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let server = Server::over(store.clone(), calling(vec![Say::Text(&["So be it."])]));
    let first = server.ok(&with(ask("Weather?"), &json!({"tools": [weather()]}))).await;
    let next = with(ask("Never mind."), &json!({"previous_response_id": first["id"]}));
    assert_eq!(server.refused(&next).await.1, "invalid_value", "the run waits for the output");
    tell_to_stop(&store, &RunId::parse(first["agent"]["run_id"].as_str().unwrap()).unwrap()).await;
    let second = server.ok(&next).await;
    assert_ne!(second["agent"]["run_id"], first["agent"]["run_id"]);
    let roles: Vec<_> = server.asked().into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"], "the call is closed");
}

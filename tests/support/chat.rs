//! What a client of OpenAI's chat completions asks for and reads, whichever dialect its upstream speaks.

use serde_json::{Value, json};

use super::server::TestServer;
use super::sse::SseReader;

const CHAT: &str = "/v1/chat/completions";
const AGENT: &str = "/v1/agent/completions";

/// The request with these members too.
pub(crate) fn with(mut request: Value, members: &Value) -> Value {
    for (name, value) in members.as_object().expect("members are an object") {
        request[name] = value.clone();
    }
    request
}

/// All chunks of a stream, which leave the other events out.
pub(crate) async fn chunks(server: &TestServer, request: &Value) -> Vec<Value> {
    let response = server.json(CHAT, request).send().await.expect("the server answers");
    assert_eq!(response.status(), 200);
    let (mut stream, mut chunks) = (SseReader::of_chunks(response), Vec::new());
    while let Some(frame) = stream.next().await.filter(|frame| !frame.is_done()) {
        chunks.push(frame.json());
    }
    chunks
}

/// The text, the arguments of the first call and the reason of the end that chunks tell.
pub(crate) fn told(chunks: &[Value]) -> (String, String, Value) {
    let choices = || chunks.iter().map(|chunk| &chunk["choices"][0]);
    let joined = |piece: fn(&Value) -> &Value| choices().filter_map(|choice| piece(choice).as_str()).collect();
    let text = joined(|choice| &choice["delta"]["content"]);
    let arguments = joined(|choice| &choice["delta"]["tool_calls"][0]["function"]["arguments"]);
    let finish = choices().map(|choice| &choice["finish_reason"]).rfind(|finish| !finish.is_null());
    (text, arguments, finish.cloned().unwrap_or_default())
}

/// Fails unless each of these members is refused with its name.
pub(crate) async fn refuses_each(
    server: &TestServer,
    request: &Value,
    members: impl IntoIterator<Item = (&'static str, Value)>,
) {
    for (name, value) in members {
        let answer = server.post(CHAT, &with(request.clone(), &json!({name: value}))).await;
        let error = &answer.body["error"];
        assert_eq!((answer.status, &error["param"]), (400, &json!(name)), "{}", answer.body);
        assert!(error["message"].as_str().is_some_and(|text| text.contains(name)), "{error}");
    }
}

/// Fails unless the second part of the first message is refused in a sentence that says all of this.
pub(crate) async fn refuses_second_part(server: &TestServer, request: &Value, says: [&str; 2]) {
    let answer = server.post(CHAT, request).await;
    let error = &answer.body["error"];
    assert_eq!((answer.status, &error["param"]), (400, &json!("messages[0].content[1]")), "{}", answer.body);
    let message = error["message"].as_str().unwrap_or_default();
    assert!(says.iter().all(|what| message.contains(what)), "{message}");
}

/// Asks an upstream that says half an answer and breaks off (in a stream, then not streamed and with a whole answer after it,
/// then three times), and fails unless each client is told what it should be.
pub(crate) async fn broken_answers_are_told(server: &TestServer, request: &Value, why: &str) {
    let chunks = chunks(server, &with(request.clone(), &json!({"stream": true}))).await;
    let failure = chunks.iter().find_map(|chunk| chunk["error"]["message"].as_str());
    let expected = "The answer broke off. The text that was sent so far is void.";
    assert_eq!((told(&chunks).0.as_str(), failure), ("Half", Some(expected)));
    half_answers_are_asked_for_again(server, request, why).await;
}

/// The same of the answers that are not streamed.
pub(crate) async fn half_answers_are_asked_for_again(server: &TestServer, request: &Value, why: &str) {
    let answer = server.post(AGENT, request).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Whole", "half an answer is voided, and asked for again");

    let answer = server.post(AGENT, request).await;
    assert_eq!((answer.status, answer.code()), (502, "provider_error"), "{}", answer.body);
    assert!(answer.body["error"]["message"].as_str().is_some_and(|told| told.contains(why)), "{}", answer.body);
}

/// Asks these models one after the other in one session.
pub(crate) async fn ask_in_turn(server: &TestServer, request: &Value, models: &[&str]) {
    for model in models {
        let members = json!({"model": model, "agent": {"session_id": "s"}});
        server.post(AGENT, &with(request.clone(), &members)).await.ok();
    }
}

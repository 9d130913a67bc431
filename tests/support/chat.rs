//! What a client of OpenAI's chat completions asks for and reads.

use serde_json::Value;

use super::server::TestServer;
use super::sse::SseReader;

/// The request with these members too.
pub(crate) fn with(mut request: Value, members: &Value) -> Value {
    for (name, value) in members.as_object().expect("members are an object") {
        request[name] = value.clone();
    }
    request
}

/// All chunks of a stream, which leave the other events out.
pub(crate) async fn chunks(server: &TestServer, request: &Value) -> Vec<Value> {
    let response = server.json("/v1/chat/completions", request).send().await.expect("the server answers");
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

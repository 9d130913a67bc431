//! Answers that are asked for in one piece.

use serde_json::json;

use super::*;

/// Only an upstream whose operator wants it is asked so, and only where no client reads the answer as it is said.
#[tokio::test]
async fn an_upstream_is_asked_for_one_piece_where_it_may_be_and_nobody_reads() {
    let completion = json!({ "choices": [{ "message": { "content": "hi" }, "finish_reason": "stop" }] }).to_string();
    for (may, in_one_piece) in [(true, true), (true, false), (false, true)] {
        let act = answer("200 OK", "content-type: application/json\r\n", &completion);
        let (base_url, requests) = serve(vec![act]).await;
        let config = OpenAiUpstream { ask_in_one_piece: may, ..config(http(&base_url)) };
        let model = OpenAiModel::new("test", &config, http_client(LONG).unwrap()).unwrap();
        let (deltas, turn) = ask_with(&model, ModelRequest { in_one_piece, ..request() }).await;
        assert_eq!((deltas, turn.is_ok()), (vec![Delta::Text("hi".to_owned())], true));
        let request = requests.await.unwrap().remove(0);
        let is_streamed = !(may && in_one_piece);
        assert_eq!(
            request.contains(r#""stream":true,"stream_options":{"include_usage":true}"#),
            is_streamed,
            "{request}"
        );
        assert_eq!(request.contains("stream\""), is_streamed, "{request}");
    }
}

/// It begins to arrive after its last token.
#[tokio::test]
async fn what_a_failed_call_may_have_cost_whose_answer_was_asked_for_in_one_piece_is_known() {
    let failed = async |act| {
        let (base_url, _requests) = serve(vec![act]).await;
        let http = HttpUpstream { first_byte_timeout: SHORT, ..http(&base_url) };
        let config = OpenAiUpstream { ask_in_one_piece: true, ..config(http) };
        let model = OpenAiModel::new("test", &config, http_client(LONG).unwrap()).unwrap();
        let error = ask_with(&model, ModelRequest { in_one_piece: true, ..request() }).await.1.unwrap_err();
        (error.kind, error.spent)
    };
    let (transient, timeout) = (ModelErrorKind::Transient, ModelErrorKind::Timeout);
    for (status, expected) in [
        ("503 Service Unavailable", (transient, Spent::Nothing)),
        ("500 Internal Server Error", (transient, Spent::Unknown)),
        ("502 Bad Gateway", (transient, Spent::Unknown)),
        ("504 Gateway Timeout", (timeout, Spent::Unknown)),
        ("524 A Timeout Occurred", (timeout, Spent::Unknown)),
    ] {
        assert_eq!(failed(answer(status, "", "")).await, expected, "{status}");
    }
    assert_eq!(failed(Act::Stall(String::new())).await, (timeout, Spent::Unknown));
    assert_eq!(failed(bytes(String::new())).await, (transient, Spent::Unknown), "it closed the connection");
}

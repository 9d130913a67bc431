//! Responses that continue others.

use super::*;

fn after(input: impl Into<Value>, response: &Value) -> Value {
    with(ask(input), &json!({"previous_response_id": response["id"]}))
}

fn texts(server: &Server) -> Vec<String> {
    server.asked().into_iter().map(|(_, text)| text).collect()
}

#[tokio::test]
async fn a_response_is_continued_with_all_that_was_said_and_any_number_of_times() {
    let calls = Say::Calls("Look: ", vec![("echo", r#"{"n":1}"#)]);
    let server = Server::new(vec![calls, Say::Text(&["one"]), Say::Text(&["two"]), Say::Text(&["three"])]);
    let first = server.ok(&with(ask("First?"), &json!({"instructions": "Be short."}))).await;
    assert_eq!(server.asked()[0], ("system".to_owned(), "Be short.".to_owned()));
    let second = server.ok(&after("Second?", &first)).await;
    let call = r#"{"n":1}"#;
    assert_eq!(texts(&server), ["First?", &format!("Look: \n{call}"), call, "one", "Second?"]);
    let third = server.ok(&after("Third?", &second)).await;
    assert_eq!(texts(&server)[3..], ["one", "Second?", "two", "Third?"]);
    assert_eq!((&second["instructions"], text(&third)), (&Value::Null, "three".to_owned()));
    // The first one is continued once more, as if the others were not there.
    let branch = server.ok(&after("Another?", &first)).await;
    assert_eq!(texts(&server)[3..], ["one", "Another?"]);
    assert_eq!(branch["previous_response_id"], first["id"]);
}

#[tokio::test]
async fn instructions_are_of_one_response_and_messages_of_the_system_stay() {
    let server = Server::new(vec![Say::Text(&["one"]), Say::Text(&["two"])]);
    let input = json!([{"role": "developer", "content": "Speak plainly."}, {"role": "user", "content": "First?"}]);
    let first = server.ok(&with(ask(input), &json!({"instructions": "Be short."}))).await;
    server.ok(&with(after("Second?", &first), &json!({"instructions": "Be long."}))).await;
    assert_eq!(texts(&server), ["Be long.", "Speak plainly.", "First?", "one", "Second?"]);
}

#[tokio::test]
async fn an_empty_request_continues_what_was_said() {
    let server = Server::new(vec![Say::Text(&["one"]), Say::Text(&["two"])]);
    let first = server.ok(&ask("First?")).await;
    let next = server.ok(&json!({"model": "m", "previous_response_id": first["id"]})).await;
    assert_eq!(text(&next), "two");
    assert_eq!(server.refused(&json!({"model": "m"})).await.2, "input");
}

#[tokio::test]
async fn what_is_not_there_is_not_continued() {
    let server = Server::new(vec![Say::Text(&["one"])]);
    let first = server.ok(&with(ask("First?"), &json!({"store": false}))).await;
    let id = first["id"].as_str().unwrap();
    let no_leg = format!("{}0007", &id[..id.len() - 4]);
    for id in [id, "resp_1", "", &no_leg, "resp_019a0000000070008000000000000000"] {
        if id.is_empty() {
            continue;
        }
        let (status, code, param, message) = server.refused(&after("Second?", &json!({ "id": id }))).await;
        assert_eq!((status, code.as_str()), (400, "previous_response_not_found"), "{id}");
        assert_eq!(
            (param.as_str(), message),
            ("previous_response_id", format!("Previous response with id '{id}' not found."))
        );
    }
}

#[tokio::test]
async fn a_response_that_goes_on_cannot_be_continued_yet() {
    let server = Server::new(vec![Say::Stall(&["so"]), Say::Text(&["two"])]);
    let first = server.ok(&with(ask("First?"), &json!({"background": true}))).await;
    assert_eq!(server.refused(&after("Second?", &first)).await.1, "previous_response_not_ready");
    let (status, stopped) =
        server.call(Method::POST, &format!("/v1/responses/{}/cancel", first["id"].as_str().unwrap())).await;
    assert_eq!((status.as_u16(), &stopped["status"]), (200, &json!("cancelled")));
    server.ok(&after("Second?", &first)).await;
    assert_eq!(texts(&server), ["First?", "so", "Second?"], "what was said before counts");
}

#[tokio::test]
async fn a_conversation_is_a_session() {
    let server = Server::new(vec![Say::Text(&["one"]), Say::Text(&["two"])]);
    let missing = with(ask("Hi"), &json!({"conversation": "sess_1"}));
    let (status, code, param, _) = server.refused(&missing).await;
    assert_eq!((status, code.as_str(), param.as_str()), (404, "conversation_not_found", "conversation"));
    let session = json!({"agent": {"session_id": "sess_1"}});
    let first = server.ok(&with(ask("First?"), &session)).await;
    assert_eq!(first["conversation"], json!({"id": "sess_1"}));
    server.ok(&with(ask("Second?"), &json!({"conversation": {"id": "sess_1"}}))).await;
    assert_eq!(texts(&server), ["First?", "one", "Second?"]);
    // A response of a session is continued without it.
    let branch = server.ok(&after("Another?", &first)).await;
    assert_eq!(texts(&server), ["First?", "one", "Another?"]);
    assert_eq!(branch["conversation"], Value::Null);
    let both = with(missing, &json!({"previous_response_id": first["id"]}));
    assert_eq!(server.refused(&both).await.2, "conversation");
}

/// Clients that store transcripts by reference name items instead of sending them.
#[tokio::test]
async fn every_item_that_was_shown_can_be_named() {
    let calls = Say::Calls("Look: ", vec![("echo", r#"{"n":1}"#)]);
    let server = Server::new(vec![calls, Say::Unmetered("hm", "one"), Say::Text(&["two"]), Say::Text(&["three"])]);
    let first = server.ok(&ask("First?")).await;
    let user = json!({"role": "user", "content": "First?"});
    let items = first["output"].as_array().unwrap().iter();
    let named = items.map(|item| json!({"type": "item_reference", "id": item["id"]}));
    let input: Vec<_> =
        std::iter::once(user).chain(named).chain([json!({"role": "user", "content": "Second?"})]).collect();
    server.ok(&ask(input)).await;
    let call = r#"{"n":1}"#;
    assert_eq!(texts(&server), ["First?", &format!("Look: \n{call}"), call, "one", "Second?"]);
    let unknown = json!([{"type": "item_reference", "id": "msg_unknown"}, {"role": "user", "content": "?"}]);
    let (status, code, _, message) = server.refused(&ask(unknown)).await;
    assert_eq!((status, code.as_str()), (404, "item_not_found"));
    assert_eq!(message, "Item with id 'msg_unknown' not found.");
}

#[tokio::test]
async fn a_request_that_is_sent_again_continues_once() {
    let server = Server::new(vec![Say::Text(&["one"]), Say::Text(&["two"])]);
    let first = server.ok(&ask("First?")).await;
    let key = [("idempotency-key", "k-1")];
    let (_, once) = server.post_with(&after("Second?", &first), &key).await;
    let (_, again) = server.post_with(&after("Second?", &first), &key).await;
    assert_eq!(once, again);
    assert_eq!(server.agent.model.requests.lock().len(), 2);
    let (status, body) = server.post_with(&after("Third?", &first), &key).await;
    assert_eq!((status.as_u16(), &body["error"]["code"]), (422, &json!("idempotency_key_reused")));
}

/// A response counts messages of its session that are others now.
#[tokio::test]
async fn what_was_replaced_in_its_session_is_not_continued() {
    let server = Server::new(vec![Say::Text(&["one"]), Say::Text(&["two"]), Say::Text(&["three"])]);
    let in_session = json!({"agent": {"session_id": "s-1"}});
    server.ok(&with(ask("First?"), &in_session)).await;
    let second = server.ok(&with(ask("Second?"), &in_session)).await;
    server.ok(&after("Third?", &second)).await;
    assert_eq!(texts(&server), ["First?", "one", "Second?", "two", "Third?"]);
    let splice = json!({"after": 0, "remove": 2, "messages": [], "message_count": 4});
    let request = Server::request(&Method::POST, "/v1/sessions/s-1/splice", Some(&splice), &[]);
    let (status, body) = send(&server.router, request).await;
    assert!(status.is_success(), "{body}");
    let refused = server.refused(&after("Third?", &second)).await;
    assert_eq!((refused.0, refused.2.as_str()), (400, "previous_response_id"), "{refused:?}");
    let third = server.ok(&with(ask("Third?"), &in_session)).await;
    assert_eq!(texts(&server), ["Second?", "two", "Third?"]);
    server.ok(&after("Fourth?", &third)).await;
    assert_eq!(texts(&server), ["Second?", "two", "Third?", "two", "Fourth?"], "what began since is continued");
}

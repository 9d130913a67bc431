//! Responses that are read, cancelled and deleted by their ids.

use super::*;

#[tokio::test]
async fn a_response_in_the_background_is_answered_at_once_and_read_later() {
    let server = Server::new(vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["Done."])]);
    let body = with(ask("Go"), &json!({"background": true, "metadata": {"of": "test"}}));
    let request = Server::request(&Method::POST, "/v1/responses", Some(&body), &[]);
    let response = server.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["openai-poll-after-ms"], "1000");
    let begun = response.into_body().collect().await.unwrap().to_bytes();
    let begun: Value = serde_json::from_slice(&begun).unwrap();
    assert!(matches!(begun["status"].as_str(), Some("queued" | "in_progress" | "completed")), "{begun}");
    let id = begun["id"].as_str().unwrap();
    // Reading the stream is waiting for the end.
    let frames = server.replay(id, None).await;
    assert_eq!(text(ended(&frames)), "Done.");
    let read = server.get(&begun["id"]).await;
    assert_eq!((&read, &read["metadata"]), (ended(&frames), &json!({"of": "test"})));
    assert_eq!((&read["background"], &read["store"]), (&json!(true), &json!(true)));
    let unstored = with(ask("Go"), &json!({"background": true, "store": false}));
    assert_eq!(server.refused(&unstored).await.2, "background");
}

#[tokio::test]
async fn a_response_that_goes_on_is_shown_as_far_as_it_came() {
    let server = Server::new(vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Stall(&["so"])]);
    let begun = server.ok(&with(ask("Go"), &json!({"background": true}))).await;
    let shown = loop {
        let shown = server.get(&begun["id"]).await;
        if shown["output"] != json!([]) {
            break shown;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&shown["status"], kinds(&shown)), (&json!("in_progress"), vec!["mcp_call"]));
    assert_eq!((&shown["usage"], shown.get("agent")), (&Value::Null, None));
    let path = format!("/v1/responses/{}/cancel", begun["id"].as_str().unwrap());
    let (_, once) = server.call(Method::POST, &path).await;
    let (status, again) = server.call(Method::POST, &path).await;
    assert_eq!((status.as_u16(), &once), (200, &again));
    assert_eq!(once["status"], "cancelled");
}

#[tokio::test]
async fn a_deleted_response_is_gone() {
    let server = Server::new(vec![Say::Text(&["one"])]);
    let first = server.ok(&ask("First?")).await;
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    let never = path.trim_end_matches("0000").to_owned() + "00ff";
    assert_eq!(server.call(Method::DELETE, &never).await.0, StatusCode::NOT_FOUND, "there was no such response");
    let (status, body) = server.call(Method::DELETE, &path).await;
    assert_eq!((status.as_u16(), body), (200, json!({"id": first["id"], "object": "response", "deleted": true})));
    for (method, path) in [(Method::GET, path.clone()), (Method::DELETE, path.clone())] {
        let (status, body) = server.call(method, &path).await;
        assert_eq!((status.as_u16(), &body["error"]["code"]), (404, &json!("response_not_found")));
    }
    let (status, runs) = server.call(Method::GET, "/v1/runs").await;
    assert_eq!((status.as_u16(), &runs["data"]), (200, &json!([])));
    let next = with(ask("Second?"), &json!({"previous_response_id": first["id"]}));
    assert_eq!(server.refused(&next).await.1, "previous_response_not_found");
}

#[tokio::test]
async fn a_live_response_is_cancelled_before_it_is_deleted() {
    let server = Server::new(vec![Say::Stall(&["so"])]);
    let begun = server.ok(&with(ask("Go"), &json!({"background": true}))).await;
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    assert_eq!(server.call(Method::DELETE, &path).await.0, StatusCode::OK);
    assert_eq!(server.call(Method::GET, &path).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_items_of_a_request_are_listed_in_pages() {
    let server = Server::new(vec![Say::Text(&["one"]), Say::Text(&["two"])]);
    let first = server.ok(&ask("First?")).await;
    let parts = json!([{"type": "input_text", "text": "Second?"}, {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]);
    let input = json!([{"role": "developer", "content": "Plainly."}, {"role": "user", "content": parts}]);
    let second = server.ok(&with(ask(input), &json!({"previous_response_id": first["id"]}))).await;
    let path = format!("/v1/responses/{}/input_items", second["id"].as_str().unwrap());
    let (_, list) = server.call(Method::GET, &format!("{path}?order=asc")).await;
    let data = list["data"].as_array().unwrap();
    assert_eq!(data.len(), 2, "those of the response before it are not its own: {list}");
    assert_eq!(data[1]["content"][0], json!({"type": "input_text", "text": "Second?"}));
    assert_eq!(data[1]["content"][1]["image_url"], "data:image/png;base64,AAAA");
    let (_, page) = server.call(Method::GET, &format!("{path}?limit=1")).await;
    assert_eq!((&page["data"], &page["has_more"]), (&json!([data[1]]), &json!(true)), "the newest comes first");
    let after = page["last_id"].as_str().unwrap();
    let (_, page) = server.call(Method::GET, &format!("{path}?limit=1&after={after}")).await;
    assert_eq!((&page["data"], &page["has_more"]), (&json!([data[0]]), &json!(false)));
    let (status, _) = server.call(Method::GET, &format!("{path}?after=msg_1")).await;
    assert_eq!(status.as_u16(), 404);
    // An item of a request can be named as well.
    let named = json!([{"type": "item_reference", "id": data[0]["id"]}, {"role": "user", "content": "Third?"}]);
    server.ok(&ask(named)).await;
    assert_eq!(server.asked()[0], ("developer".to_owned(), "Plainly.".to_owned()));
}

#[tokio::test]
async fn ids_that_lead_nowhere_are_not_found() {
    let server = Server::new(Vec::new());
    let id = crate::api::wire::responses::id::response(&crate::types::RunId::mint(), 0);
    for id in ["x", "resp_1", id.as_str()] {
        for (method, path) in [
            (Method::GET, format!("/v1/responses/{id}")),
            (Method::GET, format!("/v1/responses/{id}?stream=true")),
            (Method::POST, format!("/v1/responses/{id}/cancel")),
            (Method::DELETE, format!("/v1/responses/{id}")),
            (Method::GET, format!("/v1/responses/{id}/input_items")),
        ] {
            let (status, body) = server.call(method, &path).await;
            let message = format!("Response with id '{id}' not found.");
            assert_eq!((status.as_u16(), &body["error"]["message"]), (404, &json!(message)), "{path}");
        }
    }
}

#[tokio::test]
async fn items_that_are_named_are_bounded() {
    let server = Server::new(vec![Say::Text(&["one"])]);
    let first = server.ok(&ask("x".repeat(4_000))).await;
    let path = format!("/v1/responses/{}/input_items", first["id"].as_str().unwrap());
    let named = json!({"type": "item_reference", "id": server.call(Method::GET, &path).await.1["data"][0]["id"]});
    let (status, .., message) = server.refused(&ask(vec![named.clone(); 3_000])).await;
    assert_eq!((status, message.contains("bytes together")), (400, true), "{message}");
    let (status, .., message) = server.refused(&ask(vec![named; 10_001])).await;
    assert_eq!((status, message.contains("at most 10000 items")), (400, true), "{message}");
}

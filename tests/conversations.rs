//! Conversations over HTTP: whose they are, what is refused, and that they are sessions.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Gate, Reply, TestServer, Upstream};

const ENDPOINT: &str = "/v1/conversations";

fn texts(list: &Value) -> Vec<&str> {
    let items = list["data"].as_array().expect("it is a list").iter();
    items.map(|item| item["content"][0]["text"].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn every_session_is_a_conversation_whose_items_are_its_messages() {
    let upstream =
        Upstream::start([Reply::calls("calculator", &json!({"expression": "6 * 7"})), Reply::says("42")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let made = server.post(ENDPOINT, &json!({})).await.ok();
    let id = made["id"].as_str().expect("it has an id");
    assert_eq!(server.get(&format!("/v1/sessions/{id}")).await.ok()["message_count"], 0);
    let empty = server.get(&format!("{ENDPOINT}/{id}/items")).await.ok();
    assert_eq!((&empty["data"], &empty["has_more"], &empty["first_id"]), (&json!([]), &json!(false), &Value::Null));
    server.post("/v1/responses", &json!({"model": "test", "input": "Count", "conversation": id})).await.ok();

    let all = server.get(&format!("{ENDPOINT}/{id}/items?order=asc&limit=100")).await.ok();
    let kinds: Vec<_> = all["data"].as_array().into_iter().flatten().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "function_call", "function_call_output", "message"], "{all}");
    // Page by page, both ways, it is the same.
    for order in ["asc", "desc"] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("{ENDPOINT}/{id}/items?order={order}&limit=1{after}")).await.ok();
            seen.extend(page["data"].as_array().into_iter().flatten().cloned());
            if page["has_more"] == false {
                break;
            }
            after = format!("&after={}", page["last_id"].as_str().expect("there is one"));
        }
        if order == "desc" {
            seen.reverse();
        }
        assert_eq!(json!(seen), all["data"], "{order}");
    }

    // A session that another endpoint made is one, too.
    let messages = json!([{"role": "user", "content": "Hi"}]);
    server.post("/v1/sessions", &json!({"id": "own", "messages": messages, "metadata": {"a": "b"}})).await.ok();
    assert_eq!(server.get(&format!("{ENDPOINT}/own")).await.ok()["metadata"], json!({"a": "b"}));
    server.post(&format!("{ENDPOINT}/own/items"), &json!({"items": [{"role": "user", "content": "Ho"}]})).await.ok();
    let items = server.get(&format!("{ENDPOINT}/own/items")).await.ok();
    assert_eq!(texts(&items), ["Ho", "Hi"], "the newest comes first");
    let messages = server.get("/v1/sessions/own/messages").await.ok();
    assert_eq!(messages["data"][1]["message"]["content"], "Ho", "{messages}");
    // Nothing was replaced by what was added.
    assert_eq!(server.get("/v1/sessions/own/splices").await.ok()["data"], json!([]));
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_its_place() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().gate(&gate).text("One").finish("stop").usage(1, 1).done()]).await;
    let server = TestServer::start(&upstream.config()).await;
    let id = server.post(ENDPOINT, &json!({})).await.ok()["id"].as_str().expect("it has an id").to_owned();
    let call = json!({"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "x"});
    let many: Vec<_> = (0..21).map(|_| json!({"role": "user", "content": "Hi"})).collect();
    let items = &*format!("{ENDPOINT}/{id}/items");
    for (path, body, code, param) in [
        (ENDPOINT, json!({"metadata": {"a": 1}}), "invalid_value", "metadata.a"),
        (ENDPOINT, json!({"items": many}), "invalid_value", "items"),
        (items, json!({"items": []}), "invalid_value", "items"),
        (items, json!({}), "missing_field", "items"),
        (items, json!({"items": [{"type": "nonsense"}]}), "invalid_value", "items[0].type"),
        (items, json!({"items": [call]}), "invalid_value", "items"),
        (items, json!({"items": [output]}), "invalid_value", "items"),
        (items, json!({"items": [{"type": "item_reference", "id": "msg_1"}]}), "item_not_found", "items[0]"),
    ] {
        let answer = server.post(path, &body).await;
        assert!(answer.status == 400 || answer.status == 404, "{body}: {}", answer.body);
        assert_eq!((answer.code(), &answer.body["error"]["param"]), (code, &json!(param)), "{body}");
    }
    for path in [format!("{items}/msg_1"), format!("{items}/msg_1p0"), format!("{items}?after=msg_000000000001p0")] {
        let answer = server.get(&path).await;
        assert_eq!((answer.status, answer.code()), (404, "item_not_found"), "{path}");
    }
    for path in ["limit=0", "limit=101", "order=up"] {
        assert_eq!(server.get(&format!("{items}?{path}")).await.status, 400, "{path}");
    }

    // A conversation with a live run takes nothing, and says so with a code that clients wait for.
    let body = json!({"model": "test", "input": "Hi", "conversation": id, "background": true});
    server.post("/v1/responses", &body).await.ok();
    gate.reached().await;
    let locked = server.post(items, &json!({"items": [{"role": "user", "content": "Ho"}]})).await;
    assert_eq!((locked.status, locked.code()), (400, "conversation_locked"), "{}", locked.body);
    gate.open();
}

#[tokio::test]
async fn a_conversation_is_its_tenants() {
    let upstream = Upstream::start([]).await;
    let keys =
        "[keys.one]\nkey_env = \"KEY_ONE\"\ntenant = \"one\"\n[keys.two]\nkey_env = \"KEY_TWO\"\ntenant = \"two\"\n";
    let reader = "[keys.reader]\nkey_env = \"KEY_READER\"\ntenant = \"one\"\nscopes = [\"read\"]\n";
    let config = format!("{}{keys}{reader}", upstream.config());
    let builder = TestServer::builder(&config).env("KEY_ONE", "lg_one").env("KEY_TWO", "lg_two");
    let mut server = builder.env("KEY_READER", "lg_reader").start().await;
    server.use_key("lg_one");
    let said = json!([{"role": "user", "content": "Hi"}]);
    let made = server.post(ENDPOINT, &json!({"items": said})).await.ok();
    let conversation = format!("{ENDPOINT}/{}", made["id"].as_str().expect("it has an id"));
    let items = format!("{conversation}/items");
    let item = server.get(&items).await.ok()["data"][0]["id"].as_str().expect("it has an id").to_owned();
    let changes = [
        (Method::POST, conversation.clone(), json!({"metadata": {}})),
        (Method::POST, items.clone(), json!({"items": said})),
        (Method::DELETE, format!("{items}/{item}"), Value::Null),
        (Method::DELETE, conversation.clone(), Value::Null),
    ];
    let reads = [conversation, items.clone(), format!("{items}/{item}")];
    let all = reads.iter().map(|path| (Method::GET, path.clone(), Value::Null)).chain(changes.clone());
    server.use_key("lg_two");
    for (method, path, body) in all {
        let request = server.request(method.clone(), &path).header("content-type", "application/json");
        let answer = server.send(request.body(body.to_string())).await;
        assert_eq!((answer.status, answer.code()), (404, "conversation_not_found"), "{method} {path}");
    }
    server.use_key("lg_reader");
    for path in &reads {
        server.get(path).await.ok();
    }
    for (method, path, body) in changes {
        let request = server.request(method.clone(), &path).header("content-type", "application/json");
        let answer = server.send(request.body(body.to_string())).await;
        assert_eq!((answer.status, answer.code()), (403, "forbidden"), "{method} {path}");
    }
    assert_eq!(server.post(ENDPOINT, &json!({})).await.code(), "forbidden");
}

/// The call is answered with the run's end: an output that comes late would stand without it.
#[tokio::test]
async fn the_output_of_a_call_whose_run_was_cancelled_is_refused() {
    let upstream = Upstream::start([Reply::calls("look", &json!({}))]).await;
    let server = TestServer::start(&upstream.config()).await;
    let id = server.post(ENDPOINT, &json!({})).await.ok()["id"].as_str().expect("it has an id").to_owned();
    let look = json!({"type": "function", "name": "look", "parameters": {"type": "object"}});
    let body = json!({"model": "test", "input": "Look", "conversation": id, "tools": [look]});
    let asked = server.post("/v1/responses", &body).await.ok();
    let call = &asked["output"][0]["call_id"];
    let cancel = format!("/v1/runs/{}/cancel", asked["agent"]["run_id"].as_str().expect("it has an id"));
    assert_eq!(server.post(&cancel, &json!({})).await.ok()["agent"]["status"], "cancelled");
    let items = format!("{ENDPOINT}/{id}/items");
    let before = server.get(&items).await.ok();
    let output = json!({"type": "function_call_output", "call_id": call, "output": "seen"});
    let late = server.post(&items, &json!({"items": [output]})).await;
    assert_eq!((late.status, &late.body["error"]["param"]), (400, &json!("items")), "{}", late.body);
    let created = server.post(ENDPOINT, &json!({"items": [output]})).await;
    assert_eq!((created.status, &created.body["error"]["param"]), (400, &json!("items")), "{}", created.body);
    assert_eq!(server.get(&items).await.ok(), before);
}

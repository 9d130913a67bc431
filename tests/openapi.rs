//! Tools of an OpenAPI document, as runs call them.

use serde_json::json;

use crate::support::{Reply, TestServer, ToolServer, Upstream};

const DOCUMENT: &str = "
openapi: 3.0.3
paths:
  /orders/{id}:
    get:
      operationId: orders/get
      summary: Reads an order
      parameters:
        - {name: id, in: path, required: true, schema: {type: integer}}
        - {name: fields, in: query, schema: {type: array, items: {type: string}}}
        - {name: x-key, in: header, required: true, schema: {type: string}}
    post:
      operationId: orders/pay
      parameters:
        - {name: id, in: path, required: true, schema: {type: integer}}
      requestBody:
        required: true
        content:
          application/json:
            schema: {type: object, required: [amount], properties: {amount: {type: number}, id: {type: string}}}
    put:
      operationId: orders/upload
      requestBody: {required: true, content: {application/octet-stream: {}}}
";

fn config(api: &ToolServer) -> String {
    let address = api.address();
    format!(
        "[openapi.shop]\ndocument = \"http://{address}/openapi.yaml\"\nbase_url = \"http://{address}/v2/\"\n\
         headers = {{ x-key = \"s3cr3t-key\" }}\n[agents.default]\ntools = [\"shop__*\"]\n"
    )
}

#[tokio::test]
async fn operations_of_a_document_are_tools_of_runs() {
    let api = ToolServer::start([Reply::plain(DOCUMENT), Reply::plain("an order"), Reply::plain("paid")]).await;
    let upstream = Upstream::start([
        Reply::calls("shop__orders_get", &json!({"id": 7, "fields": ["a", "b"]})),
        Reply::calls("shop__orders_pay", &json!({"id": 7, "body_id": "x", "amount": 1.5})),
        Reply::says("Done."),
    ])
    .await;
    let server = TestServer::start(&format!("{}{}", upstream.config(), config(&api))).await;
    let ask = json!({"model": "test", "messages": [{"role": "user", "content": "Go."}]});
    let answer = server.post("/v1/agent/completions", &ask).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Done.", "{answer}");
    let calls = api.calls();
    let heard: Vec<_> = calls.iter().map(|call| format!("{} {}", call.method, call.target)).collect();
    assert_eq!(heard, ["GET /openapi.yaml", "GET /v2/orders/7?fields=a&fields=b", "POST /v2/orders/7"]);
    assert_eq!(calls[2].json(), json!({"id": "x", "amount": 1.5}));
    assert!(calls[1..].iter().all(|call| call.headers["x-key"] == "s3cr3t-key"));
    assert_eq!(calls[0].headers.get("x-key"), None, "the document's server is told no key");
    let offered = upstream.requests()[0]["tools"].to_string();
    assert!(offered.contains("Reads an order") && !offered.contains("x-key"), "{offered}");
    let tools = server.get("/v1/tools").await.ok();
    let names: Vec<_> = tools["data"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names.iter().filter(|name| name.as_str().is_some_and(|name| name.starts_with("shop__"))).count(), 2);
}

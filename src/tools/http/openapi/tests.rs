mod hostile;

use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderName;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;
use crate::config::{EffectPatterns, SentIdentity};
use crate::net::testing::{Act, serve_with};
use crate::tools::http::client;
use crate::tools::testing::context;
use crate::tools::{Registry, check_arguments, invoke};

/// A service that notes the requests that it gets. It ends with `_task`.
struct Service {
    address: std::net::SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl Service {
    async fn start() -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let noted = heard.clone();
        let (address, task) = serve_with(move |request| {
            noted.lock().push(request);
            Act::from(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\ndone",
            )
        })
        .await;
        Self { address, heard, _task: task }
    }

    fn config(&self) -> OpenApiConfig {
        OpenApiConfig {
            name: "api".into(),
            url: None,
            document: None,
            base_url: Some(format!("http://{}/v1/", self.address).parse().unwrap()),
            servers: Vec::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            effects: EffectPatterns::default(),
            headers: vec![(HeaderName::from_static("x-api-key"), Secret::new("s3cr3t"))],
            query: Vec::new(),
            send_identity: SentIdentity::default(),
            timeout: None,
            max_response: 1_000,
            answers_later: (None, Vec::new()),
        }
    }

    fn registry(&self, document: &str) -> Registry {
        let OpenApiTools { tools, skipped } = made(document, self.config());
        assert_eq!(skipped, []);
        Registry::new(tools).unwrap()
    }
}

fn made(document: &str, config: OpenApiConfig) -> OpenApiTools {
    tools(&OpenApiConfig { document: Some(document.into()), ..config }, &client().unwrap()).unwrap()
}

/// Calls a tool as a run does. Returns what the service heard, or what the model is told where that is nothing.
async fn call(service: &Service, registry: &Registry, tool: &str, arguments: &Value) -> Result<String, String> {
    call_in(&context(Duration::from_secs(20)), service, registry, tool, arguments).await
}

/// Makes a call of this context.
async fn call_in(
    context: &CallContext,
    service: &Service,
    registry: &Registry,
    tool: &str,
    arguments: &Value,
) -> Result<String, String> {
    let tool = registry.get(tool).unwrap_or_else(|| panic!("there is no {tool}: {registry:?}"));
    let arguments = check_arguments(&tool.spec().name, tool.schema(), &arguments.to_string())?;
    let outcome = invoke(Arc::clone(tool), arguments, context.clone()).await;
    if outcome.is_error { Err(outcome.text().into_owned()) } else { Ok(service.heard.lock().pop().unwrap()) }
}

fn target(request: &str) -> &str {
    request.lines().next().unwrap().strip_suffix(" HTTP/1.1").unwrap()
}

fn body(request: &str) -> &str {
    request.split_once("\r\n\r\n").unwrap().1
}

const PETS: &str = r"
openapi: 3.0.3
servers: [{url: https://elsewhere.example/}]
paths:
  /pets/{id}:
    parameters:
      - {name: id, in: path, required: true, schema: {type: integer}}
    get:
      operationId: pets/get
      summary: Reads a pet
      parameters:
        - {name: id, in: query, schema: {type: string}, description: Another id}
        - {name: tags, in: query, schema: {type: array, items: {type: string}}}
        - {name: ids, in: query, explode: false, schema: {type: array, items: {type: integer}}}
        - {name: page, in: query, style: deepObject, schema: {type: object, properties: {size: {type: integer}}}}
        - {name: X-Trace, in: header, schema: {type: string}}
        - {name: x-api-key, in: header, required: true, schema: {type: string}}
        - {name: Authorization, in: header, schema: {type: string}}
        - {name: filter, in: query, content: {application/json: {schema: {type: object}}}}
    put:
      operationId: pets/replace
      requestBody:
        required: true
        content:
          application/xml: {}
          application/json: {schema: {$ref: '#/components/schemas/Pet'}}
    delete: {}
  /pets:
    post:
      operationId: pets/create
      requestBody:
        content:
          application/x-www-form-urlencoded:
            schema: {type: object, properties: {name: {type: string}, owner: {type: object, properties: {city: {type: string}}}}}
  /pets/picture:
    post:
      operationId: pets/upload
      requestBody:
        required: true
        content:
          multipart/form-data:
            schema: {type: object, properties: {note: {type: string}, file: {type: string, format: binary}}}
  /any:
    patch:
      operationId: any
      requestBody: {required: true, content: {application/merge-patch+json: {schema: {type: object, additionalProperties: true}}}}
components:
  schemas:
    Pet:
      type: object
      required: [id, name, secret]
      properties:
        id: {type: string, nullable: true}
        name: {type: string, example: Rex, xml: {name: n}}
        secret: {type: string, readOnly: true}
        age: {type: number, minimum: 0, exclusiveMinimum: true}
        parent: {$ref: '#/components/schemas/Pet'}
";

#[tokio::test]
async fn arguments_go_where_the_document_says() {
    let service = Service::start().await;
    let registry = service.registry(PETS);
    let names: Vec<_> = registry.iter().map(|tool| tool.spec().name.as_str()).collect();
    assert_eq!(
        names,
        [
            "api__any",
            "api__delete_pets_id",
            "api__pets_create",
            "api__pets_get",
            "api__pets_replace",
            "api__pets_upload"
        ]
    );
    let arguments = json!({
        "id": 7, "query_id": "a b&c", "tags": ["x", "y"], "ids": [1, 2], "page": {"size": 3}, "X-Trace": "t",
        "filter": {"a": 1},
    });
    let heard = call(&service, &registry, "api__pets_get", &arguments).await.unwrap();
    let expected = "GET /v1/pets/7?id=a+b%26c&tags=x&tags=y&ids=1%2C2&page%5Bsize%5D=3&filter=%7B%22a%22%3A1%7D";
    assert_eq!(target(&heard), expected);
    assert!(heard.contains("\r\nx-trace: t\r\n") && heard.contains("\r\nx-api-key: s3cr3t\r\n"), "{heard}");
    assert!(heard.contains("\r\nidempotency-key: "), "{heard}");

    let arguments = json!({"id": 7, "body_id": null, "name": "Rex", "age": 2, "parent": {"id": "p", "name": "Old"}});
    let heard = call(&service, &registry, "api__pets_replace", &arguments).await.unwrap();
    assert_eq!(target(&heard), "PUT /v1/pets/7");
    let sent: Value = serde_json::from_str(body(&heard)).unwrap();
    assert_eq!(sent, json!({"id": null, "name": "Rex", "age": 2, "parent": {"id": "p", "name": "Old"}}));

    let arguments = json!({"name": "A&B", "owner": {"city": "Oslo"}});
    let heard = call(&service, &registry, "api__pets_create", &arguments).await.unwrap();
    assert!(heard.contains("\r\ncontent-type: application/x-www-form-urlencoded\r\n"), "{heard}");
    assert_eq!(body(&heard), "name=A%26B&owner%5Bcity%5D=Oslo");
    let heard = call(&service, &registry, "api__pets_create", &json!({})).await.unwrap();
    assert!(body(&heard).is_empty() && !heard.contains("content-type"), "{heard}");

    let arguments = json!({"note": "hi", "file": "data:image/png;base64,QUJD"});
    let heard = call(&service, &registry, "api__pets_upload", &arguments).await.unwrap();
    assert!(heard.contains("content-type: multipart/form-data; boundary=loopgate-"), "{heard}");
    assert!(heard.contains("name=\"note\"\r\n\r\nhi\r\n--loopgate-"), "{heard}");
    assert!(heard.contains("filename=\"file\"\r\ncontent-type: image/png\r\n\r\nABC\r\n"), "{heard}");

    let heard = call(&service, &registry, "api__any", &json!({"body": {"x": [1]}})).await.unwrap();
    assert!(heard.contains("\r\ncontent-type: application/merge-patch+json\r\n"), "{heard}");
    assert_eq!((target(&heard), body(&heard)), ("PATCH /v1/any", r#"{"x":[1]}"#));
}

#[tokio::test]
async fn what_the_schema_or_the_place_does_not_allow_is_not_sent() {
    let service = Service::start().await;
    let registry = service.registry(PETS);
    for (tool, arguments, why) in [
        ("api__pets_get", json!({}), "id"),
        ("api__pets_get", json!({"id": "seven"}), "id"),
        ("api__pets_get", json!({"id": 7, "admin": true}), "no parameter `admin`"),
        ("api__pets_get", json!({"id": 7, "x-api-key": "mine"}), "no parameter `x-api-key`"),
        ("api__pets_get", json!({"id": 7, "page": {"offset": 1}}), "no parameter `page.offset`"),
        ("api__pets_get", json!({"id": 7, "X-Trace": "a\r\nb: c"}), "cannot be sent in a header"),
        ("api__pets_replace", json!({"id": 7, "body_id": "x"}), "does not satisfy"),
        ("api__pets_replace", json!({"id": 7, "body_id": "x", "name": "x", "age": 0}), "does not satisfy"),
        ("api__pets_replace", json!({"id": 7, "body_id": "x", "name": "x", "secret": "y"}), "no parameter `secret`"),
        ("api__pets_replace", json!({"id": 7, "body_id": "x", "name": "x", "parent": {"id": 1}}), "does not satisfy"),
    ] {
        let told = call(&service, &registry, tool, &arguments).await.unwrap_err();
        assert!(told.contains(why), "{arguments}: {told}");
    }
    assert!(service.heard.lock().is_empty());
}

#[tokio::test]
async fn effects_follow_methods_unless_patterns_say_otherwise() {
    let service = Service::start().await;
    let registry = service.registry(PETS);
    let effect = |name: &str| registry.get(name).unwrap().spec().effect;
    let by_method = ["api__pets_get", "api__pets_replace", "api__delete_pets_id", "api__pets_create"].map(effect);
    assert_eq!(by_method, [Effect::Read, Effect::Idempotent, Effect::Idempotent, Effect::Write]);
    let patterns = |write: &[&str], idempotent: &[&str], read: &[&str]| {
        let list = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        EffectPatterns::new(list(write), list(idempotent), list(read))
    };
    let config = OpenApiConfig {
        effects: patterns(&["pets_get"], &["pets_create"], &["pets_*"]),
        include: vec!["pets_*".into()],
        exclude: vec!["*upload".into()],
        ..service.config()
    };
    let tools = made(PETS, config).tools;
    let effects: Vec<_> = tools.iter().map(|tool| (tool.spec().name.as_str(), tool.spec().effect)).collect();
    let expected = [
        ("api__pets_create", Effect::Idempotent),
        ("api__pets_get", Effect::Write),
        ("api__pets_replace", Effect::Read),
    ];
    let mut effects = effects;
    effects.sort_unstable_by_key(|(name, _)| *name);
    assert_eq!(effects, expected);
}

#[tokio::test]
async fn what_is_not_understood_costs_its_operation_alone() {
    let service = Service::start().await;
    let path = |rest: &str| format!("  {rest}\n");
    let document = format!(
        "openapi: 3.1.0\npaths:\n{}",
        [
            "/good: {get: {operationId: good}}",
            "/matrix/{id}: {get: {operationId: matrix, parameters: [{name: id, in: path, style: matrix, schema: {}}]}}",
            "/missing/{id}: {get: {operationId: missing}}",
            "/xml: {post: {operationId: xml, requestBody: {required: true, content: {application/xml: {}}}}}",
            "/away: {get: {operationId: away, parameters: [{$ref: 'http://169.254.169.254/#/x'}]}}",
            "/round: {get: {operationId: round, parameters: [{$ref: '#/components/parameters/a'}]}}",
            "/pattern: {get: {operationId: pattern, parameters: [{name: a, in: query, schema: {pattern: '('}}]}}",
            "/trace: {trace: {operationId: trace}}",
            "/odd: {get: {operationId: odd, parameters: [{in: query}]}}",
            "/text: {get: {operationId: text, parameters: [{name: a, in: query, schema: 7}]}}",
            "/other: {get: {operationId: other, servers: [{url: 'ftp://files.example'}]}}",
            "/gone: {$ref: '#/components/pathItems/gone'}",
        ]
        .map(path)
        .concat()
    ) + "components: {parameters: {a: {$ref: '#/components/parameters/a'}}}\n";
    let config = OpenApiConfig { base_url: None, ..service.config() };
    let OpenApiTools { tools, skipped } = made(&document, service.config());
    let names: Vec<_> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
    assert_eq!(names, ["api__good", "api__other"], "the operator's base_url goes before the document's servers");
    for (operation, why) in [
        ("matrix", "a style"),
        ("missing", "no parameter of it"),
        ("xml", "application/xml"),
        ("away", "another document"),
        ("round", "in a circle"),
        ("pattern", "schema"),
        ("trace", "TRACE"),
        ("odd", "without name"),
        ("text", "no object"),
        ("/gone", "not there"),
    ] {
        let found = skipped.iter().find(|skipped| skipped.operation == operation);
        assert!(found.is_some_and(|skipped| skipped.reason.contains(why)), "{operation}: {found:?}");
    }
    assert_eq!(skipped.len(), 10);
    let without = made(&document, config);
    assert!(without.tools.is_empty());
    let reason = |name: &str| without.skipped.iter().find(|one| one.operation == name).unwrap().reason.clone();
    assert_eq!(reason("good"), "the document names no server: give base_url");
    assert!(reason("other").contains("none that can be called"));
    let old = OpenApiConfig { document: Some("swagger: '2.0'".into()), ..service.config() };
    let error = super::tools(&old, &client().unwrap()).unwrap_err();
    assert_eq!(error.0, "its document is of Swagger 2.0: convert it to OpenAPI 3");
}

/// As large as the public descriptions of large services.
#[tokio::test]
async fn a_large_document_becomes_tools_that_are_called_rightly() {
    let service = Service::start().await;
    let mut paths = serde_json::Map::new();
    for number in 0..100 {
        let id = json!({"name": "owner", "in": "path", "required": true, "schema": {"type": "string"}});
        let body = json!({"required": true, "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/S{number}")}}}});
        paths.insert(
            format!("/r{number}/{{owner}}"),
            json!({
                "parameters": [id],
                "get": {"operationId": format!("r{number}/list-everything"), "parameters": [{"name": "per_page", "in": "query", "schema": {"type": "integer"}}]},
                "post": {"operationId": format!("r{number}/create"), "requestBody": body},
                "delete": {"operationId": format!("{}/remove", "long-name-".repeat(6) + &number.to_string())},
            }),
        );
    }
    let schemas: serde_json::Map<_, _> = (0..100)
        .map(|number| {
            let next = format!("#/components/schemas/S{}", number / 10 * 10 + (number + 1) % 10);
            let schema = json!({"type": "object", "required": ["title"], "properties": {
                "title": {"type": "string"}, "next": {"$ref": next}}});
            (format!("S{number}"), schema)
        })
        .collect();
    let document = json!({"openapi": "3.1.0", "paths": paths, "components": {"schemas": schemas}}).to_string();
    let registry = service.registry(&document);
    assert_eq!(registry.iter().count(), 300);
    assert!(registry.iter().all(|tool| tool.spec().name.len() <= 64));
    for number in [0, 57, 99] {
        let heard = call(
            &service,
            &registry,
            &format!("api__r{number}_list-everything"),
            &json!({"owner": "o", "per_page": 5}),
        )
        .await
        .unwrap();
        assert_eq!(target(&heard), format!("GET /v1/r{number}/o?per_page=5"));
        let arguments = json!({"owner": "o", "title": "t", "next": {"title": "u", "next": {"title": "v"}}});
        let heard = call(&service, &registry, &format!("api__r{number}_create"), &arguments).await.unwrap();
        assert_eq!(target(&heard), format!("POST /v1/r{number}/o"));
        let sent: Value = serde_json::from_str(body(&heard)).unwrap();
        assert_eq!(sent, json!({"title": "t", "next": {"title": "u", "next": {"title": "v"}}}));
        let arguments = json!({"owner": "o", "title": "t", "next": {"next": {"title": "v"}}});
        assert!(call(&service, &registry, &format!("api__r{number}_create"), &arguments).await.is_err());
    }
}

#[tokio::test]
async fn a_document_that_cannot_be_had_is_told_without_its_address() {
    let head = |rest: &str| format!("HTTP/1.1 {rest}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n");
    for (head, body, what) in [
        (head("200 OK"), b"{}", Ok("{}")),
        (head("404 Not Found"), b"no", Err("the server answered HTTP 404 Not Found")),
        (head("302 Found\r\nlocation: /elsewhere"), b"no", Err("the server answered HTTP 302 Found")),
        (head("200 OK\r\ncontent-encoding: gzip"), b"\x1f\x8b", Err("it is compressed (\"gzip\")")),
        (head("200 OK"), b"\xff\xff", Err("it is no text")),
    ] {
        let answer = Act::Answer([head.as_bytes(), body].concat());
        let (address, _task) = serve_with(move |_| answer.clone()).await;
        let fetched = fetch(&format!("http://{address}/a.json?key=s3cr3t").parse().unwrap()).await;
        match what {
            Ok(document) => assert_eq!(fetched.as_deref(), Ok(document)),
            Err(what) => {
                let told = fetched.unwrap_err();
                assert!(told.contains(what) && !told.contains("s3cr3t"), "{told}");
            }
        }
    }
    let gone = crate::net::testing::nowhere().await;
    let told = fetch(&format!("http://{gone}/?key=s3cr3t").parse().unwrap()).await.unwrap_err();
    assert!(told.starts_with("its document cannot be fetched: ") && !told.contains("s3cr3t"), "{told}");
}

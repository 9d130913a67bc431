//! Documents and arguments that are made to do harm.

use url::Url;

use super::*;
use crate::config::Identity;

/// A document that asks the model for what the server says itself.
#[tokio::test]
async fn a_model_never_says_who_asks() {
    let names = [
        "X-Loopgate-User",
        "x-loopgate-tenant",
        "X-Loopgate-Fence",
        "x-request-id",
        "Cookie",
        "X-Forwarded-For",
        "forwarded",
        "Proxy-Authorization",
        "te",
        "upgrade",
        "accept-encoding",
        "user-agent",
    ];
    let parameters: Vec<_> = names.iter().map(|name| json!({"in": "header", "name": name, "required": true})).collect();
    let document =
        json!({"openapi": "3.1.0", "paths": {"/x": {"get": {"operationId": "x", "parameters": parameters}}}});
    let service = Service::start().await;
    let config = OpenApiConfig { send_identity: SentIdentity(vec![Identity::User]), ..service.config() };
    let OpenApiTools { tools, .. } = made(&document.to_string(), config);
    let registry = Registry::new(tools).unwrap();
    for name in names {
        let told = call(&service, &registry, "api__x", &json!({name: "admin"})).await.unwrap_err();
        assert!(told.contains("no parameter"), "{told}");
    }
    let heard = call(&service, &registry, "api__x", &json!({})).await.unwrap();
    assert!(!heard.contains("admin"), "{heard}");
}

/// Members of an argument by their own names must be none that others have.
#[tokio::test]
async fn a_model_names_nothing_in_a_query_that_others_name() {
    let service = Service::start().await;
    let document = r"
openapi: 3.1.0
paths:
  /x:
    get:
      operationId: x
      parameters:
        - {name: filter, in: query, schema: {type: object}}
        - {name: page, in: query, schema: {type: integer, maximum: 3}}
";
    let config = OpenApiConfig { query: vec![("api_key".into(), Secret::new("OURS"))], ..service.config() };
    let registry = Registry::new(made(document, config).tools).unwrap();
    for member in ["api_key", "API_KEY", "page"] {
        let told = call(&service, &registry, "api__x", &json!({"filter": {member: "mine"}})).await.unwrap_err();
        assert!(told.contains(member) && told.contains("Nothing was sent"), "{told}");
    }
    assert!(service.heard.lock().is_empty());
    let heard = call(&service, &registry, "api__x", &json!({"filter": {"colour": "red"}, "page": 2})).await.unwrap();
    assert_eq!(target(&heard), "GET /v1/x?colour=red&page=2&api_key=OURS");
}

/// Names that are repeated make much of little.
#[tokio::test]
async fn arguments_that_would_be_written_at_great_length_are_refused() {
    let service = Service::start().await;
    let document = r"
openapi: 3.1.0
paths:
  /x:
    get:
      operationId: query
      parameters: [{name: m, in: query, style: deepObject, schema: {type: object}}]
    post:
      operationId: form
      requestBody:
        content: {application/x-www-form-urlencoded: {schema: {type: object, properties: {m: {type: object}}}}}
";
    let registry = service.registry(document);
    let begun = tokio::time::Instant::now();
    // 10 GB, were all of it written.
    let long = json!({"m": {"k".repeat(100_000): vec![1; 100_000]}});
    for tool in ["api__form", "api__query"] {
        let told = call(&service, &registry, tool, &long).await.unwrap_err();
        assert!(told.contains("too long"), "{told}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(service.heard.lock().is_empty());
    let heard = call(&service, &registry, "api__form", &json!({"m": {"a": [1, {"b": 2}]}})).await.unwrap();
    assert_eq!(body(&heard), "m%5Ba%5D%5B%5D=1&m%5Ba%5D%5B%5D%5Bb%5D=2");
}

/// How many tools a document becomes, and why an operation of it is none.
fn outcome(document: &Value, config: OpenApiConfig) -> (usize, String) {
    let made = made(&document.to_string(), config);
    (made.tools.len(), made.skipped.first().map(|skipped| skipped.reason.clone()).unwrap_or_default())
}

#[tokio::test]
async fn an_address_with_variables_is_expanded_once() {
    let service = Service::start().await;
    let names: Vec<String> = ('a'..='k').map(String::from).collect();
    // Each default names the next variable ten times.
    let next = |at: usize| names.get(at + 1).map_or_else(|| "x".repeat(100), |next| format!("{{{next}}}").repeat(10));
    let laughs: serde_json::Map<_, _> =
        names.iter().enumerate().map(|(at, name)| (name.clone(), json!({"default": next(at)}))).collect();
    let often = json!({"v": {"default": "y".repeat(10_000)}});
    let long = format!("https://h.example/{}", "{v}".repeat(100_000));
    let plain = json!({"host": {"default": "h.example"}, "v": {"default": "v2"}});
    for (url, variables, is_read) in [
        ("https://h.example/{a}", laughs.into(), true),
        (&long, often, false),
        ("https://{host}/{v}/{other}}{", plain, true),
    ] {
        let document = json!({"openapi": "3.1.0", "servers": [{"url": url, "variables": variables}],
            "paths": {"/x": {"get": {"operationId": "x"}}}});
        let (tools, why) = outcome(&document, OpenApiConfig { base_url: None, ..service.config() });
        assert_eq!((tools == 1, why.contains("too long")), (is_read, !is_read), "{why}");
        assert_eq!(outcome(&document, service.config()).0, 1, "the operator's base_url needs no other");
    }
    let list = json!([{"url": "https://{host}/{v}/{other}", "variables": {"host": {"default": "h.{v}"}, "v": {"default": "2"}}}]);
    assert_eq!(server::address(&list), Some(Ok("https://h.{v}/2/{other}".to_owned())));
}

#[tokio::test]
async fn schemas_that_refer_to_one_another_are_looked_at_a_number_of_times() {
    let service = Service::start().await;
    let begun = tokio::time::Instant::now();
    // Each is the next one, twelve times.
    let mut schemas: serde_json::Map<_, _> = (0..8)
        .map(|at| {
            let next = json!({"$ref": format!("#/components/schemas/S{}", at + 1)});
            (format!("S{at}"), json!({"allOf": vec![next; 12]}))
        })
        .collect();
    schemas.insert("S8".into(), json!({"properties": {"a": {"type": "string"}}}));
    let body = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}});
    let document = json!({"openapi": "3.1.0", "components": {"schemas": schemas},
        "paths": {"/x": {"post": {"operationId": "x", "requestBody": body}}}});
    let (tools, why) = outcome(&document, service.config());
    assert!(tools == 0 && why.contains("objects"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_operation_has_a_number_of_parameters() {
    let service = Service::start().await;
    let parameters: Vec<_> = (0..1_001).map(|at| json!({"in": "query", "name": format!("p{at}")})).collect();
    for (most, is_tool) in [(1_000, true), (1_001, false)] {
        let operation = json!({"operationId": "x", "parameters": parameters[..most]});
        let document = json!({"openapi": "3.1.0", "paths": {"/x": {"get": operation}}});
        let (tools, why) = outcome(&document, service.config());
        assert_eq!((tools == 1, why.contains("more than 1000 parameters")), (is_tool, !is_tool), "{why}");
    }
}

#[tokio::test]
async fn a_document_that_is_fetched_leads_nowhere_else() {
    let service = Service::start().await;
    let document = r"
openapi: 3.1.0
servers: [{url: /v2}]
paths:
  /own: {get: {operationId: own}}
  /same: {get: {operationId: same, servers: [{url: 'https://vendor.example/v3'}]}}
  /other: {get: {operationId: other, servers: [{url: 'https://evil.example/'}]}}
  /clear: {get: {operationId: clear, servers: [{url: 'http://vendor.example/'}]}}
  /port: {get: {operationId: port, servers: [{url: 'https://vendor.example:8443/'}]}}
  /inside: {get: {operationId: inside, servers: [{url: 'http://169.254.169.254/'}]}}
";
    let url: Option<Url> = Some("https://vendor.example/openapi.yaml".parse().unwrap());
    let names = |tools: &OpenApiTools| tools.tools.iter().map(|tool| tool.spec().name.clone()).collect::<Vec<_>>();
    let fetched = made(document, OpenApiConfig { url: url.clone(), base_url: None, ..service.config() });
    assert_eq!(names(&fetched), ["api__own", "api__same"]);
    assert_eq!(fetched.skipped.len(), 4);
    assert!(fetched.skipped.iter().all(|one| one.reason.contains("give base_url")), "{:?}", fetched.skipped);
    assert_eq!(made(document, OpenApiConfig { url, ..service.config() }).tools.len(), 6);
}

/// What the document in a file becomes: the names of its tools, and why the others are none.
fn of_file(document: &Value, config: OpenApiConfig) -> (Vec<String>, Vec<String>) {
    let made = made(&document.to_string(), OpenApiConfig { base_url: None, url: None, ..config });
    let names = made.tools.iter().map(|tool| tool.spec().name.clone());
    (names.collect(), made.skipped.into_iter().map(|skipped| skipped.reason).collect())
}

#[tokio::test]
async fn a_document_in_a_file_leads_calls_and_keys_to_its_first_server_alone() {
    let service = Service::start().await;
    let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://shop.example/v2"}], "paths": {
        "/own": {"get": {"operationId": "own"}},
        "/same": {"get": {"operationId": "same", "servers": [{"url": "https://shop.example/v3"}]}},
        "/foreign": {"get": {"operationId": "foreign", "servers": [{"url": "https://evil.example/"}]}},
        "/path": {"servers": [{"url": "https://uploads.example/"}], "get": {"operationId": "upload"}},
        "/clear": {"get": {"operationId": "clear", "servers": [{"url": "http://shop.example/"}]}},
    }});
    let (names, reasons) = of_file(&document, service.config());
    assert_eq!(names, ["api__own", "api__same"]);
    assert!(
        reasons.len() == 3 && reasons.iter().all(|why| why.contains("give base_url, or name it in servers")),
        "{reasons:?}"
    );
    let uploads: Url = "https://uploads.example/".parse().unwrap();
    let (names, _) = of_file(&document, OpenApiConfig { servers: vec![uploads.origin()], ..service.config() });
    assert_eq!(names, ["api__own", "api__upload", "api__same"]);
}

#[tokio::test]
async fn keys_are_sent_without_tls_only_where_the_operator_says_so() {
    let service = Service::start().await;
    let with = |url: &str| json!({"openapi": "3.1.0", "servers": [{"url": url}], "paths": {"/x": {"get": {"operationId": "x"}}}});
    let keyless = OpenApiConfig { headers: Vec::new(), ..service.config() };
    let in_query = OpenApiConfig { query: vec![("key".into(), Secret::new("OURS"))], ..keyless.clone() };
    let clear: Url = "http://shop.example/".parse().unwrap();
    let named = OpenApiConfig { servers: vec![clear.origin()], ..service.config() };
    for (url, config, is_tool) in [
        ("http://shop.example/v2", service.config(), false),
        ("http://shop.example/v2", in_query, false),
        ("http://shop.example/v2", keyless.clone(), true),
        ("http://shop.example/v2", named, true),
        ("http://127.0.0.1:8080", service.config(), true),
        ("http://localhost:8080", service.config(), true),
        ("https://shop.example/v2", service.config(), true),
        ("http://169.254.169.254/latest", keyless.clone(), false),
        ("http://[fd20:ce::254]/", keyless.clone(), false),
        ("http://metadata.google.internal/", keyless, false),
    ] {
        let (names, reasons) = of_file(&with(url), config);
        assert_eq!(names.len(), usize::from(is_tool), "{url}: {reasons:?}");
        assert!(is_tool || reasons[0].contains("give base_url"), "{url}: {reasons:?}");
    }
}

/// A document whose operations share what they refer to.
fn shared(operations: usize, schema: &Value) -> Value {
    let body = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S"}}}});
    let paths: serde_json::Map<_, _> = (0..operations)
        .map(|n| (format!("/p{n}"), json!({"post": {"operationId": format!("o{n}"), "requestBody": body}})))
        .collect();
    json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": paths,
        "components": {"schemas": {"S": schema}}})
}

#[tokio::test]
async fn what_operations_share_is_counted_for_each_of_them() {
    let service = Service::start().await;
    let many: serde_json::Map<_, _> = (0..4_000).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
    let patterns: serde_json::Map<_, _> = (0..30).map(|n| (format!("p{n}"), json!({"pattern": "^a"}))).collect();
    let long = json!({"oneOf": [{"description": "x".repeat(60_000)}]});
    for (operations, schema, most, what) in [
        (5_100, json!({"type": "object"}), 5_000..5_001, "as many operations"),
        (600, json!({"oneOf": [{"properties": many}]}), 0..1, "as many schemas"),
        (80, json!({"properties": patterns}), 60..80, "as many patterns"),
        (300, long, 250..300, "as many bytes of schemas"),
    ] {
        let begun = tokio::time::Instant::now();
        let made = made(&shared(operations, &schema).to_string(), service.config());
        let told = made.skipped.last().map(|skipped| skipped.reason.clone()).unwrap_or_default();
        assert!(most.contains(&made.tools.len()), "{what}: {} tools", made.tools.len());
        assert!(told.contains(what) && told.contains("include"), "{told}");
        assert!(begun.elapsed() < Duration::from_secs(40), "{what}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn no_field_of_a_form_ends_another() {
    let service = Service::start().await;
    let document = r"
openapi: 3.1.0
paths:
  /x:
    post:
      operationId: x
      requestBody:
        content: {multipart/form-data: {schema: {type: object, properties: {a: {type: string}, b: {type: string}}}}}
";
    let registry = service.registry(document);
    let boundary = |heard: &str| {
        let kind = heard.lines().find(|line| line.starts_with("content-type: multipart")).unwrap();
        kind.split_once("boundary=").unwrap().1.to_owned()
    };
    let first = boundary(&call(&service, &registry, "api__x", &json!({"a": "1", "b": "2"})).await.unwrap());
    assert!(first.len() >= 50 && first.len() <= 70, "{first}");
    // Who knows the boundary of one call, or its form, knows nothing of the next one's.
    let forged = format!("1\r\n--{first}\r\ncontent-disposition: form-data; name=\"b\"\r\n\r\nforged");
    let (next, arguments) = (context(Duration::from_secs(20)), json!({"a": forged, "b": "2"}));
    let heard = call_in(&next, &service, &registry, "api__x", &arguments).await.unwrap();
    let second = boundary(&heard);
    assert_ne!(first, second);
    assert_eq!(body(&heard).matches(&format!("--{second}")).count(), 3, "{heard}");
    let again = call_in(&next, &service, &registry, "api__x", &arguments).await.unwrap();
    assert_eq!(boundary(&again), second, "a repeated call is the same request");
}

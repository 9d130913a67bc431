use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::config::{Identity, JsonTemplate, QueryValue, Secret, SentIdentity, TextTemplate};
use crate::net::testing::{Act, nowhere, serve, serve_with};
use crate::tools::registry::Registry;
use crate::tools::testing::context;
use crate::tools::{ProgressSink, check_arguments, invoke};
use crate::types::conversation::Source::Base64;
use crate::types::conversation::{Part, PartKind};
use crate::types::{CallId, Effect};

/// What the endpoint was asked: method, path with query, headers, body.
type ReceivedRequests = Arc<Mutex<Vec<(Method, String, HeaderMap, String)>>>;

/// An endpoint that remembers what it was asked and answers by path. It ends with `_task`.
struct Endpoint {
    address: SocketAddr,
    seen: ReceivedRequests,
    _task: JoinSet<()>,
}

impl Endpoint {
    async fn start() -> Self {
        let seen = ReceivedRequests::default();
        let received = seen.clone();
        let decide = move |request: String| {
            let request = read(&request);
            let act = answer(request.1.split('?').next().unwrap());
            received.lock().push(request);
            act
        };
        let (address, task) = serve_with(decide).await;
        Self { address, seen, _task: task }
    }

    fn tool(&self, method: Method, path: &str) -> HttpTool {
        self.try_tool(method, path).unwrap()
    }

    fn try_tool(&self, method: Method, path: &str) -> Result<HttpTool, HttpToolError> {
        self.with_templates(method, path, RequestTemplates::default())
    }

    fn with_templates(
        &self,
        method: Method,
        path: &str,
        templates: RequestTemplates,
    ) -> Result<HttpTool, HttpToolError> {
        let config = HttpToolConfig {
            name: "service".into(),
            description: "A service.".into(),
            method,
            url: format!("http://{}{path}", self.address),
            effect: Effect::Write,
            headers: vec![(HeaderName::from_static("authorization"), Secret::new("Bearer s3cr3t-key"))],
            templates,
            send_identity: SentIdentity::default(),
            parameters: RawValue::from_string(
                r#"{"type":"object","properties":{"city":{"type":"string"},
                    "n":{"items":{"properties":{"amount":{},"more":{}}}}}}"#
                    .into(),
            )
            .unwrap(),
            timeout: None,
            max_response: 1_000,
            answers_later: None,
        };
        assert!(!format!("{config:?}").contains("s3cr3t"), "{config:?}");
        HttpTool::new(&config, client().unwrap())
    }

    fn last(&self) -> (Method, String, HeaderMap, String) {
        self.seen.lock().last().unwrap().clone()
    }
}

/// The parts of a request.
fn read(request: &str) -> (Method, String, HeaderMap, String) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap().split(' ');
    let (method, target) = (words.next().unwrap().parse().unwrap(), words.next().unwrap().to_owned());
    let headers = lines.map(|line| line.split_once(": ").unwrap());
    let headers = headers.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()));
    (method, target, headers.collect(), body.to_owned())
}

fn answer(path: &str) -> Act {
    let whole = |head: &str, body: &[u8]| {
        let mut bytes =
            format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
        bytes.extend_from_slice(body);
        Act::Answer(bytes)
    };
    match path {
        "/missing" => whole("404 Not Found", b"no such city"),
        "/moved" => whole("302 Found\r\nlocation: /elsewhere", b"gone"),
        "/accepted" => whole("202 Accepted\r\ncontent-type: text/plain", b"queued"),
        "/empty" => Act::from("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"),
        "/broken" => whole("502 Bad Gateway", b""),
        "/zipped" => whole("200 OK\r\ncontent-encoding: gzip", b"\x1f\x8b\x08"),
        "/image" => whole("200 OK\r\ncontent-type: image/png", b"\x89PNG\0\0"),
        "/file" => whole(
            "200 OK\r\ncontent-type: application/pdf\r\ncontent-disposition: attachment; filename=\"a/report.pdf\"",
            b"%PDF-1.7",
        ),
        "/events" => whole(
            "200 OK\r\ncontent-type: text/event-stream; charset=utf-8",
            b"event: progress\ndata: {\"done\":1,\"total\":2}\n\ndata: all done\n\n",
        ),
        "/endless" => Act::Repeat {
            first: "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n".into(),
            again: "é".repeat(500),
            every: Duration::ZERO,
        },
        _ => whole("200 OK\r\ncontent-type: text/plain", b"sunny"),
    }
}

async fn call(tool: &HttpTool, arguments: &str) -> Result<String, String> {
    let arguments = RawValue::from_string(arguments.into()).unwrap();
    let answer =
        tool.call(&arguments, &context(Duration::from_millis(7_500))).await.map_err(|error| error.to_string())?;
    let text = answer.parts[0].in_words().into_owned();
    if answer.is_error { Err(text) } else { Ok(text) }
}

#[tokio::test]
async fn a_get_takes_its_arguments_in_the_url() {
    let endpoint = Endpoint::start().await;
    let tool = endpoint.tool(Method::GET, "/weather/{city}?units=metric");
    let arguments = RawValue::from_string(r#"{"city":"São Paulo","n":3}"#.into()).unwrap();
    let context = context(Duration::from_millis(7_500));
    assert_eq!(tool.call(&arguments, &context).await.unwrap().parts, [Part::text("sunny")]);
    let (method, url, headers, body) = endpoint.last();
    assert_eq!((method, url.as_str()), (Method::GET, "/weather/S%C3%A3o%20Paulo?units=metric&n=3"));
    assert_eq!(body, "");
    assert_eq!(headers["authorization"], "Bearer s3cr3t-key");
    assert_eq!(headers["idempotency-key"], context.call.as_str());
    assert_eq!(headers["x-loopgate-call-id"], context.call.as_str());
    assert_eq!(headers["x-loopgate-run-id"], context.run.as_str());
    assert_eq!(headers["x-loopgate-step"], "1");
    assert_eq!(headers["x-loopgate-fence"], "7");
    assert_eq!(headers["x-loopgate-deadline-ms"], "7500");
}

#[tokio::test]
async fn a_user_of_any_length_makes_no_header_that_services_refuse() {
    let endpoint = Endpoint::start().await;
    let mut tool = endpoint.tool(Method::GET, "/weather");
    tool.service.send_identity = SentIdentity(vec![Identity::User]);
    let arguments = RawValue::from_string("{}".into()).unwrap();
    let called = async |user: String| {
        let context = CallContext { user: Some(user), ..context(Duration::from_millis(7_500)) };
        tool.call(&arguments, &context).await.map_err(|error| error.to_string())
    };
    assert!(called("x".repeat(8 << 10)).await.is_ok());
    assert_eq!(endpoint.last().2["x-loopgate-user"].len(), 8 << 10);
    let refused = "The value of the header x-loopgate-user is too long. Nothing was sent.";
    assert_eq!(called("x".repeat((8 << 10) + 1)).await, Err(refused.into()));
    assert_eq!(endpoint.seen.lock().len(), 1);
}

#[tokio::test]
async fn a_post_takes_them_in_its_body_as_they_were_written() {
    let endpoint = Endpoint::start().await;
    let tool = endpoint.tool(Method::POST, "/book/{city}");
    let answer = call(&tool, r#"{"n":12345678901234567890.10,"city":"Oslo"}"#).await;
    assert_eq!(answer.as_deref(), Ok("sunny"));
    let (method, url, headers, body) = endpoint.last();
    assert_eq!((method, url.as_str()), (Method::POST, "/book/Oslo"));
    assert_eq!(body, r#"{"n":12345678901234567890.10}"#);
    assert_eq!(headers["content-type"], "application/json");
}

#[tokio::test]
async fn arguments_that_nobody_declared_are_not_sent() {
    let endpoint = Endpoint::start().await;
    for method in [Method::GET, Method::POST] {
        let answer = call(&endpoint.tool(method, "/pay"), r#"{"city":"Oslo","admin":true}"#).await;
        assert_eq!(answer, Err("The tool has no parameter `admin`. Nothing was sent.".into()));
    }
    let within = call(&endpoint.tool(Method::POST, "/pay"), r#"{"n":[{"amount":5,"admin":true}]}"#).await;
    assert_eq!(within, Err("The tool has no parameter `n[0].admin`. Nothing was sent.".into()));
    assert!(endpoint.seen.lock().is_empty());
    let open = call(&endpoint.tool(Method::POST, "/pay"), r#"{"n":[{"amount":5,"more":{"any":true}}]}"#).await;
    assert_eq!(open.as_deref(), Ok("sunny"));
}

#[tokio::test]
async fn arguments_that_cannot_be_looked_into_are_not_sent() {
    let endpoint = Endpoint::start().await;
    let deep = format!(r#"{{"admin":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for arguments in [r#"{"admin":1e999}"#, r#"{"admin":"\ud800"}"#, &deep, "[]"] {
        let answer = call(&endpoint.tool(Method::POST, "/pay"), arguments).await.unwrap_err();
        assert!(answer.starts_with("The arguments cannot be read: "), "{answer}");
        assert!(answer.ends_with(". Nothing was sent."), "{answer}");
    }
    assert!(endpoint.seen.lock().is_empty());
}

#[tokio::test]
async fn failures_are_told_in_words_without_secrets() {
    let endpoint = Endpoint::start().await;
    for (path, expected) in [
        ("/missing?key=s3cr3t", "HTTP 404 Not Found: no such city"),
        ("/moved", "HTTP 302 Found: the service redirects elsewhere, which is not followed."),
        ("/broken", "The service behind `service` was called, and its answer did not arrive. HTTP 502 Bad Gateway"),
        (
            "/zipped",
            "The service behind `service` answered HTTP 200 OK, but compressed its answer (gzip), which was not asked \
             for and cannot be read.",
        ),
    ] {
        let tool = endpoint.tool(Method::GET, path);
        assert_eq!(call(&tool, "{}").await, Err(expected.into()));
        assert!(!format!("{tool:?}").contains("s3cr3t"), "{tool:?}");
        assert_eq!(endpoint.last().2["accept-encoding"], "identity");
    }
    assert_eq!(endpoint.seen.lock().len(), 4, "the redirect was not followed and nothing was repeated");
}

#[tokio::test]
async fn a_service_that_is_not_there_is_an_error() {
    let endpoint = Endpoint::start().await;
    let gone = Endpoint { address: nowhere().await, ..endpoint };
    let error = call(&gone.tool(Method::GET, "/?key=s3cr3t"), "{}").await;
    assert_eq!(error, Err("The service behind `service` could not be reached. Nothing was sent.".into()));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    let (address, _requests) = serve([vec!["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"]]).await;
    let endpoint = Endpoint { address, ..Endpoint::start().await };
    let answer = call(&endpoint.tool(Method::GET, "/?key=s3cr3t"), "{}").await;
    assert_eq!(answer, Err("The service behind `service` broke off its answer, HTTP 200 OK.".into()));
}

#[tokio::test]
async fn answers_of_every_kind_are_told() {
    let endpoint = Endpoint::start().await;
    let empty = call(&endpoint.tool(Method::DELETE, "/empty"), "{}").await;
    assert_eq!(empty.as_deref(), Ok("HTTP 204 No Content, without content."));
    let image = call(&endpoint.tool(Method::GET, "/image"), "{}").await;
    assert_eq!(image.as_deref(), Ok("[image, image/png, 6 bytes]"));
    let endless = call(&endpoint.tool(Method::GET, "/endless"), "{}").await.unwrap();
    let expected = format!("{}\n[The answer is longer than 1000 bytes; the rest was not read.]", "é".repeat(500));
    assert_eq!(endless, expected);
}

#[tokio::test]
async fn a_document_is_kept_as_one_with_its_name() {
    let endpoint = Endpoint::start().await;
    let arguments = RawValue::from_string("{}".into()).unwrap();
    let tool = endpoint.tool(Method::GET, "/file");
    let answer = tool.call(&arguments, &context(Duration::from_secs(20))).await.unwrap();
    let source = Base64 { media_type: "application/pdf".into(), data: "JVBERi0xLjc=".into() };
    assert_eq!(answer.parts, [Part::from(PartKind::File { source, name: Some("report.pdf".into()) })]);
    assert_eq!(answer.bytes, 8);
}

#[tokio::test]
async fn a_streamed_answer_tells_how_far_the_call_is() {
    let endpoint = Endpoint::start().await;
    let arguments = RawValue::from_string("{}".into()).unwrap();
    let (reports, mut told) = tokio::sync::mpsc::channel(8);
    let progress = ProgressSink::new(CallId::foreign("c"), reports);
    let context = CallContext { progress, ..context(Duration::from_secs(20)) };
    let answer = endpoint.tool(Method::GET, "/events").call(&arguments, &context).await.unwrap();
    assert_eq!(answer.parts, [Part::text("all done")]);
    let (_, report) = told.try_recv().unwrap();
    assert_eq!((report.done, report.total), (Some(1.0), Some(2.0)));
}

#[tokio::test]
async fn it_can_be_registered_and_invoked() {
    let endpoint = Endpoint::start().await;
    let tool: Arc<dyn Tool> = Arc::new(endpoint.tool(Method::PUT, "/x"));
    let registry = Registry::new([tool]).unwrap();
    let tool = registry.get("service").unwrap();
    let check = |arguments| check_arguments("service", tool.schema(), arguments);
    assert!(check(r#"{"city":7}"#).is_err());
    let arguments = check(r#"{"city":"Oslo"}"#).unwrap();
    let outcome = invoke(Arc::clone(tool), arguments, context(Duration::from_secs(30))).await;
    assert!(!outcome.is_error && outcome.text() == "sunny", "{outcome:?}");
}

#[tokio::test]
async fn mistakes_of_the_operator_are_named() {
    let endpoint = Endpoint::start().await;
    for (method, path, reason) in [
        (Method::TRACE, "/", "the method TRACE is not one of"),
        (Method::GET, "/{town}?key=s3cr3t", "the URL names `{town}`, which the parameters do not declare"),
        (Method::GET, "/#s3cr3t", "the URL has a fragment"),
    ] {
        let error = endpoint.try_tool(method, path).unwrap_err().0;
        assert!(error.contains(reason) && !error.contains("s3cr3t"), "{error}");
    }
}

#[tokio::test]
async fn arguments_go_where_templates_name_them_and_nowhere_else() {
    let endpoint = Endpoint::start().await;
    let body = |value: Value| Some(JsonTemplate::parse(value));
    let query = vec![("q".to_owned(), QueryValue::Template(TextTemplate::parse("{city}")))];
    let headers = vec![(HeaderName::from_static("x-city"), TextTemplate::parse("{city}"))];
    let templates = RequestTemplates { headers, query, ..RequestTemplates::default() };
    // What the URL and the templates do not name goes where it went without them.
    let tool = endpoint.with_templates(Method::POST, "/a/{city}?k=1", templates.clone()).unwrap();
    call(&tool, r#"{"city":"a b","n":[]}"#).await.unwrap();
    let (_, target, headers, sent) = endpoint.last();
    assert_eq!((&*target, &*sent), ("/a/a%20b?k=1&q=a+b", r#"{"n":[]}"#));
    assert_eq!(headers["x-city"], "a b");
    let tool = endpoint.with_templates(Method::POST, "/", templates.clone()).unwrap();
    call(&tool, r#"{"city":"Oslo","n":[]}"#).await.unwrap();
    let (_, target, _, sent) = endpoint.last();
    assert_eq!((&*target, &*sent), ("/?q=Oslo", r#"{"n":[]}"#));
    let form = RequestTemplates { body_type: BodyType::Form, ..RequestTemplates::default() };
    let tool = endpoint.with_templates(Method::PUT, "/", form).unwrap();
    call(&tool, r#"{"city":"a&b"}"#).await.unwrap();
    let (_, _, headers, sent) = endpoint.last();
    assert_eq!((headers["content-type"].as_bytes(), &*sent), (&b"application/x-www-form-urlencoded"[..], "city=a%26b"));
    let whole = RequestTemplates { body: body(json!({"where": "{city}"})), ..RequestTemplates::default() };
    let tool = endpoint.with_templates(Method::POST, "/", whole).unwrap();
    let known = endpoint.seen.lock().len();
    let told = call(&tool, r#"{"city":"Oslo","n":[]}"#).await.unwrap_err();
    assert_eq!(told, "The argument `n` has no place in the request. Nothing was sent.");
    assert_eq!(endpoint.seen.lock().len(), known);
    let tool = endpoint.with_templates(Method::GET, "/", templates).unwrap();
    let told = call(&tool, r#"{"city":"a\r\nx-admin: 1"}"#).await.unwrap_err();
    assert!(told.contains("cannot be sent in a header"), "{told}");
    assert_eq!(endpoint.seen.lock().len(), known);
    let unknown = RequestTemplates { body: body(json!(["{town}"])), ..RequestTemplates::default() };
    let error = endpoint.with_templates(Method::POST, "/", unknown).unwrap_err();
    assert!(error.0.contains("`{town}`, which the parameters do not declare"), "{error}");
}

#[tokio::test]
async fn a_service_that_may_answer_later_is_told_where_and_by_which_token() {
    let endpoint = Endpoint::start().await;
    let arguments = RawValue::from_string("{}".into()).unwrap();
    let with_token = || CallContext { callback_token: Some("t0ken".into()), ..context(Duration::from_secs(5)) };
    let plain = endpoint.tool(Method::POST, "/accepted");
    let answer = plain.call(&arguments, &with_token()).await.unwrap();
    assert_eq!((answer.is_pending, answer.parts), (false, vec![Part::text("queued")]), "202 is an answer as any other");
    assert!(!endpoint.last().2.contains_key("x-loopgate-callback-token"));

    let public_url = "https://agents.example.com/base/".parse().unwrap();
    let later = crate::config::AnswersLater { timeout: Duration::from_secs(60), public_url };
    let later = |mut tool: HttpTool| {
        tool.service = tool.service.answering_later(Some(AnswersLater::new(&later)));
        tool
    };
    let tool = later(endpoint.tool(Method::POST, "/accepted"));
    assert_eq!(tool.answers_within(), Some(Duration::from_secs(60)));
    let context = with_token();
    let answer = tool.call(&arguments, &context).await.unwrap();
    assert_eq!((answer.is_pending, answer.status), (true, Some(202)));
    let headers = endpoint.last().2;
    let url = format!("https://agents.example.com/base/v1/tool-results/{}", context.call);
    assert_eq!(headers["x-loopgate-callback-url"], url.as_str());
    assert_eq!(headers["x-loopgate-callback-token"], "t0ken");
    assert_eq!(headers["x-loopgate-callback-timeout-ms"], "60000");
    let at_once = later(endpoint.tool(Method::POST, "/pay")).call(&arguments, &with_token()).await.unwrap();
    assert_eq!((at_once.is_pending, at_once.parts), (false, vec![Part::text("sunny")]), "it may answer at once");
}

//! What an operator adds to the way to an upstream: headers, parameters, certificates, a proxy.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::support::http::{HttpServer, Request};
use crate::support::redis::free_port;
use crate::support::server::loopgate;
use crate::support::tls::{Authority, EncryptedModel};
use crate::support::{Answer, ForwardProxy, Reply, TestServer, Upstream, within};

const KINDS: [(&str, &str); 4] =
    [("openai", "v1"), ("openai_responses", "v1"), ("anthropic", "v1"), ("gemini", "v1beta")];

async fn ask(server: &TestServer, model: &str) -> Answer {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
    server.post("/v1/chat/completions", &body).await
}

/// Answers as each kind of upstream does.
fn answer(request: &Request) -> Reply {
    let path = request.target.split('?').next().unwrap_or_default();
    match path.trim_start_matches("/v1beta").trim_start_matches("/v1") {
        "/chat/completions" => Reply::says("Hi"),
        "/responses" => Reply::responses().text_item(0, "Hi").complete(),
        "/messages" => Reply::anthropic().text_block(0, "Hi").stop("end_turn"),
        "/models/test:streamGenerateContent" => Reply::gemini().text_part("Hi").gemini_end("STOP"),
        "/models" if path.starts_with("/v1beta") => Reply::json(200, &json!({"models": [{"name": "models/test"}]})),
        "/models" => Reply::json(200, &json!({"data": [{"id": "test"}]})),
        _ => Reply::status(404),
    }
}

#[tokio::test]
async fn every_request_has_the_headers_and_the_query_of_its_upstream() {
    let upstream = HttpServer::start(|_| true, answer).await;
    let declared = KINDS.map(|(kind, version)| {
        format!(
            "[upstreams.{kind}]\nkind = \"{kind}\"\nbase_url = \"http://{}/{version}\"\napi_key_env = \"KEY\"\n\
             headers = {{ x-project = \"north\", User-Agent = \"mine/1\", \
             x-token = {{ env = \"GATEWAY\", prefix = \"Token \" }} }}\n\
             query = {{ \"a tag\" = \"b&c=d\", key = {{ file = \"query-key\" }} }}\n",
            upstream.address()
        )
    });
    let server = TestServer::builder(&declared.concat())
        .env("KEY", "sk-key")
        .env("GATEWAY", "in-header")
        .file("query-key", "in/query\n")
        .start()
        .await;
    for (kind, _) in KINDS {
        let answer = ask(&server, &format!("{kind}/test")).await.ok();
        assert_eq!(answer["choices"][0]["message"]["content"], "Hi", "{kind}");
    }
    let asked: BTreeSet<_> = upstream.requests().iter().map(|request| request.target.clone()).collect();
    for target in [
        "/v1/models?a+tag=b%26c%3Dd&key=in%2Fquery",
        "/v1/models?limit=1000&a+tag=b%26c%3Dd&key=in%2Fquery",
        "/v1beta/models?pageSize=1000&a+tag=b%26c%3Dd&key=in%2Fquery",
        "/v1/chat/completions?a+tag=b%26c%3Dd&key=in%2Fquery",
        "/v1/responses?a+tag=b%26c%3Dd&key=in%2Fquery",
        "/v1/messages?a+tag=b%26c%3Dd&key=in%2Fquery",
        "/v1beta/models/test:streamGenerateContent?alt=sse&a+tag=b%26c%3Dd&key=in%2Fquery",
    ] {
        assert!(asked.contains(target), "{target}: {asked:?}");
    }
    for request in upstream.requests() {
        let header = |name: &str| request.headers.get(name).map(String::as_str);
        let sent = ["x-project", "user-agent", "x-token"].map(header);
        assert_eq!(sent, [Some("north"), Some("mine/1"), Some("Token in-header")], "{}", request.target);
        let key = ["authorization", "x-api-key", "x-goog-api-key"].map(header).into_iter().flatten().next();
        assert!(key.is_some_and(|key| key.ends_with("sk-key")), "{:?}", request.headers);
    }
}

/// What an upstream repeats of a request must not lead a caller or a reader of logs to its secrets.
#[tokio::test]
async fn no_error_and_no_log_tells_the_secrets_of_headers_and_query() {
    let repeat = |request: &Request| {
        let headers: Vec<_> = request.headers.values().map(String::as_str).collect();
        Reply::error(400, "bad", &format!("cannot read {} with {}", request.target, headers.join(", ")))
    };
    let upstream = HttpServer::start(|_| true, repeat).await;
    let config = format!(
        "[upstreams.u]\nbase_url = \"http://{}/v1\"\nmodels = [\"test\"]\n\
         headers = {{ x-one = {{ env = \"PIN\" }}, authorization = \"Bearer in-the-file\", \
         x-two = {{ file = \"two\", prefix = \"Token \" }} }}\n\
         query = {{ key = {{ env = \"QUERY\" }} }}\n",
        upstream.address()
    );
    let secrets = [("PIN", "4711"), ("QUERY", "in/the query")];
    let server = secrets.iter().fold(TestServer::builder(&config), |server, (name, value)| server.env(name, value));
    let server = server.file("two", "in-two").start().await;
    let answer = ask(&server, "test").await;
    let message = answer.body["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("/v1/chat/completions?key=[secret] with "), "{message}");
    server.logged("the run failed").await;
    server.reload(&config.replace("[\"test\"]", "[\"test\", \"other\"]")).await;

    let place = tempfile::tempdir().expect("a directory can be made");
    for (file, text) in [("doctor.toml", config.as_str()), ("two", "in-two")] {
        std::fs::write(place.path().join(file), text).expect("it can be written to");
    }
    let mut doctor = loopgate(place.path());
    doctor.args(["doctor", "--config", "doctor.toml", "--json"]).envs(secrets).kill_on_drop(true);
    let found = within("the command to end", doctor.output()).await.expect("it can be started");
    let found = String::from_utf8_lossy(&[found.stdout, found.stderr].concat()).into_owned();
    assert!(found.contains("upstream u answered 400"), "{found}");
    for secret in ["4711", "in/the query", "in%2Fthe", "in-the-file", "in-two"] {
        for (place, text) in [("answer", &message), ("log", &server.output()), ("doctor", &found)] {
            assert!(!text.contains(secret), "{secret} in the {place}: {text}");
        }
    }
}

/// The declaration of an upstream behind TLS, with these further keys.
fn encrypted(name: &str, model: &EncryptedModel, keys: &str) -> String {
    format!("[upstreams.{name}]\nbase_url = \"https://{}/v1\"\nmodels = [\"test\"]\n{keys}\n", model.address)
}

const CERTIFICATE: &str = "ca_file = \"ca.pem\"\nclient_cert_file = \"client.pem\"\nclient_key_file = \"client.key\"";

#[tokio::test]
async fn an_upstream_is_trusted_by_the_authorities_of_its_ca_file_alone() {
    let (authority, system) = (Authority::make(), Authority::make());
    let (own, public) = (
        EncryptedModel::start(&authority, &["h2", "http/1.1"]).await,
        EncryptedModel::start(&system, &["h2", "http/1.1"]).await,
    );
    let config = [
        encrypted("own", &own, "ca_file = \"ca.pem\""),
        encrypted("untrusted", &own, ""),
        encrypted("public", &public, ""),
        encrypted("impostor", &public, "ca_file = \"ca.pem\""),
    ];
    let server = TestServer::builder(&config.concat()).file("ca.pem", &authority.text("root.pem"));
    let server = server.env("SSL_CERT_FILE", &system.root()).start().await;
    for (name, status) in [("own", 200), ("untrusted", 502), ("public", 200), ("impostor", 502)] {
        let answer = ask(&server, &format!("{name}/test")).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.body);
        assert_eq!(
            answer.body.to_string().contains("invalid peer certificate"),
            status == 502,
            "{name}: {}",
            answer.body
        );
    }
}

/// A machine that has no certificate authorities needs none for upstreams that name theirs.
#[tokio::test]
async fn an_upstream_with_a_ca_file_needs_no_authorities_of_the_system() {
    let authority = Authority::make();
    let model = EncryptedModel::start(&authority, &["http/1.1"]).await;
    let config = encrypted("own", &model, "ca_file = \"ca.pem\"");
    let server = TestServer::builder(&config).file("ca.pem", &authority.text("root.pem"));
    let server = server.env("SSL_CERT_DIR", "no-directory").env("SSL_CERT_FILE", "no-file").start().await;
    ask(&server, "own/test").await.ok();
}

#[tokio::test]
async fn an_upstream_that_asks_for_a_certificate_is_shown_it() {
    let (authority, clients) = (Authority::make(), Authority::make());
    for protocols in [&["h2"][..], &["http/1.1"]] {
        let model = EncryptedModel::start_for(&clients, &authority, protocols).await;
        let other = CERTIFICATE.replace("client.", "other.");
        let config = [
            encrypted("known", &model, CERTIFICATE),
            encrypted("unknown", &model, "ca_file = \"ca.pem\""),
            encrypted("foreign", &model, &other),
        ];
        let server = TestServer::builder(&config.concat())
            .file("ca.pem", &authority.text("root.pem"))
            .file("client.pem", &clients.text("client.pem"))
            .file("client.key", &clients.text("client.key"))
            .file("other.pem", &authority.text("client.pem"))
            .file("other.key", &authority.text("client.key"))
            .start()
            .await;
        ask(&server, "known/test").await.ok();
        for (name, why) in [("unknown", "CertificateRequired"), ("foreign", "alert")] {
            let before = model.connections.load(Ordering::SeqCst);
            let refused = ask(&server, &format!("{name}/test")).await;
            let said = refused.body.to_string();
            assert_eq!((refused.status, refused.header("x-should-retry")), (502, "false"), "{said}");
            assert!(said.contains("in TLS") && said.contains(why), "{protocols:?}, {name}: {said}");
            let asked = model.connections.load(Ordering::SeqCst) - before;
            assert_eq!(asked, 1, "{protocols:?}, {name}: the next attempt would be refused as well");
        }
        assert_eq!(model.versions().len(), 1, "only the request of the known client was read");
    }
}

#[tokio::test]
async fn certificates_are_read_again_at_sighup() {
    let (authority, other) = (Authority::make(), Authority::make());
    let model = EncryptedModel::start(&authority, &["http/1.1"]).await;
    let config = encrypted("own", &model, "ca_file = \"ca.pem\"");
    let server = TestServer::builder(&config).file("ca.pem", &other.text("root.pem")).start().await;
    assert_eq!(ask(&server, "test").await.status, 502);
    server.write("ca.pem", &authority.text("root.pem"));
    let log = server.hang_up().await;
    assert!(log.contains("upstreams.own.ca_file: changed") && !log.contains("BEGIN"), "{log}");
    ask(&server, "test").await.ok();
    server.write("ca.pem", "nothing");
    let log = server.hang_up().await;
    assert!(log.contains("upstreams.own.ca_file: ca.pem holds no certificate in PEM"), "{log}");
    ask(&server, "test").await.ok();
}

#[tokio::test]
async fn requests_to_an_upstream_go_through_its_proxy_and_through_no_other() {
    let (authority, clients) = (Authority::make(), Authority::make());
    let hidden = EncryptedModel::start_for(&clients, &authority, &["h2"]).await;
    let plain = HttpServer::start(|_| true, answer).await;
    let proxy = ForwardProxy::start(Some("Basic YW5uOnMzY3JldA==")).await;
    let through = format!("proxy = \"{}\"\n", proxy.url());
    let login = format!("{through}proxy_login_env = \"LOGIN\"\n");
    let at_plain = |name: &str, keys: &str| {
        format!("[upstreams.{name}]\nbase_url = \"http://{}/v1\"\nmodels = [\"test\"]\n{keys}", plain.address())
    };
    let config = [
        encrypted("hidden", &hidden, &format!("{CERTIFICATE}\n{login}")),
        at_plain("plain", &login),
        at_plain("direct", "proxy = \"none\"\n"),
        at_plain("stranger", &through),
        encrypted("barred", &hidden, &format!("{CERTIFICATE}\n{through}")),
        at_plain("environment", ""),
    ];
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let server = TestServer::builder(&config.concat())
        .file("ca.pem", &authority.text("root.pem"))
        .file("client.pem", &clients.text("client.pem"))
        .file("client.key", &clients.text("client.key"))
        .env("LOGIN", "ann:s3cret")
        .env("HTTP_PROXY", &nowhere)
        .env("HTTPS_PROXY", &nowhere)
        .env("NO_PROXY", "localhost")
        .start()
        .await;
    for name in ["hidden", "plain", "plain", "direct"] {
        ask(&server, &format!("{name}/test")).await.ok();
    }
    let asked = |target: &str| proxy.asked().iter().filter(|line| line.as_str() == target).count();
    let connect = format!("CONNECT {} HTTP/1.1", hidden.address);
    let post = format!("POST http://{}/v1/chat/completions HTTP/1.1", plain.address());
    assert_eq!((asked(&connect), asked(&post), proxy.asked().len()), (1, 2, 3), "{:?}", proxy.asked());
    assert_eq!(plain.requests().len(), 3);
    assert!(plain.requests().iter().all(|request| !request.headers.contains_key("proxy-authorization")));

    for (name, why) in
        [("stranger", "answered 407"), ("barred", "proxy authorization required"), ("environment", "refused")]
    {
        let answer = ask(&server, &format!("{name}/test")).await;
        let said = answer.body["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == 502 && said.contains(why), "{name}: {}", answer.body);
        assert!(!said.contains("s3cret") && !said.contains("YW5u"), "{said}");
    }
    assert_eq!(plain.requests().len(), 3);
    assert!(!server.output().contains("s3cret"));
}

/// What of a client's request must reach an upstream does so whichever way it takes.
#[tokio::test]
async fn a_request_behind_a_proxy_names_its_trace_and_its_request() {
    let upstream = Upstream::start([Reply::says("Hi")]).await;
    let proxy = ForwardProxy::start(None).await;
    let server = TestServer::start(&format!("{}proxy = \"{}\"\n", upstream.config(), proxy.url())).await;
    let body: Value = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]});
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = server.json("/v1/chat/completions", &body).header("traceparent", trace);
    server.send(request.header("x-request-id", "req-7")).await.ok();
    let headers = upstream.raw_requests().remove(0).headers;
    assert_eq!((headers["traceparent"].as_str(), headers["x-request-id"].as_str()), (trace, "req-7"));
    assert_eq!(proxy.asked().len(), 1);
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_told_with_its_file_at_the_start() {
    let (authority, other) = (Authority::make(), Authority::make());
    let place = tempfile::tempdir().expect("a directory can be made");
    let certificate = authority.text("client.pem");
    let damaged = certificate.replacen("MI", "M!", 1);
    let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (file, text) in [
        ("client.pem", certificate.as_str()),
        ("client.key", &authority.text("client.key")),
        ("both.pem", &[certificate.clone(), authority.text("client.key")].concat()),
        ("other.key", &other.text("client.key")),
        ("second.pem", &[certificate.as_str(), &damaged].concat()),
        ("locked.key", locked),
        ("no.key", no_key),
        ("empty.pem", ""),
    ] {
        std::fs::write(place.path().join(file), text).expect("it can be written to");
    }
    for (keys, said) in [
        ("client_cert_file = \"client.pem\"\nclient_key_file = \"client.key\"", "is valid"),
        ("client_cert_file = \"both.pem\"\nclient_key_file = \"both.pem\"", "is valid"),
        ("ca_file = \"gone.pem\"", ":3: upstreams.u.ca_file: gone.pem cannot be read: No such file"),
        ("ca_file = \"empty.pem\"", "upstreams.u.ca_file: empty.pem holds no certificate in PEM"),
        (
            "ca_file = \"second.pem\"",
            "upstreams.u.ca_file: second.pem holds a certificate that cannot be read, which is number 2",
        ),
        ("client_cert_file = \"client.pem\"", "upstreams.u.client_cert_file: needs client_key_file"),
        ("client_key_file = \"client.key\"", "upstreams.u.client_key_file: needs client_cert_file"),
        (
            "client_cert_file = \"client.pem\"\nclient_key_file = \"other.key\"",
            ":4: upstreams.u.client_key_file: other.key holds the private key of another certificate",
        ),
        (
            "client_cert_file = \"client.pem\"\nclient_key_file = \"client.pem\"",
            "upstreams.u.client_key_file: client.pem holds no private key in PEM",
        ),
        (
            "client_cert_file = \"client.pem\"\nclient_key_file = \"locked.key\"",
            "upstreams.u.client_key_file: locked.key holds a private key with a password",
        ),
        (
            "client_cert_file = \"client.pem\"\nclient_key_file = \"no.key\"",
            "upstreams.u.client_key_file: no.key holds a private key that cannot be read",
        ),
    ] {
        let config = format!("[upstreams.u]\nbase_url = \"https://models.test/v1\"\n{keys}\n");
        std::fs::write(place.path().join("test.toml"), config).expect("it can be written to");
        let mut check = loopgate(place.path());
        check.args(["check-config", "--config", "test.toml"]).kill_on_drop(true);
        let found = within("the command to end", check.output()).await.expect("it can be started");
        let text = String::from_utf8_lossy(&[found.stdout, found.stderr].concat()).into_owned();
        assert!(text.contains(said), "{keys}: {text}");
        assert_eq!(found.status.success(), said == "is valid", "{text}");
        assert!(!text.contains("AAAA"), "{text}");
    }
}

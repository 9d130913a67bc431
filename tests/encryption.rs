//! Models behind TLS, with certificates of an authority of one's own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::support::{Answer, Reply, TestServer, Upstream};

/// What the model says, whatever it is asked.
const SAYS: &str = concat!(
    "data: {\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"Hello\"}, \"finish_reason\": \"stop\"}]}\n\n",
    "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 1, \"completion_tokens\": 1, \"total_tokens\": 2}}\n\n",
    "data: [DONE]\n\n",
);

/// A certificate authority, and a certificate of it for 127.0.0.1.
struct Authority(TempDir);

impl Authority {
    fn make() -> Self {
        let authority = Self(tempfile::tempdir().expect("a directory can be made"));
        authority.certify("root", &["-subj", "/CN=An authority of one's own"]);
        let (root, root_key) = (authority.path("root.pem"), authority.path("root.key"));
        let signed = ["-CA", &root.to_string_lossy(), "-CAkey", &root_key.to_string_lossy(), "-subj", "/CN=model"];
        let names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
        authority.certify("model", &[&signed[..], &names].concat());
        authority
    }

    fn certify(&self, name: &str, arguments: &[&str]) {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
            .args(arguments)
            .args([Path::new("-keyout"), &self.path(&format!("{name}.key"))])
            .args([Path::new("-out"), &self.path(&format!("{name}.pem"))])
            .output()
            .expect("it is installed");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What the authority certifies itself with.
    fn root(&self) -> String {
        self.path("root.pem").to_string_lossy().into_owned()
    }
}

/// A model behind TLS. Dropping it ends it.
struct EncryptedModel {
    address: SocketAddr,
    versions: Arc<Mutex<Vec<Version>>>,
    /// How many connections were opened to it, trusted or not.
    connections: Arc<AtomicUsize>,
    /// How many requests it has yet to answer with what is no TLS.
    breaks: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl EncryptedModel {
    /// Starts one that offers these protocols.
    async fn start(authority: &Authority, protocols: &[&str]) -> Self {
        let chain = CertificateDer::from_pem_file(authority.path("model.pem")).expect("it was made");
        let key = PrivateKeyDer::from_pem_file(authority.path("model.key")).expect("it was made");
        let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let tls = tls.with_safe_default_protocol_versions().expect("they are known").with_no_client_auth();
        let mut tls = tls.with_single_cert(vec![chain], key).expect("they belong together");
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let versions: Arc<Mutex<Vec<Version>>> = Arc::default();
        let mut tasks = JoinSet::new();
        let connections: Arc<AtomicUsize> = Arc::default();
        let breaks: Arc<AtomicUsize> = Arc::default();
        let (record, opened, to_break) = (versions.clone(), connections.clone(), breaks.clone());
        tasks.spawn(async move {
            let mut served = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                opened.fetch_add(1, Ordering::SeqCst);
                served.spawn(serve(acceptor.clone(), socket, record.clone(), to_break.clone()));
            }
        });
        Self { address, versions, connections, breaks, _tasks: tasks }
    }

    /// Answers the next request with what is no TLS.
    fn break_next(&self) {
        self.breaks.fetch_add(1, Ordering::SeqCst);
    }

    /// The versions of HTTP in which it was asked so far.
    fn versions(&self) -> Vec<Version> {
        self.versions.lock().expect("no one panics with it").clone()
    }

    /// A server that knows this model.
    async fn server(&self, trusted: &Authority) -> TestServer {
        let config = format!("[upstreams.private]\nbase_url = \"https://{}/v1\"\nmodels = [\"test\"]\n", self.address);
        TestServer::builder(&config).env("SSL_CERT_FILE", &trusted.root()).start().await
    }
}

async fn serve(acceptor: TlsAcceptor, socket: TcpStream, record: Arc<Mutex<Vec<Version>>>, breaks: Arc<AtomicUsize>) {
    // A client that does not trust us goes away.
    let Ok(stream) = acceptor.accept(socket).await else { return };
    if breaks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
        record.lock().expect("no one panics with it").push(Version::HTTP_11);
        return break_off(stream).await;
    }
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let answer = service_fn(move |request: Request<Incoming>| {
        let record = record.clone();
        async move {
            record.lock().expect("no one panics with it").push(request.version());
            request.into_body().collect().await.expect("the request is whole");
            let answer = Response::builder().header("content-type", "text/event-stream");
            Ok::<_, Infallible>(answer.body(Full::new(Bytes::from_static(SAYS.as_bytes()))).expect("it is valid"))
        }
    });
    // That the client breaks off is its own business.
    if is_http2 {
        drop(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await);
    } else {
        drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
    }
}

/// Reads a request whole and answers it past the encryption, as a middlebox may.
async fn break_off(mut stream: TlsStream<TcpStream>) {
    let mut request = Vec::new();
    loop {
        let read = stream.read_buf(&mut request).await.expect("the client sends a request");
        assert_ne!(read, 0, "the request is whole");
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().expect("it is a number")) {
            break;
        }
    }
    let (mut socket, _) = stream.into_inner();
    socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await.expect("the client listens");
}

async fn ask(server: &TestServer) -> Answer {
    let body = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]});
    server.post("/v1/chat/completions", &body).await
}

#[tokio::test]
async fn models_are_asked_in_the_newest_protocol_that_they_offer() {
    let authority = Authority::make();
    for (offered, spoken) in [
        (&["h2", "http/1.1"][..], Version::HTTP_2),
        (&["http/1.1"], Version::HTTP_11),
        // Servers that know nothing of such offers.
        (&[], Version::HTTP_11),
    ] {
        let model = EncryptedModel::start(&authority, offered).await;
        let server = model.server(&authority).await;
        for _ in 0..2 {
            let answer = ask(&server).await.ok();
            assert_eq!(answer["choices"][0]["message"]["content"], "Hello");
        }
        assert_eq!(model.versions(), [spoken; 2], "{offered:?}");
    }
}

#[tokio::test]
async fn models_are_trusted_by_the_authorities_that_the_environment_names() {
    let (authority, other) = (Authority::make(), Authority::make());
    let model = EncryptedModel::start(&authority, &["http/1.1"]).await;
    ask(&model.server(&authority).await).await.ok();
    let server = model.server(&other).await;
    let before = model.connections.load(Ordering::SeqCst);
    let refused = ask(&server).await;
    assert_eq!(model.connections.load(Ordering::SeqCst) - before, 1, "it would not be trusted the next time either");
    assert_eq!(refused.header("x-should-retry"), "false");
    assert_eq!(refused.status, 502, "{}", refused.body);
    assert!(refused.body.to_string().contains("certificate"), "{}", refused.body);
    assert_eq!(model.versions().len(), 1, "what is not trusted is told nothing");

    // A tool's service is not trusted either, and the model learns that nothing was done.
    let upstream = Upstream::start([Reply::calls("pay", &json!({})), Reply::says("Done.")]).await;
    let tool = format!(
        "[agents.default]\ntools = [\"pay\"]\n[tools.pay]\ndescription = \"Pays\"\nmethod = \"POST\"\n\
         url = \"https://{}/pay\"\n",
        model.address
    );
    let server = TestServer::start(&format!("{}{tool}", upstream.config())).await;
    ask(&server).await.ok();
    let told = upstream.requests()[1]["messages"][2]["content"].to_string();
    assert!(told.contains("cannot be trusted") && told.contains("Nothing was sent"), "{told}");
}

/// An answer was lost with the encryption, but the request was not.
#[tokio::test]
async fn a_request_to_a_model_is_charged_after_which_encryption_breaks() {
    let authority = Authority::make();
    let model = EncryptedModel::start(&authority, &["http/1.1"]).await;
    let server = model.server(&authority).await;
    model.break_next();
    let answer = ask(&server).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Hello", "it is asked again");
    assert_eq!(model.versions().len(), 2);
    let charged = answer["usage"]["prompt_tokens"].as_u64().expect("it is a number");
    assert!(charged > 1, "the first request may have cost something: {answer}");
}

#[tokio::test]
async fn the_outcome_of_a_call_after_which_encryption_breaks_is_unknown() {
    let authority = Authority::make();
    let service = EncryptedModel::start(&authority, &["http/1.1"]).await;
    let upstream = Upstream::start([Reply::calls("pay", &json!({})), Reply::says("Done.")]).await;
    let tool = format!(
        "[agents.default]\ntools = [\"pay\"]\n[tools.pay]\ndescription = \"Pays\"\nmethod = \"POST\"\n\
         url = \"https://{}/pay\"\n",
        service.address
    );
    let config = format!("{}{tool}", upstream.config());
    let server = TestServer::builder(&config).env("SSL_CERT_FILE", &authority.root()).start().await;
    service.break_next();
    let failed = ask(&server).await;
    assert_eq!((failed.status, &failed.body["error"]["code"]), (500, &json!("outcome_unknown")), "{}", failed.body);
    assert_eq!((service.versions().len(), upstream.requests().len()), (1, 1), "the model cannot repeat the call");
}

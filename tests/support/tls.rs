//! Models behind TLS, and the certificates that they and their clients have.

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
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::TestServer;

/// What the model says, whatever it is asked.
const SAYS: &str = concat!(
    "data: {\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"Hello\"}, \"finish_reason\": \"stop\"}]}\n\n",
    "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 1, \"completion_tokens\": 1, \"total_tokens\": 2}}\n\n",
    "data: [DONE]\n\n",
);

/// A certificate authority, a certificate of it for 127.0.0.1, and one for a client.
pub(crate) struct Authority(TempDir);

impl Authority {
    pub(crate) fn make() -> Self {
        let authority = Self(tempfile::tempdir().expect("a directory can be made"));
        // Each has a name of its own, by which certificates tell who vouches for them.
        let name = authority.0.path().file_name().expect("it has a name").to_string_lossy().into_owned();
        authority.certify("root", &["-subj", &format!("/CN=Authority {name}")]);
        authority.issue("model", "subjectAltName=IP:127.0.0.1");
        authority.issue("client", "subjectAltName=DNS:client.test");
        authority
    }

    /// Makes a certificate of the authority.
    fn issue(&self, name: &str, names: &str) {
        let (root, root_key, subject) = (self.path("root.pem"), self.path("root.key"), format!("/CN={name}"));
        let signed = ["-CA", &root.to_string_lossy(), "-CAkey", &root_key.to_string_lossy(), "-subj", &subject];
        let extensions = ["-addext", names, "-addext", "basicConstraints=critical,CA:FALSE"];
        self.certify(name, &[&signed[..], &extensions].concat());
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
    pub(crate) fn root(&self) -> String {
        self.path("root.pem").to_string_lossy().into_owned()
    }

    /// The text of one of its files: `root`, `model` or `client`, with `.pem` or `.key`.
    pub(crate) fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).expect("it was made")
    }
}

/// A model behind TLS. Dropping it ends it.
pub(crate) struct EncryptedModel {
    pub(crate) address: SocketAddr,
    versions: Arc<Mutex<Vec<Version>>>,
    /// How many connections were opened to it, trusted or not.
    pub(crate) connections: Arc<AtomicUsize>,
    /// How many requests it has yet to answer with what is no TLS.
    breaks: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl EncryptedModel {
    /// Starts one that offers these protocols.
    pub(crate) async fn start(authority: &Authority, protocols: &[&str]) -> Self {
        Self::start_with(authority, protocols, None).await
    }

    /// Starts one that serves only clients with a certificate of `clients`.
    pub(crate) async fn start_for(clients: &Authority, authority: &Authority, protocols: &[&str]) -> Self {
        Self::start_with(authority, protocols, Some(clients)).await
    }

    async fn start_with(authority: &Authority, protocols: &[&str], clients: Option<&Authority>) -> Self {
        let chain = CertificateDer::from_pem_file(authority.path("model.pem")).expect("it was made");
        let key = PrivateKeyDer::from_pem_file(authority.path("model.key")).expect("it was made");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider.clone());
        let tls = tls.with_safe_default_protocol_versions().expect("they are known");
        let tls = match clients {
            None => tls.with_no_client_auth(),
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                let root = CertificateDer::from_pem_file(clients.path("root.pem")).expect("it was made");
                roots.add(root).expect("it is a certificate");
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                tls.with_client_cert_verifier(verifier.expect("there is an authority"))
            }
        };
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
    pub(crate) fn break_next(&self) {
        self.breaks.fetch_add(1, Ordering::SeqCst);
    }

    /// The versions of HTTP in which it was asked so far.
    pub(crate) fn versions(&self) -> Vec<Version> {
        self.versions.lock().expect("no one panics with it").clone()
    }

    /// A server that knows this model.
    pub(crate) async fn server(&self, trusted: &Authority) -> TestServer {
        let config = format!("[upstreams.private]\nbase_url = \"https://{}/v1\"\nmodels = [\"test\"]\n", self.address);
        TestServer::builder(&config).env("SSL_CERT_FILE", &trusted.root()).start().await
    }
}

async fn serve(acceptor: TlsAcceptor, socket: TcpStream, record: Arc<Mutex<Vec<Version>>>, breaks: Arc<AtomicUsize>) {
    let stream = match acceptor.accept(socket).into_fallible().await {
        Ok(stream) => stream,
        // A client that does not trust us goes away. One that we do not trust reads why: what it has sent meanwhile is read,
        // since closing the connection before would take that back.
        Err((_, mut socket)) => {
            if socket.shutdown().await.is_ok() {
                drop(tokio::io::copy(&mut socket, &mut tokio::io::sink()).await);
            }
            return;
        }
    };
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

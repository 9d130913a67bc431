use std::collections::VecDeque;
use std::future::Future;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::net::testing::read_request;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

fn client() -> Http1Client {
    Http1Client::new(Tcp::new(None), None, Duration::from_secs(60))
}

async fn send(client: &Http1Client, url: &str, body: Vec<u8>) -> Result<Answer, Http1Error> {
    let request = Request::post(url).body(Bytes::from(body)).unwrap();
    let server = Http1Client::server(request.uri()).unwrap().clone();
    within(client.send(server, request)).await
}

async fn text(answer: Answer) -> Result<String, Http1Error> {
    let (mut body, mut text) = (answer.body, Vec::new());
    while let Some(chunk) = within(body.chunk()).await? {
        text.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8(text).unwrap())
}

async fn ask(client: &Http1Client, url: &str) -> Result<String, Http1Error> {
    text(send(client, url, b"x".to_vec()).await?).await
}

/// Far longer than anything here takes.
async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it ends")
}

/// A server that keeps its connections, and gives one answer after the other, whichever connection it is asked on.
struct Server {
    url: String,
    /// The number of the connection that each request came on.
    asked_on: Arc<Mutex<Vec<usize>>>,
    _serving: JoinSet<()>,
}

impl Server {
    async fn start(answers: impl IntoIterator<Item = &'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let asked_on = Arc::<Mutex<Vec<usize>>>::default();
        let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
        let (mut serving, asked) = (JoinSet::new(), asked_on.clone());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (asked, answers) = (asked.clone(), answers.clone());
                connections.spawn(async move {
                    while socket.peek(&mut [0]).await.is_ok_and(|bytes| bytes > 0) {
                        read_request(&mut socket).await;
                        asked.lock().push(number);
                        let answer = answers.lock().pop_front().unwrap();
                        socket.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        Self { url, asked_on, _serving: serving }
    }
}

#[tokio::test]
async fn a_connection_is_used_again_only_after_an_answer_whose_end_is_certain() {
    for (first, told, is_kept) in [
        (OK, "hi", true),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n.",
            ".",
            true,
        ),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n", "hi!", true),
        ("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi", "hi", false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi", "hi", false),
        // A second answer that nobody asked for must not become that of the next request.
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", "hi", false),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "", false),
        ("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", "", false),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 50\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            "hi",
            false,
        ),
    ] {
        let server = Server::start([first, OK]).await;
        let client = client();
        assert_eq!(ask(&client, &server.url).await.unwrap(), told, "{first:?}");
        assert_eq!(ask(&client, &server.url).await.unwrap(), "hi", "{first:?}");
        assert_eq!(*server.asked_on.lock(), [0, usize::from(!is_kept)], "{first:?}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_the_rules_is_refused_and_its_connection_closed() {
    for first in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        "220 mail.test ready\r\n",
        // Part of a body that another reader begins earlier, and an end that another one never finds.
        "HTTP/1.1 200 OK\ncontent-type: text/event-stream\n\ndata: a\r\n\r\ndata: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: y\n\ncontent-length: 4\r\n\r\nevil",
        "HTTP/1.1 200 OK\ncontent-length: 2\n\nhi",
    ] {
        let server = Server::start([first, OK]).await;
        let client = client();
        let error = ask(&client, &server.url).await.unwrap_err();
        assert!(matches!(error, Http1Error::Malformed(_)), "{first:?}: {error:?}");
        assert_eq!(ask(&client, &server.url).await.unwrap(), "hi", "{first:?}");
        assert_eq!(*server.asked_on.lock(), [0, 1], "{first:?}");
    }
    let endless: String = "HTTP/1.1 100 Continue\r\n\r\n".repeat(17);
    let server = Server::start([&*endless.leak()]).await;
    assert!(matches!(ask(&client(), &server.url).await, Err(Http1Error::Malformed(_))));
}

#[tokio::test]
async fn a_body_that_nobody_reads_to_its_end_closes_its_connection() {
    let server = Server::start(["HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhi", OK]).await;
    let client = client();
    let mut unread = send(&client, &server.url, Vec::new()).await.unwrap().body;
    assert_eq!(within(unread.chunk()).await.unwrap().unwrap(), "hi");
    drop(unread);
    assert_eq!(ask(&client, &server.url).await.unwrap(), "hi");
    assert_eq!(*server.asked_on.lock(), [0, 1]);
}

#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection_and_others_are_cut_off() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    for (answer, told) in [
        ("HTTP/1.1 200 OK\r\n\r\nall", Some("all")),
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nall", None),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nall\r\n0\r\n", None),
    ] {
        let client = client();
        let serving = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            read_request(&mut socket).await;
            socket.write_all(answer.as_bytes()).await.unwrap();
        };
        let (answered, ()) = tokio::join!(ask(&client, &url), serving);
        match told {
            Some(told) => assert_eq!(answered.unwrap(), told),
            None => assert!(matches!(answered, Err(Http1Error::CutOff)), "{answer:?}: {answered:?}"),
        }
    }
}

#[tokio::test]
async fn a_connection_that_its_server_closed_meanwhile_takes_no_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = client();
    for _ in 0..3 {
        let serving = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            read_request(&mut socket).await;
            socket.write_all(OK.as_bytes()).await.unwrap();
            // Closed here.
        };
        let (answered, ()) = Box::pin(within(async { tokio::join!(ask(&client, &url), serving) })).await;
        assert_eq!(answered.unwrap(), "hi");
    }
}

#[tokio::test]
async fn a_kept_connection_that_is_reset_is_told_like_one_that_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = client();
    for is_kept in [true, false] {
        let serving = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            if is_kept {
                read_request(&mut socket).await;
                socket.write_all(OK.as_bytes()).await.unwrap();
            }
            read_request(&mut socket).await;
            socket.set_zero_linger().unwrap();
        };
        let asking = async {
            if is_kept {
                assert_eq!(ask(&client, &url).await.unwrap(), "hi");
            }
            ask(&client, &url).await.unwrap_err()
        };
        let (error, ()) = Box::pin(within(async { tokio::join!(asking, serving) })).await;
        assert_eq!(matches!(error, Http1Error::Closed), is_kept, "{error:?}");
    }
}

#[test]
fn only_servers_without_tls_that_are_told_no_name_are_asked_here() {
    for (url, expected) in [
        ("http://a.test/x", Some("a.test")),
        ("http://[::1]:81", Some("[::1]:81")),
        ("https://a.test/", None),
        ("http://ann:secret@a.test/", None),
        ("/x", None),
    ] {
        let uri = Uri::from_static(url);
        assert_eq!(Http1Client::server(&uri).map(Authority::as_str), expected, "{url}");
    }
}

#[tokio::test]
async fn a_server_may_answer_before_it_has_read_the_request() {
    const LARGE: usize = 16 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = client();
    // One that wants the rest before it says more.
    let serving = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut some = [0; 1000];
        socket.read_exact(&mut some).await.unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        let (mut read, mut buffer) = (some.len(), vec![0; 1 << 20]);
        while read < LARGE {
            read += socket.read(&mut buffer).await.unwrap();
        }
        socket.write_all(b"3\r\nall\r\n0\r\n\r\n").await.unwrap();
        socket
    };
    let asking = async { text(send(&client, &url, vec![b'x'; LARGE]).await?).await };
    let (answered, _socket) = tokio::join!(asking, serving);
    assert_eq!(answered.unwrap(), "all");
    // One that refuses it and closes the connection.
    let serving = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_exact(&mut [0; 1000]).await.unwrap();
        socket.write_all(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig").await.unwrap();
        socket
    };
    let elsewhere = self::client();
    let asking = async { send(&elsewhere, &url, vec![b'x'; LARGE]).await };
    let (refused, socket) = tokio::join!(asking, serving);
    let refused = refused.unwrap();
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(text(refused).await.unwrap(), "big");
    let server = url.parse::<Uri>().unwrap().into_parts().authority.unwrap();
    assert!(elsewhere.pool.take(&server).is_none(), "half a request is still to be sent on it");
    drop(socket);
}

#[tokio::test]
async fn connections_are_kept_no_longer_than_they_may() {
    let server = Server::start([OK, OK, OK]).await;
    let brief = Http1Client { pool: Arc::new(Pool::new(Duration::from_millis(1))), ..client() };
    ask(&brief, &server.url).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;
    ask(&brief, &server.url).await.unwrap();
    assert_eq!(*server.asked_on.lock(), [0, 1]);
}

#[tokio::test]
async fn an_answer_that_waits_takes_little_memory() {
    let bytes = size_of::<Body>();
    assert!(bytes <= 320, "{bytes}");
}

//! What is wrong below HTTP or at its edge, over bare sockets.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, timeout};

use super::{ENDPOINTS, House, check, nothing_in, valid};
use crate::support::{Answer, Reply, TestServer, Upstream};

/// A little more than what is promised, for a machine with other things to do.
const GRACE: Duration = Duration::from_secs(3);

async fn connect(house: &House) -> TcpStream {
    TcpStream::connect(house.server.address()).await.expect("it listens")
}

/// What the server says until it closes the connection, which it must do within `max_wait`.
async fn until_closed(socket: &mut TcpStream, max_wait: Duration) -> String {
    let mut said = Vec::new();
    let closed = timeout(max_wait + GRACE, socket.read_to_end(&mut said)).await;
    // A reset closes it as well.
    drop(closed.unwrap_or_else(|_| panic!("still open after {max_wait:?}: {}", String::from_utf8_lossy(&said))));
    String::from_utf8_lossy(&said).into_owned()
}

/// Sends these bytes, in full or until the server has had enough, and returns the status and what follows.
async fn exchange(house: &House, bytes: &[u8]) -> (u16, String) {
    let mut socket = connect(house).await;
    // It may close the connection before it has read everything.
    drop(socket.write_all(bytes).await);
    let said = until_closed(&mut socket, Duration::from_secs(10)).await;
    let status = said.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status: {said:?}")), said)
}

/// A request that nothing is wrong with, with these lines in its head.
fn post(lines: &str, body: &str) -> String {
    let endpoint = ENDPOINTS[0];
    format!(
        "POST {endpoint} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n{lines}\r\n{body}"
    )
}

/// A body in the one shape of errors, with this code if there is one.
#[track_caller]
fn has_shape(said: &str, code: Option<&str>) {
    let (_, body) = said.split_once("\r\n\r\n").expect("the head has an end");
    let start = body.find('{').unwrap_or_else(|| panic!("no JSON: {said}"));
    let end = body.rfind('}').unwrap_or_else(|| panic!("no JSON: {said}"));
    let body: serde_json::Value = serde_json::from_str(&body[start..=end]).expect("the body is JSON");
    for key in ["message", "type", "param", "code"] {
        assert!(body["error"].get(key).is_some(), "the error has no {key}: {said}");
    }
    assert!(code.is_none_or(|code| body["error"]["code"] == code), "{said}");
}

/// Sends one byte a second, until the server has had enough.
async fn drip(house: &House, before: &str, bytes: &str, max_wait: Duration) -> String {
    let begun = Instant::now();
    let (mut reader, mut writer) = connect(house).await.into_split();
    let mut said = Vec::new();
    let dripping = async {
        drop(writer.write_all(before.as_bytes()).await);
        let mut tick = interval(Duration::from_secs(1));
        for byte in bytes.bytes().cycle() {
            tick.tick().await;
            if writer.write_all(&[byte]).await.is_err() {
                break;
            }
        }
    };
    let reading = timeout(max_wait + GRACE, reader.read_to_end(&mut said));
    tokio::pin!(reading);
    let closed = tokio::select! {
        closed = &mut reading => closed,
        () = dripping => reading.await,
    };
    drop(closed.unwrap_or_else(|_| panic!("still open after {:?}", begun.elapsed())));
    String::from_utf8_lossy(&said).into_owned()
}

/// All at once, because each of them takes its time.
#[tokio::test]
async fn that_are_slow_are_closed() {
    let house = House::build("").await;
    let (head, body) = (Duration::from_secs(5), Duration::from_secs(30));
    let silent = async { until_closed(&mut connect(&house).await, head).await };
    let request = post("content-length: 100000\r\n", "{");
    let (silent, _, slow) =
        tokio::join!(silent, drip(&house, "POST /v1", "x", head), drip(&house, &request, " ", body),);
    assert!(silent.is_empty() || silent.starts_with("HTTP/1.1 408"), "{silent}");
    if !slow.is_empty() {
        assert!(slow.starts_with("HTTP/1.1 408"), "{slow}");
        has_shape(&slow, Some("request_timeout"));
    }
    house.still_stands().await;
}

#[tokio::test]
async fn that_break_http_are_refused() {
    let house = House::build("").await;
    let body = valid().to_string();
    let length = format!("content-length: {}\r\n", body.len());
    let many = "x-header: x\r\n".repeat(200);
    let rows: Vec<(&str, String, &[u16])> = vec![
        ("200 headers", post(&format!("{length}{many}"), &body), &[431]),
        ("a header of 64 KiB", post(&format!("{length}x-long: {}\r\n", "x".repeat(64 << 10)), &body), &[431]),
        (
            "a path of 16 KiB",
            post(&length, &body).replacen(ENDPOINTS[0], &format!("/{}", "x".repeat(16 << 10)), 1),
            &[414],
        ),
        ("a length and chunks", post(&format!("{length}transfer-encoding: chunked\r\n"), "0\r\n\r\n"), &[400]),
        ("two lengths", post(&format!("{length}content-length: 1\r\n"), &body), &[400]),
        ("a bad chunk size", post("transfer-encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n"), &[400]),
        ("an endless extension", post("transfer-encoding: chunked\r\n", &format!("1;{}", "x".repeat(1 << 20))), &[400]),
        (
            "a path of 70 KiB",
            post(&length, &body).replacen(ENDPOINTS[0], &format!("/{}", "x".repeat(70 << 10)), 1),
            &[414],
        ),
        ("two hosts", post(&format!("{length}host: localhost\r\n"), &body), &[400]),
        ("no host's name", post(&length, &body).replacen("host: localhost", "host: a b/c@d", 1), &[400]),
        ("a length below zero", post("content-length: -1\r\n", &body), &[400]),
        ("gzip", post("transfer-encoding: gzip, chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), &[501]),
        ("chunks twice", post("transfer-encoding: chunked, chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), &[400]),
        ("no HTTP", "what is this\r\n\r\n".to_owned(), &[400]),
        ("no host", post(&length, &body).replacen("host: localhost\r\n", "", 1), &[400]),
        ("a NUL in the key", post(&format!("{length}authorization: Bearer a\0b\r\n"), &body), &[400, 401]),
    ];
    let mut complaints = Vec::new();
    for (row, bytes, allowed) in rows {
        let (status, said) = exchange(&house, bytes.as_bytes()).await;
        if allowed.contains(&status) {
            has_shape(&said, None);
        } else {
            complaints.push(format!("{row}: {said:.400}"));
        }
    }
    nothing_in(&complaints);
    house.still_stands().await;
}

/// A body is refused as soon as it is known to be too long, not once it was read.
#[tokio::test]
async fn that_send_too_much_are_refused() {
    let house = House::build("[server]\nmax_body = \"64KiB\"\ndrain_delay = \"0s\"\n").await;
    let (status, said) = exchange(&house, post("content-length: 10737418240\r\n", "{").as_bytes()).await;
    assert_eq!(status, 413, "{said}");
    has_shape(&said, Some("payload_too_large"));
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    let (status, said) = exchange(&house, post("transfer-encoding: chunked\r\n", &chunk.repeat(64)).as_bytes()).await;
    assert_eq!(status, 413, "{said}");
    has_shape(&said, Some("payload_too_large"));
    house.still_stands().await;
}

/// A page on the web can let a name of its own point to a server on its visitor's machine.
#[tokio::test]
async fn may_name_only_known_hosts_where_there_are_no_keys() {
    let house = House::build("[server]\ndrain_delay = \"0s\"\nhosts = [\"agents.internal\"]\n").await;
    for name in ["127.0.0.1:1", "localhost", "[::1]:8080", "agents.internal"] {
        let request = house.server.json(ENDPOINTS[0], &valid()).header("host", name);
        let answer = Answer::read(house.server.respond(request).await).await.ok();
        assert_eq!(answer["agent"]["status"], "completed", "{name}");
    }
    let spent = house.upstream.requests().len();
    for path in ["/v1/models", "/docs/", "/openapi.json"] {
        let request = house.server.request(reqwest::Method::GET, path).header("host", "evil.example");
        check(path, &house.server.send(request).await, &[(403, "host_not_allowed")]);
    }
    let request = house.server.json(ENDPOINTS[0], &valid()).header("host", "evil.example:8080");
    check("another name", &house.server.send(request).await, &[(403, "host_not_allowed")]);
    let probe = house.server.request(reqwest::Method::GET, "/healthz").header("host", "evil.example");
    house.server.send(probe).await.ok();
    // Needs no permission of the server's, as it has no body.
    let request = house.server.request(reqwest::Method::POST, "/v1/runs/run_x/cancel");
    let request = request.header("origin", "https://evil.example");
    check("another origin", &house.server.send(request).await, &[(403, "origin_not_allowed")]);
    assert_eq!(house.upstream.requests().len(), spent, "a refused request reached the upstream");
    house.still_answers().await;
}

/// Where there are keys, the name by which a server is called changes nothing.
#[tokio::test]
async fn may_name_any_host_where_there_are_keys() {
    let key = "a-key-that-is-long-enough-to-be-one";
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let config = format!("{}[keys.one]\nkey_env = \"ONE\"\n", upstream.config());
    let server = TestServer::builder(&config).env("ONE", key).start().await;
    for name in ["evil.example", "127.0.0.1:1", "localhost"] {
        let request = server.json(ENDPOINTS[0], &valid()).header("host", name).bearer_auth(key);
        let answer = server.send(request.header("origin", "https://evil.example")).await.ok();
        assert_eq!(answer["agent"]["status"], "completed", "{name}");
    }
}

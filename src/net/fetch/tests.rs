use std::net::SocketAddr;

use http::{HeaderValue, Method, StatusCode};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::net::guard::corpus::{ANSWERS, INSIDE, REFUSED};
use crate::net::guard::testing::{Canary, Script};
use crate::net::guard::{HostPattern, Policy};
use crate::net::testing::{Act, read_request, serve, serve_with};

/// The host under which the tests' own server is reached; it may be private.
const OURS: &str = "ours.test";

fn policy(ports: &[u16]) -> Policy {
    let ours: HostPattern = OURS.parse().unwrap();
    Policy { ports: [&[80, 443], ports].concat(), private_hosts: [ours].into_iter().collect(), ..Policy::default() }
}

fn script() -> Script {
    Script::default().answering(OURS, &[&["127.0.0.1"]])
}

fn fetcher(ports: &[u16], script: &Script) -> Fetcher {
    Fetcher::new(Guard::scripted(policy(ports), script)).unwrap()
}

fn get(url: &str) -> GuardedRequest {
    GuardedRequest::get(url.parse().unwrap())
}

async fn failure(fetcher: &Fetcher, request: GuardedRequest) -> FetchFailure {
    fetcher.fetch(request).await.unwrap_err().reason
}

fn answer(head: &str, body: &str) -> Act {
    let length = body.len();
    Act::from(format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"))
}

#[tokio::test]
async fn no_url_that_leads_inside_opens_a_connection() {
    let canary = Canary::start().await;
    let fetcher = fetcher(&[canary.port()], &script());
    let port = canary.port().to_string();
    for url in INSIDE.iter().chain(&REFUSED).map(|url| url.replace("PORT", &port)) {
        // What is no URL cannot be asked at all.
        let Ok(parsed) = Url::parse(&url) else { continue };
        let error = fetcher.fetch(GuardedRequest::get(parsed)).await.unwrap_err();
        assert!(matches!(error.reason, FetchFailure::Refused(_)) && !error.was_sent, "{url}: {error:?}");
    }
    canary.is_untouched().await;
}

/// Whatever the caller of the client forgot to check.
#[tokio::test]
async fn a_guarded_client_connects_nowhere_inside() {
    let canary = Canary::start().await;
    let guard = Guard::scripted(policy(&[canary.port()]), &script().answering("inside.test", &[&["127.0.0.1"]]));
    let client = HttpClient::new(&Reach { guard: Some(guard), ..Reach::default() }).unwrap();
    let port = canary.port();
    for url in INSIDE.map(|url| url.replace("PORT", &port.to_string())) {
        let Some(uri) = Url::parse(&url).ok().and_then(|url| same_uri(&url)) else { continue };
        let error = client.send(Request::get(uri).body(Bytes::new()).unwrap()).await.unwrap_err();
        assert!(error.refusal().is_some() && error.is_connect(), "{url}: {error:?}");
    }
    for url in [format!("http://inside.test:{port}/"), format!("https://inside.test:{port}/")] {
        let error = client.send(Request::get(&url).body(Bytes::new()).unwrap()).await.unwrap_err();
        assert_eq!(error.refusal(), Some(&Refusal::Private("inside.test".into())), "{url}");
    }
    canary.is_untouched().await;
}

#[tokio::test]
async fn no_name_that_leads_inside_opens_a_connection() {
    let canary = Canary::start().await;
    for answers in ANSWERS {
        let script = script().answering("a.test", &[answers]);
        let fetcher = fetcher(&[canary.port()], &script);
        for scheme in ["http", "https"] {
            let request = get(&format!("{scheme}://a.test:{}/", canary.port()));
            assert!(matches!(failure(&fetcher, request).await, FetchFailure::Refused(_)), "{answers:?}");
        }
    }
    canary.is_untouched().await;
}

/// A listener on one address of this machine, and a canary on another one with the same port.
async fn beside_a_canary() -> (TcpListener, Canary) {
    loop {
        let canary = Canary::at("127.0.0.1").await;
        if let Ok(listener) = TcpListener::bind(("127.0.0.2", canary.port())).await {
            return (listener, canary);
        }
    }
}

#[tokio::test]
async fn a_name_that_is_answered_otherwise_the_next_time_leads_nowhere_else() {
    let (listener, canary) = beside_a_canary().await;
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await;
        socket.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\nsafe").await.unwrap();
    });
    let script = Script::default().answering("rebinding.test", &[&["127.0.0.2"], &["127.0.0.1"]]);
    let allowed = vec!["127.0.0.2/32".parse().unwrap()];
    let guard = Guard::scripted(Policy { private_addresses: allowed, ..policy(&[canary.port()]) }, &script);
    let fetcher = Fetcher::new(guard).unwrap();
    let url = format!("http://rebinding.test:{}/", canary.port());
    let first = fetcher.fetch(get(&url)).await.unwrap();
    assert_eq!(first.body.whole().await.unwrap(), b"safe");
    assert_eq!(script.asked(), ["rebinding.test"], "it was checked and connected to by one answer");
    let refusal = Refusal::Private("rebinding.test".into());
    assert_eq!(failure(&fetcher, get(&url)).await, FetchFailure::Refused(refusal));
    canary.is_untouched().await;
}

#[tokio::test]
async fn no_redirect_leads_inside_wherever_it_stands_in_a_chain() {
    let canary = Canary::start().await;
    let inside = format!("inside.test:{}", canary.port());
    let targets = INSIDE.map(|url| url.replace("PORT", &canary.port().to_string()));
    let mut targets: Vec<String> =
        targets.into_iter().filter(|url| url.trim().is_ascii() && url.contains("://") && !url.contains('\n')).collect();
    targets.extend([format!("http://{inside}/"), format!("//{inside}/"), "file:///etc/passwd".into()]);
    let listed = targets.clone();
    // `/N/TARGET` redirects N times within the server, then to the target.
    let decide = move |request: String| {
        let path = request.split(' ').nth(1).unwrap().to_owned();
        let mut parts = path.trim_start_matches('/').split('/');
        let mut number = || parts.next().unwrap().parse::<usize>().unwrap();
        let (left, target) = (number(), number());
        let location = if left == 0 { listed[target].clone() } else { format!("/{}/{target}", left - 1) };
        answer(&format!("302 Found\r\nlocation: {location}"), "")
    };
    let (address, _serving) = serve_with(decide).await;
    let script = script().answering("inside.test", &[&["127.0.0.1"]]);
    let fetcher = fetcher(&[canary.port(), address.port()], &script);
    for (index, target) in targets.iter().enumerate() {
        for hops in [0, 2] {
            let request = get(&format!("http://{OURS}:{}/{hops}/{index}", address.port()));
            let failure = failure(&fetcher, request).await;
            assert!(matches!(failure, FetchFailure::Refused(_)), "{target} after {hops}: {failure:?}");
        }
    }
    let request = get(&format!("http://{OURS}:{}/9/0", address.port()));
    assert_eq!(failure(&fetcher, request).await, FetchFailure::TooManyRedirects);
    canary.is_untouched().await;
}

#[tokio::test]
async fn a_request_may_have_hosts_of_its_own_redirects_included() {
    let canary = Canary::start().await;
    let location = format!("302 Found\r\nlocation: http://other.test:{}/", canary.port());
    let (address, _serving) = serve_with(move |_| answer(&location, "")).await;
    let script = script().answering("other.test", &[&["93.184.216.34"]]);
    let fetcher = fetcher(&[canary.port(), address.port()], &script);
    let only: HostPattern = OURS.parse().unwrap();
    let request = GuardedRequest {
        only: Some([only].into_iter().collect()),
        ..get(&format!("http://{OURS}:{}/", address.port()))
    };
    let refusal = Refusal::Host("other.test".into());
    assert_eq!(failure(&fetcher, request).await, FetchFailure::Refused(refusal));
    assert_eq!(script.asked(), [OURS], "not even its address was asked for");
}

#[tokio::test]
async fn credentials_and_bodies_stay_with_the_server_they_are_for() {
    let (second, heard_there) = serve([vec![answer("200 OK", "there")]]).await;
    let location = format!("302 Found\r\nlocation: http://{OURS}:{}/there", second.port());
    let (first, heard_here) = serve([vec![answer(&location, "")]]).await;
    let fetcher = fetcher(&[first.port(), second.port()], &script());
    let mut request = get(&format!("http://{OURS}:{}/here", first.port()));
    request.credentials.insert("x-api-key", HeaderValue::from_static("s3cr3t"));
    request.headers.insert("x-mark", HeaderValue::from_static("told"));
    let response = fetcher.fetch(request).await.unwrap();
    assert_eq!(response.url.as_str(), format!("http://{OURS}:{}/there", second.port()));
    assert_eq!(response.body.whole().await.unwrap(), b"there");
    let (here, there) = (heard_here.await.unwrap().remove(0), heard_there.await.unwrap().remove(0));
    assert!(here.contains("x-api-key: s3cr3t") && here.contains("x-mark: told"), "{here}");
    assert!(!there.contains("s3cr3t") && there.contains("x-mark: told"), "{there}");
}

async fn fetched(act: Act, change: impl FnOnce(&mut GuardedRequest)) -> Result<(Vec<u8>, bool), FetchFailure> {
    let (address, _serving) = serve_with(move |_| act.clone()).await;
    let fetcher = fetcher(&[address.port()], &script());
    let mut request = get(&format!("http://{OURS}:{}/", address.port()));
    change(&mut request);
    let response = fetcher.fetch(request).await.map_err(|error| error.reason)?;
    response.body.up_to_cap().await.map_err(|error| error.reason)
}

#[tokio::test]
async fn an_answer_is_bounded_in_size_time_and_kind() {
    let endless = || Act::Repeat {
        first: "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n".into(),
        again: "x".repeat(1000),
        every: Duration::ZERO,
    };
    let (body, was_cut) = fetched(endless(), |request| request.limits.max_body = 2_500).await.unwrap();
    assert_eq!((body.len(), was_cut), (2_500, true));
    let (body, was_cut) = fetched(answer("200 OK", "12345"), |request| request.limits.max_body = 5).await.unwrap();
    assert_eq!((body.as_slice(), was_cut), (b"12345".as_slice(), false));
    let soon = Duration::from_millis(50);
    for silent in ["", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n12"] {
        let slow = fetched(Act::Stall(silent.into()), |request| request.limits.timeout = soon).await;
        assert_eq!(slow, Err(FetchFailure::Timeout(soon)), "{silent:?}");
    }
    let zipped = fetched(answer("200 OK\r\ncontent-encoding: gzip", "\u{1f}"), |_| {}).await;
    assert_eq!(zipped, Err(FetchFailure::Compressed("gzip".into())));
    let html = |request: &mut GuardedRequest| request.limits.content_types = Some(&["text/*", "+json"]);
    let image = fetched(answer("200 OK\r\ncontent-type: Image/PNG; x=y", "x"), html).await;
    assert_eq!(image, Err(FetchFailure::ContentType("image/png".into())));
    for wanted in ["text/html; charset=utf-8", "application/problem+json"] {
        assert!(fetched(answer(&format!("200 OK\r\ncontent-type: {wanted}"), "x"), html).await.is_ok(), "{wanted}");
    }
    assert!(fetched(answer("404 Not Found\r\ncontent-type: image/png", "x"), html).await.is_ok());
    let long = fetched(answer(&format!("200 OK\r\nx-long: {}", "x".repeat(100_000)), ""), |_| {}).await;
    assert_eq!(long, Err(FetchFailure::BrokeOff));
}

#[tokio::test]
async fn whether_a_server_may_have_acted_is_known() {
    let moved = "303 See Other\r\nlocation: http://10.0.0.1/";
    let (address, _serving) = serve_with(move |_| answer(moved, "")).await;
    let fetcher = fetcher(&[address.port()], &script());
    let url = format!("http://{OURS}:{}/", address.port());
    let post = GuardedRequest { method: Method::POST, body: "x".into(), ..get(&url) };
    assert!(fetcher.fetch(post).await.unwrap_err().was_sent, "it was posted before it was redirected");
    assert!(!fetcher.fetch(get(&url)).await.unwrap_err().was_sent);
    let gone: SocketAddr = crate::net::testing::nowhere().await;
    let fetcher = self::fetcher(&[gone.port()], &script());
    let error = fetcher.fetch(get(&format!("http://{OURS}:{}/", gone.port()))).await.unwrap_err();
    assert_eq!((error.reason, error.was_sent), (FetchFailure::Unreachable, false));
}

/// A proxy that notes what it is asked, and refuses.
async fn through_a_proxy(proxy_resolves: bool, urls: &[&str]) -> (Vec<FetchFailure>, Vec<String>) {
    let refusal = "HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let heard = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let noted = heard.clone();
    let (address, _serving) = serve_with(move |request| {
        noted.lock().push(request.lines().next().unwrap().to_owned());
        Act::from(refusal)
    })
    .await;
    let proxy = crate::net::client::Proxy::new(&format!("http://{address}").parse().unwrap(), None);
    let script = script().answering("out.test", &[&["93.184.216.34"]]).answering("in.test", &[&["10.0.0.1"]]);
    let guard = Guard::scripted(Policy { proxy, proxy_resolves, ..policy(&[]) }, &script);
    let fetcher = Fetcher::new(guard).unwrap();
    let mut failures = Vec::new();
    for url in urls {
        match fetcher.fetch(get(url)).await {
            Ok(response) => assert_eq!(response.status, StatusCode::FORBIDDEN),
            Err(error) => failures.push(error.reason),
        }
    }
    let heard = heard.lock().clone();
    (failures, heard)
}

#[tokio::test]
async fn a_proxy_is_asked_for_checked_addresses_alone() {
    let urls = ["http://out.test/a", "https://out.test/b", "http://in.test/", "https://in.test/", "http://10.0.0.1/"];
    let (failures, heard) = through_a_proxy(false, &urls).await;
    assert_eq!(heard, ["CONNECT 93.184.216.34:80 HTTP/1.1", "CONNECT 93.184.216.34:443 HTTP/1.1"]);
    let private = |host: &str| FetchFailure::Refused(Refusal::Private(host.into()));
    assert_eq!(failures[2..], [private("in.test"), private("in.test"), private("10.0.0.1")]);
    // One that resolves names is asked for what looks public.
    let (failures, heard) = through_a_proxy(true, &["http://in.test/a", "http://10.0.0.1/", "http://intranet/"]).await;
    assert_eq!(heard, ["GET http://in.test/a HTTP/1.1"]);
    assert_eq!(failures, [private("10.0.0.1"), private("intranet")]);
}

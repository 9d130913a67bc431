use http::Method;

use super::*;
use crate::net::testing::serve;

fn get(url: &str) -> Request<Bytes> {
    let mut request = Request::get(url).method(Method::GET).body(Bytes::new()).unwrap();
    *request.headers_mut() = common_headers();
    request
}

async fn text(mut response: Response) -> String {
    let mut text = Vec::new();
    while let Some(chunk) = response.body.chunk().await.unwrap() {
        text.extend_from_slice(&chunk);
    }
    String::from_utf8(text).unwrap()
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let (address, heads) =
        serve(vec![vec![OK, "HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n"]]).await;
    let client = HttpClient::new(&Reach::default()).unwrap();
    let first = client.send(get(&format!("http://{address}/a?b=c"))).await.unwrap();
    assert_eq!((first.status, text(first).await.as_str()), (StatusCode::OK, "hi"));
    let second = client.send(get(&format!("http://{address}/"))).await.unwrap();
    assert_eq!(second.status, StatusCode::FOUND, "a redirect is an answer like any other");
    let heads = heads.await.unwrap();
    assert!(heads[0].starts_with("GET /a?b=c HTTP/1.1\r\n"), "{}", heads[0]);
    for line in [&format!("host: {address}"), "accept: */*", "accept-encoding: identity", "user-agent: loopgate/"] {
        assert!(heads[0].contains(&format!("\r\n{line}")), "{line} in {}", heads[0]);
    }
}

#[tokio::test]
async fn an_answer_that_never_came_is_told_from_one_that_broke_off() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
    let (address, heads) = serve(vec![vec![""], vec![half]]).await;
    let client = HttpClient::new(&Reach::default()).unwrap();
    let unanswered = client.send(get(&format!("http://{address}/"))).await.unwrap_err();
    assert!(!unanswered.is_connect() && !unanswered.is_connect_timeout(), "{unanswered:?}");
    assert_eq!(unanswered.to_string(), "connection closed before message completed");
    let mut broken = client.send(get(&format!("http://{address}/"))).await.unwrap().body;
    assert_eq!(broken.chunk().await.unwrap().unwrap(), "half");
    broken.chunk().await.unwrap_err();
    assert_eq!(heads.await.unwrap().len(), 2, "nothing was asked twice");
    let gone = client.send(get(&format!("http://{address}/"))).await.unwrap_err();
    assert!(gone.to_string().contains("refused") && !gone.is_closed(), "{gone:?}");
}

/// Here and in the HTTP library, which speaks to servers behind a proxy.
#[tokio::test]
async fn only_a_connection_that_was_kept_is_told_to_have_been_closed_meanwhile() {
    for is_proxied in [false, true] {
        let (address, heads) = serve(vec![vec![""], vec![OK, ""]]).await;
        let proxy = is_proxied.then(|| Matcher::builder().all(format!("http://{address}")).build());
        let client = HttpClient::through(proxy, &Reach::default()).unwrap();
        let url = format!("http://{address}/");
        let unanswered = client.send(get(&url)).await.unwrap_err();
        assert!(!unanswered.is_closed(), "{unanswered:?}");
        assert_eq!(text(client.send(get(&url)).await.unwrap()).await, "hi");
        let closed = client.send(get(&url)).await.unwrap_err();
        assert!(closed.is_closed(), "{closed:?}");
        assert_eq!(closed.to_string(), unanswered.to_string());
        assert_eq!(heads.await.unwrap().len(), 3, "{is_proxied}");
    }
    // An answer that had begun is no idle connection.
    let (address, _heads) = serve(vec![vec![OK, "HTTP/1.1 200 OK\r\nx"]]).await;
    let client = HttpClient::new(&Reach::default()).unwrap();
    assert_eq!(text(client.send(get(&format!("http://{address}/"))).await.unwrap()).await, "hi");
    let broken = client.send(get(&format!("http://{address}/"))).await.unwrap_err();
    assert!(!broken.is_closed(), "{broken:?}");
}

#[tokio::test]
async fn what_a_kept_connection_took_before_it_broke_is_not_sent_again() {
    // The server may have done what it was asked, so whether that may be repeated is for the caller to know.
    let (address, heads) = serve(vec![vec![OK, ""], vec![OK]]).await;
    let client = HttpClient::new(&Reach::default()).unwrap();
    assert_eq!(text(client.send(get(&format!("http://{address}/one"))).await.unwrap()).await, "hi");
    let closed = client.send(get(&format!("http://{address}/two"))).await.unwrap_err();
    assert!(closed.is_closed(), "{closed:?}");
    assert_eq!(text(client.send(get(&format!("http://{address}/three"))).await.unwrap()).await, "hi");
    let heads = heads.await.unwrap();
    let asked: Vec<_> = heads.iter().map(|head| head.split(' ').nth(1).unwrap()).collect();
    assert_eq!(asked, ["/one", "/two", "/three"]);
}

#[tokio::test]
async fn connecting_takes_no_longer_than_it_may() {
    // Nobody accepts TLS here, so connecting ends with its time alone.
    let (address, _heads) = serve(vec![vec![OK]]).await;
    let client =
        HttpClient::new(&Reach { connect_timeout: Some(Duration::from_millis(50)), ..Reach::default() }).unwrap();
    let request = client.send(get(&format!("https://{address}/")));
    // Far more than it may take, on a machine that is busy as well.
    let error = tokio::time::timeout(Duration::from_secs(20), request).await.unwrap().unwrap_err();
    assert!(error.is_connect_timeout(), "{error:?}");
}

#[tokio::test]
async fn a_proxy_passes_plain_requests_on_and_tunnels_others() {
    let refusal = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
    let (proxy, heads) = serve(vec![vec![OK, OK], vec![refusal], vec![refusal]]).await;
    let matcher = || Matcher::builder().all(format!("http://ann:secret@{proxy}")).no("excepted.test").build();
    let client = HttpClient::through(Some(matcher()), &Reach::default()).unwrap();
    for path in ["one", "two"] {
        let answer = client.send(get(&format!("http://models.test/{path}"))).await.unwrap();
        assert_eq!(text(answer).await, "hi");
    }
    let refused = client.send(get("https://models.test/three")).await.unwrap_err();
    assert!(refused.to_string().contains("tunnel"), "{refused:?}");
    let http2 = HttpClient::through(Some(matcher()), &Reach { http2_only: true, ..Reach::default() }).unwrap();
    let refused = http2.send(get("http://collector.test:4317/four")).await.unwrap_err();
    assert!(refused.to_string().contains("tunnel"), "a proxy passes no HTTP/2 on: {refused:?}");
    let excepted = client.send(get("http://excepted.test:1/")).await.unwrap_err();
    assert!(!excepted.to_string().contains("tunnel"), "{excepted:?}");
    let heads = heads.await.unwrap();
    let authorization = "proxy-authorization: basic yw5uonnly3jlda==";
    for (head, line) in heads.iter().zip([
        "get http://models.test/one http/1.1\r\n",
        "get http://models.test/two http/1.1\r\n",
        "connect models.test:443 http/1.1\r\n",
        "connect collector.test:4317 http/1.1\r\n",
    ]) {
        let head = head.to_lowercase();
        assert!(head.starts_with(line) && head.contains(authorization), "{head}");
    }
}

//! Tokens of an authorization server, that are refused, replaced, and waited for in vain.

use super::*;

/// An authorization server that gives the tokens `t1`, `t2`, …, each good for `lasts` seconds, and what it was asked.
struct Issuer {
    url: url::Url,
    asked: Arc<parking_lot::Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Issuer {
    async fn start(lasts: &'static str, answer: impl Fn(usize) -> Option<String> + Send + Sync + 'static) -> Self {
        let asked: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
        let (heard, given) = (asked.clone(), AtomicUsize::new(0));
        let (address, tasks) = serve_with(move |request| {
            let host = request.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned();
            let body = if request.starts_with("GET /.well-known/oauth-authorization-server") {
                json!({"issuer": format!("http://{host}"), "token_endpoint": format!("http://{host}/token")})
                    .to_string()
            } else if request.starts_with("POST /token") {
                heard.lock().push(request);
                let number = given.fetch_add(1, Ordering::Relaxed) + 1;
                match answer(number) {
                    Some(nothing) if nothing.is_empty() => return Act::Stall(nothing),
                    Some(refusal) => return Act::from(refusal),
                    None => format!(r#"{{"access_token":"t{number}","token_type":"Bearer"{lasts}}}"#),
                }
            } else {
                return Act::from("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            };
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ";
            Act::from(format!("{head}{}\r\n\r\n{body}", body.len()))
        })
        .await;
        Self { url: format!("http://{address}").parse().unwrap(), asked, _tasks: tasks }
    }

    fn config(&self, grant: Grant) -> OAuthConfig {
        OAuthConfig {
            issuer: Some(self.url.clone()),
            token_url: None,
            client_id: "loopgate".into(),
            client_secret: Some(Secret::new("hush")),
            client_auth: ClientAuth::Auto,
            grant,
            scope: Some("tools".into()),
            resource: None,
        }
    }

    fn access(&self) -> McpAccess {
        McpAccess { oauth: Some(self.config(Grant::ClientCredentials)), ..McpAccess::default() }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

#[tokio::test]
async fn a_token_is_asked_for_once_and_again_once_the_server_refuses_it() {
    let issuer = Issuer::start(r#","expires_in":3600"#, |_| None).await;
    let house = House::start(&["Bearer t1"], &["--issuer", issuer.url.as_str()]).await;
    let (_servers, server) = tried(&house.config(None, issuer.access())).await;
    let calls = (0..8).map(|_| call_in(&server, echo().0, echo().1, context(SOON)));
    assert!(join_all(calls).await.iter().all(|outcome| outcome.text() == "hello"));
    let asked = issuer.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let resource: String =
        url::form_urlencoded::byte_serialize(house.listening.config("/mcp").url().unwrap().as_str().as_bytes())
            .collect();
    assert!(asked[0].ends_with(&format!("grant_type=client_credentials&resource={resource}&scope=tools")), "{asked:?}");
    assert!(asked[0].contains("authorization: Basic bG9vcGdhdGU6aHVzaA=="), "{asked:?}");
    std::fs::write(house.taken.path(), "Bearer t2").unwrap();
    let calls = (0..8).map(|_| call_in(&server, echo().0, echo().1, context(SOON)));
    assert!(join_all(calls).await.iter().all(|outcome| outcome.text() == "hello"));
    assert_eq!(issuer.asked().len(), 2, "one call asks for all");
    std::fs::write(house.taken.path(), "").unwrap();
    let refused = call_in(&server, echo().0, echo().1, context(SOON)).await;
    assert!(refused.is_error && refused.text().contains("HTTP 401"), "{refused:?}");
    for _ in 0..3 {
        call_in(&server, echo().0, echo().1, context(SOON)).await;
    }
    assert_eq!(issuer.asked().len(), 2, "where the next one is refused too, none is asked for with each call");
}

#[tokio::test]
async fn tokens_that_a_server_quotes_are_told_to_no_model_and_no_log() {
    let token = |number| {
        let body = format!(
            r#"{{"access_token":"secret-token-{number}","token_type":"Bearer","expires_in":9223372036854775807}}"#
        );
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ";
        Some(format!("{head}{}\r\n\r\n{body}", body.len()))
    };
    let issuer = Issuer::start("", token).await;
    let house = House::start(&["Bearer secret-token-1"], &["--quoted", "secret-token-1"]).await;
    let (_servers, server) = tried(&house.config(None, issuer.access())).await;
    let answer = call_in(&server, "test__quote", json!({}), context(SOON)).await;
    assert_eq!(answer.text(), "with ***");
    assert_eq!(call_in(&server, "test__echo", json!({"text": "hush"}), context(SOON)).await.text(), "***");
}

/// Lets so much time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_token_is_replaced_before_its_end() {
    let issuer = Issuer::start(r#","expires_in":1"#, |_| None).await;
    let house = House::start(&["Bearer t1", "Bearer t2", "Bearer t3", "Bearer t4"], &[]).await;
    let (_servers, server) = tried(&house.config(None, issuer.access())).await;
    pass(Duration::from_millis(1_100)).await;
    assert_eq!(call_in(&server, echo().0, echo().1, context(SOON)).await.text(), "hello");
    assert_eq!(issuer.asked().len(), 1, "none counts for less than five seconds");
    pass(Duration::from_millis(3_500)).await;
    assert_eq!(call_in(&server, echo().0, echo().1, context(SOON)).await.text(), "hello");
    assert!(issuer.asked().len() >= 2);
    assert!(house.told().iter().all(|message| message.get("refused").is_none() || message["refused"] == ""));
}

#[tokio::test]
async fn a_call_that_waits_for_a_token_in_vain_was_never_sent() {
    let issuer = Issuer::start(r#","expires_in":1"#, |number| (number > 1).then(String::new)).await;
    let house = House::start(&["Bearer t1"], &[]).await;
    let (_servers, server) = tried(&house.config(None, issuer.access())).await;
    pass(Duration::from_millis(4_600)).await;
    let outcome = call_in(&server, echo().0, echo().1, context(Duration::from_secs(1))).await;
    assert_eq!(outcome.ending, CallEnding::Answered, "its outcome is known: {outcome:?}");
    let words = "The MCP server `test` cannot be used: no token for it was had in time. Nothing was sent.";
    assert_eq!((outcome.is_error, &*outcome.text()), (true, words));
    assert_eq!(house.calls(), []);
}

#[tokio::test]
async fn tokens_whose_refresh_token_was_replaced_are_kept_however_many_accounts_there_are() {
    let issuer = Issuer::start(r#","refresh_token":"next","expires_in":3600"#, |_| None).await;
    let (sessions, clients) = (Sessions::default(), McpClients::new(&Policy::default()).unwrap());
    let oauth =
        OAuthConfig { token_url: Some(issuer.url.join("token").unwrap()), ..issuer.config(Grant::RefreshToken(None)) };
    let of = async |tenant: &str| {
        let credentials = CallerCredentials {
            tenants: vec![(Tenant::parse(tenant).unwrap(), Secret::new("refresh"))],
            ..House::nowhere()
        };
        let (account, secret) = account(&credentials, &caller(tenant, None)).await.unwrap().unwrap();
        let make = || {
            let (web, tasks) = (clients.auth_web([&issuer.url]), tokio_util::task::TaskTracker::new());
            Tokens::new(&oauth, &issuer.url, web, tasks, Some(secret.clone()))
        };
        sessions.tokens(&account, &secret, make)
    };
    let (replaced, other) = (of("replaced").await, of("other").await);
    replaced.current().await.unwrap();
    for number in 0..10_000 {
        of(&format!("t{number}")).await;
    }
    assert!(Arc::ptr_eq(&replaced, &of("replaced").await), "the refresh token that counts is known here alone");
    assert!(!Arc::ptr_eq(&other, &of("other").await));
}

#[tokio::test]
async fn each_tenant_goes_on_with_its_own_refresh_token_which_may_be_replaced() {
    let issuer = Issuer::start(r#","refresh_token":"next","expires_in":3600"#, |_| None).await;
    let house = House::start(&["Bearer own", "Bearer t1", "Bearer t2", "Bearer t3"], &[]).await;
    house.put("acme", "refresh-a");
    house.put("other", "refresh-b");
    let oauth = Some(issuer.config(Grant::RefreshToken(None)));
    let access = McpAccess { credentials: Some(house.files("{tenant}")), oauth, ..McpAccess::default() };
    let (_servers, server) = tried(&house.config(Some("Bearer own"), access)).await;
    for tenant in ["acme", "other", "acme"] {
        assert_eq!(call_in(&server, echo().0, echo().1, caller(tenant, None)).await.text(), "hello");
    }
    let shown: Vec<String> = house.calls().into_iter().map(|(shown, _)| shown).collect();
    assert_eq!(shown, ["Bearer t1", "Bearer t2", "Bearer t1"]);
    std::fs::write(house.taken.path(), "Bearer own\nBearer t3").unwrap();
    call_in(&server, echo().0, echo().1, caller("acme", None)).await;
    let asked = issuer.asked();
    let tokens: Vec<bool> = ["refresh-a", "refresh-b", "next"]
        .iter()
        .zip(&asked)
        .map(|(token, asked)| asked.contains(&format!("grant_type=refresh_token&refresh_token={token}&")))
        .collect();
    assert_eq!((tokens, asked.len()), (vec![true; 3], 3), "{asked:?}");
}

#[tokio::test]
async fn what_is_wrong_with_tokens_is_told_without_secrets() {
    let refusing = || {
        let body = r#"{"error":"invalid_client","error_description":"hush is wrong"}"#;
        Some(format!("HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
    };
    let issuer = Issuer::start("", move |_| refusing()).await;
    let house = House::start(&[], &["--issuer", issuer.url.as_str()]).await;
    let trouble = |access: McpAccess, house: &House| {
        let config = house.config(None, access);
        async move {
            let (servers, server) = tried(&config).await;
            let trouble = server.trouble().expect("it cannot be used");
            servers.close().await;
            trouble
        }
    };
    let refused = trouble(issuer.access(), &house).await;
    assert_eq!(refused, "no token for it can be had: its authorization server answered HTTP 401: invalid_client");
    let with = |change: fn(&mut OAuthConfig)| {
        let mut access = issuer.access();
        access.oauth.as_mut().map(change);
        access
    };
    let unnamed = trouble(with(|oauth| oauth.issuer = None), &house).await;
    assert!(unnamed.contains("if its secret may go there, write it as `issuer`"), "{unnamed}");
    assert_eq!(issuer.asked().len(), 1, "the secret went nowhere else");
    let elsewhere = House::start(&[], &["--issuer", "http://127.0.0.1:9/other"]).await;
    let other = trouble(issuer.access(), &elsewhere).await;
    assert!(other.ends_with("its metadata name another authorization server than `issuer`"), "{other}");
    let stranger = with(|oauth| oauth.issuer = Some("http://127.0.0.1:9/".parse().unwrap()));
    let plain = House::start(&[], &[]).await;
    let gone = trouble(stranger, &plain).await;
    assert!(gone.contains("has no metadata that can be read; write its `token_url`"), "{gone}");
}

//! How long tokens hold: on open streams, over replicas, and when their key or the secret is another one.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use super::{AGENT, KEYS, SECRET, config, get, in_session, is, post, run_of, says, send, start, token, with};
use crate::support::redis::RedisServer;
use crate::support::sse::SseReader;
use crate::support::{Answer, Gate, Reply, TestServer, Upstream, within};

/// How soon a revocation counts everywhere.
const SOON: Duration = Duration::from_secs(5);

/// A stream of a run's events with a token in its address.
async fn stream(server: &TestServer, run: &str, token: &str) -> reqwest::Response {
    let client = reqwest::Client::builder().no_proxy().build().expect("the defaults are valid");
    let url = format!("{}/v1/runs/{run}/events?token={token}", server.url());
    within("an answer", client.get(url).send()).await.expect("the server answers")
}

#[tokio::test]
async fn a_token_in_the_address_of_a_stream_steers_clear_of_the_log() {
    let gate = Gate::new();
    let held = Reply::stream().text("Half ").gate(&gate).text("whole.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held, Reply::says("Steered.")]).await;
    let server = start(&config(&upstream), None).await;
    let (token, id) = token(&server, &in_session("mine", &["follow", "start", "steer"])).await;
    let begun = post(&server, &token, AGENT, &with(says("Hi"), &json!({"agent": {"background": true}}))).await;
    assert_eq!(begun.status, 202, "{}", begun.body);
    let run = begun.body["id"].as_str().expect("it has an id").to_owned();
    let mut events = SseReader::new(stream(&server, &run, &token).await);
    within("half of the text", events.until(|frame| frame.data.contains("Half"))).await;
    for role in ["system", "developer"] {
        let instructing = json!({"messages": [{"role": role, "content": "Obey."}]});
        let refused = post(&server, &token, &format!("/v1/runs/{run}/messages"), &instructing).await;
        is(&refused, 403, "forbidden");
    }
    let steering = json!({"messages": says("More")["messages"]});
    let steered = post(&server, &token, &format!("/v1/runs/{run}/messages"), &steering).await;
    assert_eq!(steered.status, 202, "{}", steered.body);
    gate.open();
    let rest = within("the end", events.rest()).await;
    assert!(rest.iter().any(|frame| frame.data.contains("Steered.")), "{rest:?}");

    // Elsewhere in an address it is nothing, and a key never is anything there.
    let client = reqwest::Client::builder().no_proxy().build().expect("the defaults are valid");
    for (path, shown) in [
        (format!("/v1/runs/{run}"), token.as_str()),
        (format!("/v1/runs/{run}/events?stream=false"), &token),
        (format!("/v1/runs/{run}/events"), "WEB"),
        (format!("/v1/runs/{run}/events"), "lgt_nonsense"),
    ] {
        let sign = if path.contains('?') { '&' } else { '?' };
        let request = client.get(format!("{}{path}{sign}token={shown}", server.url()));
        let refused = Answer::read(within("an answer", request.send()).await.expect("the server answers")).await;
        is(&refused, 401, "invalid_token");
        assert!(!refused.body.to_string().contains(shown), "{}", refused.body);
    }
    // A path that is none, which errors and the log name.
    let nowhere = client.get(format!("{}/v1/nowhere?token={token}", server.url())).send().await.expect("it answers");
    let said = nowhere.text().await.expect("it is text");
    assert!(!said.contains(&token), "{said}");
    let line = server.logged(&id).await;
    assert!(line.contains("\"key\":\"web\""), "the log has the key and the token's id: {line}");
    let (_, signature) = token.split_once('.').expect("it has a signature");
    assert!(!server.output().contains(&token) && !server.output().contains(signature), "{}", server.output());
    let trace = get(&server, "WEB", &format!("/v1/runs/{run}/trace")).await;
    assert!(!trace.body.to_string().contains(signature), "{}", trace.body);
}

#[tokio::test]
async fn a_token_that_is_given_here_is_good_there_and_void_there_within_its_time() {
    let redis = RedisServer::start().await;
    let gate = Gate::new();
    let held = Reply::stream().text("Half ").gate(&gate).text("whole.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held]).await;
    let config = config(&upstream);
    let (one, two) = (start(&config, Some(&redis)).await, start(&config, Some(&redis)).await);
    let may = &["follow", "start", "steer"];
    let (first, id) = token(&one, &in_session("mine", may)).await;
    let (second, _) = token(&one, &in_session("mine", may)).await;
    let begun = post(&two, &first, AGENT, &with(says("Hi"), &json!({"agent": {"background": true}}))).await;
    assert_eq!(begun.status, 202, "{}", begun.body);
    let run = begun.body["id"].as_str().expect("it has an id").to_owned();
    let path = format!("/v1/runs/{run}");
    for (server, token) in [(&one, &first), (&two, &first), (&one, &second), (&two, &second)] {
        assert_eq!(get(server, token, &path).await.status, 200);
    }
    let open = SseReader::new(stream(&two, &run, &first).await);

    // One of them.
    let revoked = send(&one, "WEB", Method::DELETE, &format!("/v1/tokens/{id}"), None).await.ok();
    assert_eq!(revoked, json!({"id": id, "object": "token", "deleted": true}));
    let since = Instant::now();
    is(&get(&one, &first, &path).await, 401, "token_revoked");
    // The stream ends in its middle, without its last frame.
    let frames = within("the stream's end", open.until_cut()).await;
    assert!(since.elapsed() <= SOON && frames.iter().all(|frame| frame.data != "[DONE]"), "{frames:?}");
    is(&get(&two, &first, &path).await, 401, "token_revoked");
    for server in [&one, &two] {
        assert_eq!(get(server, &second, &path).await.status, 200);
    }
    // Another key revokes nothing of it.
    send(&one, "READER", Method::DELETE, "/v1/tokens", None).await.ok();
    assert_eq!(get(&one, &second, &path).await.status, 200);

    // All of them until now.
    send(&two, "WEB", Method::DELETE, "/v1/tokens", None).await.ok();
    let since = Instant::now();
    is(&get(&two, &second, &path).await, 401, "token_revoked");
    let refused = async {
        while get(&one, &second, &path).await.status == 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the refusal", refused).await;
    assert!(since.elapsed() <= SOON, "{:?}", since.elapsed());
    let (third, _) = token(&one, &in_session("mine", may)).await;
    for server in [&one, &two] {
        assert_eq!(get(server, &third, &path).await.status, 200, "what is given after is good");
    }
    gate.open();
}

#[tokio::test]
async fn a_token_expires_and_is_void_when_its_key_is_another_one() {
    let gate = Gate::new();
    let held = Reply::stream().text("Half ").gate(&gate).text("whole.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held]).await;
    let config = config(&upstream);
    let server = start(&config, None).await;
    let brief = with(in_session("mine", &["follow", "start"]), &json!({"ttl_s": 3}));
    let body = with(says("Hi"), &json!({"agent": {"background": true, "session_id": "mine"}}));
    let begun = post(&server, "WEB", AGENT, &body).await;
    let run = begun.body["id"].as_str().expect("it has an id").to_owned();
    let (long, _) = token(&server, &in_session("mine", &["follow"])).await;
    let (short, _) = token(&server, &brief).await;
    // It ends the stream that it opened.
    let open = SseReader::new(stream(&server, &run, &short).await);
    let frames = within("the stream's end", open.until_cut()).await;
    assert!(frames.iter().all(|frame| frame.data != "[DONE]"), "{frames:?}");
    let path = format!("/v1/runs/{run}");
    is(&get(&server, &short, &path).await, 401, "token_expired");
    assert_eq!(get(&server, &long, &path).await.status, 200);

    for (from, to) in
        [("key_env = \"WEB\"", "key_env = \"OTHER\""), ("[keys.web]", "[keys.renamed]"), ("tenant = \"acme\"", "")]
    {
        let other = if to.contains("OTHER") {
            config.replacen("[keys.other]\n    key_env = \"OTHER\"", "", 1)
        } else {
            config.clone()
        };
        server.reload(&other.replacen(from, to, 1)).await;
        is(&get(&server, &long, &path).await, 401, "invalid_token");
        server.reload(&config).await;
        assert_eq!(get(&server, &long, &path).await.status, 200, "the key is what it was");
    }
    // A key that is gone takes the streams of its tokens along, and so does one that may do less.
    let key = "[keys.web]\n    tenant = \"acme\"\n    key_env = \"WEB\"";
    let less = |bound: &str| config.replacen(key, &format!("{key}\n    {bound}"), 1);
    let without = config.replacen(key, "", 1);
    for changed in [less("scopes = [\"run\", \"steer\"]"), less("agents = [\"clerk\"]"), without] {
        let open = SseReader::new(stream(&server, &run, &long).await);
        assert_ne!(changed, config);
        server.reload(&changed).await;
        let frames = within("the stream's end", open.until_cut()).await;
        assert!(frames.iter().all(|frame| frame.data != "[DONE]"), "{frames:?}");
        server.reload(&config).await;
    }
    gate.open();
}

#[tokio::test]
async fn the_secret_is_replaced_without_a_break() {
    let gate = Gate::new();
    let held = Reply::stream().text("Half ").gate(&gate).text("whole.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([Reply::says("Yes."), held]).await;
    let keys = KEYS.replacen("secret_env = \"TOKEN_SECRET\"", "secret_file = \"SECRET\"", 1);
    let config = [&upstream.config(), keys.as_str()].concat();
    let builder = TestServer::builder(&config).file("SECRET", SECRET);
    let server = ["WEB", "READER", "OTHER"].iter().fold(builder, |builder, key| builder.env(key, key)).start().await;
    let run = run_of(&server, "mine").await;
    let (old, _) = token(&server, &in_session("mine", &["follow"])).await;
    server.write("SECRET", "another-secret-of-more-than-32-characters");
    server.write("PREVIOUS", SECRET);
    let both = config.replacen(
        "secret_file = \"SECRET\"",
        "secret_file = \"SECRET\"\n    previous_secret_file = \"PREVIOUS\"",
        1,
    );
    let logged = server.reload(&both).await;
    assert!(!logged.contains(SECRET), "{logged}");
    let (new, _) = token(&server, &in_session("mine", &["follow"])).await;
    let path = format!("/v1/runs/{run}");
    for token in [&old, &new] {
        assert_eq!(get(&server, token, &path).await.status, 200);
    }
    // Once the old one is gone, streams of what it signed are as well.
    let body = with(says("Hi"), &json!({"agent": {"background": true}}));
    let begun = post(&server, "WEB", AGENT, &body).await;
    let live = begun.body["id"].as_str().expect("it has an id").to_owned();
    let asked = json!({"run_id": live, "may": ["follow"]});
    server.write("SECRET", SECRET);
    server.reload(&config).await;
    let (of_run, _) = token(&server, &asked).await;
    let open = SseReader::new(stream(&server, &live, &of_run).await);
    server.write("SECRET", "another-secret-of-more-than-32-characters");
    server.reload(&config).await;
    let frames = within("the stream's end", open.until_cut()).await;
    assert!(frames.iter().all(|frame| frame.data != "[DONE]"), "{frames:?}");
    gate.open();
    is(&get(&server, &old, &path).await, 401, "invalid_token");
    assert_eq!(get(&server, &new, &path).await.status, 200);
}

//! An agent's model fails in every way that a real one has, and another upstream answers.

use serde_json::{Value, json};

use crate::support::{Frame, Reply, SseReader, TestServer, Upstream};

const DOORS: [&str; 2] = ["/v1/agent/completions", "/v1/chat/completions"];

fn ask(stream: bool) -> Value {
    json!({"model": "first/test", "stream": stream, "messages": [{"role": "user", "content": "Hi"}]})
}

/// The declarations of two upstreams, the second of which stands in for the first.
fn declared(first: &Upstream, spare: &Upstream) -> String {
    let named = |upstream: &Upstream, name: &str| upstream.config().replace("scripted", name);
    format!(
        "{}{}[models.\"first/test\"]\nfallbacks = [\"spare/test\"]\n\
         [models.\"first/test\".price]\ninput = 1.0\noutput = 1.0\n[models.\"spare/test\".price]\ninput = 10.0\noutput = 10.0\n",
        named(first, "first"),
        named(spare, "spare")
    )
}

/// A server whose first upstream always replies this, and how often it was asked for a run that the second one answered.
async fn answered_by_the_spare(reply: Reply) -> usize {
    let (first, spare) = (Upstream::start([]).await, Upstream::start([Reply::says("Hello")]).await);
    first.otherwise(reply);
    let server = TestServer::start(&declared(&first, &spare)).await;
    let frames = server.stream(DOORS[0], &ask(true)).await.rest().await;
    assert_eq!(frames.iter().filter_map(Frame::text).filter(|text| *text == "Hello").count(), 1, "{frames:?}");
    let told = frames.iter().find(|frame| frame.name == "provider.fallback").expect("it is told").json();
    assert_eq!((&told["upstream"], &told["model"], &told["attempt"]), (&json!("spare"), &json!("test"), &json!(1)));
    assert_eq!((&told["from_upstream"], &told["from_model"]), (&json!("first"), &json!("test")));
    assert!(told["cause"].as_str().is_some_and(|cause| cause.contains("upstream first")), "{told}");
    assert_eq!(spare.requests().len(), 1);
    server.logged("the run goes on with another model").await;
    first.requests().len()
}

#[tokio::test]
async fn what_an_upstream_refuses_at_once_is_asked_of_the_next_at_once() {
    let lasting = Reply::error(429, "busy", "later").header("retry-after", "20");
    let unpaid = Reply::error(429, "insufficient_quota", "pay");
    let web_page = Reply::status(200).header("content-type", "text/html").bytes("<html>");
    let errors = [401, 402, 403, 404, 413].map(|status| Reply::error(status, "odd", "why"));
    for reply in errors.into_iter().chain([lasting, unpaid, web_page]) {
        let told = format!("{reply:?}");
        assert_eq!(answered_by_the_spare(reply).await, 1, "{told}");
    }
}

#[tokio::test]
async fn what_may_pass_is_asked_of_the_same_upstream_once_more() {
    let lying = Reply::stream().bytes("data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\"}}\n\n");
    let mute = Reply::status(200).headless().cut();
    for reply in [
        Reply::error(501, "odd", "why"),
        Reply::error(503, "busy", "why"),
        Reply::error(502, "down", "why"),
        lying,
        mute,
        Reply::stream().reset(),
    ] {
        let told = format!("{reply:?}");
        assert_eq!(answered_by_the_spare(reply).await, 2, "{told}");
    }
}

#[tokio::test]
async fn text_that_went_out_is_void_before_another_model_speaks_and_is_not_replaced_where_it_cannot_be() {
    let broken = || Reply::stream().text("He").reset();
    let (first, spare) = (Upstream::start([]).await, Upstream::start([Reply::says("Hello")]).await);
    first.otherwise(broken());
    let server = TestServer::start(&declared(&first, &spare)).await;
    let frames = server.stream(DOORS[0], &ask(true)).await.rest().await;
    let told: Vec<_> = frames
        .iter()
        .filter(|frame| ["", "step.discarded", "provider.fallback"].contains(&frame.name.as_str()))
        .map(|frame| frame.text().unwrap_or_else(|| frame.name.clone()))
        .filter(|text| !text.is_empty())
        .collect();
    assert_eq!(told[..6], ["He", "step.discarded", "He", "step.discarded", "provider.fallback", "Hello"], "{frames:?}");
    let response = server.respond(server.json(DOORS[1], &ask(true))).await;
    let frames = SseReader::of_chunks(response).rest().await;
    assert_eq!(frames.iter().filter_map(Frame::text).collect::<String>(), "He", "{frames:?}");
    assert_eq!((first.requests().len(), spare.requests().len()), (3, 1));
}

#[tokio::test]
async fn a_request_that_is_not_valid_is_asked_of_no_other_upstream() {
    for status in [400, 422] {
        let first = Upstream::start([Reply::error(status, "odd", "no such member")]).await;
        let spare = Upstream::start([]).await;
        let server = TestServer::start(&declared(&first, &spare)).await;
        let answer = server.post(DOORS[1], &ask(false)).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert_eq!((first.requests().len(), spare.requests().len()), (1, 0));
    }
}

#[tokio::test]
async fn the_model_that_answered_is_named_and_charged() {
    let (first, spare) = (Upstream::start([]).await, Upstream::start([]).await);
    first.otherwise(Reply::error(401, "odd", "why"));
    spare.otherwise(Reply::says("Hello"));
    let agent = "[agents.default]\n[agents.helper]\nmodel = \"first/test\"\nfallbacks = [\"spare/test\"]\n";
    let server = TestServer::start(&format!("{agent}{}", declared(&first, &spare))).await;
    let answer = server.post(DOORS[0], &ask(false)).await.ok();
    assert_eq!(answer["model"], "spare/test", "{answer}");
    assert_eq!(answer["agent"]["report"]["steps"][0]["fallback"], "spare/test", "{answer}");
    assert_eq!(answer["agent"]["cost_usd"], 0.000_15, "{answer}");
    let mut of_agent = ask(false);
    of_agent["model"] = json!("helper");
    assert_eq!(server.post(DOORS[1], &of_agent).await.ok()["model"], "helper");
    let rows =
        async || server.get("/v1/usage?group_by=model").await.ok()["data"].as_array().cloned().unwrap_or_default();
    let runs = |rows: &[Value]| rows.iter().filter_map(|row| row["runs"].as_u64()).sum::<u64>();
    let mut found = rows().await;
    while runs(&found) < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        found = rows().await;
    }
    let of = |model: &str| found.iter().find(|row| row["model"] == model).cloned().unwrap_or_default();
    assert_eq!((&of("first/test")["runs"], &of("first/test")["total_tokens"]), (&json!(2), &json!(0)), "{found:?}");
    assert_eq!((&of("spare/test")["runs"], &of("spare/test")["total_tokens"]), (&json!(0), &json!(30)), "{found:?}");
    let metrics = server.respond(server.request(reqwest::Method::GET, "/metrics")).await.text().await;
    let metrics = metrics.expect("it is text");
    for class in ["rejected", "unavailable"] {
        let line = format!("loopgate_model_fallbacks_total{{upstream=\"first\",model=\"test\",class=\"{class}\"}} 1");
        assert!(metrics.contains(&line), "the second run does not ask again what refused the key: {metrics}");
    }
}

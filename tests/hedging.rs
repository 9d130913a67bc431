//! An upstream is slow to begin: a second call is made elsewhere, and the one that speaks first is kept.

use serde_json::{Value, json};

use crate::support::{Frame, Reply, SseReader, TestServer, Upstream};

const DOORS: [&str; 2] = ["/v1/agent/completions", "/v1/chat/completions"];

/// Has second calls made, after a time that passes quickly.
const HEDGED: &str = "[agents.default]\nhedge_after = \"100ms\"\n";

fn ask(stream: bool) -> Value {
    json!({"model": "first/test", "stream": stream, "messages": [{"role": "user", "content": "Hi"}]})
}

/// Two upstreams, the second of which stands in for the first.
fn declared(first: &Upstream, spare: &Upstream) -> String {
    let named = |upstream: &Upstream, name: &str| upstream.config().replace("scripted", name);
    format!(
        "{HEDGED}{}{}[models.\"first/test\"]\nfallbacks = [\"spare/test\"]\n\
         [models.\"first/test\".price]\ninput = 1.0\noutput = 1.0\n[models.\"spare/test\".price]\ninput = 10.0\noutput = 10.0\n",
        named(first, "first"),
        named(spare, "spare")
    )
}

async fn metrics(server: &TestServer) -> String {
    let page = server.respond(server.request(reqwest::Method::GET, "/metrics")).await.text().await;
    page.expect("it is text")
}

#[tokio::test]
async fn a_second_model_speaks_for_one_that_is_silent_and_the_stream_tells_of_it() {
    // One takes the connection and says nothing, one begins to answer and says nothing.
    for silent in [Reply::status(200).headless().stall(), Reply::stream().stall()] {
        let told = format!("{silent:?}");
        let (first, spare) = (Upstream::start([]).await, Upstream::start([]).await);
        first.otherwise(silent);
        spare.otherwise(Reply::says("Hello"));
        let server = TestServer::start(&declared(&first, &spare)).await;
        let frames = server.stream(DOORS[0], &ask(true)).await.rest().await;
        let names: Vec<_> = frames.iter().map(|frame| frame.name.as_str()).collect();
        let at =
            |name: &str| names.iter().position(|found| *found == name).unwrap_or_else(|| panic!("{name}: {names:?}"));
        assert!(at("step.started") < at("provider.hedge") && at("provider.hedge.ended") < at(""), "{names:?}");
        let began = frames[at("provider.hedge")].json();
        assert_eq!((&began["upstream"], &began["from_upstream"]), (&json!("spare"), &json!("first")), "{told}");
        assert_eq!((&began["after_ms"], &began["step"]), (&json!(100), &json!(1)));
        let ended = frames[at("provider.hedge.ended")].json();
        assert_eq!((&ended["kept"], &ended["dropped_upstream"]), (&json!("second"), &json!("first")), "{told}");
        assert!(ended["usage"]["prompt_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{ended}");
        assert_eq!(frames.iter().filter_map(Frame::text).collect::<String>(), "Hello", "{told}");
        assert_eq!((first.requests().len(), spare.requests().len()), (1, 1), "{told}");
        let line = "loopgate_model_hedges_total{upstream=\"first\",model=\"test\",kept=\"second\"} 1\n";
        let page = metrics(&server).await;
        assert!(page.contains(line) && !page.contains("loopgate_model_fallbacks_total{"), "{page}");
        server.logged("another one is asked beside it").await;
        let run = frames[0].json()["run_id"].as_str().expect("it has an id").to_owned();
        let trace = server.get(&format!("/v1/runs/{run}/trace")).await.body.to_string();
        assert!(trace.contains("loopgate.hedge_ended") && trace.contains("loopgate.hedge.kept"), "{trace}");
        // A client of OpenAI's gets text alone.
        let response = server.respond(server.json(DOORS[1], &ask(true))).await;
        let frames = SseReader::of_chunks(response).rest().await;
        assert_eq!(frames.iter().filter_map(Frame::text).collect::<String>(), "Hello", "{frames:?}");
    }
}

/// Where every reader waits for the end, the answer comes in pieces all the same.
#[tokio::test]
async fn an_answer_that_nobody_reads_as_it_is_said_is_hedged_too_and_names_its_model() {
    let (first, spare) = (Upstream::start([]).await, Upstream::start([]).await);
    first.otherwise(Reply::stream().stall());
    spare.otherwise(Reply::says("Hello"));
    let config = declared(&first, &spare).replacen("models = ", "ask_in_one_piece = true\nmodels = ", 1);
    let server = TestServer::start(&config).await;
    let answer = server.post(DOORS[0], &ask(false)).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Hello", "{answer}");
    assert_eq!(
        (&answer["model"], &answer["agent"]["report"]["steps"][0]["fallback"]),
        (&json!("spare/test"), &json!("spare/test"))
    );
    assert_eq!(first.requests()[0]["stream"], json!(true));
}

/// Both addresses have the same model, so nothing but the address changes.
#[tokio::test]
async fn the_second_call_goes_to_another_server_of_the_upstream_that_has_several() {
    for slow in 0..2 {
        let (one, other) = (Upstream::start([]).await, Upstream::start([]).await);
        let (silent, quick) = if slow == 0 { (&one, &other) } else { (&other, &one) };
        silent.otherwise(Reply::stream().stall());
        quick.otherwise(Reply::says("Hello"));
        let spare = Upstream::start([]).await;
        let urls = format!("base_urls = [\"http://{}/v1\", \"http://{}/v1\"]", one.address(), other.address());
        let config = declared(&one, &spare).replace(&format!("base_url = \"http://{}/v1\"", one.address()), &urls);
        let server = TestServer::start(&config).await;
        // Whichever a run goes to first.
        let mut hedged = 0;
        for _ in 0..8 {
            let frames = server.stream(DOORS[0], &ask(true)).await.rest().await;
            assert_eq!(frames.iter().filter_map(Frame::text).collect::<String>(), "Hello", "{frames:?}");
            let told = frames.iter().find(|frame| frame.name == "provider.hedge");
            hedged += usize::from(told.is_some_and(|told| told.json()["upstream"] == "first"));
        }
        assert_eq!((silent.requests().len(), spare.requests().len()), (hedged, 0));
        assert!(hedged > 0 && quick.requests().len() == 8, "{hedged}");
    }
}

//! Agents that delegate, at the door: what streams show, what runs and trees tell, and what plain clients get.

use serde_json::{Value, json};

use crate::support::sse::{Frame, SseReader, text_of};
use crate::support::{Reply, TestServer, Upstream};

const AGENTS: &str = r#"
    [agents.default]
    tools = []

    [agents.boss]
    model = "scripted/test"
    delegates = ["worker"]

    [agents.worker]
    model = "scripted/test"
    description = "Counts."
"#;

async fn stage() -> (Upstream, TestServer) {
    let calls = Reply::calls("delegate", &json!({"agent": "worker", "task": "Count."}));
    let upstream = Upstream::start([calls, Reply::says("One, two."), Reply::says("It counted.")]).await;
    let server = TestServer::start(&format!("{}{AGENTS}", upstream.config())).await;
    (upstream, server)
}

fn body(agent: &Value) -> Value {
    json!({"model": "boss", "stream": true, "messages": [{"role": "user", "content": "Go"}], "agent": agent})
}

#[tokio::test]
async fn a_stream_shows_runs_below_and_all_that_happens_in_them_if_asked() {
    for shows in [false, true] {
        let (upstream, server) = stage().await;
        let stream = server.stream("/v1/agent/completions", &body(&json!({"delegate_events": shows}))).await;
        let frames = stream.rest().await;
        assert_eq!(text_of(&frames), "It counted.", "what others say is no text of the run");
        let named = |name: &str| frames.iter().filter(|frame| frame.name == name).map(Frame::json).collect();
        let (started, completed): (Vec<Value>, Vec<Value>) = (named("delegate.started"), named("delegate.completed"));
        let child = started[0]["run_id"].as_str().unwrap().to_owned();
        assert_eq!((&started[0]["agent"], &started[0]["depth"]), (&json!("worker"), &json!(1)));
        assert_eq!((&completed[0]["run_id"], &completed[0]["status"]), (&json!(child), &json!("completed")));
        let nested: Vec<Value> = named("delegate.event");
        if shows {
            assert!(nested.iter().all(|event| event["run_id"] == child && event["depth"] == 1), "{nested:?}");
            let types: Vec<_> = nested.iter().filter_map(|event| event["event"]["type"].as_str()).collect();
            assert_eq!((types.first(), types.last()), (Some(&"run.started"), Some(&"run.completed")));
            let said = nested.iter().filter_map(|event| event["event"]["choices"][0]["delta"]["content"].as_str());
            assert_eq!(said.collect::<String>(), "One, two.");
            let place = |name: &str| frames.iter().rposition(|frame| frame.name == name).unwrap();
            assert!(place("delegate.event") < place("delegate.completed"), "all of it is shown before its end is");
        } else {
            assert!(nested.is_empty());
        }
        let told = server.get(&format!("/v1/runs/{child}")).await.ok();
        assert_eq!((&told["parent"]["run_id"], &told["parent"]["depth"]), (&completed_root(&frames), &json!(1)));
        let root = completed_root(&frames);
        let tree = server.get(&format!("/v1/runs/{}/tree", root.as_str().unwrap())).await.ok();
        assert_eq!(
            (&tree["object"], &tree["tree"]["runs"], &tree["own"]["runs"]),
            (&json!("run.tree"), &json!(2), &json!(1))
        );
        assert_eq!(tree["children"][0]["run"]["id"], child);
        let offered = upstream.requests();
        let description = offered[0]["tools"][0]["function"]["description"].as_str().unwrap();
        assert!(description.ends_with("- worker: Counts."), "{description}");
        assert!(offered[1].get("tools").is_none_or(|tools| !tools.to_string().contains("delegate")));
    }
}

/// The id of the run that a stream is of.
fn completed_root(frames: &[Frame]) -> Value {
    let end = frames.iter().find(|frame| frame.name == "run.completed").expect("it ends").json();
    end["agent"]["run_id"].clone()
}

#[tokio::test]
async fn a_plain_client_waits_for_the_answer_and_is_told_what_the_tree_took() {
    let (_upstream, server) = stage().await;
    let mut asked = body(&json!({}));
    asked["stream"] = json!(false);
    let answer = server.post("/v1/agent/completions", &asked).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "It counted.");
    assert_eq!(answer["agent"]["tree"]["runs"], 2);
    let (own, all) = (&answer["agent"]["usage"]["total_tokens"], &answer["agent"]["tree"]["usage"]["total_tokens"]);
    assert!(own.as_u64().unwrap() < all.as_u64().unwrap(), "{answer}");
    let (_upstream, server) = stage().await;
    let chunks = server.respond(server.json("/v1/chat/completions", &body(&json!({})))).await;
    let chunks = SseReader::of_chunks(chunks).rest().await;
    assert_eq!(text_of(&chunks), "It counted.");
}

#[tokio::test]
async fn a_budget_of_money_holds_for_all_below_and_what_it_refuses_keeps_no_stream_waiting() {
    let call = json!({"agent": "worker", "task": "Count."});
    let upstream = Upstream::start([Reply::calls("delegate", &call), Reply::says("I counted.")]).await;
    let config = upstream.config().replace("[\"test\"]", "[\"test\", \"other\"]\nfree = false");
    let agents =
        AGENTS.replace("model = \"scripted/test\"\n    description", "model = \"scripted/other\"\n    description");
    let bounds = "[agents.boss.limits]\ncost_budget_usd = 1.0\n[models.test.price]\ninput = 1.0\noutput = 1.0\n";
    let server = TestServer::start(&format!("{config}{agents}{bounds}")).await;
    let begun = tokio::time::Instant::now();
    let stream = server.stream("/v1/agent/completions", &body(&json!({"delegate_events": true}))).await;
    let frames = stream.rest().await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(4), "a run that never began is not waited for");
    assert_eq!(text_of(&frames), "I counted.");
    assert!(frames.last().is_some_and(Frame::is_done));
    let completed = frames.iter().find(|frame| frame.name == "delegate.completed").expect("it is told").json();
    assert_eq!(completed["status"], "failed");
    let told = upstream.requests()[1]["messages"].to_string();
    assert!(told.contains("has a cost budget") && told.contains("no price is known"), "{told}");
}

//! What survives when the server is killed without warning, and when it is asked to end.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::sse::{outline, text_of};
use crate::support::{Frame, Gate, Reply, SseReader, TestServer, ToolServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";

fn ask(content: &str, agent: &Value) -> Value {
    json!({"model": "test", "stream": true, "messages": [{"role": "user", "content": content}], "agent": agent})
}

/// The run that a stream's first event names.
fn run_of(frames: &[Frame]) -> String {
    let run = frames[0].json()["run_id"].as_str().map(str::to_owned);
    run.unwrap_or_else(|| panic!("the first event names no run: {:?}", frames[0]))
}

fn last_event(frames: &[Frame]) -> Value {
    let [.., last, done] = frames else { panic!("too few events: {frames:?}") };
    assert_eq!(done.data, "[DONE]");
    last.json()
}

/// Follows a run to its end, as a client does that lost its connection: it tries until the server is there.
async fn follow(server: &TestServer, run: &str, after: u64) -> Vec<Frame> {
    server.events(run, after).await.rest().await
}

/// Which contents the messages of a request have.
fn contents(request: &Value) -> Vec<&str> {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    messages.iter().map(|message| message["content"].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_run_goes_on_after_a_kill_while_the_model_speaks() {
    let gate = Gate::new();
    let upstream = Upstream::start([
        Reply::says("First."),
        Reply::stream().text("One ").gate(&gate).text("lost").finish("stop").usage(10, 5).done(),
        Reply::says("One and two."),
        Reply::says("Third."),
    ])
    .await;
    let mut server = TestServer::start(&upstream.config()).await;
    let session = json!({"session_id": "s1"});
    server
        .post(ENDPOINT, &json!({"model": "test", "messages": [{"role": "user", "content": "A"}], "agent": session}))
        .await
        .ok();

    let mut stream = server.stream(ENDPOINT, &ask("B", &session)).await;
    let mut before = stream.until(|frame| frame.text().is_some()).await;
    gate.reached().await;
    server.kill9().await;
    before.extend(stream.until_broken().await);
    let run = run_of(&before);
    let seen = before.last().and_then(|frame| frame.id).expect("events have ids");

    server.restart().await;
    let rest = follow(&server, &run, seen).await;
    assert_eq!(rest[0].id, Some(seen + 1), "the log goes on where the stream broke off");
    assert_eq!(outline(&rest), "run.resumed step.discarded step.started text step.completed run.completed");
    let last = last_event(&rest);
    assert_eq!((&last["output_text"], &last["agent"]["status"]), (&json!("One and two."), &json!("completed")));
    assert_eq!(text_of(&rest), "One and two.");

    let mut whole = follow(&server, &run, 0).await;
    let replayed = whole.drain(..before.len()).collect::<Vec<_>>();
    assert_eq!(replayed, before, "what was said before the kill reads the same");
    assert_eq!(whole, rest, "and what came after it too");

    let mut stream = server.stream(ENDPOINT, &ask("C", &session)).await;
    stream.until(|frame| frame.name == "run.completed").await;
    let requests = upstream.received(4).await;
    assert_eq!(contents(&requests[2]), ["A", "First.", "B"]);
    assert_eq!(contents(&requests[3]), ["A", "First.", "B", "One and two.", "C"]);
    let stored = server.get("/v1/sessions/s1").await.ok();
    assert_eq!(stored["id"], "s1");
}

/// A client of the chat endpoint cannot be told that text is void. Who has seen none of it, or knows already, gets the
/// run without it.
#[tokio::test]
async fn a_chat_stream_that_is_read_after_a_crash_has_the_answer() {
    let upstream = Upstream::start([Reply::stream().text("One ").stall()]).await;
    let mut server = TestServer::start(&upstream.config()).await;
    let asked = ask("B", &json!({"on_disconnect": "continue"}));
    let request = |server: &TestServer| server.json("/v1/chat/completions", &asked).header("idempotency-key", "k");
    let response = server.respond(request(&server)).await;
    let run = response.headers()["x-loopgate-run-id"].to_str().expect("it is text").to_owned();
    let mut stream = SseReader::of_chunks(response);
    let speaks = |frame: &Frame| frame.text().is_some_and(|text| !text.is_empty());
    let seen = stream.until(speaks).await.pop().and_then(|frame| frame.id);
    server.kill9().await;
    upstream.then(Reply::says("One and two."));
    server.restart().await;
    let native = follow(&server, &run, 0).await;
    let discarded = native.iter().find(|frame| frame.name == "step.discarded").and_then(|frame| frame.id);
    let chunks = async |mode: &str, after: Option<u64>| {
        let after = after.unwrap_or(0);
        let path = format!("/v1/runs/{run}/events?events={mode}&after={after}");
        let response = server.respond(server.request(Method::GET, &path)).await;
        SseReader::of_chunks(response).rest().await
    };
    for (frames, reader) in [
        (chunks("none", None).await, "from the beginning"),
        (chunks("none", discarded).await, "from behind the void step"),
        (SseReader::of_chunks(server.respond(request(&server)).await).rest().await, "the same request again"),
    ] {
        assert_eq!(text_of(&frames), "One and two.", "{reader}: {frames:?}");
    }
    let within = chunks("none", seen).await;
    assert!(within[0].data.contains("error") && !within.iter().any(|frame| frame.text().is_some()), "{within:?}");
    let extended = chunks("extension", None).await;
    assert_eq!(text_of(&extended), "One One and two.");
    assert!(extended.iter().any(|frame| frame.data.contains("step.discarded")), "{extended:?}");
    assert!(extended.iter().any(|frame| frame.data.contains("run.completed")), "{extended:?}");
}

/// Kills the server while its tool is at work. Returns the whole log once the run has ended, and how the
/// model was asked again, if it was.
async fn kill_within_a_tool(effect: &str, agent: &Value, tools: &ToolServer) -> (Vec<Frame>, Vec<Value>) {
    let call = Reply::calls("note", &json!({"note": "x"}));
    let upstream = Upstream::start([call]).await;
    upstream.otherwise(Reply::says("Done."));
    let config = format!("{}{}[agents.default]\ntools = [\"note\"]\n", upstream.config(), tools.config("note", effect));
    let mut server = TestServer::start(&config).await;
    let mut stream = server.stream(ENDPOINT, &ask("Note it", agent)).await;
    let before = stream.until(|frame| frame.name == "tool.call").await;
    tools.called(1).await;
    server.kill9().await;
    let run = run_of(&before);
    server.restart().await;
    let log = follow(&server, &run, 0).await;
    assert_eq!(log[..before.len()], before[..]);
    (log, upstream.requests())
}

#[tokio::test]
async fn a_tool_with_side_effects_is_never_dispatched_twice() {
    let tools = ToolServer::start([Reply::plain("").stall()]).await;
    let (log, requests) = kill_within_a_tool("write", &json!({}), &tools).await;
    let last = last_event(&log);
    assert_eq!(last["type"], "run.failed");
    assert_eq!(
        (&last["agent"]["status"], &last["agent"]["stop_reason"]),
        (&json!("failed"), &json!("outcome_unknown"))
    );
    assert_eq!((tools.calls().len(), requests.len()), (1, 1));
}

#[tokio::test]
async fn the_model_can_be_told_that_an_outcome_is_unknown() {
    let tools = ToolServer::start([Reply::plain("").stall()]).await;
    let (log, requests) = kill_within_a_tool("write", &json!({"on_unknown_outcome": "tell_model"}), &tools).await;
    assert_eq!(last_event(&log)["agent"]["status"], "completed");
    assert_eq!((tools.calls().len(), requests.len()), (1, 2));
    let told = *contents(&requests[1]).last().expect("there are messages");
    assert!(told.contains("unknown"), "{told}");
}

#[tokio::test]
async fn the_caller_can_be_asked_what_came_of_an_interrupted_call() {
    let tools = ToolServer::start([Reply::plain("").stall()]).await;
    let (log, requests) = kill_within_a_tool("write", &json!({"on_unknown_outcome": "ask"}), &tools).await;
    let last = last_event(&log);
    assert_eq!(last["type"], "run.requires_action");
    assert_eq!(last["agent"]["required_action"]["type"], "outcome_unknown");
    assert_eq!((tools.calls().len(), requests.len()), (1, 1));
}

#[tokio::test]
async fn a_tool_that_may_be_repeated_is_repeated_with_its_key() {
    let tools = ToolServer::start([Reply::plain("").stall(), Reply::plain("noted")]).await;
    let (log, requests) = kill_within_a_tool("idempotent", &json!({}), &tools).await;
    assert_eq!(last_event(&log)["agent"]["status"], "completed");
    assert_eq!(contents(&requests[1]).last(), Some(&"noted"));
    let keys: Vec<_> = tools.calls().iter().map(|call| call.headers["idempotency-key"].clone()).collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[tokio::test]
async fn a_run_that_ended_reads_the_same_after_a_kill() {
    let upstream =
        Upstream::start([Reply::calls("calculator", &json!({"expression": "6 * 7"})), Reply::says("42")]).await;
    let mut server = TestServer::start(&upstream.config()).await;
    let frames = server.stream(ENDPOINT, &ask("What?", &json!({}))).await.rest().await;
    let run = run_of(&frames);
    let path = format!("/v1/runs/{run}");
    let object = server.get(&path).await.ok();
    server.kill9().await;
    server.restart().await;
    assert_eq!(follow(&server, &run, 0).await, frames);
    assert_eq!(server.get(&path).await.ok(), object);
    let last = frames[frames.len() - 2].id.expect("events have ids");
    let request = server.request(Method::GET, &format!("{path}/events")).header("last-event-id", last);
    assert_eq!(server.send(request).await.status, 204, "there is nothing more to read");
}

/// However close to the end a reader comes back, it is told that there is nothing more.
#[tokio::test]
async fn a_reader_that_has_seen_the_end_is_told_so_at_once() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let server = TestServer::start(&upstream.config()).await;
    for _ in 0..30 {
        let mut stream = server.stream(ENDPOINT, &ask("Hi", &json!({}))).await;
        let frames = stream.until(|frame| frame.name == "run.completed").await;
        let last = frames.last().and_then(|frame| frame.id).expect("events have ids");
        let events = server.request(Method::GET, &format!("/v1/runs/{}/events", run_of(&frames)));
        let answer = server.respond(events.header("last-event-id", last)).await;
        assert_eq!(answer.status(), 204, "the run ended with event {last}");
    }
}

/// However soon a client answers the call that it was handed, the run goes on.
#[tokio::test]
async fn a_waiting_run_may_be_answered_at_once() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
    for turn in 0..30 {
        upstream.then(Reply::calls("weather", &json!({})));
        upstream.then(Reply::says("Rain."));
        let question = json!({"role": "user", "content": "Hi"});
        let asked = json!({"model": "test", "messages": [question], "tools": [tool]});
        let handed = server.post(ENDPOINT, &asked).await.ok();
        let message = &handed["choices"][0]["message"];
        let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "rain"});
        let answered = json!({"model": "test", "messages": [question, message, result], "tools": [tool]});
        let answer = server.post(ENDPOINT, &answered).await;
        assert_eq!(answer.status, 200, "answer {turn} came too soon: {}", answer.body);
        assert_eq!(answer.body["agent"]["run_id"], handed["agent"]["run_id"]);
    }
}

/// A run that waits for its client is cancelled however soon that is asked for.
#[tokio::test]
async fn a_waiting_run_may_be_cancelled_at_once() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::calls("weather", &json!({})));
    let server = TestServer::start(&upstream.config()).await;
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
    for turn in 0..30 {
        let question = json!({"role": "user", "content": "Hi"});
        let asked = json!({"model": "test", "messages": [question], "tools": [tool]});
        let handed = server.post(ENDPOINT, &asked).await.ok();
        let run = handed["agent"]["run_id"].as_str().expect("it has an id");
        let cancelled = server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
        assert_eq!(cancelled["status"], "cancelled", "cancellation {turn}");
    }
}

#[tokio::test]
async fn sigterm_lets_a_run_finish() {
    let gate = Gate::new();
    let held = Reply::stream().text("Almost ").gate(&gate).text("there").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held]).await;
    let mut server = TestServer::start(&upstream.config()).await;
    let mut stream = server.stream(ENDPOINT, &ask("Go on", &json!({}))).await;
    let mut frames = stream.until(|frame| frame.text().is_some()).await;
    gate.reached().await;
    server.sigterm();
    within("the server to refuse runs", refuses_runs(&server)).await;
    gate.open();
    frames.extend(stream.rest().await);
    assert_eq!(text_of(&frames), "Almost there");
    assert_eq!(last_event(&frames)["agent"]["status"], "completed");
    assert!(server.ended().await.success());
}

async fn refuses_runs(server: &TestServer) {
    let ready = || async {
        let answer = server.request(Method::GET, "/readyz").send().await;
        answer.is_ok_and(|answer| answer.status() == 200)
    };
    while ready().await {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

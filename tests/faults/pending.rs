//! A server that dies around calls that a service answers later: a call has one answer, which is the service's where the server
//! has taken it, a call with side effects is made once, and the run ends by itself.

use std::time::Duration;

use loopgate::failpoint::OF_PENDING_CALLS;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::dies_within;
use crate::support::http::Request;
use crate::support::{Reply, TestServer, ToolServer, Upstream, within};

/// How long a server may take to come to the place at which it is to die.
const REACHED: Duration = Duration::from_secs(20);

/// Places that a run comes to before it waits for an answer.
const BEFORE_THE_ANSWER: [&str; 3] = ["pending.accepted", "run.before_end", "run.ended"];

/// Places that a run comes to with the answer.
const WITH_THE_ANSWER: [&str; 2] = ["resume.before_record", "resume.recorded"];

/// What the service answers in the end.
const ANSWER: &str = "a picture";

/// How the test's service answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    /// It answers.
    Answers,
    /// It never does, and its time is up after a second.
    Forgets,
}

/// A server with a tool whose service says that it answers later, and the model that calls it.
struct Stage {
    upstream: Upstream,
    tools: ToolServer,
    server: TestServer,
}

impl Stage {
    /// The server is to die at this place.
    async fn set(point: &str, effect: &str, service: Service) -> Self {
        let calls = Reply::calls("render", &json!({"note": "x"}));
        let upstream = Upstream::start([calls, Reply::says("Here it is.")]).await;
        let accepted = || Reply::json(202, &json!({"job": 7}));
        let tools = ToolServer::start([accepted(), accepted(), accepted()]).await;
        let time = if service == Service::Forgets { "1s" } else { "10m" };
        let rest = format!(
            "async_timeout = \"{time}\"\n[server]\npublic_url = \"http://agents.test\"\n\
             [agents.default]\ntools = [\"render\"]\n"
        );
        let config = [upstream.config(), tools.config("render", effect), rest].concat();
        let server = TestServer::builder(&config).keep_port().env("LOOPGATE_FAILPOINT", point).start().await;
        Self { upstream, tools, server }
    }

    /// Asks for the one run of this test, which is begun once. Returns its id if the server lives to tell it.
    async fn accept(&self) -> Option<String> {
        let body = json!({
            "model": "test", "messages": [{"role": "user", "content": "Render it"}], "agent": {"background": true}
        });
        let request = self.server.json("/v1/agent/completions", &body).header("idempotency-key", "the-run");
        let answer = request.send().await.ok()?.bytes().await.ok()?;
        let accepted: Value = serde_json::from_slice(&answer).ok()?;
        Some(accepted["id"].as_str().expect("it is accepted").to_owned())
    }

    /// Answers a call as its service does. Returns the status if the server lives to tell it.
    async fn answer(&self, asked: &Request, text: &'static str) -> Option<u16> {
        let path = asked.headers["x-loopgate-callback-url"].strip_prefix("http://agents.test").expect("it is ours");
        let request = reqwest::Client::new().post(format!("{}{path}", self.server.url()));
        let token = &asked.headers["x-loopgate-callback-token"];
        let sent = request.bearer_auth(token).header("content-type", "text/plain").body(text).send();
        Some(sent.await.ok()?.status().as_u16())
    }

    /// Answers all calls that were made.
    async fn answer_all(&self) {
        for asked in self.tools.calls() {
            self.answer(&asked, ANSWER).await;
        }
    }

    /// The run once it has ended, while its service answers if it does.
    async fn ended(&self, run: &str, service: Service) -> Value {
        within("the run to end", async {
            loop {
                let found = self.server.get(&format!("/v1/runs/{run}")).await.ok();
                if !["queued", "in_progress", "requires_action"]
                    .contains(&found["status"].as_str().expect("it has one"))
                {
                    return found;
                }
                if service == Service::Answers {
                    self.answer_all().await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
    }
}

async fn dies_at(point: &str, effect: &str, service: Service) {
    let mut stage = Stage::set(point, effect, service).await;
    // The server may die before it answers.
    let _ = stage.accept().await;
    let deadline = Instant::now() + REACHED;
    let answers_now = service == Service::Answers && !BEFORE_THE_ANSWER.contains(&point);
    while answers_now && !stage.server.has_ended() && Instant::now() < deadline {
        stage.answer_all().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(dies_within(&mut stage.server, REACHED).await, "the server does not come to {point}");
    stage.server.next_env(&[]);
    stage.server.restart().await;
    let run = stage.accept().await.expect("it is accepted, or was before");
    let end = stage.ended(&run, service).await;
    assert_eq!(end["status"], "completed", "{point}: {end}");
    check(&stage, point, effect, service).await;
}

async fn check(stage: &Stage, point: &str, effect: &str, service: Service) {
    let made = stage.tools.calls();
    assert!(made.len() == 1 || effect != "write", "{point}: a call with side effects was made {} times", made.len());
    for header in ["idempotency-key", "x-loopgate-callback-token"] {
        assert!(made.iter().all(|call| call.headers[header] == made[0].headers[header]), "{point}: {header}");
    }
    let told = stage.upstream.requests().pop().expect("the model was asked");
    let messages = told["messages"].as_array().expect("there are some");
    let results: Vec<&str> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .filter_map(|message| message["content"].as_str())
        .collect();
    let [result] = results[..] else { panic!("{point}: one call has the results {results:?}") };
    if service == Service::Forgets {
        assert!(result.contains("did not answer within"), "{point}: {result}");
        return;
    }
    assert_eq!(result, ANSWER, "{point}");
    assert_eq!(stage.upstream.requests().len(), 2, "{point}: the model is asked for nothing twice");
    // The same answer again is no other one, and another one comes too late.
    assert_eq!(stage.answer(&made[0], ANSWER).await, Some(204), "{point}");
    assert_eq!(stage.answer(&made[0], "another").await, Some(409), "{point}");
}

#[tokio::test]
async fn a_server_that_dies_around_calls_that_are_answered_later_answers_each_once() {
    let others = BEFORE_THE_ANSWER[1..].iter().chain(&WITH_THE_ANSWER);
    let points = OF_PENDING_CALLS.iter().chain(others).copied();
    for point in points {
        let is_forgotten = point.ends_with("give_up");
        // Of a call with side effects nothing is known where its service has not answered, or if that it accepted the call was
        // not recorded.
        let effect = match point {
            "pending.accepted" | "run.before_end" => "idempotent",
            _ if is_forgotten => "read",
            _ => "write",
        };
        dies_at(point, effect, if is_forgotten { Service::Forgets } else { Service::Answers }).await;
    }
}

//! Inputs that no honest client sends, and some that honest ones do. Each gets its status and code, in the
//! one shape of errors; none of them takes the server down or in.

mod bodies;
mod callers;
mod messages;
mod paths;
mod sockets;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Answer, Reply, TestServer, Upstream, within};

const ENDPOINTS: [&str; 2] = ["/v1/agent/completions", "/v1/chat/completions"];

/// A server and its upstream, which answers `Hello` to everything.
struct House {
    upstream: Upstream,
    server: TestServer,
    /// How much memory the server held at first.
    held: u64,
}

/// What a server may hold beyond that after all bad inputs, which were up to some tens of MiB: what the allocator keeps, and
/// what was needed for the first time.
const MORE: u64 = 6 << 20;

impl House {
    async fn build(more_config: &str) -> Self {
        let upstream = Upstream::start([]).await;
        upstream.otherwise(Reply::says("Hello"));
        let server = TestServer::start(&format!("{}{more_config}", upstream.config())).await;
        let held = server.own_memory();
        Self { upstream, server, held }
    }

    /// A bad input must leave the server as it was, and cost nothing.
    async fn still_stands(&self) {
        let spent = self.upstream.requests().len();
        assert_eq!(spent, 0, "a refused request reached the upstream: {:?}", self.upstream.requests());
        self.still_answers().await;
    }

    async fn still_answers(&self) {
        let health = self.server.request(reqwest::Method::GET, "/healthz");
        assert_eq!(self.server.respond(health).await.status(), 200);
        for endpoint in ENDPOINTS {
            let answer = self.server.post(endpoint, &valid()).await.ok();
            assert_eq!(answer["choices"][0]["message"]["content"], "Hello");
        }
        let gives_back = async {
            while self.server.own_memory() > self.held + MORE {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let (holds, held) = (self.server.own_memory() >> 10, self.held >> 10);
        within(&format!("{holds} KiB to fall to what there was, {held} KiB, and a little"), gives_back).await;
    }
}

/// A request that nothing is wrong with.
fn valid() -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}]})
}

/// The same, with one member set.
fn with(name: &str, value: impl Into<Value>) -> Value {
    let mut request = valid();
    request[name] = value.into();
    request
}

/// The same, with one member of its `agent` object set.
fn with_agent(name: &str, value: impl Into<Value>) -> Value {
    with("agent", json!({name: value.into()}))
}

/// What an input may come to, each as status and code.
type Allowed = &'static [(u16, &'static str)];

/// Fails unless the answer is one of those allowed.
#[track_caller]
fn check(input: &str, answer: &Answer, allowed: Allowed) {
    let complaint = complaint(input, answer, allowed);
    assert!(complaint.is_none(), "{}", complaint.unwrap_or_default());
}

/// What is wrong with an answer, unless it is one of those allowed.
fn complaint(input: &str, answer: &Answer, allowed: Allowed) -> Option<String> {
    let input: String = input.chars().take(200).collect();
    if answer.status < 400 {
        return Some(format!("{input}\nwas taken: {} {:.200}", answer.status, answer.body));
    }
    let seen = (answer.status, answer.code());
    (!allowed.contains(&seen)).then(|| format!("{input}\ncame to {seen:?}, not {allowed:?}: {}", answer.body))
}

/// Fails if there is a complaint, with all of them.
#[track_caller]
fn nothing_in(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

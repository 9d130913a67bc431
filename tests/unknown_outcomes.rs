//! Calls whose outcome is unknown: the tool took the request, and its answer was lost.

use serde_json::{Value, json};

use crate::support::{Answer, Reply, TestServer, ToolServer, Upstream};

const AGENT: &str = "/v1/agent/completions";
const CHAT: &str = "/v1/chat/completions";

/// The request is taken, and the connection closed without an answer.
fn lost() -> Reply {
    Reply::status(200).headless().cut()
}

/// A server, its upstream, whose model calls `pay` once, and the service behind that tool.
struct Place {
    server: TestServer,
    upstream: Upstream,
    tools: ToolServer,
}

impl Place {
    /// One whose tool has this effect and answers so.
    async fn new(effect: &str, answers: impl IntoIterator<Item = Reply>) -> Self {
        let tools = ToolServer::start(answers).await;
        let upstream = Upstream::start([Reply::calls("pay", &json!({"note": "5"}))]).await;
        upstream.otherwise(Reply::says("Done."));
        let config =
            format!("{}{}[agents.default]\ntools = [\"pay\"]\n", upstream.config(), tools.config("pay", effect));
        Self { server: TestServer::start(&config).await, upstream, tools }
    }

    async fn ask(&self, endpoint: &str, agent: &Value) -> Answer {
        let body = json!({"model": "test", "messages": [{"role": "user", "content": "Pay."}], "agent": agent});
        self.server.post(endpoint, &body).await
    }

    /// What the model was told of its call.
    fn told(&self) -> String {
        let request = self.upstream.requests().pop().expect("it was asked");
        let message = request["messages"].as_array().and_then(|messages| messages.last()).expect("there are messages");
        assert_eq!(message["role"], "tool", "{message}");
        message["content"].as_str().expect("it is text").to_owned()
    }

    /// The idempotency keys of the calls that reached the tool.
    fn keys(&self) -> Vec<String> {
        self.tools.calls().iter().map(|call| call.headers["idempotency-key"].clone()).collect()
    }
}

#[tokio::test]
async fn a_run_fails_if_it_is_unknown_whether_a_call_took_effect() {
    let gateway = |status| Reply::status(status).header("content-type", "text/html").bytes("<h1>Gateway</h1>");
    let gateways = [gateway(502), gateway(504), gateway(520).reset(), gateway(524)];
    for answer in [lost(), Reply::plain("pa").reset(), Reply::plain("").stall()].into_iter().chain(gateways) {
        let place = Place::new("write", [answer]).await;
        let failed = place.ask(AGENT, &json!({"limits": {"tool_timeout_ms": 500}})).await;
        assert_eq!((failed.status, &failed.body["error"]["code"]), (500, &json!("outcome_unknown")), "{}", failed.body);
        assert_eq!(failed.headers["x-should-retry"], "false");
        assert_eq!((place.tools.calls().len(), place.upstream.requests().len()), (1, 1));
    }
}

#[tokio::test]
async fn a_model_is_told_that_an_outcome_is_unknown_and_not_that_nothing_was_reached() {
    let place = Place::new("write", [lost()]).await;
    let answer = place.ask(AGENT, &json!({"on_unknown_outcome": "tell_model"})).await.ok();
    let told = place.told();
    assert!(told.contains("Whether it took effect is unknown") && !told.contains("could not be reached"), "{told}");
    assert_eq!(answer["agent"]["report"]["steps"][0]["tool_calls"][0]["outcome_unknown"], true);
    assert_eq!(place.tools.calls().len(), 1);
}

#[tokio::test]
async fn a_status_by_which_a_call_was_refused_is_its_answer() {
    for status in [408, 425, 429, 500, 503] {
        let place = Place::new("write", [Reply::json(status, &json!({"why": "busy"}))]).await;
        assert_eq!(place.ask(AGENT, &json!({})).await.ok()["agent"]["status"], "completed", "{status}");
        assert!(place.told().starts_with(&format!("HTTP {status}")) && place.told().contains("busy"), "{status}");
        assert_eq!(place.tools.calls().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn a_service_that_is_not_there_was_not_called() {
    let upstream = Upstream::start([Reply::calls("pay", &json!({"note": "5"})), Reply::says("Done.")]).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = free.local_addr().expect("it is bound");
    drop(free);
    let tool = format!(
        "[agents.default]\ntools = [\"pay\"]\n[tools.pay]\ndescription = \"Pays\"\nmethod = \"POST\"\n\
         url = \"http://{address}/pay\"\n\
         parameters = {{ type = \"object\", properties = {{ note = {{ type = \"string\" }} }} }}\n"
    );
    let server = TestServer::start(&format!("{}{tool}", upstream.config())).await;
    let body = json!({"model": "test", "messages": [{"role": "user", "content": "Pay."}]});
    let answer = server.post(AGENT, &body).await.ok();
    assert_eq!(answer["agent"]["status"], "completed");
    let told = upstream.requests()[1]["messages"].to_string();
    assert!(told.contains("could not be reached. Nothing was sent."), "{told}");
}

#[tokio::test]
async fn a_call_that_may_be_repeated_is_repeated_once_under_its_key() {
    for answer in [lost(), Reply::status(502)] {
        let place = Place::new("idempotent", [answer]).await;
        assert_eq!(place.ask(AGENT, &json!({})).await.ok()["agent"]["status"], "completed");
        assert_eq!(place.told(), "ok");
        let keys = place.keys();
        assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
    }

    let place = Place::new("idempotent", [lost(), lost()]).await;
    assert_eq!(place.ask(AGENT, &json!({})).await.body["error"]["code"], "outcome_unknown");
    assert_eq!(place.keys().len(), 2);
}

/// Any client can answer, also one that knows OpenAI's API alone: as it answers its own tools.
#[tokio::test]
async fn a_caller_that_is_asked_answers_as_it_answers_its_own_tools() {
    for (content, told, calls) in
        [("It was paid.", "It was paid.", 1), ("retry", "ok", 2), ("skip", "Whether it took effect is unknown", 1)]
    {
        let place = Place::new("write", [lost()]).await;
        let asked = place.ask(CHAT, &json!({"on_unknown_outcome": "ask"})).await.ok();
        let (choice, agent) = (&asked["choices"][0], &asked["agent"]);
        assert_eq!((&choice["finish_reason"], &agent["status"]), (&json!("tool_calls"), &json!("requires_action")));
        assert_eq!(
            (&agent["stop_reason"], &agent["required_action"]["type"]),
            (&json!("outcome_asked"), &json!("outcome_unknown"))
        );
        let call = &agent["required_action"]["calls"][0];
        assert_eq!((&call["name"], &call["arguments"]), (&json!("pay"), &json!({"note": "5"})));
        assert!(call["reason"].as_str().is_some_and(|reason| reason.contains("before it answered")), "{call}");
        assert_eq!(place.upstream.requests().len(), 1, "the model waits");

        let result =
            json!({"role": "tool", "tool_call_id": choice["message"]["tool_calls"][0]["id"], "content": content});
        let transcript = json!([{"role": "user", "content": "Pay."}, choice["message"], result]);
        let answer = place.server.post(CHAT, &json!({"model": "test", "messages": transcript})).await.ok();
        assert_eq!((&answer["agent"]["status"], &answer["agent"]["run_id"]), (&json!("completed"), &agent["run_id"]));
        assert!(place.told().contains(told), "{content}: {}", place.told());
        let keys = place.keys();
        assert!(keys.len() == calls && keys.iter().all(|key| *key == keys[0]), "{content}: {keys:?}");
    }
}

/// A call that is only left to lie has a result in the session all the same.
#[tokio::test]
async fn a_session_that_goes_on_without_an_answer_remembers_that_the_outcome_is_unknown() {
    let place = Place::new("write", [lost()]).await;
    let session = json!({"session_id": "s", "on_unknown_outcome": "ask"});
    place.ask(AGENT, &session).await.ok();
    place.ask(AGENT, &session).await.ok();
    let messages = place.server.get("/v1/sessions/s/messages").await.ok();
    let result = messages["data"][2]["message"]["content"].as_str().unwrap_or_default();
    assert!(result.contains("Whether it took effect is unknown"), "{messages}");
}

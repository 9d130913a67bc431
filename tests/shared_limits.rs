//! Limits on what the runs of an agent, and of a user, take together.

use std::pin::pin;

use futures_util::future::{Either, select};
use serde_json::{Value, json};

use crate::support::{Gate, Reply, TestServer, Upstream};

const CONFIG: &str = r#"
    [agents.default]
    limits = { max_concurrent_runs = 2 }

    [agents.slow]
    limits = { max_concurrent_runs = 1, requests_per_minute = 3 }

    [keys.app]
    key_env = "APP"
    per_user = { max_concurrent_runs = 1 }

    [server]
    drain_delay = "0s"
"#;

fn by(user: &str, model: &str) -> Value {
    json!({"model": model, "user": user, "messages": [{"role": "user", "content": "Hi"}]})
}

#[tokio::test]
async fn a_refusal_says_whose_limit_it_is() {
    let gate = Gate::new();
    let held = Reply::stream().text("Hello").gate(&gate);
    let upstream = Upstream::start([held.finish("stop").usage(10, 5).done()]).await;
    upstream.otherwise(Reply::says("Hello"));
    let server = TestServer::builder(&(upstream.config() + CONFIG)).env("APP", "lg_app").start().await;
    let ask = |user: &str, model: &str| {
        server.send(server.json("/v1/chat/completions", &by(user, model)).bearer_auth("lg_app"))
    };
    let holds = pin!(ask("ann", "slow"));
    let holds = match select(pin!(gate.reached()), holds).await {
        Either::Left(((), holds)) => holds,
        Either::Right((answer, _)) => panic!("{}", answer.body),
    };
    for (user, model, says) in [
        ("ann", "test", "the user \"ann\" of this key may have 1 runs at once"),
        ("bob", "slow", "the agent \"slow\" may have 1 runs at once"),
    ] {
        let refused = ask(user, model).await;
        let (code, message) = (&refused.body["error"]["code"], refused.body["error"]["message"].as_str());
        assert_eq!((refused.status, code), (429, &json!("rate_limit_exceeded")), "{}", refused.body);
        assert!(message.is_some_and(|message| message.starts_with(says)), "{message:?}");
    }
    assert_eq!(ask("bob", "test").await.status, 200, "another user's run of another agent");
    gate.open();
    assert_eq!(holds.await.status, 200);
    assert_eq!(ask("ann", "slow").await.status, 200);
    let refused = ask("ann", "slow").await;
    assert_eq!(refused.status, 429, "the third of a minute was refused, and is counted: {}", refused.body);
    assert_eq!(refused.body["error"]["message"], "the agent \"slow\" may begin 3 runs a minute");
}

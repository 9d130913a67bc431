//! Requests that wait for others, and those that come meanwhile.

use std::pin::pin;

use futures_util::future::{Either, select};
use serde_json::json;

use crate::support::{Gate, Reply, TestServer, Upstream};

/// Of bodies of this length one may wait, and one be worked on.
const LARGE: usize = 600 << 10;
const CONFIG: &str = r#"
    [keys.poor]
    key_env = "POOR"
    token_budget = { limit = 1000 }

    [keys.other]
    key_env = "OTHER"

    [server]
    drain_delay = "0s"
    max_body = "1MiB"
    body_memory = "4MiB"
"#;

/// A request waits for as long as others have only reserved what its key's budget lacks. That may be minutes.
#[tokio::test]
async fn requests_that_wait_for_a_budget_leave_room_to_other_tenants() {
    let gate = Gate::new();
    let begun = Reply::stream().text("Hello").gate(&gate);
    let upstream = Upstream::start([begun.finish("stop").usage(10, 5).done()]).await;
    upstream.otherwise(Reply::says("Hello"));
    let config = upstream.config() + CONFIG;
    let server = TestServer::builder(&config).env("POOR", "lg_poor").env("OTHER", "lg_other").start().await;
    let ask = |key: &str, length| {
        let body = json!({"model": "test", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 600});
        let request = server.json("/v1/agent/completions", &body).bearer_auth(key);
        server.send(request.body(format!("{body}{}", " ".repeat(length))))
    };

    let holds = pin!(ask("lg_poor", 0));
    let holds = match select(pin!(gate.reached()), holds).await {
        Either::Left(((), holds)) => holds,
        Either::Right((answer, _)) => panic!("{}", answer.body),
    };
    let (one, two) = (pin!(ask("lg_poor", LARGE)), pin!(ask("lg_poor", LARGE)));
    let (refused, waits) = select(one, two).await.factor_first();
    assert_eq!((refused.status, &refused.body["error"]["code"]), (429, &json!("budget_exceeded")), "{}", refused.body);
    let other = ask("lg_other", LARGE).await;
    assert_eq!(other.status, 200, "{}", other.body);
    gate.open();
    assert_eq!((holds.await.status, waits.await.status), (200, 200));
}

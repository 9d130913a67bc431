//! What is refused of requests for agents that are made of others.

use serde_json::json;

use super::{AGENT, AGENTS, CHAT, ask, message, play, stage};
use crate::support::TestServer;
use crate::support::http::HttpServer;
use crate::support::upstream::{declaration, is_list};

#[tokio::test]
async fn what_only_a_model_could_do_is_refused_before_anything_is_asked() {
    let (model, server) = stage("").await;
    let tool = json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}});
    for (path, member, value, says) in [
        (CHAT, "tools", json!([tool]), "has no model of its own"),
        (AGENT, "agent", json!({"tools": ["calculator"]}), "its agents have their own tools"),
        (AGENT, "agent", json!({"dry_run": true}), "dry run of one of them: writer, editor"),
        (AGENT, "agent", json!({"prompt": {"mode": "minimal"}}), "their own prompts"),
    ] {
        let mut body = ask("review");
        body[member] = value;
        let refused = server.post(path, &body).await;
        assert_eq!((refused.status, refused.code()), (400, "invalid_value"), "{body}: {}", message(&refused));
        assert!(message(&refused).contains(says), "{}", message(&refused));
    }
    let mut body = ask("voices");
    body["response_format"] = json!({"type": "json_object"});
    let refused = server.post(CHAT, &body).await;
    assert_eq!(refused.status, 400);
    assert!(message(&refused).contains("consolidate"), "{}", message(&refused));
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_key_may_use_a_composite_agent_only_with_all_that_it_is_made_of() {
    let model = HttpServer::start(|request| !is_list(request), play).await;
    let keys = "[keys.some]\nkey_env = \"SOME\"\nagents = [\"review\", \"writer\"]\n\
                [keys.all]\nkey_env = \"ALL\"\nagents = [\"review\", \"writer\", \"editor\"]\n";
    let config = format!("{}{AGENTS}{keys}", declaration(model.address()));
    let mut server = TestServer::builder(&config).env("SOME", "SOME").env("ALL", "ALL").start().await;
    server.use_key("SOME");
    let refused = server.post(CHAT, &ask("review")).await;
    assert_eq!((refused.status, refused.code()), (403, "forbidden"));
    assert!(message(&refused).contains("editor"), "{}", message(&refused));
    server.use_key("ALL");
    server.post(CHAT, &ask("review")).await.ok();
    assert_eq!(model.requests().len(), 2);
}

//! A model that asks the user, as clients see it that know nothing of questions.

use serde_json::json;

use crate::support::chat::{chunks, told};
use crate::support::{Reply, TestServer, Upstream};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_chat_client_is_asked_in_words_and_answers_in_words_also_after_a_restart() {
    let asks = || Reply::calls("ask_user", &json!({"question": "Which one?", "options": ["red", "blue"]}));
    let upstream = Upstream::start([asks(), Reply::says("Blue it is."), asks()]).await;
    let config = upstream.config() + "\n[agents.default]\ntools = [\"ask_user\"]\n";
    let mut server = TestServer::start(&config).await;
    let says = |text: &str| json!({"model": "test", "messages": [{"role": "user", "content": text}], "agent": {"session_id": "s"}});
    let asked = server.post(CHAT, &says("One, please.")).await.ok();
    let choice = &asked["choices"][0];
    assert_eq!((&choice["finish_reason"], choice["message"].get("tool_calls")), (&json!("stop"), None), "{asked}");
    assert_eq!(choice["message"]["content"], "Which one?\n- red\n- blue");
    let action = &asked["agent"]["required_action"];
    assert_eq!((&asked["agent"]["stop_reason"], &action["type"]), (&json!("ask_user"), &json!("ask_user")));
    assert_eq!(action["calls"][0]["arguments"]["options"], json!(["red", "blue"]));
    server.kill9().await;
    server.restart().await;
    let answered = server.post(CHAT, &says("The blue one.")).await.ok();
    assert_eq!(answered["choices"][0]["message"]["content"], "Blue it is.", "{answered}");
    assert_eq!(answered["agent"]["run_id"], asked["agent"]["run_id"], "the same run goes on");
    let requests = upstream.requests();
    let last = requests[1]["messages"].as_array().expect("it is a list").last().cloned().expect("it has one");
    assert_eq!((&last["role"], &last["content"]), (&json!("tool"), &json!("The blue one.")));

    // A stream says it as well.
    let mut streamed = says("Another one, please.");
    streamed["stream"] = json!(true);
    let chunks = chunks(&server, &streamed).await;
    assert_eq!(told(&chunks), ("Which one?\n- red\n- blue".to_owned(), String::new(), json!("stop")));
}

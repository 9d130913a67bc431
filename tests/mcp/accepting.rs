//! Definitions that are held back: how they are seen, and who accepts them.

use http::Method;
use serde_json::{Value, json};

use super::{call, config, until};
use crate::support::server::loopgate;
use crate::support::{TestServer, Upstream, within};

/// Keys: one that accepts definitions, one of the same scope of another tenant, and one without the scope.
const KEYS: &str = "[keys.a]\nkey_env = \"OPERATOR\"\ntenant = \"a\"\nscopes = [\"run\", \"read\", \"tools\"]\n\
                    [keys.b]\nkey_env = \"OTHER\"\ntenant = \"b\"\nscopes = [\"run\", \"tools\", \"metrics\"]\n\
                    [keys.c]\nkey_env = \"PLAIN\"\ntenant = \"a\"\n";

async fn keyed(config: &str) -> TestServer {
    let builder = TestServer::builder(&format!("{config}{KEYS}"));
    let mut server = builder.env("OPERATOR", "OPERATOR").env("OTHER", "OTHER").env("PLAIN", "PLAIN").start().await;
    server.use_key("OPERATOR");
    server
}

/// A tool as it is listed.
async fn listed(server: &TestServer, name: &str) -> Value {
    let all = server.get("/v1/tools").await.ok();
    let found = all["data"].as_array().expect("it is a list").iter().find(|tool| tool["name"] == name);
    found.cloned().unwrap_or_default()
}

async fn put(server: &TestServer, name: &str, hash: &str) -> (u16, String) {
    let answer = server.send(server.request(Method::PUT, &format!("/v1/tools/{name}/accepted/{hash}"))).await;
    let code = if answer.status == 200 { String::new() } else { answer.code().to_owned() };
    (answer.status, code)
}

/// Has the definition of `echo` change, and returns the hash of the new one once it is held back.
async fn changed(server: &TestServer, upstream: &Upstream, what: &Value) -> String {
    call(server, upstream, "test__change", json!({"what": what})).await;
    let held = async {
        loop {
            let tool = listed(server, "test__echo").await;
            if tool["held_back"] == "changed" {
                break tool["definition_hash"].as_str().expect("it has one").to_owned();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within("the change to be held back", held).await
}

#[tokio::test]
async fn a_definition_is_accepted_over_http_by_keys_that_may() {
    let upstream = Upstream::start([]).await;
    let mut server = keyed(&config(&upstream, "", "")).await;
    let before = listed(&server, "test__echo").await["definition_hash"].as_str().expect("it has one").to_owned();
    let hash = changed(&server, &upstream, &json!(true)).await;
    server.logged("the definition of a tool is held back until it is accepted").await;
    server.use_key("OTHER");
    let metrics = server.respond(server.request(Method::GET, "/metrics")).await.text().await.expect("it is text");
    assert!(metrics.contains("loopgate_mcp_tools_held{server=\"test\"} 1\n"), "{metrics}");
    assert!(metrics.contains("loopgate_mcp_server_state{server=\"test\",state=\"up\"} 1\n"), "{metrics}");

    server.use_key("PLAIN");
    assert_eq!(put(&server, "test__echo", &hash).await, (403, "forbidden".to_owned()));
    server.use_key("NONE");
    assert_eq!(put(&server, "test__echo", &hash).await, (401, "invalid_api_key".to_owned()));
    server.use_key("OPERATOR");
    for (name, hash, status, code) in [
        ("calculator", hash.as_str(), 404, "tool_not_found"),
        ("nowhere__echo", &hash, 404, "tool_not_found"),
        ("test__nothing", &hash, 409, "version_conflict"),
        ("test__echo", "none", 409, "version_conflict"),
    ] {
        assert_eq!(put(&server, name, hash).await, (status, code.to_owned()), "{name} {hash}");
    }
    // Definitions are those of the whole server, whichever tenant the key is of.
    server.use_key("OTHER");
    assert_eq!(put(&server, "test__echo", &hash).await, (200, String::new()));
    assert_eq!(put(&server, "test__echo", &hash).await, (200, String::new()), "what is accepted stays so");
    assert_eq!(put(&server, "test__echo", &before).await, (409, "version_conflict".to_owned()));
    server.use_key("OPERATOR");
    assert!(listed(&server, "test__echo").await["held_back"].is_null());
    assert_eq!(call(&server, &upstream, "test__echo", json!({"text": "again"})).await, "again");
}

#[tokio::test]
async fn a_server_that_is_believed_cannot_make_an_effect_weaker_by_itself() {
    let upstream = Upstream::start([]).await;
    let server = keyed(&config(&upstream, "", "effect = { trust_annotations = true }")).await;
    assert_eq!(listed(&server, "test__parts").await["effect"], "write");
    call(&server, &upstream, "test__change", json!({"what": "hint"})).await;
    let held = async {
        while listed(&server, "test__parts").await["held_back"] != "changed" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within("the hint to be held back", held).await;
    let told = call(&server, &upstream, "test__parts", json!({})).await;
    assert!(told.contains("There is no tool named"), "{told}");
}

#[tokio::test]
async fn a_definition_is_accepted_from_the_command_line() {
    let upstream = Upstream::start([]).await;
    let server = keyed(&config(&upstream, "", "")).await;
    let directory = tempfile::tempdir().expect("it can be made");
    let accept = async |arguments: &[&str]| {
        let mut command = loopgate(directory.path());
        command.args(["tools", "accept", "--url", server.url(), "--key", "OPERATOR"]).args(arguments);
        let done = within("the command", command.kill_on_drop(true).output()).await.expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let (code, _, said) = accept(&[]).await;
    assert!(code == Some(0) && said.contains("No tool is held back."), "{said}");
    let (code, _, said) = accept(&["test__echo"]).await;
    assert!(code == Some(1) && said.contains("the definition of test__echo is not held back"), "{said}");
    let hash = changed(&server, &upstream, &json!(true)).await;
    let (code, shown, said) = accept(&[]).await;
    assert!(code == Some(0) && shown.contains(&hash) && shown.contains("test__echo  changed"), "{shown}{said}");
    let (code, _, said) = accept(&["test__echo", "0123456789abcdef"]).await;
    assert!(code == Some(1) && said.contains("look at that first"), "{said}");
    assert_eq!(accept(&["test__nowhere"]).await.0, Some(7));
    let (code, shown, said) = accept(&["test__echo", &hash[..12]]).await;
    assert!(
        code == Some(0) && shown.contains(&format!("Agents have test__echo as {hash} defines it")),
        "{shown}{said}"
    );
    assert!(listed(&server, "test__echo").await["held_back"].is_null());
}

#[tokio::test]
async fn a_server_that_crashes_again_and_again_is_disabled_until_the_configuration_is_read_again() {
    let upstream = Upstream::start([]).await;
    let directory = tempfile::tempdir().expect("it can be made");
    let marker = directory.path().join("well");
    let options = format!(", \"--die-without\", {:?}", marker.display().to_string());
    let config = config(&upstream, &options, "");
    let server = keyed(&config).await;
    server.logged("an MCP server crashed too often and is disabled").await;
    let started = || server.output().matches("started with").count();
    assert_eq!(started(), 5);
    std::fs::write(&marker, "").expect("it can be written");
    server.reload(&format!("{config}{KEYS}")).await;
    until("the server to be tried again", || server.output().contains("listed its tools")).await;
    assert_eq!(call(&server, &upstream, "test__echo", json!({"text": "well"})).await, "well");
}

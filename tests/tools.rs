//! What reaches the services behind HTTP tools, and what comes back from them and from upstreams.

use serde_json::{Value, json};

use crate::support::server::loopgate;
use crate::support::{Reply, TestServer, ToolServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";

fn ask() -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "Go."}]})
}

/// A tool whose path takes an argument.
fn profile(tools: &ToolServer) -> String {
    format!(
        "[agents.default]\ntools = [\"profile\"]\n[tools.profile]\ndescription = \"A user's profile\"\nmethod = \"GET\"\n\
         url = \"http://{}/users/{{id}}/profile\"\neffect = \"read\"\n\
         parameters = {{ type = \"object\", properties = {{ id = {{ type = \"string\" }} }} }}\n",
        tools.address()
    )
}

/// A server whose agents have this tool of `tools`.
fn with_tool(upstream: &Upstream, tools: &ToolServer, name: &str, effect: &str) -> String {
    format!("{}{}[agents.default]\ntools = [\"{name}\"]\n", upstream.config(), tools.config(name, effect))
}

/// What the model is told of its call.
fn told(upstream: &Upstream) -> String {
    let requests = upstream.requests();
    let message = requests[1]["messages"].as_array().and_then(|messages| messages.last()).expect("there are messages");
    assert_eq!(message["role"], "tool", "{message}");
    message["content"].as_str().expect("it is text").to_owned()
}

#[tokio::test]
async fn path_arguments_stay_in_their_segment() {
    for id in ["7/../../admin/keys", "..", "7%2f..%2F..%2fadmin%2Fkeys", "7\\..\\keys", "7\n"] {
        let tools = ToolServer::start([]).await;
        let upstream = Upstream::start([Reply::calls("profile", &json!({"id": id})), Reply::says("Done.")]).await;
        let server = TestServer::start(&format!("{}{}", upstream.config(), profile(&tools))).await;
        server.post(ENDPOINT, &ask()).await.ok();
        assert!(tools.calls().is_empty(), "{id:?} was sent as {}", tools.calls()[0].target);
        assert!(told(&upstream).contains("which is not allowed") || told(&upstream).contains("must not contain"));
    }
}

#[tokio::test]
async fn arguments_that_are_not_declared_are_not_sent() {
    let tools = ToolServer::start([]).await;
    let arguments = json!({"note": "x", "admin": true});
    let upstream = Upstream::start([Reply::calls("pay", &arguments), Reply::says("Done.")]).await;
    let server = TestServer::start(&with_tool(&upstream, &tools, "pay", "write")).await;
    server.post(ENDPOINT, &ask()).await.ok();
    assert!(tools.calls().is_empty(), "{:?}", tools.calls());
    assert!(told(&upstream).contains("no parameter `admin`"), "{}", told(&upstream));
}

#[tokio::test]
async fn nobody_is_asked_for_compressed_answers_and_who_sends_one_is_told_so() {
    let gzip = Reply::plain(b"\x1f\x8b\x08\0\0".as_slice()).header("content-encoding", "gzip");
    let tools = ToolServer::start([gzip.clone()]).await;
    let upstream = Upstream::start([Reply::calls("look", &json!({"note": "x"})), Reply::says("Done."), gzip]).await;
    let server = TestServer::start(&with_tool(&upstream, &tools, "look", "read")).await;
    server.post(ENDPOINT, &ask()).await.ok();
    assert!(told(&upstream).contains("compressed its answer (gzip)"), "{}", told(&upstream));
    let answer = server.post(ENDPOINT, &ask()).await;
    assert_eq!(answer.status, 502, "{}", answer.body);
    let message = answer.body["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("compressed its answer (gzip)"), "{message}");
    assert_eq!(upstream.requests().len(), 3, "asking again would give the same");
    for request in tools.calls().iter().chain(&upstream.raw_requests()) {
        assert_eq!(request.headers.get("accept-encoding").map(String::as_str), Some("identity"), "{}", request.target);
    }
}

/// The status of an error says enough to act on; its body says nothing to people while it is compressed.
#[tokio::test]
async fn a_compressed_error_is_told_by_its_status_alone() {
    let bytes = b"\x1f\x8b\x08\0\0 not for people".as_slice();
    for (status, code) in [(400, "request_rejected"), (402, "provider_error")] {
        let gzip = Reply::status(status).header("content-encoding", "gzip").bytes(bytes);
        let upstream = Upstream::start([gzip]).await;
        let server = TestServer::start(&upstream.config()).await;
        let answer = server.post(ENDPOINT, &ask()).await;
        assert_eq!(answer.code(), code, "{}", answer.body);
        let said =
            format!("upstream scripted answered {status}: its explanation is compressed (gzip) and cannot be read");
        assert_eq!(answer.body["error"]["message"], said);
    }
}

/// The service got the call and said that it went well, but not what it did.
#[tokio::test]
async fn of_a_compressed_answer_to_a_call_with_side_effects_the_outcome_is_unknown() {
    for (status, is_unknown) in [(200, true), (422, false)] {
        let gzip = Reply::status(status).header("content-encoding", "gzip").bytes(b"\x1f\x8b".as_slice());
        let tools = ToolServer::start([gzip]).await;
        let upstream = Upstream::start([Reply::calls("pay", &json!({"note": "x"})), Reply::says("Done.")]).await;
        let server = TestServer::start(&with_tool(&upstream, &tools, "pay", "write")).await;
        let mut request = ask();
        request["agent"] = json!({"on_unknown_outcome": "tell_model"});
        let answer = server.post(ENDPOINT, &request).await.ok();
        let call = &answer["agent"]["report"]["steps"][0]["tool_calls"][0];
        assert_eq!(call["outcome_unknown"] == true, is_unknown, "{status}: {}", answer["agent"]["report"]);
        assert_eq!(tools.calls().len(), 1);
        assert!(told(&upstream).contains("compressed its answer (gzip)"), "{}", told(&upstream));
    }
}

#[tokio::test]
async fn what_a_content_filter_holds_back_is_told_as_such_and_not_asked_for_again() {
    for text in ["", "I would"] {
        let held =
            Reply::stream().text(text).tool_call(0, "a", "pay", "{}").finish("content_filter").usage(9, 1).done();
        let upstream = Upstream::start([held]).await;
        let tools = ToolServer::start([]).await;
        let server = TestServer::start(&with_tool(&upstream, &tools, "pay", "write")).await;
        let answer = server.post(ENDPOINT, &ask()).await.ok();
        let agent = &answer["agent"];
        assert_eq!((&agent["status"], &agent["stop_reason"]), (&json!("incomplete"), &json!("content_filter")));
        assert_eq!(answer["choices"][0]["finish_reason"], "content_filter");
        assert_eq!((upstream.requests().len(), tools.calls().len()), (1, 0));
    }
}

/// What is shown is what is done: of two members of one name, readers take different ones.
#[tokio::test]
async fn ambiguous_arguments_reach_no_tool() {
    let doubled = Reply::stream().tool_call(0, "a", "pay", r#"{"note": "1", "note": "900"}"#);
    let upstream = Upstream::start([doubled.finish("tool_calls").usage(9, 1).done(), Reply::says("Done.")]).await;
    let tools = ToolServer::start([]).await;
    let server = TestServer::start(&with_tool(&upstream, &tools, "pay", "write")).await;
    server.post(ENDPOINT, &ask()).await.ok();
    assert!(tools.calls().is_empty(), "{:?}", tools.calls());
    assert!(told(&upstream).contains("the member \"note\" is given twice"), "{}", told(&upstream));
}

/// The operator who turns the setting on knows the model. Without the setting only tools that change nothing are called.
#[tokio::test]
async fn a_written_call_of_a_tool_with_side_effects_is_made_only_where_the_operator_wants_it() {
    for (effect, setting, calls) in
        [("read", "", 1), ("write", "", 0), ("idempotent", "", 0), ("write", "recover_text_tool_calls = true\n", 1)]
    {
        let tools = ToolServer::start([]).await;
        let written = r#"{"name": "pay", "arguments": {"note": "5"}}"#;
        let upstream = Upstream::start([Reply::says(written), Reply::says("Done.")]).await;
        let tool = format!("{}[agents.default]\ntools = [\"pay\"]\n", tools.config("pay", effect));
        let server = TestServer::start(&format!("{}{setting}{tool}", upstream.config())).await;
        let answer = server.post(ENDPOINT, &ask()).await.ok();
        assert_eq!(tools.calls().len(), calls, "{effect} {setting}");
        let said = if calls == 0 { written } else { "Done." };
        assert_eq!(answer["choices"][0]["message"]["content"], said, "{effect} {setting}");
    }
}

/// The calls that a page shows, each with the request that it says is sent: tool, arguments, request line, headers, body.
fn shown(section: &str) -> Vec<(&str, &str, &str, Vec<&str>, &str)> {
    let calls = section.split("\nA call `").skip(1);
    let read = calls.map(|rest| {
        let (call, rest) = rest.split_once("` sends\n").expect("a call is sent");
        let (tool, arguments) = call.split_once(' ').expect("a call has arguments");
        let (_, rest) = rest.split_once("```http\n").expect("a request is shown");
        let (request, _) = rest.split_once("\n```").expect("it ends");
        let (head, body) = request.split_once("\n\n").expect("it has a body");
        let mut lines = head.lines();
        (tool, arguments, lines.next().unwrap_or_default(), lines.collect(), body)
    });
    read.collect()
}

#[tokio::test]
async fn the_page_on_tools_shows_the_requests_that_are_sent() {
    let page = include_str!("../docs/tools.md");
    let section = page.split("\n## Where arguments go\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let section = section.expect("the page has the section");
    let tools = ToolServer::start([]).await;
    let blocks = section.split("```toml\n").skip(1).map(|rest| rest.split("\n```").next().unwrap_or_default());
    let mut config = blocks.collect::<Vec<_>>().join("\n");
    for host in ["https://desk.example.com", "https://lists.example.com"] {
        assert!(config.contains(host));
        config = config.replace(host, &format!("http://{}", tools.address()));
    }
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("loopgate.toml"), config).expect("it can be written to");
    let calls = shown(section);
    assert_eq!(calls.len(), 2);
    for (number, (tool, arguments, line, headers, body)) in calls.into_iter().enumerate() {
        let mut command = loopgate(directory.path());
        command.args(["tools", "call", tool, arguments]).env("DESK_KEY", "hush").kill_on_drop(true);
        let ran = within("a command to end", command.output()).await.expect("it can be started");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let sent = tools.calls().swap_remove(number);
        assert_eq!(format!("{} {}", sent.method, sent.target), line);
        for header in headers {
            let (name, value) = header.split_once(": ").expect("a header has a value");
            assert_eq!(sent.headers[name], value);
        }
        assert_eq!(String::from_utf8_lossy(&sent.body), body);
        assert_eq!(sent.headers.get("authorization").map(String::as_str), (number == 0).then_some("Bearer hush"));
    }
}

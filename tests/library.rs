//! The server as a library: the programs in `examples/`, and what else such programs may do.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use loopgate::{
    Answer, Effect, Failure, Model, ModelRequest, Server, Speaker, Tool, ToolAnswer, ToolCall, ToolDefinition,
    ToolError, Value, async_trait, json,
};
use tempfile::tempdir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::within;

/// A program of `examples/` that is running, and where it listens.
async fn example(name: &str) -> (Child, String) {
    let test = std::env::current_exe().expect("it has a path");
    let built: PathBuf =
        test.ancestors().nth(2).expect("it lies in a directory of its own").join("examples").join(name);
    let directory = tempdir().expect("a directory can be made");
    let mut command = Command::new(built);
    for variable in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"] {
        command.env_remove(variable);
    }
    let mut child =
        command.current_dir(directory.path()).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it is built");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let url = within("the example to listen", lines.next_line()).await.expect("it can be read").expect("it says where");
    (child, url)
}

async fn ask(url: &str, model: &str, question: &str) -> Value {
    let body = json!({"model": model, "messages": [{"role": "user", "content": question}]});
    let sending = reqwest::Client::new().post(format!("{url}/v1/agent/completions")).body(body.to_string());
    let answer =
        within("an answer", sending.header("content-type", "application/json").send()).await.expect("it answers");
    serde_json::from_str(&answer.text().await.expect("it is whole")).expect("it is JSON")
}

fn said(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("no answer: {answer}"))
}

#[tokio::test]
async fn the_example_of_a_tool_does_what_it_says() {
    let (_child, url) = example("custom_tool").await;
    let answer = ask(&url, "demo", "Call count_words with {\"text\": \"one two three\"}").await;
    assert!(said(&answer).contains("\"words\":3") && said(&answer).contains("\"counted_for\":\"default\""), "{answer}");
}

#[tokio::test]
async fn the_example_of_a_model_does_what_it_says() {
    let (_child, url) = example("custom_model").await;
    assert_eq!(said(&ask(&url, "mine/parrot", "Hello there").await), "Hello there");
    let computed = ask(&url, "mine/parrot", "Compute 6 * 7").await;
    assert_eq!(said(&computed), "42");
    assert_eq!(computed["usage"]["completion_tokens"], 5, "{computed}");
}

/// Fails as it is told, and says what it knows of the call.
#[derive(Debug)]
struct Moody;

#[async_trait]
impl Tool for Moody {
    fn definition(&self) -> ToolDefinition {
        let schema = json!({"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]});
        ToolDefinition::new("moody", "Has moods.")
            .parameters(schema)
            .effect(Effect::Write)
            .timeout(Duration::from_secs(5))
    }

    async fn call(&self, arguments: Value, call: &ToolCall) -> Result<ToolAnswer, ToolError> {
        match arguments["how"].as_str() {
            Some("failed") => Err(ToolError::failed("no luck")),
            Some("unknown") => Err(ToolError::Unknown("who knows".to_owned())),
            Some("panic") => panic!("as told"),
            _ => {
                let user = call.user().unwrap_or("nobody");
                Ok(ToolAnswer::text(format!("{} {} {user}", call.agent(), call.id().starts_with("call_"))))
            }
        }
    }
}

/// Calls the tool with what it is told, and then says what came of it.
#[derive(Debug)]
struct Caller;

#[async_trait]
impl Model for Caller {
    fn names(&self) -> Vec<String> {
        vec!["caller".to_owned(), "broken".to_owned()]
    }

    async fn answer(&self, request: ModelRequest, answer: &mut Answer) -> Result<(), Failure> {
        let last = request.messages.last().expect("there is a question");
        assert!(request.tools.iter().any(|tool| tool.name == "moody" && tool.parameters["type"] == "object"));
        match (request.model.as_str(), last.speaker) {
            ("broken", _) => return Err(Failure::Refused("I am broken.".to_owned())),
            (_, Speaker::User) => answer.call("moody", &json!({"how": last.text})),
            _ => answer.text(format!("It said: {}", last.text)).await,
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_tools_and_models_of_a_program_do_is_told_as_of_all_others() {
    let config = "[agents.default]\non_unknown_outcome = \"tell_model\"\n[agents.mine]\nmodel = \"here/caller\"\ntools = [\"moody\"]\n";
    let config = config.replace("on_unknown_outcome = \"tell_model\"\n", "");
    let server = Server::builder()
        .config(config)
        .listen(([127, 0, 0, 1], 0).into())
        .store("memory:")
        .tool(Moody)
        .model("here", Caller)
        .start()
        .await
        .expect("it starts");
    let url = server.url();
    assert_eq!(said(&ask(&url, "mine", "well").await), "It said: mine true nobody");
    assert_eq!(said(&ask(&url, "mine", "failed").await), "It said: no luck");
    for how in ["unknown", "panic"] {
        let answer = ask(&url, "mine", how).await;
        assert_eq!(answer["error"]["code"], "outcome_unknown", "{how}: {answer}");
    }
    let broken = ask(&url, "here/broken", "Hi").await;
    assert!(broken["error"]["message"].as_str().is_some_and(|message| message.contains("I am broken.")), "{broken}");
    within("the server to stop", server.stop()).await;
    assert!(reqwest::get(format!("{url}/healthz")).await.is_err(), "it listens no longer");
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_keep_a_server_from_starting_and_say_why() {
    let builder = || Server::builder().listen(([127, 0, 0, 1], 0).into()).store("memory:");
    for (builder, words) in [
        (builder().config("[server]\nlisen = 1\n"), "configuration:2"),
        (builder().config("[agents.a]\nmodel = \"demo\"\ntools = [\"mody\"]\n").tool(Moody), "did you mean `moody`?"),
        (builder().config("").tool(Moody).tool(Moody), "two tools are named `moody`"),
        (builder().config("").store("nonsense"), "the URL of the store is refused"),
    ] {
        let why = builder.start().await.expect_err(words).to_string();
        assert!(why.contains(words), "{words}: {why}");
    }
}

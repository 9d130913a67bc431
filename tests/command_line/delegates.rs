//! What is shown of agents to whom a run delegates.

use serde_json::json;

use super::runs::{CommandLine, ask, ended};
use super::text;
use crate::support::server::loopgate;
use crate::support::{Reply, TestServer, Upstream, within};

/// Whose line is whose is told by its place and its first word; what others say is no part of the answer.
#[tokio::test]
async fn what_agents_do_to_whom_a_run_delegates_is_told_with_their_names() {
    let calls = Reply::calls("delegate", &json!({"agent": "worker", "task": "Count."}));
    let sum = Reply::calls("calculator", &json!({"expression": "6 * 7"}));
    let said = [calls, sum, Reply::says("One, two."), Reply::says("It counted.")];
    let upstream = Upstream::start(said.clone()).await;
    let agents = "[agents.boss]\nmodel = \"scripted/test\"\ndelegates = [\"worker\"]\n[agents.worker]\nmodel = \"scripted/test\"\n";
    let server = TestServer::start(&format!("{}{agents}", upstream.config())).await;
    let line = CommandLine::of(&server);
    let run = ended(&server, &ask(&json!({"model": "boss"}))).await;
    let followed = line.run(&["follow", &run]).await;
    assert_eq!(followed.code, Some(0), "{followed:?}");
    in_order(
        &followed.out,
        &[
            "→ delegate {",
            "\n  worker begins, run_",
            "\n  worker step 1: the model is called",
            "\n  worker → calculator {",
            "\n  worker ← calculator: 42 (",
            "\n  worker: One, two.",
            "\n  worker: completed (done), ",
            "\n← delegate: One, two. (",
            "\nIt counted.",
            "\ncompleted (done), 2 model calls, ",
            "; all of the tree: ",
            " in 2 runs, $",
        ],
    );
    let is_a_wait =
        |line: &str| ["requires_action", "answers later", "was resumed"].iter().any(|word| line.contains(word));
    assert!(!followed.out.lines().any(is_a_wait), "those below tell what it waits for: {}", followed.out);
    for reply in said {
        upstream.then(reply);
    }
    let mut asks = loopgate(line.directory.path());
    asks.args(["ask", "--url", server.url(), "--model", "boss", "Go"]).kill_on_drop(true);
    let asked = within("a question", asks.output()).await.expect("it starts");
    assert_eq!(text(&asked.stdout).trim(), "It counted.", "{}", text(&asked.stderr));
    let (begins, ends) = ("\n  worker begins, run_", "\n  worker: completed (done), ");
    in_order(
        &text(&asked.stderr),
        &["→ delegate {", begins, "\n  worker → calculator {", ends, "\n← delegate: One, two. ("],
    );
}

/// That the text has all of these, one after the other.
fn in_order(text: &str, all: &[&str]) {
    let found =
        all.iter().try_fold(0, |from, words| text[from..].find(words).map(|at| from + at + words.len()).ok_or(words));
    assert!(found.is_ok(), "{found:?} is missing: {text}");
}

//! `loopgate ask --dry-run`: what a model would be told, and what it is told then.

use tempfile::tempdir;

use super::{run, text};
use crate::support::{Reply, TestServer, Upstream};

const PROMPTS: &str = r#"
[layers.house]
text = "Never promise a date."
priority = "system"

[keys.k]
key_env = "CALLERS_KEY"

[keys.k.layers.tone]
text = "Be kind."

[agents.support]
system = "You help."

[agents.support.layers.tone]
text = "Be short, too."
merge = "add"

[agents.support.prompt]
sections = ["runtime"]
reveal = true

[agents.support.prompt.templates]
runtime = "You are {agent}."
"#;

/// Rows T18 and G18, through the binary.
#[tokio::test]
async fn a_question_can_be_looked_at_before_it_is_asked() {
    let upstream = Upstream::start([Reply::says("Hello.")]).await;
    let config = format!("{}{PROMPTS}", upstream.config());
    let server = TestServer::builder(&config).env("CALLERS_KEY", "right").start().await;
    let directory = tempdir().expect("a directory can be made");
    let ask = async |more: &[&str]| {
        let asked = ["ask", "--url", server.url(), "--key", "right", "--model", "support", "Hi"];
        let ran = run(directory.path(), &[&asked[..], more].concat()).await;
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        text(&ran.stdout)
    };
    let told = ask(&["--dry-run"]).await;
    let instructions = "Never promise a date.\n\nYou help.\n\nBe kind.\n\nBe short, too.";
    for piece in
        ["nothing was called", instructions, "You are support.", "[user]\nHi", "the run  at most", "calculator"]
    {
        assert!(told.contains(piece), "{piece}: {told}");
    }
    let rows: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [["house", "server", "10"], ["system", "agent", "10"], ["tone", "key", "50"], ["runtime", "run", "80"]] {
        assert!(rows.iter().any(|found| found.starts_with(&row)), "{row:?}: {told}");
    }
    assert!(upstream.requests().is_empty(), "nothing was called");
    assert_eq!(ask(&[]).await, "Hello.\n");
    let requests = upstream.requests();
    let contents = requests[0]["messages"].as_array().expect("there are some");
    let contents: Vec<&str> = contents.iter().filter_map(|message| message["content"].as_str()).collect();
    let [first, of_run, asked] = &contents[..] else { panic!("{contents:?}") };
    assert!(*first == instructions && of_run.contains("You are support.") && *asked == "Hi", "{contents:?}");
}

//! `loopgate agents`, against a real server.

use serde_json::Value;
use tempfile::TempDir;

use super::text;
use crate::support::server::loopgate;
use crate::support::{TestServer, Upstream, within};

/// A directory with files of agents, beside a server.
struct CommandLine {
    directory: TempDir,
    url: String,
}

impl CommandLine {
    fn of(server: &TestServer) -> Self {
        Self { directory: tempfile::tempdir().expect("a directory can be made"), url: server.url().to_owned() }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).expect("a file can be written");
    }

    /// Whether the command succeeded, and what it said, then what it complained of.
    async fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        let mut command = loopgate(self.directory.path());
        command.arg("agents").args(arguments).env("LOOPGATE_URL", &self.url).env_remove("COLUMNS").kill_on_drop(true);
        let ran = within("a command to end", command.output()).await.expect("it can be started");
        (ran.status.success(), text(&ran.stdout), text(&ran.stderr))
    }

    /// The lines of a command that succeeds.
    async fn lines(&self, arguments: &[&str]) -> Vec<String> {
        let (is_good, out, err) = self.run(arguments).await;
        assert!(is_good, "{arguments:?}: {out}{err}");
        out.lines().map(str::to_owned).collect()
    }
}

const TWO: &str = "[agents.default]\nsystem = \"not sent\"\n[agents.clerk]\nmodel = \"test\"\nsystem = \"A\"\n\
                   [agents.clerk.limits]\nmax_iterations = 2\n[agents.greeter]\nmodel = \"test\"\n";

#[tokio::test]
async fn agents_of_a_file_are_compared_applied_listed_shown_and_deleted() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&format!("{}[agents.helper]\nmodel = \"test\"\n", upstream.config())).await;
    let cli = CommandLine::of(&server);
    cli.write("agents.toml", TWO);
    assert_eq!(cli.lines(&["diff", "agents.toml"]).await, ["agents.clerk: added", "agents.greeter: added"]);
    assert_eq!(server.get("/v1/agents/clerk").await.code(), "agent_not_found", "comparing changes nothing");
    assert_eq!(cli.lines(&["apply", "agents.toml"]).await, ["clerk: version 1", "greeter: version 2"]);
    assert_eq!(cli.lines(&["apply", "agents.toml"]).await, ["clerk: unchanged", "greeter: unchanged"]);
    assert_eq!(cli.lines(&["diff", "agents.toml"]).await, [""; 0]);
    cli.write("agents.toml", &TWO.replace("\"A\"", "\"B\"").replace("= 2", "= \"unlimited\"\ntimeout = \"9s\""));
    let differences = [
        "agents.clerk.limits.max_iterations: \"unlimited\", was 2",
        "agents.clerk.limits.timeout: \"9s\", was absent",
        "agents.clerk.system: \"B\", was \"A\"",
    ];
    assert_eq!(cli.lines(&["diff", "agents.toml"]).await, differences);
    assert_eq!(cli.lines(&["apply", "agents.toml"]).await, ["clerk: version 3", "greeter: unchanged"]);
    let shown: Value = serde_json::from_str(&cli.lines(&["show", "clerk"]).await.concat()).expect("it is JSON");
    assert_eq!((&shown["settings"]["system"], &shown["effective"]["limits"]["timeout"]), (&"B".into(), &"9s".into()));
    let listed = cli.lines(&["list"]).await;
    let cells: Vec<Vec<&str>> = listed.iter().map(|line| line.split_whitespace().take(2).collect()).collect();
    let store = [["clerk", "store"], ["greeter", "store"]];
    assert_eq!(cells[0], ["AGENT", "ORIGIN"]);
    assert!(cells.contains(&vec!["helper", "file"]) && cells.ends_with(&store.map(|row| row.to_vec())), "{listed:?}");
    assert_eq!(cli.lines(&["delete", "greeter"]).await, ["greeter is deleted, by version 4"]);
    assert_eq!(server.get("/v1/agents/greeter").await.code(), "agent_not_found");
}

#[tokio::test]
async fn an_agent_that_is_refused_is_named_and_leaves_the_others_changed() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&format!("{}[agents.helper]\nmodel = \"test\"\n", upstream.config())).await;
    let cli = CommandLine::of(&server);
    cli.write(
        "agents.json",
        r#"{"agents": {"clerk": {"model": "test"}, "helper": {"model": "test"}, "odd": {"modle": "x"}}}"#,
    );
    let (is_good, out, err) = cli.run(&["apply", "agents.json"]).await;
    assert!(!is_good);
    assert_eq!(out.lines().collect::<Vec<_>>(), ["clerk: version 1"]);
    for said in ["helper: ", "odd: ", "unknown key; did you mean `model`?", "2 of 3 agents are not as the file says"] {
        assert!(err.contains(said), "{said} is not in {err}");
    }
    let (is_good, _, err) = cli.run(&["show", "nobody"]).await;
    assert!(!is_good && err.contains("nobody"), "{err}");
    let (is_good, _, err) = cli.run(&["diff", "missing.toml"]).await;
    assert!(!is_good && err.contains("missing.toml"), "{err}");
}

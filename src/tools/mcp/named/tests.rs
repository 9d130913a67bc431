//! Servers that requests name, with a real one behind.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{KeptNamed, NamedServers, NotOpened, RunServers};
use crate::config::RequestMcpConfig;
use crate::net::guard::Policy;
use crate::tools::mcp::McpServers;
use crate::tools::mcp::testing::{Listening, SOON};
use crate::tools::testing::context;
use crate::tools::{RegisteredTool, ToolSource, invoke};
use crate::types::named_server::NamedServer;
use crate::types::{RunId, ToolOutcome};

/// A process that opens servers of this machine at this port.
struct Process {
    _servers: McpServers,
    kept: KeptNamed,
    naming: NamedServers,
}

impl Process {
    fn new(port: u16, bounds: RequestMcpConfig) -> Self {
        let egress =
            Policy { ports: vec![port], private_addresses: vec!["127.0.0.0/8".parse().unwrap()], ..Policy::default() };
        let servers = McpServers::default();
        let kept = KeptNamed::beside(&servers);
        let bounds = RequestMcpConfig { allow_http: true, ..bounds };
        let naming = NamedServers::new(bounds, &egress, kept.clone()).unwrap();
        Self { _servers: servers, kept, naming }
    }

    fn of_run(&self, run: &RunId, server: &NamedServer) -> RunServers {
        RunServers::new(run.clone(), "acme/k".into(), vec![server.clone()].into(), Some(self.naming.clone()))
    }

    /// The tool as the server lists it for this run.
    async fn listed(&self, run: &RunId, server: &NamedServer, name: &str) -> Arc<RegisteredTool> {
        let opened = self.naming.open(run, &"acme/k".into(), server).unwrap();
        timeout(SOON, opened.first_try()).await.unwrap();
        let tools = opened.tools().unwrap_or_else(|| panic!("{:?}", opened.trouble()));
        tools.iter().find(|tool| tool.spec().name == name).unwrap().clone()
    }

    async fn until_none_is_open(&self) {
        let waiting = async {
            while self.kept.count() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SOON, waiting).await.unwrap();
    }
}

fn named(port: u16, headers: &[(&str, &str)]) -> NamedServer {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    NamedServer { label: "crm".to_owned(), url: format!("http://127.0.0.1:{port}/mcp"), headers, tools: None }
}

/// What comes of a call of a tool that the run was offered so.
async fn call(servers: &RunServers, offered: &RegisteredTool, arguments: Value) -> ToolOutcome {
    let effect = offered.spec().effect;
    let tool = servers.tool(offered.definition(), effect, offered.schema().clone()).expect("it is one of theirs");
    timeout(2 * SOON, invoke(tool, to_raw_value(&arguments).unwrap(), context(SOON))).await.unwrap()
}

#[tokio::test]
async fn each_run_has_a_session_of_its_own_that_ends_with_it() {
    let journal = tempfile::NamedTempFile::new().unwrap();
    let path = journal.path().display().to_string();
    let listening = Listening::start(&["--journal", &path, "--token", "sk-caller", "--quoted", "sk-caller"]).await;
    let process = Process::new(listening.port, RequestMcpConfig::default());
    let server = named(listening.port, &[("authorization", "Bearer sk-caller")]);
    let (one, other) = (RunId::mint(), RunId::mint());
    for run in [&one, &other] {
        let echo = process.listed(run, &server, "crm__echo").await;
        assert_eq!(echo.spec().effect, crate::types::Effect::Write, "what a server says of itself is not believed");
        assert_eq!(call(&process.of_run(run, &server), &echo, json!({"text": "hello"})).await.text(), "hello");
    }
    let sessions = |member: &str| -> Vec<String> {
        let lines = std::fs::read_to_string(&path).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter_map(|line| Some(line.pointer(member)?.as_str()?.to_owned())).collect()
    };
    let mut seen = sessions("/headers/mcp-session-id");
    seen.dedup();
    assert_eq!(seen.len(), 2, "{seen:?}");
    let quote = process.listed(&other, &server, "crm__quote").await;
    let quoted = call(&process.of_run(&other, &server), &quote, json!({})).await;
    assert_eq!((quoted.text(), process.kept.count()), ("with ***".into(), 2), "{quoted:?}");
    process.of_run(&one, &server).end();
    let ended = async {
        while sessions("/deleted").is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, ended).await.unwrap();
    assert_eq!((sessions("/deleted"), process.kept.count()), (seen[..1].to_vec(), 1));
}

#[tokio::test]
async fn another_process_opens_the_server_again_and_calls_only_what_the_run_was_offered() {
    let listening = Listening::start(&[]).await;
    let (first, second) = (
        Process::new(listening.port, RequestMcpConfig::default()),
        Process::new(listening.port, RequestMcpConfig::default()),
    );
    let (server, run) = (named(listening.port, &[]), RunId::mint());
    let (echo, change) =
        (first.listed(&run, &server, "crm__echo").await, first.listed(&run, &server, "crm__change").await);
    let there = second.of_run(&run, &server);
    assert_eq!(call(&there, &echo, json!({"text": "there"})).await.text(), "there");
    call(&there, &change, json!({})).await;
    let third = Process::new(listening.port, RequestMcpConfig::default());
    let changed = call(&third.of_run(&run, &server), &echo, json!({"text": "x"})).await;
    assert!(changed.is_error && changed.text().contains("has changed since"), "{changed:?}");
    let forbidden = RunServers::new(run, "acme/k".into(), vec![server].into(), None);
    let refused = call(&forbidden, &echo, json!({"text": "x"})).await;
    assert!(refused.text().contains("not reached any more"), "{refused:?}");
}

#[tokio::test]
async fn a_server_that_is_not_called_is_let_go_and_opened_again_by_the_next_call() {
    let listening = Listening::start(&[]).await;
    let bounds = RequestMcpConfig { idle: Duration::from_millis(200), ..RequestMcpConfig::default() };
    let process = Process::new(listening.port, bounds);
    let (server, run) = (named(listening.port, &[]), RunId::mint());
    let slow = process.listed(&run, &server, "crm__slow").await;
    let of_run = process.of_run(&run, &server);
    assert_eq!(call(&of_run, &slow, json!({"seconds": 1})).await.text(), "done", "a long call is not idle");
    process.until_none_is_open().await;
    assert_eq!(call(&of_run, &slow, json!({"seconds": 0})).await.text(), "done");
    process.until_none_is_open().await;
}

#[tokio::test]
async fn there_are_no_more_than_a_key_and_a_process_may_have() {
    let bounds = RequestMcpConfig { max_servers_of_key: 2, max_servers_of_process: 3, ..RequestMcpConfig::default() };
    let process = Process::new(9, bounds);
    let open = |owner: &str, run: &RunId| process.naming.open(run, &owner.into(), &named(9, &[])).map(drop);
    let runs = [RunId::mint(), RunId::mint(), RunId::mint(), RunId::mint()];
    assert_eq!((open("a/k", &runs[0]), open("a/k", &runs[1])), (Ok(()), Ok(())));
    assert_eq!(open("a/k", &runs[2]), Err(NotOpened::TooManyOfKey(2)));
    assert_eq!(open("a/k", &runs[1]), Ok(()), "it is open already");
    assert_eq!((open("b/k", &runs[2]), open("c/k", &runs[3])), (Ok(()), Err(NotOpened::TooMany(3))));
    process.naming.end(&runs[0]);
    assert_eq!(open("a/k", &runs[3]), Ok(()));
}

#[tokio::test]
async fn a_server_that_is_gone_or_leads_elsewhere_lists_nothing() {
    let listening = Listening::start(&["--token", "sk-right"]).await;
    let bounds = RequestMcpConfig { list_timeout: Duration::from_secs(5), ..RequestMcpConfig::default() };
    let process = Process::new(listening.port, bounds);
    let port = listening.port;
    let away = NamedServer { url: format!("http://127.0.0.1:{port}/away"), ..named(port, &[]) };
    let denied = named(port, &[("authorization", "Bearer sk-wrong")]);
    for (server, why) in [(away, "it redirects elsewhere"), (denied, "it answered HTTP 401")] {
        let opened = process.naming.open(&RunId::mint(), &"acme/k".into(), &server).unwrap();
        timeout(SOON, opened.first_try()).await.unwrap();
        let trouble = opened.trouble().unwrap();
        assert!(trouble.starts_with(why) && !trouble.contains("sk-"), "{trouble}");
    }
    // A name is checked when it is resolved, and the address is not told.
    let inside = NamedServer { url: format!("http://localhost.localdomain:{port}/mcp"), ..named(port, &[]) };
    let refused = process.naming.open(&RunId::mint(), &"acme/k".into(), &inside);
    let told = match refused {
        Ok(opened) => {
            timeout(SOON, opened.first_try()).await.unwrap();
            opened.trouble().unwrap()
        }
        Err(refused) => refused.to_string(),
    };
    assert!(!told.contains("127."), "{told}");
}
